import math

import pandas as pd
import pytest
from analysis_tables import baseline, runs, speculative

from workbench.analysis.cost import cost_df
from workbench.analysis.pairing import pair_baselines, pairs


def _problem(base: dict[str, object], spec: dict[str, object]) -> object:
    row = pair_baselines(runs(baseline(output_tok_per_s=1.0, **base), speculative(output_tok_per_s=1.0, **spec))).iloc[
        0
    ]
    return None if pd.isna(row["pairing_problem"]) else (row["pairing_problem"], pd.isna(row["baseline_run_id"]))


@pytest.mark.parametrize(
    ("base", "spec", "problem"),
    [
        ({}, {}, None),
        ({"campaign": "other"}, {}, "no baseline in the campaign"),
        ({"baseline_group": "wave2"}, {"baseline_group": "wave1"}, "no baseline in group wave1"),
        ({"prompt_set": "q"}, {}, "no baseline in group default with the prompts p"),
        ({}, {"max_concurrency": 8}, "no baseline in group default with the prompts p at concurrency 8"),
        ({}, {"max_concurrency": None}, "max_concurrency of the run is not stated, so no baseline can be matched"),
        ({"max_concurrency": None}, {}, "no baseline in group default with the prompts p at concurrency 1"),
        (
            {"temperature": 0.0},
            {"temperature": 0.7},
            "no baseline in group default with the prompts p at concurrency 1 and temperature 0.7",
        ),
        ({"temperature": 0.0, "ignore_eos": True}, {}, None),
        (
            {"status": "failed"},
            {},
            "no baseline in group default with the prompts p at concurrency 1: base is failed",
        ),
    ],
)
def test_a_baseline_has_the_runs_own_load(base, spec, problem) -> None:
    assert _problem(base, spec) == (None if problem is None else (problem, True))


@pytest.mark.parametrize("status", ["failed", "running", "interrupted", "timed_out"])
def test_a_run_that_did_not_finish_is_not_judged(status: str) -> None:
    table = runs(
        baseline(output_tok_per_s=1.0),
        speculative(output_tok_per_s=2.0, accept_length=2.0, status=status),
    )
    assert pair_baselines(table)["pairing_problem"].tolist() == [f"the run is {status}: it is not judged"]
    cost = cost_df(table).iloc[0]
    assert cost[["speedup", "accept_length", "break_even"]].isna().all()


def test_ends_of_answers_must_agree_where_known() -> None:
    found = _problem({"ignore_eos": False}, {"ignore_eos": True})
    assert found is not None
    assert str(found[0]).endswith("and ignore_eos True")


def test_pairs_keep_the_order_and_the_rows_of_the_table() -> None:
    table = runs(speculative("b"), baseline(output_tok_per_s=1.0), speculative("a", max_concurrency=9))
    paired = pair_baselines(table)
    assert list(paired["run_id"]) == ["b", "a"]
    assert list(paired.index) == [0, 2]
    assert paired["baseline_run_ids"].tolist() == [["base"], []]


def test_a_baseline_measured_twice_is_one_baseline() -> None:
    twice = [baseline(name, output_tok_per_s=speed) for name, speed in (("before", 10.0), ("after", 20.0))]
    pair = next(pairs(runs(*twice, speculative(output_tok_per_s=30.0))))
    assert pair.base is not None
    assert pair.base.value == 15.0
    assert [base["run_id"] for base in pair.baselines] == ["before", "after"]


def test_speeds_of_different_bases_are_not_compared() -> None:
    pair = next(pairs(runs(baseline(decode_tok_per_s=10.0), speculative(output_tok_per_s=30.0))))
    assert pair.speed is None
    assert pair.problem == "one arm has only a decode speed, the other only an output speed"


def test_a_baseline_without_a_speed_is_named() -> None:
    pair = next(pairs(runs(baseline(), speculative(output_tok_per_s=30.0))))
    assert (pair.baseline_run_id, pair.problem) == ("base", "the baseline has no speed")


def test_no_runs() -> None:
    assert pair_baselines(runs()).empty
    assert {"baseline_run_id", "pairing_problem"} <= set(pair_baselines(runs()).columns)
    assert pair_baselines(runs(baseline())).empty


@pytest.mark.parametrize("speed", [0.0, -3.0, math.inf])
def test_a_speed_that_is_none_was_not_measured(speed: float) -> None:
    bad, good = {"output_tok_per_s": speed}, {"output_tok_per_s": 50.0}
    (pair,) = pairs(runs(baseline(**bad), speculative(**good)))
    assert (pair.base, pair.problem) == (None, "the baseline has no speed")
    (pair,) = pairs(runs(baseline(**good), speculative(**bad)))
    assert (pair.speed, pair.problem) == (None, "no speed was measured")
    # One end of a range likewise: nothing is divided by it.
    (pair,) = pairs(runs(baseline(**good), speculative(**good, output_tok_per_s_low=0.0, output_tok_per_s_high=speed)))
    assert pair.speed is not None
    assert (pair.speed.low, pair.speed.high) == (50.0, 50.0)
