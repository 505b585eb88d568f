import pytest
from analysis_tables import baseline, runs, speculative

from workbench.analysis.fairness import fairness_df, same_points_df


def test_a_queue_behind_speculation_is_unfair_to_an_uncapped_baseline() -> None:
    # 48 running and 32 queued of 80; the baseline states no limit
    table = fairness_df(
        runs(
            baseline(max_concurrency=80, output_tok_per_s=1.0),
            speculative(max_concurrency=80, peak_running_req=48, peak_queue_req=32),
        )
    )
    row = table.set_index("setting").loc["max_running_requests"]
    assert (row["speculative"], row["baseline"]) == ("48 (32 queued)", "not stated")
    assert row["matters"]


def test_a_queue_is_named_also_where_no_baseline_ran_at_that_load() -> None:
    table = fairness_df(
        runs(
            baseline("c1"),
            baseline("c128", max_concurrency=128, max_running_requests=2048),
            baseline("elsewhere", baseline_group="B", max_concurrency=256),
            speculative(max_concurrency=80, peak_running_req=48, peak_queue_req=32),
        )
    )
    row = table.iloc[0]
    assert len(table) == 1
    assert (row["baseline_run_id"], row["speculative"], row["baseline"]) == ("c128", "48 (32 queued)", "2048")


@pytest.mark.parametrize(("concurrency", "matters"), [(32, False), (48, False), (49, True)])
def test_a_lower_limit_matters_only_when_it_binds(concurrency: int, matters: bool) -> None:
    table = fairness_df(
        runs(
            baseline(max_concurrency=concurrency, max_running_requests=2048),
            speculative(max_concurrency=concurrency, max_running_requests=48),
        )
    )
    assert list(table["setting"]) == ["max_running_requests"]
    assert bool(table["matters"].item()) is matters


def test_known_differences_are_listed_and_unknown_ones_are_not_invented() -> None:
    table = fairness_df(
        runs(
            baseline(sglang_version="0.5.14", cuda_graph=True, tp_size=8, max_total_num_tokens=1000),
            speculative(sglang_version="0.5.9", cuda_graph=False, tp_size=None, max_total_num_tokens=800),
        )
    ).set_index("setting")
    assert set(table.index) == {"sglang_version", "cuda_graph", "max_total_num_tokens"}
    assert table.loc["cuda_graph", "matters"]
    assert (table.loc["cuda_graph", "speculative"], table.loc["cuda_graph", "baseline"]) == ("False", "True")
    assert not table.loc["max_total_num_tokens", "matters"]


def test_neighbours_and_cpus_of_one_arm_alone_matter() -> None:
    table = fairness_df(
        runs(baseline(places=1, cpus=64), speculative(places=4, cpus=16), speculative("old", places=None))
    ).set_index("setting")
    assert table[["run_id", "speculative", "baseline"]].to_numpy().tolist() == [
        ["spec", "4", "1"],
        ["spec", "16", "64"],
    ]
    assert table["matters"].all() and list(table.index) == ["places", "cpus"]


def test_a_smaller_cache_matters_once_requests_are_retracted() -> None:
    table = fairness_df(
        runs(baseline(max_total_num_tokens=1000), speculative(max_total_num_tokens=800, num_retractions=3))
    )
    assert bool(table["matters"].item())


def test_equal_arms_have_no_differences() -> None:
    same = {"sglang_version": "0.5.14", "max_running_requests": 32, "temperature": 0.0, "gpu_name": "H200"}
    assert fairness_df(runs(baseline(**same), speculative(**same))).empty
    assert fairness_df(runs()).empty


def test_sixteen_and_five_draft_tokens_of_a_chain_are_one_point() -> None:
    # topk 1: the server uses steps + 1 draft tokens, whatever was asked
    used = {"asked_num_steps": 3, "asked_eagle_topk": 1, "num_steps": 3, "eagle_topk": 1, "num_draft_tokens": 4}
    table = same_points_df(
        runs(
            speculative("n16", asked_num_draft_tokens=16, **used),
            speculative("n5", asked_num_draft_tokens=5, **used),
            speculative("other", asked_num_draft_tokens=5, **used | {"asked_num_steps": 4, "num_steps": 4}),
        )
    )
    row = table.iloc[0]
    assert len(table) == 1
    assert row["run_ids"] == ["n16", "n5"]
    assert row["asked"] == "3, 1, 16; 3, 1, 5"
    assert (row["num_steps"], row["eagle_topk"], row["num_draft_tokens"]) == (3, 1, 4)


def test_repeats_of_one_question_and_unknown_shapes_are_no_merged_points() -> None:
    used = {"asked_num_steps": 3, "num_steps": 3, "eagle_topk": 1, "num_draft_tokens": 4}
    assert same_points_df(runs(speculative("a", **used), speculative("b", **used))).empty
    unknown = [speculative(name, asked_num_draft_tokens=asked) for name, asked in (("a", 16), ("b", 5))]
    assert same_points_df(runs(*unknown)).empty
    assert same_points_df(runs()).empty
