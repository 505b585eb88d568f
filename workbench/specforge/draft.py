"""The draft's config for SpecForge, from the target's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workbench.checkpoint import Checkpoint
from workbench.errors import CheckpointError, UsageError
from workbench.sglang_rules.capture import captured_layers

DRAFT_CLASS = "LlamaForCausalLMEagle3"
_NEEDED = ("hidden_size", "intermediate_size", "num_attention_heads", "vocab_size", "max_position_embeddings")
_TAKEN = (
    *_NEEDED,
    *("num_key_value_heads", "head_dim", "rms_norm_eps", "hidden_act", "initializer_range"),
    *("rope_theta", "rope_scaling", "rope_parameters", "bos_token_id", "eos_token_id", "pad_token_id"),
)
# Means a norm before the head to SpecForge 0.2.0 (on unless switched off), and to SGLang that the normed state is
# passed on (SpecForge PR 879): a draft of the former must not carry it.
NEVER = "norm_output"


def draft_config(
    target: Checkpoint, *, vocab_size: int, capture: Sequence[int], dtype: str, changes: Mapping[str, Any]
) -> dict[str, Any]:
    """config.json of a draft of one Llama layer.

    Parameters
    ----------
    vocab_size
        The draft's own.
    changes
        Keys to take instead of the target's.

    Raises
    ------
    UsageError, CheckpointError
        When a size is missing, or ``changes`` name what must not be there.
    """
    if NEVER in changes:
        raise UsageError(
            f"{NEVER} means something else to SGLang than to the trainer", where="draft", next_step="leave it out"
        )
    stated = target.text_config
    made: dict[str, Any] = {key: stated[key] for key in _TAKEN if stated.get(key) is not None} | dict(changes)
    missing = [key for key in _NEEDED if key not in made]
    if missing:
        raise CheckpointError(
            f"{', '.join(missing)} not stated",
            where=target.path / "config.json",
            next_step="say it under `draft` in the order",
        )
    _both_ropes(made)
    return made | {
        "architectures": [DRAFT_CLASS],
        "model_type": "llama",
        "attention_bias": False,
        "mlp_bias": False,
        "draft_vocab_size": vocab_size,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": list(capture), "use_aux_hidden_state": True},
        "hidden_act": made.get("hidden_act", "silu"),
        "num_hidden_layers": 1,
        "num_key_value_heads": made.get("num_key_value_heads", made["num_attention_heads"]),
        "tie_word_embeddings": False,
        "torch_dtype": dtype,
        "use_cache": True,
    }


def _both_ropes(config: dict[str, Any]) -> None:
    """Releases of transformers and SGLang read ``rope_theta`` or ``rope_parameters``; both are stated where one is."""
    parameters = config.get("rope_parameters")
    if isinstance(parameters, dict) and "rope_theta" in parameters:
        config.setdefault("rope_theta", parameters["rope_theta"])
    elif "rope_theta" in config:
        scaling = config.get("rope_scaling") or {"rope_type": "default"}
        config["rope_parameters"] = {"rope_theta": config["rope_theta"], **scaling}


def target_class(target: Checkpoint) -> str:
    classes = target.config.get("architectures")
    return str(classes[0]) if isinstance(classes, list) and classes else ""


def num_layers(target: Checkpoint) -> int:
    """Layers of a target.

    Raises
    ------
    CheckpointError
        When its config does not say.
    """
    found = target.text_config.get("num_hidden_layers")
    if type(found) is not int or found < 1:
        raise CheckpointError("num_hidden_layers not stated", where=target.path / "config.json")
    return found


def capture_ids(target: Checkpoint, asked: Sequence[int] | None) -> tuple[int, ...]:
    """0-based layers whose output is captured: those asked for, else SGLang's default written down.

    Raises
    ------
    UsageError
        When the target has no such layer.
    """
    layers = num_layers(target)
    # The default names inputs of layers; for most classes and for ids that begin with 1 an id is an output.
    ids = tuple(asked) if asked is not None else tuple(i - 1 for i in captured_layers("llama", None, layers))
    if len(set(ids)) != len(ids) or not all(0 <= i < layers for i in ids):
        raise UsageError(
            f"layers {list(ids)} cannot be captured of a target with {layers}",
            where="capture",
            next_step="name three different layers of the target, such as [1, 14, 26]",
        )
    return ids
