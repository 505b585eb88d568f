"""The sizes of a Llama, target or draft, read from its ``config.json``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from workbench.errors import CheckpointError

_ROPE_TYPES = ("default", "llama3")
_PLAIN_LLAMA = "use a checkpoint of the plain Llama architecture"


@dataclass(frozen=True, slots=True)
class LlamaShape:
    """``rope_scaling`` holds the keys of a llama3 scaling and is empty for plain RoPE."""

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: Mapping[str, float]

    @property
    def inverse_frequencies(self) -> list[float]:
        """Rotations per position and pair of dimensions, slowed down where the config says so (Llama 3.1)."""
        half = self.head_dim // 2
        return [self._scaled(self.rope_theta ** (-i / half)) for i in range(half)]

    def _scaled(self, frequency: float) -> float:
        if not self.rope_scaling:
            return frequency
        scaling = self.rope_scaling
        turns = scaling["original_max_position_embeddings"] * frequency / (2 * math.pi)
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        smooth = min(1.0, max(0.0, (turns - low) / (high - low)))
        return frequency * (smooth + (1 - smooth) / scaling["factor"])


def read_shape(config: Mapping[str, object], where: Path) -> LlamaShape:
    """Sizes from a config.

    Raises
    ------
    CheckpointError
        When a size is missing or no positive number, or the config asks for what is not computed here: biases, another
        activation, another RoPE than plain and llama3.
    """
    hidden = _positive(config, "hidden_size", where)
    heads = _positive(config, "num_attention_heads", where)
    theta, scaling = _rope(config, where)
    _refuse_variants(config, where)
    shape = LlamaShape(
        hidden_size=hidden,
        intermediate_size=_positive(config, "intermediate_size", where),
        num_layers=_positive(config, "num_hidden_layers", where),
        num_heads=heads,
        num_kv_heads=_positive(config, "num_key_value_heads", where, heads),
        head_dim=_positive(config, "head_dim", where, hidden // heads),
        vocab_size=_positive(config, "vocab_size", where),
        max_position_embeddings=_positive(config, "max_position_embeddings", where),
        rms_norm_eps=_number(config, "rms_norm_eps", where, 1e-6),
        rope_theta=theta,
        rope_scaling=scaling,
    )
    if shape.num_heads % shape.num_kv_heads or shape.head_dim % 2:
        raise CheckpointError("its attention heads do not divide evenly", where=where, next_step=_PLAIN_LLAMA)
    return shape


def _refuse_variants(config: Mapping[str, object], where: Path) -> None:
    for key in ("attention_bias", "mlp_bias", "quantization_config"):
        if config.get(key):
            raise CheckpointError(f"{key} is not supported here", where=where, next_step=_PLAIN_LLAMA)
    if config.get("hidden_act", "silu") != "silu":
        raise CheckpointError("hidden_act is not silu", where=where, next_step=_PLAIN_LLAMA)


def _rope(config: Mapping[str, object], where: Path) -> tuple[float, dict[str, float]]:
    """Base and scaling: ``rope_parameters`` in new configs, ``rope_theta`` and ``rope_scaling`` in older ones."""
    found = config.get("rope_parameters") or config.get("rope_scaling") or {}
    parameters: Mapping[str, object] = found if isinstance(found, dict) else {}
    theta = _number({**config, **parameters}, "rope_theta", where, 10000.0)
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    if kind not in _ROPE_TYPES:
        raise CheckpointError(f"RoPE of type {kind!r} is not supported here", where=where, next_step=_PLAIN_LLAMA)
    if kind == "default":
        return theta, {}
    keys = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    return theta, {key: _number(parameters, key, where) for key in keys}


def _positive(config: Mapping[str, object], key: str, where: Path, default: int | None = None) -> int:
    value = config.get(key)
    value = default if value is None else value
    if type(value) is not int or value < 1:
        raise CheckpointError(f"{key} is {value!r}, not a positive number", where=where, next_step=_PLAIN_LLAMA)
    return value


def _number(config: Mapping[str, object], key: str, where: Path, default: float | None = None) -> float:
    value = config.get(key)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise CheckpointError(f"{key} is {value!r}, not a positive number", where=where, next_step=_PLAIN_LLAMA)
    return float(value)
