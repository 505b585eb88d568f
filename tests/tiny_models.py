"""Tiny random targets and drafts in Hugging Face's and SGLang's folder formats. Needs torch and safetensors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from naive_llama import Array
from safetensors.torch import save_file

WIDTH, INNER, HEADS, KV_HEADS, HEAD_DIM = 16, 24, 4, 2, 4
TOKENS = 260
_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"

BASE: dict[str, Any] = {
    "model_type": "llama",
    "dtype": "float32",
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
}


def target_config(*, vocab: int = 12, layers: int = 5, **changes: object) -> dict[str, Any]:
    named = {"architectures": ["LlamaForCausalLM"], "vocab_size": vocab, "num_hidden_layers": layers, "eos_token_id": 0}
    return {**BASE, **named, **changes}


def draft_config(*, vocab: int = 12, draft_vocab: int = 9, **changes: object) -> dict[str, Any]:
    named = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "vocab_size": vocab,
        "draft_vocab_size": draft_vocab,
        "num_hidden_layers": 1,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 3], "use_aux_hidden_state": True},
    }
    return {**BASE, **named, **changes}


def target_tensors(config: Mapping[str, Any], seed: int = 0) -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    vocab, rows, kv_rows = config["vocab_size"], HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    shapes = {
        "model.embed_tokens.weight": (vocab, WIDTH),
        "model.norm.weight": (WIDTH,),
        "lm_head.weight": (vocab, WIDTH),
    }
    for i in range(config["num_hidden_layers"]):
        name = f"model.layers.{i}."
        shapes |= {f"{name}{norm}_layernorm.weight": (WIDTH,) for norm in ("input", "post_attention")}
        shapes |= {
            f"{name}self_attn.{p}_proj.weight": (n, WIDTH) for p, n in (("q", rows), ("k", kv_rows), ("v", kv_rows))
        }
        shapes |= {f"{name}self_attn.o_proj.weight": (WIDTH, rows), f"{name}mlp.down_proj.weight": (WIDTH, INNER)}
        shapes |= {f"{name}mlp.{p}_proj.weight": (INNER, WIDTH) for p in ("gate", "up")}
    return _random(shapes, random)


def draft_tensors(config: Mapping[str, Any], seed: int = 1) -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    vocab, size, rows, kv_rows = config["vocab_size"], config["draft_vocab_size"], HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    norms = ("midlayer.input_layernorm", "midlayer.hidden_norm", "midlayer.post_attention_layernorm", "norm")
    shapes: dict[str, tuple[int, ...]] = {f"{name}.weight": (WIDTH,) for name in norms}
    shapes |= {"fc.weight": (WIDTH, 3 * WIDTH), "lm_head.weight": (size, WIDTH)}
    for p, n in (("q", rows), ("k", kv_rows), ("v", kv_rows)):
        shapes[f"midlayer.self_attn.{p}_proj.weight"] = (n, 2 * WIDTH)
    shapes["midlayer.self_attn.o_proj.weight"] = (WIDTH, rows)
    shapes["midlayer.mlp.down_proj.weight"] = (WIDTH, INNER)
    shapes |= {f"midlayer.mlp.{p}_proj.weight": (INNER, WIDTH) for p in ("gate", "up")}
    tensors = _random(shapes, random)
    ids = torch.randperm(vocab, generator=random)[:size].sort().values
    tensors["d2t"] = ids - torch.arange(size)
    tensors["t2d"] = torch.zeros(vocab, dtype=torch.bool).index_fill(0, ids, True)
    return tensors


def _random(shapes: Mapping[str, tuple[int, ...]], random: torch.Generator) -> dict[str, torch.Tensor]:
    """Norms around 1, matrices large enough that every part of a layer shows in the logits."""
    return {
        name: 1 + 0.3 * torch.randn(shape, generator=random)
        if len(shape) == 1
        else torch.randn(shape, generator=random) * 0.35
        for name, shape in shapes.items()
    }


def write_model(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(dict(tensors), str(folder / "model.safetensors"))
    return folder


def as_numpy(tensors: Mapping[str, torch.Tensor]) -> dict[str, Array]:
    return {name: np.asarray(t.double().numpy()) for name, t in tensors.items() if t.is_floating_point()}


def write_tokenizer(folder: Path) -> None:
    """One id a byte, and four that no text has: `TOKENS` in all."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    names = [*(f"<{number}>" for number in range(TOKENS - 256)), *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=[], unk_token="<0>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": _TEMPLATE}))
