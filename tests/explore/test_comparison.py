from __future__ import annotations

import pytest

from workbench.errors import UsageError
from workbench.explore import Comparison, OpenCampaign


def rows(compared: Comparison) -> dict[str, list[object]]:
    return {row[0]: row[1:] for row in compared.df.astype(object).where(compared.df.notna(), None).to_numpy().tolist()}


def test_a_run_and_its_baseline(opened: OpenCampaign) -> None:
    compared = opened.compare("fast", "base")
    assert isinstance(compared, Comparison)
    # 120 / 100; single reported figures allow no verdict.
    assert compared.sentence.startswith("fast reached 120 output tok/s against 100 without speculation")
    assert "1.20x: not decidable" in compared.sentence
    told = rows(compared)
    assert told["output (tok/s)"] == ["120", "100", "1.20"]
    assert told["accept length (tokens/step)"] == ["2.50", None, None]
    assert told["role"] == ["speculative", "baseline", None]
    assert "prompt set" not in told
    assert "The same in both: " in repr(compared) and "prompt set: p" in repr(compared)


def test_the_baseline_is_found_and_so_is_the_fastest(opened: OpenCampaign) -> None:
    for compared in (opened.compare(), opened.compare("fast"), opened.compare(opened.runs["fast"])):
        assert isinstance(compared, Comparison)
        assert list(compared.df.columns) == ["what", "fast", "base", "ratio"]


def test_two_speculative_runs_get_a_ratio_and_no_verdict(opened: OpenCampaign) -> None:
    # 80 / 120
    compared = opened.compare("slow", "fast")
    assert isinstance(compared, Comparison)
    assert compared.sentence.startswith("slow runs at 0.67x the speed of fast; a verdict needs")


def test_speeds_at_different_loads_are_not_compared(opened: OpenCampaign) -> None:
    compared = opened.compare("fast", "other")
    assert isinstance(compared, Comparison)
    assert compared.sentence == (
        "Not the same load, so their speeds say nothing: they differ in prompt set, max concurrency."
    )
    assert rows(compared)["max concurrency"] == ["1", "8", None]


def test_runs_that_cannot_be_compared_are_said(opened: OpenCampaign) -> None:
    with pytest.raises(UsageError, match="no baseline goes with 'other'"):
        opened.compare("other")
    with pytest.raises(UsageError, match="no run 'fst'"):
        opened.compare("fst")


def test_names_of_runs_stand_as_they_are(opened: OpenCampaign) -> None:
    compared = opened.compare("fast", "base")
    assert isinstance(compared, Comparison)
    compared.df = compared.df.rename(columns={"fast": "a_run_b"})
    assert "a_run_b" in compared._repr_html_()
