import math

import pandas as pd
import pytest
from analysis_tables import requests, runs, speculative

from workbench.analysis.acceptance import (
    accept_length_df,
    pooled_accept_length,
    shorter_chains_df,
    sources_df,
    spread_df,
    survival_df,
)


def test_pooled_accept_length_is_what_sglang_printed_for_a_recorded_request() -> None:
    # meta_info of SGLang 0.5.14: histogram [0, 56, 48], spec_verify_ct 104, spec_accept_length 2.4615
    assert pooled_accept_length([0, 56, 48]) == pytest.approx(2.4615, abs=5e-5)


def test_pooled_accept_length_bounds() -> None:
    assert pooled_accept_length([7]) == 1.0
    assert pooled_accept_length([0, 0, 0, 5]) == 4.0
    assert math.isnan(pooled_accept_length([]))
    assert math.isnan(pooled_accept_length([0, 0]))


def test_accept_length_pools_steps_and_is_no_mean_of_means() -> None:
    # 10 steps at 1.0 and 30 steps at 3.0: (10 + 90) / 40 = 2.5, the mean of means would be 2.0
    table = accept_length_df(requests({"steps_histogram": [10]}, {"steps_histogram": [0, 0, 30]}))
    row = table.iloc[0]
    assert row["accept_length"] == 2.5
    assert (row["num_requests"], row["num_prompts"], row["num_verify_steps"]) == (2, 2, 40)


def test_accept_length_without_histograms_leaves_out_the_token_of_the_prefill() -> None:
    table = accept_length_df(
        requests({"completion_tokens": 41, "spec_verify_ct": 20}, {"completion_tokens": 11, "spec_verify_ct": 5})
    )
    assert table["accept_length"].item() == 50 / 25


def test_one_request_without_a_histogram_sends_its_group_to_the_counts() -> None:
    table = accept_length_df(
        requests(
            {"completion_tokens": 41, "spec_verify_ct": 20, "steps_histogram": [0, 20]},
            {"completion_tokens": 31, "spec_verify_ct": 10},
        )
    )
    assert table["accept_length"].item() == 70 / 30


def test_failed_requests_and_plain_ones_are_left_out() -> None:
    table = accept_length_df(
        requests(
            {"steps_histogram": [0, 10]},
            {"steps_histogram": [1000], "ok": False},
            {"run_id": "base", "completion_tokens": 10},
        )
    )
    assert list(table["run_id"]) == ["spec"]
    assert table["accept_length"].item() == 2.0
    assert table["num_requests"].item() == 1


def test_interval_covers_what_two_prompts_can_give() -> None:
    # Resampling two prompts of 1.0 and 3.0 gives 1.0 a quarter of the time, 2.0 half, 3.0 a quarter.
    row = accept_length_df(requests({"steps_histogram": [10]}, {"steps_histogram": [0, 0, 10]})).iloc[0]
    assert (row["low"], row["accept_length"], row["high"]) == (1.0, 2.0, 3.0)


def test_interval_of_equal_prompts_is_a_point_and_of_one_prompt_is_missing() -> None:
    equal = accept_length_df(requests({"steps_histogram": [5, 5]}, {"steps_histogram": [5, 5]})).iloc[0]
    assert (equal["low"], equal["high"]) == (1.5, 1.5)
    single = accept_length_df(requests({"steps_histogram": [5, 5]})).iloc[0]
    assert math.isnan(single["low"])
    assert math.isnan(single["high"])


def test_repeats_of_a_prompt_do_not_narrow_the_interval() -> None:
    prompts = [{"prompt_index": index, "steps_histogram": [10 - index, index]} for index in range(8)]
    once = accept_length_df(requests(*prompts)).iloc[0]
    thrice = accept_length_df(requests(*(row | {"repeat": repeat} for repeat in range(3) for row in prompts))).iloc[0]
    assert thrice["num_requests"] == 24
    assert (thrice["low"], thrice["high"]) == pytest.approx((once["low"], once["high"]))


def test_requests_of_unknown_prompts_stand_for_themselves() -> None:
    row = accept_length_df(requests(*({"prompt_index": None, "steps_histogram": [1, 1]} for _ in range(3)))).iloc[0]
    assert row["num_prompts"] == 3


