"""Feature files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="the embedded engine needs torch (extra: reference)")

import torch
from specforge_files import EOS, SAMPLES, read_features, write_target

from workbench.reference.target import load_target
from workbench.specforge.features import write_features, write_vocabulary

CPU = torch.device("cpu")


def nothing(_: str) -> None:
    pass


def test_files_hold_what_the_target_computes(tmp_path: Path) -> None:
    target = load_target(write_target(tmp_path / "t"), dtype=torch.float32, device=CPU)
    paths = [tmp_path / f"{i}.ckpt" for i in range(len(SAMPLES))]
    write_features(target, SAMPLES, paths, capture=(0, 1, 3), mask="shifted", dtype=torch.float32, say=nothing)
    for sample, path in zip(SAMPLES, paths, strict=True):
        held = read_features(path)
        ids = torch.from_numpy(sample.ids.astype(np.int64))
        count, width = len(ids), target.shape.hidden_size
        rope = target.rope(64).at(torch.arange(count))
        causal = torch.full((count, count), float("-inf")).triu(1)
        # One sequence at a time through the engine's own pass; the output of layer i enters layer i + 1.
        normed, captured = target.forward(ids, target.new_cache(64), 0, rope=rope, mask=causal, capture=(1, 2, 4))
        assert torch.equal(held["input_ids"], ids)
        assert held["aux_hidden_state"].shape == (1, count, 3 * width)
        torch.testing.assert_close(held["aux_hidden_state"][0], captured, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(held["hidden_state"][0], normed, rtol=1e-4, atol=1e-4)
        assert held["loss_mask"].dtype == torch.int64
        assert held["loss_mask"][sample.prompt_tokens - 1] == 1
    assert EOS in target.eos_token_ids
    # A piece of a batch is saved as itself, not with the batch.
    assert paths[1].stat().st_size < 20_000


def test_files_that_are_there_are_kept(tmp_path: Path) -> None:
    target = load_target(write_target(tmp_path / "t"), dtype=torch.float32, device=CPU)
    paths = [tmp_path / "a.ckpt", tmp_path / "b.ckpt"]
    paths[0].write_bytes(b"mine")
    write_features(target, SAMPLES[:2], paths, capture=(0, 1, 3), mask="plain", dtype=torch.bfloat16, say=nothing)
    assert paths[0].read_bytes() == b"mine"
    assert read_features(paths[1])["aux_hidden_state"].dtype == torch.bfloat16


def test_the_vocabulary_map(tmp_path: Path) -> None:
    write_vocabulary(np.array([0, 2, 5]), 6, tmp_path / "v.pt")
    held = torch.load(tmp_path / "v.pt", weights_only=True)
    assert held["d2t"].tolist() == [0, 1, 3]
    assert held["t2d"].tolist() == [True, False, True, False, False, True]
    assert (held["d2t"].dtype, held["t2d"].dtype) == (torch.int64, torch.bool)
