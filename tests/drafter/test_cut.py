from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the draft module needs torch (extra: reference)")

import numpy as np
import torch
from tiny_models import WIDTH, draft_config, draft_tensors, write_model

from workbench.drafter.checkpoint import load_draft

sys.path.append(str(Path(__file__).parents[2] / "tools"))
from cut_drafter import cut

CPU = torch.device("cpu")


def test_the_lowest_ids_stay_with_their_rows(tmp_path: Path) -> None:
    config = draft_config()
    draft = load_draft(write_model(tmp_path / "d", config, draft_tensors(config)), dtype=torch.float32, device=CPU)
    small = cut(draft, 4)
    assert small.target_ids.tolist() == draft.target_ids.tolist()[:4]
    hidden = torch.randn(3, WIDTH)
    assert torch.equal(small.logits(hidden), draft.logits(hidden)[:, :4])
    assert small.config.draft_vocab_size == 4
    with pytest.raises(SystemExit, match="9 entries"):
        cut(draft, 10)


def test_the_commonest_ids_stay_in_order_with_their_rows(tmp_path: Path) -> None:
    config = draft_config()
    draft = load_draft(write_model(tmp_path / "d", config, draft_tensors(config)), dtype=torch.float32, device=CPU)
    ids = draft.target_ids.tolist()
    counts = np.zeros(max(ids), np.int64)  # the highest id was never seen
    counts[[ids[5], ids[2], ids[7]]] = 9, 4, 4
    small = cut(draft, 4, counts)
    # Of the ids that were never counted the lowest.
    assert small.target_ids.tolist() == sorted([ids[0], ids[2], ids[5], ids[7]])
    hidden = torch.randn(3, WIDTH)
    assert torch.equal(small.logits(hidden), draft.logits(hidden)[:, [0, 2, 5, 7]])


def test_the_shipped_drafter_is_a_cut_that_loads_and_stays_small() -> None:
    folder = Path(__file__).parents[2] / "data" / "drafters" / "smollm2-135m-eagle3"
    assert (folder / "model.safetensors").stat().st_size <= 20_000_000
    draft = load_draft(folder, dtype=torch.bfloat16, device=CPU)
    assert draft.config.draft_vocab_size == 8192
    assert draft.config.capture_ids == (1, 14, 26)
    ids = draft.target_ids.tolist()
    assert ids == sorted(set(ids)) and ids[0] == 2 and ids[-1] < 49152
