"""How fast training steps of SmolLM2-135M's shape are: random weights, 7 passes, 16,384 ids, 16,384 tokens a step.

Two times a step: ``host``, in which it is handed to the GPU, and ``step``, until the GPU is done with it. Where both
are the same, the GPU waits for the host.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from workbench.drafter.model import DraftConfig, Eagle3Draft
from workbench.drafter.shape import LlamaShape
from workbench.reference.target import Layer, Target
from workbench.training import attention
from workbench.training.compiled import Compiled
from workbench.training.config import TrainConfig
from workbench.training.cost import peak_flops, step_flops
from workbench.training.parts import Sample
from workbench.training.processes import Processes
from workbench.training.setup import Setup
from workbench.training.step import Stepper

SMOLLM2 = LlamaShape(576, 1536, 30, 9, 3, 64, 49152, 8192, 1e-5, 1e5, {})
CAPTURE_IDS, CAPTURE = (1, 14, 26), (2, 15, 27)
TOKENS, PASSES, KEPT, STEPS, WARM = 16384, 7, 16384, 30, 5


@dataclass(frozen=True)
class Way:
    compile: bool
    flash: bool
    steps: int = STEPS


def measure(
    shape: LlamaShape = SMOLLM2,
    device: torch.device | None = None,
    *,
    tokens: int = TOKENS,
    kept: int = KEPT,
    ways: Sequence[Way] = (Way(False, True), Way(True, True), Way(False, False, 3)),
) -> None:
    """Print a line for each way: with the target read in every step, and with its states kept from an epoch before."""
    place = device or torch.device("cuda")
    dtype = torch.bfloat16 if place.type == "cuda" else torch.float32
    if place.type == "cuda":
        free, total = torch.cuda.mem_get_info()
        say(f"{torch.cuda.get_device_name()}: {free / 1e9:.0f} of {total / 1e9:.0f} GB free, torch {torch.__version__}")
    for way in ways:
        batches = [_samples(number, tokens, shape.vocab_size) for number in range(way.steps)]
        stepper = _stepper(shape, place, dtype, batches, kept, way.compile)
        flash = attention._flash
        try:
            if not way.flash:
                attention._flash = _never
            _report(stepper, batches, shape, place, way, kept)
        finally:
            attention._flash = flash
        del stepper
        if place.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()


def _report(
    stepper: Stepper, batches: Sequence[Sequence[Sample]], shape: LlamaShape, place: torch.device, way: Way, kept: int
) -> None:
    began = time.perf_counter()
    for number in range(WARM):
        stepper.step(_samples(-1 - number, TOKENS if place.type == "cuda" else 256, shape.vocab_size), 1e-4)
    _wait(place)
    say(f"compile {way.compile}, flash {way.flash}: first {WARM} steps {time.perf_counter() - began:.1f} s")
    for read, epoch in ((1.0, "target read"), (0.0, "states kept")):
        began = time.perf_counter()
        for batch in batches:
            stepper.step(batch, 1e-4)
        handed = time.perf_counter() - began
        _wait(place)
        seconds = time.perf_counter() - began
        responses = sum(sample.response_tokens for batch in batches for sample in batch)
        flops = sum(
            step_flops(batch, shape, passes=PASSES, captured=len(CAPTURE), kept=kept, read=read) for batch in batches
        )
        peak = peak_flops(place)
        say(
            f"  {epoch}: host {1000 * handed / len(batches):.1f} ms, step {1000 * seconds / len(batches):.1f} ms, "
            f"{responses / seconds:,.0f} response tokens/s"
            + (f", MFU {flops / seconds / peak:.1%}" if peak else "")
            + (f", peak {torch.cuda.max_memory_allocated() / 1e9:.1f} GB" if place.type == "cuda" else "")
        )
    say(f"  loss {stepper.figures()['loss']:.3f}")


def _stepper(
    shape: LlamaShape,
    place: torch.device,
    dtype: torch.dtype,
    batches: Sequence[Sequence[Sample]],
    kept: int,
    compile_: bool,
    cache_gb: float = 20.0,
) -> Stepper:
    torch.manual_seed(0)

    def weight(*size: int) -> torch.Tensor:
        return (0.02 * torch.randn(*size, device=place)).to(dtype)

    def scale() -> torch.Tensor:
        return torch.ones(shape.hidden_size, device=place, dtype=dtype)

    width, inner = shape.hidden_size, shape.intermediate_size
    heads, both = shape.num_heads * shape.head_dim, 2 * shape.num_kv_heads * shape.head_dim
    layers = [
        Layer(
            scale(),
            weight(heads + both, width),
            weight(width, heads),
            scale(),
            weight(2 * inner, width),
            weight(width, inner),
        )
        for _ in range(shape.num_layers)
    ]
    embed = weight(shape.vocab_size, width)
    target = Target(shape, layers, embed=embed, norm=scale(), lm_head=embed, eos=frozenset({2}))
    config = DraftConfig(replace(shape, num_layers=1), kept, len(CAPTURE), CAPTURE_IDS)
    master = Eagle3Draft(config).to(place)
    draft = master
    if dtype != torch.float32:
        draft = Eagle3Draft(config).to(device=place, dtype=dtype)
        draft.load_state_dict(master.state_dict())
    samples = [sample for batch in batches for sample in batch]
    keys = {"name": "speed", "target": "-", "corpus": "-", "out": "-", "steps": 1, "draft_vocab_size": kept}
    asked = TrainConfig.model_validate({**keys, "passes": PASSES, "cache_gb": cache_gb})
    setup = Setup(target, CAPTURE, samples, [], master, draft, {})
    return Stepper(setup, asked, Processes(0, 1, place), Compiled(compile_))


def _samples(number: int, tokens: int, vocab_size: int) -> tuple[Sample, ...]:
    """Prompts of 20 to 80 tokens with answers of 24 to 256, until a step is full; a step's number makes it."""
    random = np.random.default_rng(1000 + number)
    found: list[Sample] = []
    while True:
        prompt, answer = int(random.integers(20, 80)), int(np.clip(random.normal(150, 80), 24, 256))
        if found and sum(len(one.ids) for one in found) + prompt + answer > tokens:
            return tuple(found)
        ids = random.integers(3, vocab_size, prompt + answer).astype(np.uint16)
        found.append(Sample(ids, prompt, 1000 * number + len(found), 0, "random"))


def _never(q: torch.Tensor) -> bool:
    return False


def _wait(place: torch.device) -> None:
    if place.type == "cuda":
        torch.cuda.synchronize()


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
