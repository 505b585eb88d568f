"""Arithmetic of a training step: matrix products only, two operations a multiply-add; attention's are left out."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from workbench.drafter.shape import LlamaShape
from workbench.training.corpus import Sample

# Dense bfloat16 peaks in FLOP/s by part of the device's name: NVIDIA's data sheets, without sparsity.
_PEAKS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "B200": 2250e12}
_FORWARD, _TRAINED = 2, 6


def step_flops(
    samples: Sequence[Sample], shape: LlamaShape, *, passes: int, captured: int, kept: int, read: float
) -> float:
    """Of one optimizer step on ``samples``: the target forward, its head, the draft forward and backward.

    ``read`` is the share of the tokens that the target has to read.
    """
    tokens = sum(len(sample.ids) for sample in samples)
    responses = sum(sample.response_tokens for sample in samples)
    rows = responses + passes * len(samples)
    width, inner, head_dim = shape.hidden_size, shape.intermediate_size, shape.head_dim
    q, kv = shape.num_heads * head_dim, 2 * shape.num_kv_heads * head_dim
    layer = width * (2 * q + kv) + 3 * width * inner
    teacher = responses * width * kept
    target = _FORWARD * (read * (tokens * shape.num_layers * layer + responses * width * shape.vocab_size) + teacher)
    first = tokens * (captured * width * width + 2 * width * (q + kv))
    later = (passes - 1) * rows * 2 * width * (q + kv)
    behind = passes * rows * (q * width + 3 * width * inner)
    head = passes * responses * width * kept
    return float(target + _TRAINED * (first + later + behind + head))


def peak_flops(device: torch.device) -> float | None:
    """The device's peak in bfloat16 where it is known."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((peak for part, peak in _PEAKS.items() if part in name), None)


class Watch:
    """Seconds and work of the steps that count.

    The first steps of a process do not, in which kernels are compiled and memory is claimed; nor do pauses.
    """

    def __init__(self, device: torch.device, uncounted: int) -> None:
        self._device = device
        self._left = uncounted
        self._since = time.perf_counter()
        self.seconds = 0.0
        self.response_tokens = 0
        self.flops = 0.0

    def step(self, response_tokens: int, flops: float) -> float:
        """A step has been handed to the device; returns the seconds that count since the last call."""
        if self._left > 0:
            self._left -= 1
            if self._left == 0:
                self._settle()
            self._since = time.perf_counter()
            return 0.0
        self.response_tokens += response_tokens
        self.flops += flops
        return self.tick()

    def tick(self) -> float:
        """Seconds that count since the last call."""
        if self._left > 0:
            return 0.0
        now = time.perf_counter()
        passed, self._since = now - self._since, now
        self.seconds += passed
        return passed

    @contextmanager
    def paused(self) -> Iterator[None]:
        # Steps that were handed over are still the device's work, and no pause.
        self._settle()
        began = time.perf_counter()
        yield
        self._since += time.perf_counter() - began

    def _settle(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def mark(self) -> tuple[float, int, float]:
        return self.seconds, self.response_tokens, self.flops
