from __future__ import annotations

from pathlib import Path

import pytest

from workbench.errors import UsageError
from workbench.explore import OpenCampaign


def test_runs_can_be_filtered_by_values_and_by_a_condition(opened: OpenCampaign) -> None:
    assert sorted(opened.runs.ids) == ["base", "fast", "other", "slow"]
    assert sorted(opened.runs.where(role="speculative").ids) == ["fast", "slow"]
    assert opened.runs.where("accept_length > 2").ids == ["fast"]
    assert opened.runs.where("output_tok_per_s < 110", role=["baseline", "speculative"], max_concurrency=1).ids == [
        "base",
        "slow",
    ]
    # One filter after the other.
    assert opened.runs.where(role="speculative").where(num_steps=3, accept_length=1.2).ids == ["slow"]


def test_nothing_that_matches_is_said(opened: OpenCampaign) -> None:
    none = opened.runs.where(max_concurrency=99)
    assert len(none) == 0
    assert repr(none) == "0 runs.\nNo run matches."
    assert "No run matches." in none._repr_html_()


@pytest.mark.parametrize(
    ("query", "equal", "what", "hint"),
    [
        ("", {"num_step": 3}, "no column 'num_step'", "num_steps"),
        ("acept_length > 2", {}, "cannot be understood", "columns"),
        ("accept_length >", {}, "cannot be understood", "columns"),
        ("role > 2", {}, "cannot be understood", "columns"),
        ("role", {}, "cannot be understood", "columns"),
    ],
)
def test_a_wrong_condition_says_what_is_wrong(
    opened: OpenCampaign, query: str, equal: dict[str, object], what: str, hint: str
) -> None:
    with pytest.raises(UsageError) as error:
        opened.runs.where(query, **equal)
    assert what in str(error.value)
    assert hint in str(error.value.next_step)


def test_the_table_names_runs_by_their_ids_with_figures_first(opened: OpenCampaign) -> None:
    assert repr(opened.runs).splitlines()[1].split()[:5] == ["run", "accept", "length", "output", "tok/s"]
    assert len(opened.runs) == len(list(opened.runs)) == 4


def test_one_run_shows_all_that_is_known_of_it(opened: OpenCampaign) -> None:
    run = opened.runs["fast"]
    assert (run.run_id, run.server_id) == ("fast", "s-fast")
    text = repr(run)
    assert "fast: all that is known." in text
    assert [line.split()[-2:] for line in text.splitlines() if line.split()[:1] == ["accept_length"]] == [
        ["2.50", "tokens/step"]
    ]
    assert "draft_vocab_size" not in text
    # All of it, also what a table of many rows leaves to its download.
    assert "steps" in run._repr_html_() and "more rows" not in run._repr_html_()
    assert run.requests.empty


def test_runs_are_found_by_place_too(opened: OpenCampaign) -> None:
    assert opened.runs[0].run_id == opened.runs.ids[0]
    assert opened.runs[-1].run_id == opened.runs.ids[-1]
    with pytest.raises(UsageError, match="no run at place 4"):
        opened.runs[4]


def test_a_run_that_is_not_there_names_the_nearest(opened: OpenCampaign) -> None:
    with pytest.raises(UsageError, match="did you mean 'fast'"):
        opened.runs["fats"]
    assert opened.runs._ipython_key_completions_() == opened.runs.ids


def test_columns_are_those_that_hold_something(opened: OpenCampaign) -> None:
    told = opened.runs.columns.df.set_index("column")
    assert told.loc["accept_length", "unit"] == "tokens/step"
    assert "energy_j_per_tok" not in told.index
    assert "accept_length" in repr(opened.runs.columns)


def test_without_histograms_there_is_no_spread(opened: OpenCampaign) -> None:
    assert "not known" in repr(opened.runs.spread())
    assert opened.runs.spread().df.empty


@pytest.mark.parametrize(
    "query",
    [
        "run_id.to_csv('made.txt') == 1",
        "@os.system('touch made.txt') == 0",
        "__import__('os').system('touch made.txt') == 0",
        "num_steps in [",
        "1/0",
        "3",
        "num_steps + 1",
        "num_steps.iloc[99999] > 0",
        "run_id == object()",
        "nothing_of_the_kind > 1",
    ],
)
def test_a_condition_runs_no_code(
    query: str, opened: OpenCampaign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match="cannot be understood"):
        opened.runs.where(query)
    assert sorted(tmp_path.rglob("*")) == before
