"""Which of the target's ids a draft can propose."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from workbench.checkpoint import read_checkpoint
from workbench.errors import UsageError
from workbench.training.corpus import Corpus, token_counts

Ids = npt.NDArray[np.int64]


def commonest(corpus: Corpus, size: int, vocab_size: int) -> Ids:
    """The ``size`` commonest ids of the responses, ascending; of equally common ones the lower.

    Build it on the largest set and use it for all smaller ones: else the vocabulary, too, changes with the data.

    Raises
    ------
    UsageError
        When the target has fewer ids.
    """
    if size > vocab_size:
        raise UsageError(
            f"{size} ids are asked for, the target has {vocab_size}",
            where="draft_vocab_size",
            next_step="ask for no more than the target's vocabulary",
        )
    counts = np.zeros(vocab_size, np.int64)
    found = token_counts(corpus)[:vocab_size]
    counts[: len(found)] = found
    return np.sort(np.argsort(-counts, kind="stable")[:size])


def of_draft(folder: Path) -> Ids:
    """The target's ids of a draft's ids, by its ``d2t``; ascending."""
    offsets = np.asarray(read_checkpoint(folder).read_ints("d2t"), np.int64)
    return np.sort(offsets + np.arange(len(offsets)))


def coverage(corpus: Corpus, ids: Ids) -> float:
    """Share of the responses' tokens that are among ``ids``."""
    counts = token_counts(corpus)
    return float(counts[ids[ids < len(counts)]].sum() / max(1, counts.sum()))
