from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the tiny models need torch (extra: reference)")

from tiny_models import target_config

from workbench.drafter.shape import read_shape
from workbench.errors import CheckpointError

HERE = Path("config.json")


def test_sizes_and_their_defaults() -> None:
    config = {**target_config(), "head_dim": None, "num_key_value_heads": None}
    shape = read_shape(config, HERE)
    assert (shape.head_dim, shape.num_kv_heads, shape.rope_theta) == (4, 4, 10000.0)


def test_rope_parameters_win_over_the_old_key() -> None:
    config = {**target_config(), "rope_parameters": {"rope_type": "default", "rope_theta": 500000}}
    assert read_shape(config, HERE).rope_theta == 500000.0


def test_llama3_scaling_slows_long_waves_only() -> None:
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    config = {**target_config(), "head_dim": 128, "rope_theta": 500000.0, "rope_scaling": scaling}
    shape = read_shape(config, HERE)
    plain = replace(shape, rope_scaling={}).inverse_frequencies
    scaled = shape.inverse_frequencies
    # A wave that turns 4 times or more within the original length stays; one of less than a turn is slowed 8 times.
    turns = [8192 * f / (2 * math.pi) for f in plain]
    for before, after, turn in zip(plain, scaled, turns, strict=True):
        if turn >= 4:
            assert after == before
        elif turn <= 1:
            assert after == pytest.approx(before / 8)
        else:
            smooth = (turn - 1) / 3
            assert after == pytest.approx((1 - smooth) * before / 8 + smooth * before)
    assert min(turns) < 1 < 4 < max(turns)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"hidden_size": 0}, "hidden_size"),
        ({"hidden_size": True}, "hidden_size"),
        ({"num_hidden_layers": "5"}, "num_hidden_layers"),
        ({"vocab_size": None}, "vocab_size"),
        ({"rms_norm_eps": -1}, "rms_norm_eps"),
        ({"attention_bias": True}, "attention_bias"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4}}, "yarn"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "factor"),
        ({"num_key_value_heads": 3}, "evenly"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantization_config"),
    ],
)
def test_what_is_not_computed_here_is_refused_by_name(change: dict[str, object], named: str) -> None:
    with pytest.raises(CheckpointError, match=named):
        read_shape({**target_config(), **change}, HERE)
