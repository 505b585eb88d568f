import math

import pytest
from analysis_tables import baseline, requests, runs, speculative, timed

from workbench.analysis.passes import (
    arm_of,
    common_basis,
    drift_df,
    largest_difference,
    pass_spread,
    timings_by_run,
)


def _arm(*rows: dict[str, object], basis: str = "output"):
    return arm_of(list(timings_by_run(requests(*rows)).values()), basis)


def test_an_arm_pools_tokens_and_seconds() -> None:
    arm = _arm(*timed("a", [1.0, 3.0]), *timed("a", [1.0, 1.0], repeat=1))
    assert arm.passes == (("a", 0), ("a", 1))
    assert list(arm.speeds) == [50.0, 100.0]
    assert arm.speed == pytest.approx(400 / 6)


def test_decode_speed_leaves_out_the_first_token_and_its_time() -> None:
    rows = [row | {"ttft_s": 0.5} for row in timed("a", [1.5, 1.5], tokens=101)]
    assert common_basis(timings_by_run(requests(*rows)).values()) == "decode"
    assert _arm(*rows, basis="decode").speed == 100.0
    rows[0]["ttft_s"] = None
    assert common_basis(timings_by_run(requests(*rows)).values()) == "output"


def test_failed_and_untimed_requests_are_no_part_of_a_speed() -> None:
    failed = {"run_id": "a", "prompt_index": 7, "ok": False, "completion_tokens": 1, "latency_s": 100.0}
    untimed = {"run_id": "a", "prompt_index": 8, "completion_tokens": 10}
    arm = _arm(*timed("a", [1.0]), failed, untimed)
    assert arm.speed == 100.0
    assert arm.failed == 1
    assert list(arm.prompts) == [0]
    assert _arm(failed) is None
    assert arm_of([], "output") is None


def test_spread_between_passes_is_a_pooled_standard_deviation_of_logs() -> None:
    # Log speeds of the first arm lie d apart, of the second 3 d: squares d^2/2 and 9 d^2/2, 2 degrees of freedom.
    d = 0.1
    first = _arm(*timed("a", [1.0]), *timed("a", [math.exp(d)], repeat=1))
    second = _arm(*timed("b", [1.0]), *timed("b", [math.exp(3 * d)], repeat=1))
    single = _arm(*timed("c", [1.0]))
    spread = pass_spread([first, second, single])
    assert spread.degrees == 2
    assert spread.deviation == pytest.approx(d * math.sqrt(5 / 2))
    assert largest_difference(first) == pytest.approx(math.expm1(d))
    assert largest_difference(single) == 0.0


def test_passes_are_compared_on_the_prompts_that_both_have() -> None:
    # Prompt 1 is slow and was only asked in the first pass; on prompt 0 both passes are equal.
    arm = _arm(*timed("a", [1.0, 50.0]), *timed("a", [1.0], repeat=1))
    assert pass_spread([arm]).deviation == 0.0


def test_no_repeated_pass_has_no_spread() -> None:
    spread = pass_spread([_arm(*timed("a", [1.0, 2.0]))])
    assert spread.degrees == 0
    assert math.isnan(spread.deviation)


def test_drift_is_relative_to_the_first_pass_of_the_same_load() -> None:
    held = requests(
        *timed("base", [1.0]), *timed("base", [2.0], repeat=1), *timed("again", [0.5]), *timed("spec", [1.0])
    )
    table = drift_df(
        runs(baseline(), baseline("again"), baseline("c8", max_concurrency=8, output_tok_per_s=300.0), speculative()),
        held,
    )
    assert list(table["run_id"]) == ["base", "base", "again", "c8"]
    assert list(table["tok_per_s"]) == [100.0, 50.0, 200.0, 300.0]
    assert list(table["relative"]) == [1.0, 0.5, 2.0, 1.0]
    assert table["repeat"].isna().tolist() == [False, False, False, True]


def test_drift_of_nothing_is_empty() -> None:
    table = drift_df(runs(), requests())
    assert table.empty
    assert {"campaign", "run_id", "repeat", "tok_per_s", "relative"} <= set(table.columns)
    assert drift_df(runs(baseline()), requests()).empty


def test_speeds_of_different_bases_have_no_drift() -> None:
    table = drift_df(runs(baseline("a", decode_tok_per_s=10.0), baseline("b", output_tok_per_s=20.0)), requests())
    assert table["relative"].isna().all()


@pytest.mark.parametrize("speed", [0.0, -3.0, math.inf])
def test_a_pass_with_a_speed_that_is_none_is_no_pass(speed: float) -> None:
    table = drift_df(
        runs(
            baseline("a", decode_tok_per_s=speed),
            baseline("b", decode_tok_per_s=20.0),
            baseline("c", decode_tok_per_s=30.0),
        ),
        requests(),
    )
    assert list(table["run_id"]) == ["b", "c"]
    assert list(table["relative"]) == [1.0, 1.5]
    assert drift_df(runs(baseline("a", output_tok_per_s=speed)), requests()).empty
