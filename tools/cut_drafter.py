"""Cut a draft checkpoint to fewer vocabulary entries: python tools/cut_drafter.py SOURCE OUT --size N [--counts CORPUS]

With a corpus of the target's answers its commonest ids stay, best the one that the draft was trained on. Without one
the ids with the lowest numbers in the target's vocabulary stay: a byte-pair tokenizer numbers its pieces in the order
in which it merged them, the most frequent first, so this is frequency without any text to count in.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from workbench.drafter.checkpoint import load_draft, save_draft
from workbench.drafter.model import Eagle3Draft
from workbench.training.corpus import read_corpus, token_counts


def main() -> None:
    parser = argparse.ArgumentParser(description="Cut a draft checkpoint to fewer vocabulary entries.")
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--size", type=int, required=True, help="vocabulary entries to keep")
    parser.add_argument("--counts", type=Path, metavar="CORPUS", help="answers of the target, to count ids in")
    given = parser.parse_args()
    draft = load_draft(given.source, dtype=torch.bfloat16, device=torch.device("cpu"))
    counts = None if given.counts is None else token_counts(read_corpus(given.counts))
    save_draft(cut(draft, given.size, counts), given.out)


def cut(draft: Eagle3Draft, size: int, counts: npt.NDArray[np.int64] | None = None) -> Eagle3Draft:
    """The same draft with ``size`` ids of its vocabulary: the commonest by ``counts`` by target id, else the lowest."""
    if not 0 < size <= draft.config.draft_vocab_size:
        raise SystemExit(f"--size {size}: the draft has {draft.config.draft_vocab_size} entries")
    order = draft.target_ids.argsort() if counts is None else _commonest(draft.target_ids, counts)
    kept = order[:size]
    kept = kept[draft.target_ids[kept].argsort()]
    smaller = Eagle3Draft(replace(draft.config, draft_vocab_size=size))
    state = draft.state_dict()
    state |= {"lm_head": draft.lm_head[kept], "target_ids": draft.target_ids[kept]}
    smaller.load_state_dict(state)
    return smaller


def _commonest(ids: torch.Tensor, counts: npt.NDArray[np.int64]) -> torch.Tensor:
    """Positions in ``ids``, the commonest first; what was never counted comes last, lowest ids first."""
    known = np.zeros(max(len(counts), int(ids.max()) + 1), np.int64)
    known[: len(counts)] = counts
    return torch.from_numpy(np.argsort(-known[ids.numpy()], kind="stable"))


if __name__ == "__main__":
    main()
