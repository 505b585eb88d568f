"""What only a GPU can show: flash attention against the plain one, training in bfloat16, compiled; and how fast.

Runs without pytest, where there is none:
``PYTHONPATH=.:tests:tests/training python3 tests/training/gpu_checks.py [--speed]``. The checks take
about a minute, most of it compiling, and end with a line for each; ``--speed`` measures steps of SmolLM2-135M's shape.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import gpu_speed
import torch
from training_files import config_for, greedy_samples, sample, silent, tiny_target, write_corpus

from workbench.training import attention
from workbench.training.compiled import Compiled
from workbench.training.packs import Spans, pack
from workbench.training.train import train

ATTENTION = attention.DraftAttention(Compiled(on=False))
GPU = torch.device("cuda")
HEADS, KV_HEADS, DIM, OWN = 9, 3, 64, 3


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


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
            say(f"own keys {own}, {name}: relative gap {gap:.2e}")
            assert gap < 2e-2, name
    assert attention._flash(inputs[0].to(GPU))


def _attend(
    inputs: list[torch.Tensor], weight: torch.Tensor, queries: Spans, keys: Spans, own: bool, place: object
) -> list[torch.Tensor]:
    device = torch.device(str(place))
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float64
    used = [x.to(device=device, dtype=dtype).requires_grad_() for x in inputs[: 5 if own else 3]]
    spans = [Spans(s.lengths, s.ends.to(device)) for s in (queries, keys)]
    q, k, v = used[:3]
    out = ATTENTION(q, k, v, (used[3], used[4]) if own else None, spans[0], spans[1])
    grads = torch.autograd.grad((out * weight.to(device=device, dtype=dtype)).sum(), used)
    return [out.detach(), *grads]


def check_training() -> None:
    """A tiny draft learns in bfloat16 and float32; with float32 as on a CPU, and compiled as it does otherwise."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        target = tiny_target(folder / "target", sureness=4)
        write_corpus(folder / "corpus", greedy_samples(target, 24))
        ways = [("cpu", "float32", False), ("cuda", "float32", False), ("cuda", "bfloat16", False)]
        curves = [_losses(folder, *way) for way in [*ways, ("cuda", "bfloat16", True)]]
    for losses in curves:
        assert losses[-1] < 0.8 * losses[0]
    for one, other, gap in ((0, 1, 1e-3), (1, 2, 0.05), (2, 3, 0.02)):
        assert abs(curves[one][0] / curves[other][0] - 1) < gap, (one, other, curves[one][0], curves[other][0])


def _losses(folder: Path, device: str, dtype: str, compile_: bool) -> list[float]:
    out, began = folder / f"{device}-{dtype}-{compile_}", time.monotonic()
    keys = {"dtype": dtype, "compile": compile_, "device": device, "steps": 30, "log_steps": 1}
    train(config_for(folder, out=str(out), **keys), resume=False, say=silent, overwrite=silent)
    losses = [line["loss"] for line in json.loads((out / "training.json").read_text())["curve"]]
    seconds = time.monotonic() - began
    say(f"{device}, {dtype}, compiled {compile_}: loss {losses[0]:.3f} to {losses[-1]:.3f} in {seconds:.0f} s")
    return losses


def main(checks: tuple[Callable[[], None], ...]) -> int:
    verdicts = []
    for check in checks:
        try:
            check()
            verdicts.append(f"OK      {check.__name__}")
        except Exception:  # noqa: BLE001 - the others are to be seen, too
            traceback.print_exc()
            verdicts.append(f"FAILED  {check.__name__}")
    say("\n".join(verdicts))
    return int(any(verdict.startswith("FAILED") for verdict in verdicts))


if __name__ == "__main__":
    if not torch.cuda.is_available():
        sys.exit("PyTorch sees no GPU")
    sys.exit(main((gpu_speed.measure,) if "--speed" in sys.argv else (check_flash_attention, check_training)))
