from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tune_answer import ANSWER, BASE, CHAIN, TREE, write_answer

from workbench.table.tuned import read_tuned


def test_a_campaign_that_nobody_searched_has_no_answer(tmp_path: Path) -> None:
    assert read_tuned(tmp_path) == (None, [])


def test_the_answer_is_read(tmp_path: Path) -> None:
    tuned, problems = read_tuned(write_answer(tmp_path))
    assert problems == [] and tuned is not None
    assert [(best.load, best.config, best.state, best.rivals) for best in tuned.best] == [
        (1, CHAIN, "decided", ()),
        (8, BASE, "undecided", (TREE,)),
    ]
    assert tuned.one_for_all is not None and dict(tuned.one_for_all.regret) == {1: 0.0, 8: 0.05}
    assert (tuned.minutes.spent, tuned.minutes.full_grid_estimate, tuned.minutes.starts) == (5.0, 20.0, 3)
    assert tuned.next_start == (TREE, "it may be the fastest")
    assert tuned.adaptive_command == "python -m x --adaptive"
    assert tuned.ranking["max_concurrency"].tolist() == [1, 1, 1, 8, 8]
    assert tuned.ranking["rank"].isna().tolist() == [False, False, True, False, True]
    assert tuned.residuals["error"].round(3).tolist()[:2] == [0.1, -0.05]


def test_a_search_that_is_over_has_no_next_start(tmp_path: Path) -> None:
    tuned, _ = read_tuned(write_answer(tmp_path, next=None, adaptive=None, one_for_all=None, residuals=[]))
    assert tuned is not None
    assert (tuned.next_start, tuned.adaptive_command, tuned.one_for_all) == (None, None, None)
    assert list(tuned.residuals.columns)[:2] == ["config", "max_concurrency"] and tuned.residuals.empty


@pytest.mark.parametrize(
    "changed",
    [
        {"best": [{**ANSWER["best"][0], "state": "sure"}]},
        {"best": [{**ANSWER["best"][0], "tok_per_s": 1e300}]},
        {"best": [{**ANSWER["best"][0], "load": 0}]},
        {"residuals": [{**ANSWER["residuals"][0], "error": 1e308}]},
        {"residuals": [{**ANSWER["residuals"][0], "error": 1e6}]},
        {"one_for_all": {"config": CHAIN, "regret": {"1": 1e308}}},
        {"gpu_minutes": {"spent": 1e308, "starts": 1}},
        {"gpu_minutes": {"spent": -1, "starts": 1}},
        {"ranking": [{"config": CHAIN}]},
        {"commands": [1, 2]},
    ],
)
def test_a_damaged_answer_is_said(tmp_path: Path, changed: dict[str, Any]) -> None:
    tuned, (problem,) = read_tuned(write_answer(tmp_path, **changed))
    assert tuned is None
    assert problem.where.endswith("tune.json") and next(iter(changed)) in problem.what
    assert problem.what.endswith("make it again, or remove the file")


def test_a_link_to_elsewhere_is_not_followed(tmp_path: Path) -> None:
    elsewhere = write_answer(tmp_path / "elsewhere")
    campaign = tmp_path / "campaign"
    campaign.mkdir()
    (campaign / "tune.json").symlink_to(elsewhere / "tune.json")
    tuned, (problem,) = read_tuned(campaign)
    assert tuned is None and "leads out of the campaign folder" in problem.what
