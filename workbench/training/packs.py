"""Samples one behind the other in flat tensors, so that no pass computes padding, and where the draft is judged.

Of a sample of T tokens, P of them the prompt's, slot t stands for (state at t, token t + 1), t = 0 ... T - 2; its pass
j takes token t + 1 + j and is judged by what the target says at position u = t + 1 + j. It is judged where u is a
token of the response (P <= u < T) that does not close it: so the last slot of the prompt is, with the response's first
token, and nothing is drafted behind the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def judged_count(sample: Sample, eos: frozenset[int]) -> int:
    """How many positions u of the sample are judged."""
    closing = int(sample.ids[-1]) in eos
    return max(0, len(sample.ids) - closing - max(1, sample.prompt_tokens))


def pack(samples: Sequence[Sample], passes: int, eos: frozenset[int], device: torch.device) -> Pack:
    """Put samples of at least two tokens each into one batch for ``passes`` passes."""
    lengths, prompts, judged = (
        np.array(values, np.int64)
        for values in zip(*((len(s.ids), s.prompt_tokens, judged_count(s, eos)) for s in samples), strict=True)
    )
    start, order = _starts(lengths), np.arange(len(samples))
    lowest = np.maximum(0, prompts - passes)
    asked = lengths - 1 - lowest
    # Of the first judged position, the slot before it is counted from the lowest that is asked.
    first = np.maximum(1, prompts)
    spans = {"tokens": lengths, "slots": lengths - 1, "queries": asked}
    moved = _moved(
        {
            "ids": np.concatenate([sample.ids for sample in samples], dtype=np.int64),
            "places": runs(np.zeros_like(start), lengths),
            "slot_tokens": runs(start, lengths - 1),
            # Slots are numbered as tokens are, but each sequence has one fewer.
            "rows": runs(start + lowest - order, asked),
            "row_tokens": runs(start + lowest, asked),
            "row_ends": np.repeat(start + lengths - 1, asked),
            "judged": runs(start + first, judged),
            "first": runs(_starts(asked) + first - 1 - lowest, judged),
            "depth": np.minimum(passes, runs(first - lowest, judged)),
            **{name: np.concatenate([[0], np.cumsum(values)]) for name, values in spans.items()},
        },
        device,
    )
    made = {name: Spans(tuple(values.tolist()), moved.pop(name).int()) for name, values in spans.items()}
    return Pack(**made, **moved)  # type: ignore[arg-type]


def runs(starts: Ints, counts: Ints) -> Ints:
    """``starts[i]``, ``starts[i] + 1``, ... of ``counts[i]`` numbers, for every i one behind the other."""
    return np.repeat(starts - _starts(counts), counts) + np.arange(counts.sum())


def to_device(values: Ints, device: torch.device) -> Tensor:
    """A copy there, for which nobody waits."""
    made = torch.from_numpy(values)
    return made.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else made


def _moved(arrays: Mapping[str, Ints], device: torch.device) -> dict[str, Tensor]:
    """All in one transfer."""
    whole = to_device(np.concatenate(list(arrays.values())), device)
    return dict(zip(arrays, whole.split([len(array) for array in arrays.values()]), strict=True))


def _starts(lengths: Ints) -> Ints:
    return np.cumsum(lengths) - lengths
