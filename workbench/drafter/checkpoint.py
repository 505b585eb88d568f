"""Draft checkpoints in SGLang's format: exactly the tensors that its loader takes, no others and none missing.

SGLang skips a name it does not know without a word and leaves a missing tensor as it happens to be; here both are
errors. ``d2t`` holds offsets: target id = draft id + ``d2t[draft id]``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save
from torch import Tensor

from workbench.checkpoint import Checkpoint, read_checkpoint
from workbench.drafter.model import DraftConfig, Eagle3Draft
from workbench.drafter.shape import LlamaShape, read_shape
from workbench.errors import CheckpointError
from workbench.files import replacing

DRAFT_CLASS = "LlamaForCausalLMEagle3"
_UNSUPPORTED = ("fc_norm", "use_aux_norm", "norm_output", "norm_before_fc", "bias")
_OPTIONAL = frozenset({"t2d", "embed_tokens.weight"})
_PLAIN = {
    "fc": "fc.weight",
    "input_layernorm": "midlayer.input_layernorm.weight",
    "hidden_norm": "midlayer.hidden_norm.weight",
    "o_proj": "midlayer.self_attn.o_proj.weight",
    "post_attention_layernorm": "midlayer.post_attention_layernorm.weight",
    "down_proj": "midlayer.mlp.down_proj.weight",
    "norm": "norm.weight",
    "lm_head": "lm_head.weight",
}
_FUSED = {
    "qkv_proj": tuple(f"midlayer.self_attn.{name}_proj.weight" for name in "qkv"),
    "gate_up_proj": tuple(f"midlayer.mlp.{name}_proj.weight" for name in ("gate", "up")),
}
_EXPORT = "export it again with the tensors that SGLang's LlamaForCausalLMEagle3 loads"


def load_draft(folder: Path, *, dtype: torch.dtype, device: torch.device) -> Eagle3Draft:
    """The draft of a folder, ready to run.

    Raises
    ------
    CheckpointError
        When the folder is no EAGLE-3 draft of one plain Llama layer, or its tensors are not exactly those it needs.
    """
    checkpoint = read_checkpoint(folder)
    config = read_draft_config(checkpoint)
    draft = Eagle3Draft(config)
    tensors = _read_tensors(checkpoint)
    _check_names(tensors, folder)
    with torch.no_grad():
        for name, source in _PLAIN.items():
            _copy(draft.get_parameter(name), tensors[source], source, folder)
        for name, sources in _FUSED.items():
            _copy(draft.get_parameter(name), torch.cat([tensors[source] for source in sources]), name, folder)
    draft.target_ids.copy_(_target_ids(tensors.get("d2t"), config, folder))
    return draft.to(dtype=dtype, device=device)


def read_draft_config(checkpoint: Checkpoint) -> DraftConfig:
    config, where = checkpoint.text_config, checkpoint.path / "config.json"
    classes = config.get("architectures")
    if not isinstance(classes, list) or DRAFT_CLASS not in classes:
        raise CheckpointError(f"its class is {classes!r}, not {DRAFT_CLASS}", where=where, next_step=_EXPORT)
    shape = read_shape(config, where)
    if shape.num_layers != 1:
        raise CheckpointError(f"{shape.num_layers} layers, not 1", where=where, next_step=_EXPORT)
    used = [key for key in _UNSUPPORTED if config.get(key)]
    if used or config.get("tie_word_embeddings"):
        named = ", ".join(used) or "tie_word_embeddings"
        raise CheckpointError(f"{named} is not supported here", where=where, next_step=_EXPORT)
    if config.get("target_hidden_size", shape.hidden_size) != shape.hidden_size:
        raise CheckpointError("its width is not its target's", where=where, next_step="use a draft of the same width")
    eagle = config.get("eagle_config")
    ids = eagle.get("eagle_aux_hidden_state_layer_ids") if isinstance(eagle, dict) else None
    capture_ids = tuple(ids) if isinstance(ids, list) and ids and all(type(i) is int for i in ids) else None
    draft_vocab = config.get("draft_vocab_size", shape.vocab_size)
    if type(draft_vocab) is not int or not 1 <= draft_vocab <= shape.vocab_size:
        raise CheckpointError(f"draft_vocab_size is {draft_vocab!r}", where=where, next_step=_EXPORT)
    return DraftConfig(shape, draft_vocab, len(capture_ids or (0, 0, 0)), capture_ids)


def save_draft(draft: Eagle3Draft, folder: Path, *, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write a folder that SGLang serves: ``model.safetensors`` and ``config.json``, each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    config = draft.config
    tensors = {source: draft.get_parameter(name).to(dtype) for name, source in _PLAIN.items()}
    for name, sources in _FUSED.items():
        fused = draft.get_parameter(name).to(dtype)
        sizes = _qkv_rows(config.shape) if name == "qkv_proj" else [config.shape.intermediate_size] * 2
        tensors |= dict(zip(sources, fused.split(sizes), strict=True))
    target_ids = draft.target_ids.long().cpu()
    tensors["d2t"] = target_ids - torch.arange(len(target_ids))
    tensors["t2d"] = torch.zeros(config.shape.vocab_size, dtype=torch.bool).index_fill(0, target_ids, True)
    written = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with replacing(folder / "model.safetensors") as temporary:
        temporary.write_bytes(save(written, {"format": "pt"}))
    text = json.dumps(_config_json(config, dtype), indent=1)
    with replacing(folder / "config.json") as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


# ---- reading -------------------------------------------------------------------------------------------------------


def _read_tensors(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """Tensors under the names that `save_draft` writes; SGLang accepts ``model.`` and ``layers.0.`` too."""
    tensors: dict[str, Tensor] = {}
    for file in sorted({info.file for info in checkpoint.tensors.values()}):
        for name, tensor in load_file(os.fspath(file)).items():
            tensors[name.removeprefix("model.").replace("layers.0.", "midlayer.", 1)] = tensor
    return tensors


def _check_names(tensors: Mapping[str, Tensor], folder: Path) -> None:
    needed = {*_PLAIN.values(), *(name for names in _FUSED.values() for name in names)}
    missing = sorted(needed - tensors.keys())
    unknown = sorted(tensors.keys() - needed - _OPTIONAL - {"d2t"})
    if missing or unknown:
        raise CheckpointError(
            f"missing tensors: {', '.join(missing) or 'none'}; unknown tensors: {', '.join(unknown) or 'none'}",
            where=folder,
            next_step=_EXPORT,
        )


def _copy(parameter: Tensor, tensor: Tensor, name: str, folder: Path) -> None:
    if tensor.shape != parameter.shape:
        raise CheckpointError(
            f"{name} has shape {list(tensor.shape)}, the config asks for {list(parameter.shape)}",
            where=folder,
            next_step=_EXPORT,
        )
    parameter.copy_(tensor)


def _target_ids(d2t: Tensor | None, config: DraftConfig, folder: Path) -> Tensor:
    size, vocab = config.draft_vocab_size, config.shape.vocab_size
    if d2t is None:
        if size != vocab:
            raise CheckpointError("a cut vocabulary without d2t", where=folder, next_step=_EXPORT)
        return torch.arange(size)
    ids = d2t.long() + torch.arange(len(d2t))
    if len(ids) != size or bool((ids < 0).any()) or bool((ids >= vocab).any()):
        raise CheckpointError("d2t does not map into the target's vocabulary", where=folder, next_step=_EXPORT)
    return ids


# ---- writing -------------------------------------------------------------------------------------------------------


def _qkv_rows(shape: LlamaShape) -> list[int]:
    return [shape.num_heads * shape.head_dim, *(2 * [shape.num_kv_heads * shape.head_dim])]


def _config_json(config: DraftConfig, dtype: torch.dtype) -> dict[str, object]:
    shape = config.shape
    scaling = {"rope_type": "llama3", **shape.rope_scaling} if shape.rope_scaling else {"rope_type": "default"}
    eagle: dict[str, object] = {"use_aux_hidden_state": True}
    if config.capture_ids is not None:
        eagle["eagle_aux_hidden_state_layer_ids"] = list(config.capture_ids)
    return {
        "architectures": [DRAFT_CLASS],
        "model_type": "llama",
        "attention_bias": False,
        "draft_vocab_size": config.draft_vocab_size,
        "dtype": str(dtype).removeprefix("torch."),
        "eagle_config": eagle,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "max_position_embeddings": shape.max_position_embeddings,
        "mlp_bias": False,
        "num_attention_heads": shape.num_heads,
        "num_hidden_layers": 1,
        "num_key_value_heads": shape.num_kv_heads,
        "rms_norm_eps": shape.rms_norm_eps,
        # Both spellings: releases of transformers and SGLang read one or the other.
        "rope_parameters": {"rope_theta": shape.rope_theta, **scaling},
        "rope_theta": shape.rope_theta,
        "tie_word_embeddings": False,
        "vocab_size": shape.vocab_size,
    }
