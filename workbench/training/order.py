"""Which samples each optimizer step takes: a plan that seed and position determine, so that a run can go on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from workbench.training.corpus import Corpus, Sample

Step = tuple[Sample, ...]


def usable(corpus: Corpus, max_tokens: int, answers: int | None) -> tuple[list[Sample], dict[str, int]]:
    """Samples cut to ``max_tokens``, and how many were left out, by reason."""
    kept, left_out = [], {"no_response_within_max_tokens": 0, "beyond_answers_per_prompt": 0}
    for sample in corpus.samples:
        if answers is not None and sample.answer >= answers:
            left_out["beyond_answers_per_prompt"] += 1
        # Nothing is judged where the answer has no token before the one that closes it.
        elif min(len(sample.ids), max_tokens) < sample.prompt_tokens + 2:
            left_out["no_response_within_max_tokens"] += 1
        else:
            ids = sample.ids[:max_tokens]
            kept.append(Sample(ids, sample.prompt_tokens, sample.prompt, sample.answer, sample.task))
    return kept, left_out


def epoch(samples: Sequence[Sample], number: int, *, seed: int, tokens: int) -> Iterator[Step]:
    """The steps of one epoch: the samples in an order of its own, as many a step as fit into ``tokens``."""
    order = np.random.default_rng([seed, number]).permutation(len(samples))
    step: list[Sample] = []
    size = 0
    for i in order:
        length = len(samples[i].ids)
        if step and size + length > tokens:
            yield tuple(step)
            step, size = [], 0
        step.append(samples[i])
        size += length
    if step:
        yield tuple(step)


def steps_in(samples: Sequence[Sample], epochs: float, *, seed: int, tokens: int) -> int:
    """Optimizer steps of so many epochs; of a part of one, that part of its steps."""
    lengths = np.array([len(sample.ids) for sample in samples])
    whole = int(epochs)
    count = sum(_count(lengths, number, seed=seed, tokens=tokens) for number in range(whole))
    rest = epochs - whole
    return max(1, count + (round(rest * _count(lengths, whole, seed=seed, tokens=tokens)) if rest > 0 else 0))


def _count(lengths: np.ndarray[tuple[int], np.dtype[np.int64]], number: int, *, seed: int, tokens: int) -> int:
    count, size = 1, 0
    for length in lengths[np.random.default_rng([seed, number]).permutation(len(lengths))].tolist():
        if size and size + length > tokens:
            count, size = count + 1, 0
        size += length
    return count


def share(step: Step, rank: int, world: int) -> Step:
    """What one of ``world`` processes takes of a step."""
    return step[rank::world]


def pieces(step: Step, tokens: int | None) -> Iterator[Step]:
    """A step in parts that a process computes one after the other."""
    piece: list[Sample] = []
    size = 0
    for sample in step:
        if piece and tokens is not None and size + len(sample.ids) > tokens:
            yield tuple(piece)
            piece, size = [], 0
        piece.append(sample)
        size += len(sample.ids)
    if piece:
        yield tuple(piece)
