"""The measuring of speed itself, on a model of a few weights."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch", reason="training needs torch (extra: reference)")

import gpu_speed
import torch

SMALL = replace(
    gpu_speed.SMOLLM2,
    hidden_size=16,
    intermediate_size=16,
    num_layers=3,
    num_heads=2,
    num_kv_heads=1,
    head_dim=8,
    vocab_size=64,
)


def test_a_line_for_each_kind_of_epoch(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_speed, "CAPTURE", (1, 2, 3))
    way = gpu_speed.Way(compile=False, flash=False, steps=2)
    gpu_speed.measure(SMALL, torch.device("cpu"), tokens=300, kept=16, ways=[way])
    first, read, kept, loss = capsys.readouterr().out.splitlines()
    assert first.startswith("compile False, flash False: first 5 steps")
    assert read.startswith("  target read: host ") and kept.startswith("  states kept: host ")
    # 16 ids of one weight each: the loss begins at ln 16 = 2.77.
    assert float(loss.split()[1]) == pytest.approx(2.77, abs=0.1)