def test_prompts_of_two_sets_are_not_taken_for_one() -> None:
    same_index = [{"prompt_index": 0, "prompt_set": name, "steps_histogram": [1, 1]} for name in ("a", "b")]
    assert accept_length_df(requests(*same_index), by=("campaign",))["num_prompts"].item() == 2


def test_survival_counts_steps_that_get_there() -> None:
    # 10 steps: 4 accept none, 3 one, 2 two, 1 three
    table = survival_df(requests({"steps_histogram": [4, 3, 2, 1]}))
    assert list(table["position"]) == [1, 2, 3]
    assert list(table["survival"]) == pytest.approx([0.6, 0.3, 0.1])
    assert list(table["conditional"]) == pytest.approx([0.6, 0.5, 1 / 3])
    assert set(table["num_verify_steps"]) == {10}


def test_survival_pads_short_histograms() -> None:
    table = survival_df(requests({"steps_histogram": [5]}, {"steps_histogram": [0, 0, 5]}))
    assert list(table["survival"]) == [0.5, 0.5]
    assert list(table["low"]) == [0.0, 0.0]
    assert list(table["high"]) == [1.0, 1.0]


def test_survival_of_a_drafter_that_is_never_accepted_has_no_position() -> None:
    assert survival_df(requests({"steps_histogram": [9, 0, 0]})).empty
    assert list(spread_df(requests({"steps_histogram": [9, 0, 0]}))["share"]) == [1.0]


def test_spread_shows_what_the_mean_hides() -> None:
    always_two = spread_df(requests({"steps_histogram": [0, 0, 10]}))
    none_or_four = spread_df(requests({"steps_histogram": [5, 0, 0, 0, 5]}))
    assert list(always_two["share"]) == [0, 0, 1]
    assert list(none_or_four["share"]) == [0.5, 0, 0, 0, 0.5]
    assert list(none_or_four["correct_drafts"]) == [0, 1, 2, 3, 4]


def test_shorter_chains_end_at_the_measured_accept_length() -> None:
    histogram = [4, 3, 2, 1]
    table = shorter_chains_df(requests({"steps_histogram": histogram}))
    assert list(table["num_steps"]) == [1, 2, 3]
    assert list(table["accept_length"]) == pytest.approx([1.6, 1.9, pooled_accept_length(histogram)])


def test_groups_are_kept_apart_and_named() -> None:
    held = requests({"run_id": "a", "steps_histogram": [1, 1]}, {"run_id": "b", "steps_histogram": [0, 0, 1]})
    assert list(shorter_chains_df(held)["run_id"]) == ["a", "b", "b"]
    assert list(accept_length_df(held)["accept_length"]) == [1.5, 3.0]


def test_sources_are_flagged_above_three_percent() -> None:
    table = sources_df(
        runs(
            speculative("near", accept_length_requests=2.0, accept_length_log=2.05, accept_length_counters=2.02),
            speculative("far", accept_length_requests=2.0, accept_length_log=2.1),
            speculative("alone", accept_length_log=2.1),
        )
    ).set_index("run_id")
    assert table.loc["near", "max_difference"] == pytest.approx(0.025)
    assert not table.loc["near", "flagged"]
    assert table.loc["far", "flagged"]
    assert math.isnan(table.loc["alone", "max_difference"])
    assert pd.isna(table.loc["alone", "flagged"])


@pytest.mark.parametrize("make", [accept_length_df, survival_df, spread_df, shorter_chains_df])
def test_no_requests_give_an_empty_table_with_its_columns(make) -> None:
    full, empty = make(requests({"steps_histogram": [1, 1]})), make(requests())
    assert empty.empty
    assert list(empty.columns) == list(full.columns)


def test_no_runs_give_an_empty_table_of_sources() -> None:
    assert list(sources_df(runs()).columns) == list(sources_df(runs(speculative())).columns)


def test_an_interval_does_not_depend_on_the_other_runs() -> None:
    own = [{"prompt_index": index, "steps_histogram": [index + 1, 3 * index, 7]} for index in range(9)]
    others = [row | {"run_id": "another"} for row in reversed(own)]
    alone = accept_length_df(requests(*own))[["low", "high"]].iloc[0]
    beside = accept_length_df(requests(*others, *own))
    assert (beside.loc[1, ["low", "high"]] == alone).all()
    assert (beside.loc[0, ["low", "high"]] == alone).all()
