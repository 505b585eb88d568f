"""Samples one behind the other in flat tensors, so that no pass computes padding, and where the draft is judged.

Of a sample of T tokens, P of them the prompt's, slot t stands for (state at t, token t + 1), t = 0 ... T - 2; its pass
j takes token t + 1 + j and is judged by what the target says at position u = t + 1 + j. It is judged where u is a
token of the response (P <= u < T) that does not close it: so the last slot of the prompt is, with the response's first
token, and nothing is drafted behind the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from workbench.training.parts import Sample

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Spans:
    """Rows of several sequences, one behind the other: [ends[i], ends[i + 1]) are those of sequence i."""

    lengths: tuple[int, ...]
    ends: Tensor

    @property
    def longest(self) -> int:
        return max(self.lengths)


@dataclass(frozen=True, slots=True)
class Pack:
    """A batch of samples.

    The slots that later passes need are the last ones of each sequence, from J before the response on: ``rows`` are
    their places among all slots. ``judged`` are the positions u among all tokens, ``first`` the row among ``rows`` of
    the slot that pass 0 predicts from, ``depth`` how many passes reach position u (J but for the shortest prompts):
    pass j does so from row ``first - j``.
    """

    ids: Tensor
    places: Tensor
    tokens: Spans
    slots: Spans
    queries: Spans
    slot_tokens: Tensor
    rows: Tensor
    row_tokens: Tensor
    row_ends: Tensor
    judged: Tensor
    first: Tensor
    depth: Tensor


def judged_positions(sample: Sample, eos: frozenset[int]) -> Ints:
    """Positions u of the sample that are judged."""
    closing = int(sample.ids[-1]) in eos
    return np.arange(max(1, sample.prompt_tokens), len(sample.ids) - closing)


def pack(samples: Sequence[Sample], passes: int, eos: frozenset[int], device: torch.device) -> Pack:
    """Put samples of at least two tokens each into one batch for ``passes`` passes."""
    lengths = np.array([len(sample.ids) for sample in samples], np.int64)
    start = _starts(lengths)
    lowest = np.array([max(0, sample.prompt_tokens - passes) for sample in samples], np.int64)
    asked = lengths - 1 - lowest
    ask_start = _starts(asked)
    rows, judged, first, depth = [], [], [], []
    for i, sample in enumerate(samples):
        positions = judged_positions(sample, eos)
        slot = positions - 1 - lowest[i]
        # Slots are numbered as tokens are, but each sequence has one fewer.
        rows.append(np.arange(lowest[i], lengths[i] - 1) + start[i] - i)
        judged.append(start[i] + positions)
        first.append(ask_start[i] + slot)
        depth.append(np.minimum(passes, slot + 1))

    def move(values: Ints, dtype: torch.dtype = torch.long) -> Tensor:
        made = torch.from_numpy(values).to(dtype)
        return made.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else made

    def spans(values: Ints) -> Spans:
        return Spans(tuple(values.tolist()), move(np.concatenate([[0], np.cumsum(values)]), torch.int32))

    ranges = [np.arange(length) for length in lengths]
    return Pack(
        ids=move(np.concatenate([sample.ids.astype(np.int64) for sample in samples])),
        places=move(np.concatenate(ranges)),
        tokens=spans(lengths),
        slots=spans(lengths - 1),
        queries=spans(asked),
        slot_tokens=move(np.concatenate([r[:-1] + s for r, s in zip(ranges, start, strict=True)])),
        rows=move(np.concatenate(rows)),
        row_tokens=move(np.concatenate([r + i for i, r in enumerate(rows)])),
        row_ends=move(np.repeat(start + lengths - 1, asked)),
        judged=move(np.concatenate(judged)),
        first=move(np.concatenate(first)),
        depth=move(np.concatenate(depth)),
    )


def _starts(lengths: Ints) -> Ints:
    return np.cumsum(lengths) - lengths
