"""Sentences on starts of the same server: within a campaign, and between campaigns."""

from __future__ import annotations

import pytest
from analysis_tables import baseline, requests, runs, timed
from answer_tables import speedup_rows

from workbench.analysis.answers import drift, same_baselines, start_again, start_rivals, started_once
from workbench.analysis.passes import drift_df
from workbench.paths import recorded_dir
from workbench.store import read_campaign
from workbench.table import tables_of


def test_drift_is_the_baseline_measured_again_over_the_first() -> None:
    # 100 tokens in 1 s, then 100 in 1.25 s
    held = requests(*timed("z-first", [1.0, 1.0]), *timed("a-again", [1.25, 1.25]))
    first = baseline("z-first", recorded_at="2026-11-30T10:00:00")
    again = baseline("a-again", recorded_at="2026-11-30T11:00:00")
    found = drift_df(runs(again, first), held)
    assert found["run_id"].tolist() == ["z-first", "a-again"]
    assert drift(found) == "The baseline measured again ran at 80 tok/s after 100 (-20.0%)."


def test_passes_of_other_limits_are_no_drift() -> None:
    held = requests(*timed("one", [1.0]), *timed("two", [2.0]))
    found = drift_df(runs(baseline("one", max_new_tokens=64), baseline("two", max_new_tokens=16)), held)
    assert found["relative"].tolist() == [1.0, 1.0]
    assert drift(found) is None


# --- once --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verdict", "origin", "said"),
    [("win", "recorded", True), ("loss", "recorded", True), ("noise", "recorded", False), ("win", "simulated", False)],
)
def test_a_verdict_against_a_baseline_started_once_says_so(verdict: str, origin: str, said: bool) -> None:
    found = drift_df(runs(baseline("base")), requests(*timed("base", [1.0]), *timed("base", [1.1], repeat=1)))
    sentence = started_once(found, speedup_rows({"verdict": verdict, "origin": origin, "baseline_run_id": "base"}))
    assert (sentence is not None) == said
    assert (start_again(sentence) is not None) == said
    assert not said or str(sentence).startswith("Every baseline was started once")


def test_one_load_of_a_group_that_was_measured_again_is_enough_for_it() -> None:
    held = requests(*timed("base", [1.0]), *timed("again", [1.0]), *timed("other", [1.0]), *timed("plain", [1.0]))
    plain = baseline("plain", baseline_group="nograph")
    found = drift_df(runs(baseline("base"), baseline("again"), baseline("other", prompt_set="q"), plain), held)
    rows = [{"verdict": "win", "baseline_run_id": run} for run in ("base", "plain")]
    assert started_once(found, speedup_rows(rows[0])) is None
    assert str(started_once(found, speedup_rows(*rows))).startswith("The baseline of nograph was started once")


def test_other_temperatures_and_other_kinds_of_speed_are_no_drift() -> None:
    held = requests(*timed("one", [1.0]), *timed("two", [2.0]))
    sampled = drift_df(runs(baseline("one", temperature=0.0), baseline("two", temperature=0.7)), held)
    assert drift(sampled) is None
    assert started_once(sampled, speedup_rows({"verdict": "win", "baseline_run_id": "one"})) is not None
    speeds = runs(
        baseline("one", max_concurrency=8, decode_tok_per_s=100.0),
        baseline("two", max_concurrency=8, output_tok_per_s=70.0),
    )
    assert drift(drift_df(speeds, requests())) is None


# --- between campaigns -------------------------------------------------------------------------------------------


def same(campaign: str, speed: float | None, **values: object) -> dict[str, object]:
    return baseline(campaign=campaign, decode_tok_per_s=speed, **{"machine": "one H200", "gpu_name": "H200", **values})


def test_the_same_baseline_of_two_campaigns_is_compared() -> None:
    sentence = same_baselines(runs(same("a", 590.0), same("b", 894.0), same("c", 700.0)))
    assert sentence is not None
    assert sentence.startswith(
        "The same baseline (base, both times on H200) ran at 590 tok/s in a and at 894 in b (+52%): so far do starts"
    )


@pytest.mark.parametrize(
    "other",
    [
        same("b", 894.0, machine="another"),
        same("b", 894.0, gpu_name="H100"),
        same("b", 894.0, gpu_name=None),
        same("b", 894.0, sglang_version="0.5.9"),
        same("b", 894.0, origin="imported"),
        same("b", 894.0, run_id="base-2"),
        same("b", 894.0, status="failed"),
        same("b", 894.0, role="speculative"),
        same("b", None),
        same("b", 610.0),
    ],
)
def test_other_machines_runs_and_small_differences_are_not(other: dict[str, object]) -> None:
    assert same_baselines(runs(same("a", 590.0), other)) is None


def test_recorded_starts_of_one_baseline_lie_half_apart() -> None:
    """The first server of a node, and the same command line eight minutes later, at 8 at once."""
    tables = tables_of([read_campaign(recorded_dir() / name) for name in ("h200_tune", "h200_tune_search")])
    assert "ran at 2,374 tok/s in h200_tune and at 3,628 in h200_tune_search (+53%)" in str(same_baselines(tables.runs))


# --- rivals ------------------------------------------------------------------------------------------------------


def test_runs_that_the_intervals_do_not_tell_from_the_fastest_are_to_be_started_again() -> None:
    bootstrap = {"method": "paired bootstrap", "max_concurrency": 1}
    best = {"run_id": "a", "speedup": 1.5, "low": 1.3, "high": 1.7, **bootstrap}
    near, out = (
        {"run_id": "b", "speedup": 1.2, "low": 1.1, "high": 1.3, **bootstrap},
        {**best, "speedup": 1.1, "high": 1.2},
    )
    said = start_rivals(speedup_rows(best, near, out))
    assert said is not None and "until it is decided: 1 other run at 1 may be as fast" in said
    other_load = [{**row, "max_concurrency": 8} for row in (best, near, {**near, "run_id": "d"})]
    said = start_rivals(speedup_rows(best, near, *other_load))
    assert said is not None and "1 other run at 1 and 2 other runs at 8 may be as fast" in said


def test_nothing_is_started_again_to_choose_between_losses_or_what_no_interval_tells() -> None:
    lost = {"speedup": 0.8, "low": 0.7, "high": 0.9, "method": "paired bootstrap"}
    assert start_rivals(speedup_rows(lost, lost)) is None
    assert start_rivals(speedup_rows({**lost, "speedup": 1.2, "high": 1.3}, {**lost, "high": 0.6})) is None
    single = {"speedup": 1.2, "low": 1.1, "high": 1.3, "method": "one figure an arm"}
    assert start_rivals(speedup_rows(single, single)) is None
