"""What only a GPU can show: flash attention against the plain one, and training in bfloat16, compiled.

Runs without pytest, where there is none: ``PYTHONPATH=.:tests:tests/training python tests/training/gpu_checks.py``.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import torch
from training_files import config_for, greedy_samples, sample, silent, tiny_target, write_corpus

from workbench.training import attention
from workbench.training.compiled import Compiled
from workbench.training.packs import Spans, pack
from workbench.training.train import train

ATTENTION = attention.DraftAttention(Compiled(on=False))
GPU = torch.device("cuda")
HEADS, KV_HEADS, DIM, OWN = 9, 3, 64, 3


def relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found.float() - expected.float()).norm() / expected.float().norm())


def check_flash_attention() -> None:
    """Values and gradients on the GPU in bfloat16 against the CPU in float64, over sequences of several lengths."""
    lengths = ((40, 25), (7, 3), (300, 90), (129, 128), (2, 1))
    one = pack([sample([1] * n, p) for n, p in lengths], 7, frozenset(), torch.device("cpu"))
    rows, slots = sum(one.queries.lengths), sum(one.slots.lengths)
    torch.manual_seed(0)
    shapes = [(rows, HEADS), (slots, KV_HEADS), (slots, KV_HEADS), (OWN, rows, KV_HEADS), (OWN, rows, KV_HEADS)]
    inputs = [torch.randn(*shape, DIM).bfloat16() for shape in shapes]
    weight = torch.randn(rows, HEADS * DIM).bfloat16()
    for own in (False, True):
        found, expected = (_attend(inputs, weight, one.queries, one.slots, own, place) for place in (GPU, "cpu"))
        for name, mine, true in zip(("out", "q", "k", "v", "own k", "own v"), found, expected, strict=False):
            gap = relative(mine.cpu(), true)
            sys.stdout.write(f"own keys {own}, {name}: relative gap {gap:.2e}\n")
            assert gap < 2e-2, name
    assert attention._flash(inputs[0].to(GPU))


def _attend(
    inputs: list[torch.Tensor], weight: torch.Tensor, queries: Spans, keys: Spans, own: bool, place: object
) -> list[torch.Tensor]:
    device = torch.device(str(place))
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float64
    used = [x.to(device=device, dtype=dtype).requires_grad_() for x in inputs[: 5 if own else 3]]
    spans = [Spans(s.lengths, s.ends.to(device)) for s in (queries, keys)]
    out = ATTENTION(*used[:3], (used[3], used[4]) if own else None, *spans)
    grads = torch.autograd.grad((out * weight.to(device=device, dtype=dtype)).sum(), used)
    return [out.detach(), *grads]


def check_training() -> None:
    """A few steps of a tiny draft, compiled and not, in bfloat16 and float32."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        target = tiny_target(folder / "target", sureness=4)
        write_corpus(folder / "corpus", greedy_samples(target, 24))
        for dtype, compile_ in (("float32", False), ("bfloat16", False), ("bfloat16", True)):
            out = folder / f"{dtype}-{compile_}"
            keys = {"dtype": dtype, "compile": compile_, "device": "cuda", "steps": 30, "log_steps": 1}
            train(config_for(folder, out=str(out), **keys), resume=False, say=silent, overwrite=silent)
            curve = json.loads((out / "training.json").read_text())["curve"]
            sys.stdout.write(f"{dtype}, compiled {compile_}: loss {curve[0]['loss']:.3f} to {curve[-1]['loss']:.3f}\n")
            assert curve[-1]["loss"] < 0.8 * curve[0]["loss"]


if __name__ == "__main__":
    check_flash_attention()
    check_training()
