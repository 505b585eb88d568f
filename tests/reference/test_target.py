from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the engine needs torch (extra: reference)")

import numpy as np
import torch
from naive_llama import target_states
from tiny_models import WIDTH, as_numpy, target_config, target_tensors, write_model

from workbench.drafter.layers import causal_mask
from workbench.errors import CheckpointError
from workbench.reference.target import Target, load_target

CPU = torch.device("cpu")
IDS = [1, 7, 3, 3, 11, 0, 5]


def load(tmp_path: Path, **changes: object) -> tuple[Target, dict[str, object], dict[str, torch.Tensor]]:
    config = target_config(**changes)
    tensors = target_tensors(config)
    if config["tie_word_embeddings"]:
        del tensors["lm_head.weight"]
    return load_target(write_model(tmp_path / "t", config, tensors), dtype=torch.float64, device=CPU), config, tensors


def run(target: Target, pieces: list[list[int]], capture: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits and captured states of ids that come in pieces, through the cache."""
    cache, rope, start = target.new_cache(32), target.rope(32), 0
    logits, states = [], []
    for ids in pieces:
        mask = causal_mask(len(ids), start, dtype=torch.float64, device=CPU)
        where = rope.at(slice(start, start + len(ids)))
        normed, features = target.forward(torch.tensor(ids), cache, start, rope=where, mask=mask, capture=capture)
        logits.append(target.logits(normed))
        states.append(features)
        start += len(ids)
    return torch.cat(logits), torch.cat(states)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("pieces", [[IDS], [IDS[:3], IDS[3:]], [[i] for i in IDS]])
def test_logits_and_captured_states_are_those_of_the_formula(
    tmp_path: Path, tied: bool, pieces: list[list[int]]
) -> None:
    target, config, tensors = load(tmp_path, tie_word_embeddings=tied)
    logits, features = run(target, pieces, (1, 2, 5))
    states, expected = target_states(as_numpy(tensors), config, IDS)
    assert torch.allclose(logits, torch.from_numpy(expected), atol=1e-4)
    for place, layer in enumerate((1, 2, 5)):
        found = features[:, place * WIDTH : (place + 1) * WIDTH]
        assert torch.allclose(found, torch.from_numpy(np.array(states[layer])), atol=1e-4)


def test_without_capture_the_normed_state_is_handed_out(tmp_path: Path) -> None:
    target, _, _ = load(tmp_path)
    logits, features = run(target, [IDS], ())
    assert torch.equal(target.logits(features), logits)


def test_rows_of_the_cache_can_be_moved_together(tmp_path: Path) -> None:
    target, _, _ = load(tmp_path)
    cache = target.new_cache(8)
    cache.keys.copy_(torch.arange(8.0).reshape(1, 1, 8, 1).expand_as(cache.keys))
    cache.values.copy_(cache.keys)
    cache.gather(2, torch.tensor([0, 2, 5]))
    assert cache.keys[0, 0, :, 0].tolist() == [0, 1, 2, 4, 7, 5, 6, 7]
    assert torch.equal(cache.keys, cache.values)


@pytest.mark.parametrize(
    ("change", "tensor", "named"),
    [
        ({"architectures": ["Qwen2ForCausalLM"]}, None, "LlamaForCausalLM"),
        ({}, "model.norm.weight", "model.norm.weight is missing"),
        ({"intermediate_size": 25}, None, r"gate_proj.weight is of shape \[24, 16\], not \[25, 16\]"),
    ],
)
def test_a_folder_that_does_not_fit_is_named(
    tmp_path: Path, change: dict[str, object], tensor: str | None, named: str
) -> None:
    config = target_config()
    tensors = target_tensors(config)
    tensors.pop(tensor or "", None)
    folder = write_model(tmp_path / "t", {**config, **change}, tensors)
    with pytest.raises(CheckpointError, match=named):
        load_target(folder, dtype=torch.float32, device=CPU)
