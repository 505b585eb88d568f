from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from analysis_tables import recorded, requests, runs, speculative
from answer_tables import cost_rows, costs_of, speedup_rows, speedups_of
from random_tables import SEEDS, random_tables

from workbench.analysis import views
from workbench.analysis.campaign import scaling_fits
from workbench.paths import recorded_dir
from workbench.table import Tables, load_tables, reference_points
from workbench.table.columns import DRAFTERS, frame

KIMI, SMOLLM, FIRST = "kimi_k25", "h200_smollm2", "h200_first_trial"


def row_of(view: pd.DataFrame, run: str) -> dict[str, object]:
    (found,) = view[view["run"] == run].to_dict("records")
    return {str(name): value for name, value in found.items()}


# --- runs, costs, speedups ---------------------------------------------------------------------------------------


def test_runs_show_ranges_as_ranges_and_unknown_as_unknown() -> None:
    row = row_of(views.runs_view(recorded(KIMI).runs), "custom-v3, 16 draft tokens, no graphs")
    assert (row["accept length"], row["output tok/s"], row["graphs"]) == ("2.00\N{EN DASH}2.50", "56.7", "off")
    assert pd.isna(row["steps"])
    assert row_of(views.runs_view(recorded(KIMI).runs), "plain A, 128 at once")["output tok/s"] == "2,370"


def test_costs_show_the_published_table() -> None:
    # Noted beside the runs: break-even 3.17-3.97 and a cycle of 35.3-44.1 ms without graphs, 2.52 and 28.0 with them.
    view = views.costs_view(costs_of(recorded(KIMI)))
    off = row_of(view, "custom-v3, 16 draft tokens, no graphs")
    assert (off["break-even"], off["verify cycle (ms)"]) == ("3.17\N{EN DASH}3.97", "35.3\N{EN DASH}44.1")
    on = row_of(view, "custom-v3, 16 draft tokens, graphs")
    assert (on["break-even"], on["verify cycle (ms)"]) == ("2.52", "28.0")
    assert "no speed was measured" in str(row_of(view, "custom-v3, EAGLE flag")["what is missing"])


def test_what_is_missing_has_no_column_where_nothing_is() -> None:
    assert "what is missing" not in views.costs_view(costs_of(recorded(FIRST)))


def test_speedups_are_best_first_and_say_what_they_stand_on() -> None:
    view = views.speedups_view(speedups_of(recorded(FIRST)))
    assert view["speedup"].is_monotonic_decreasing
    assert view.loc[0, "run"] == "n24000L, 6 steps"
    assert view.loc[0, "judged by"] == "20\u00a0prompts"
    assert set(view.loc[view["concurrency"] > 1, "judged by"]) == {"client,\u00a0log"}


@pytest.mark.parametrize(
    ("method", "n", "said"),
    [
        ("paired bootstrap over prompts", 1, "1\u00a0prompt"),
        ("bootstrap over passes, all slots taken as busy", 5, "5\u00a0passes"),
        ("bootstrap over passes, all slots taken as busy", 1, "1\u00a0pass"),
        ("one figure an arm", 1, "one figure an arm"),
        ("client's figure and median log window", 1, "client,\u00a0log"),
    ],
)
def test_how_a_verdict_was_found_in_a_few_words(method: str, n: int, said: str) -> None:
    assert views.speedups_view(speedup_rows({"method": method, "n": n})).loc[0, "judged by"] == said


def test_a_speedup_that_was_not_judged() -> None:
    view = views.speedups_view(speedup_rows({"method": None, "speedup": None, "low": None, "high": None}))
    assert view[["judged by", "interval"]].isna().all(axis=None)


# --- checks ------------------------------------------------------------------------------------------------------


def test_only_sources_that_can_be_compared_are_shown() -> None:
    assert views.sources_view(recorded(KIMI).runs).empty
    first = views.sources_view(recorded(FIRST).runs)
    assert set(first["over 3 %"]) == {False}
    table = runs(speculative(accept_length_requests=2.0, accept_length_log=2.1))
    assert row_of(views.sources_view(table), "spec") == {
        "run": "spec",
        "prompts": "p",
        "requests": 2.0,
        "log": 2.1,
        "counters": pytest.approx(float("nan"), nan_ok=True),
        "largest difference": "5.0%",
        "over 3 %": True,
        "why": pytest.approx(float("nan"), nan_ok=True),
    }


def test_settings_that_matter_come_first() -> None:
    view = views.fairness_view(recorded(KIMI))
    assert view.loc[0, ["setting", "speculative", "baseline", "runs"]].tolist() == [
        "max_running_requests",
        "48 (32 queued)",
        "not stated",
        "custom-v1, 4 draft tokens, 48 running",
    ]


def test_a_setting_in_which_many_runs_differ_is_one_row() -> None:
    view = views.fairness_view(recorded(SMOLLM))
    assert len(view) == 1
    assert view.loc[0, ["setting", "speculative", "baseline"]].tolist() == [
        "max_total_num_tokens",
        "3120410",
        "3227882",
    ]
    assert view.loc[0, "runs"] == "EAGLE flag, EAGLE-3 drafter and accept length forced to 2.5 (simulated)"
    assert views.fairness_view(replace(recorded(SMOLLM), runs=recorded(SMOLLM).runs.iloc[:0])).empty


def test_drift_needs_a_second_pass() -> None:
    assert views.drift_view(recorded(KIMI)).empty
    first = views.drift_view(recorded(FIRST))
    # 705.6 tok/s in the second pass after 823.7 in the first
    assert first["over the first pass"].min() == pytest.approx(705.582601 / 823.694256)
    assert (first.groupby(["baseline"])["pass"].size() == 2).all()


def test_first_trial_text_is_rarely_the_baseline_s() -> None:
    # The notes: greedy text equals the baseline's on 5-8 of 20 and 1-3 of 20 prompts.
    view = views.losslessness_view(recorded(FIRST))
    same = view["same as the baseline"].str.extract(r"(\d+) of 20")[0].astype(int)
    assert same.between(1, 8).all()
    assert views.losslessness_view(recorded(SMOLLM)).empty


def test_logs_alone_disagree_at_concurrency_8() -> None:
    speeds = views.log_speeds(recorded(SMOLLM))
    view = views.log_speeds_view(speeds)
    row = view[(view["server"] == "sim25-s3") & (view["running"] == 8)].iloc[0]
    assert row["verdict"] == "not decidable"
    assert row["median-line speedup"] == pytest.approx(0.97, abs=0.005)
    assert row["why"].startswith("they disagree")
    assert "client 0." not in row["why"]  # the two figures have columns of their own
    assert {"num_windows_spec", "reason"} <= set(speeds.columns)


def test_groups_without_both_logs_have_no_speeds() -> None:
    view = views.log_speeds_view(views.log_speeds(recorded(KIMI)))
    assert view.empty
    assert "verdict" in view


def test_the_longest_log_is_a_speculative_one_where_there_is_any() -> None:
    log = views.longest_log(recorded(FIRST))
    assert log is not None
    assert log.name == "h200_first_trial/n24000L_s3"
    assert views.longest_log(Tables({}, *[pd.DataFrame()] * 5, logs={}, problems=())) is None


# --- drafts ------------------------------------------------------------------------------------------------------


def test_a_long_chain_predicts_the_shorter_ones() -> None:
    view = views.shorter_chains_view(recorded(FIRST))
    assert set(view["from"]) == {"n24000L, 6 steps"}
    assert sorted(view["steps"].unique()) == [1, 2, 3, 4, 5]
    assert view["difference"].astype(float).abs().max() <= 0.07
    assert (view["difference"].str[0].isin(["+", "-"])).all()


def test_required_acceptance_at_stated_steps_beside_what_there_is() -> None:
    # One step: 1 + a = 1.5 needs a = 0.5, 1.25 is a = 0.25; 2.5 tokens from one step are out of reach.
    view = views.required_acceptance_view(
        cost_rows(
            {"label": "near", "num_steps": 1, "break_even": 1.5, "accept_length": 1.25},
            {"label": "far", "num_steps": 1, "break_even": 2.5, "accept_length": 1.25},
        )
    )
    assert view[["run", "acceptance needed", "acceptance now"]].to_numpy().tolist() == [
        ["near", "0.50", "0.25"],
        ["far", ">1", "0.25"],
    ]


def test_required_acceptance_over_assumed_steps() -> None:
    view = views.required_acceptance_view(costs_of(recorded(KIMI)))
    row = row_of(view, "custom-v1, 4 draft tokens")
    # break-even 63.6 / 40.8 = 1.559: 0.559 at one step; at two a + a^2 = 0.559 gives 0.399
    assert (row["needed at 1 step"], row["needed at 2 steps"]) == ("0.56", "0.40")
    assert view["acceptance needed"].isna().all()
    assert views.required_acceptance_view(cost_rows()).empty


def test_points_and_curves_of_the_training_page() -> None:
    tables = recorded(FIRST)
    fits = scaling_fits(tables, costs_of(tables))
    points = views.points_view(fits)
    assert points["samples"].is_monotonic_increasing
    assert points.loc[0, ["drafter", "samples", "steps"]].tolist() == ["n500", 500, 3]
    curves = views.curves_view(fits)
    assert list(curves["curve"].unique()) == ["mix_heldout, 3 steps", "mt_bench_first_turn, 3 steps"]
    assert curves.groupby("curve")["drawn"].sum().tolist() == [1, 1]
    main = views.main_curve(fits)
    assert main is not None
    assert main.num_sizes == 4


def test_one_training_size_has_points_and_no_curve() -> None:
    tables = recorded(KIMI)
    fits = scaling_fits(tables, costs_of(tables))
    assert len(views.points_view(fits)) == 9
    assert views.curves_view(fits).empty
    assert views.main_curve(fits) is None
    assert views.points_view({}).empty


def test_accept_lengths_carry_their_interval() -> None:
    view = views.accept_lengths_view(recorded(FIRST))
    row = view[(view["run"] == "n24000L, 6 steps") & (view["prompts"] == "mix_heldout")].iloc[0]
    assert row["accept length"] == pytest.approx(2.033, abs=0.001)
    assert (row["n prompts"], row["n verify steps"]) == (20, 1562)
    assert "\N{EN DASH}" in row["95 % over prompts"]


def test_offline_beside_served() -> None:
    view = views.offline_view(recorded(FIRST))
    assert len(view) == 22
    assert view.loc[0, "difference"] == f"{view.loc[0, 'served'] - view.loc[0, 'offline']:+.3f}"


def test_what_drafters_were_trained_on() -> None:
    view = views.drafters_view(frame(DRAFTERS, [{"campaign": "c", "drafter": "d", "training_samples": 500}]))
    assert view.loc[0, ["drafter", "samples"]].tolist() == ["d", 500]


# --- campaigns and published points ------------------------------------------------------------------------------


def test_campaigns_side_by_side_leave_out_what_does_not_count() -> None:
    tables = load_tables(*(recorded_dir() / name for name in (KIMI, SMOLLM, FIRST)))
    costs = costs_of(tables)
    view = views.compare_view(tables, costs).set_index("campaign")
    assert view["runs"].to_dict() == {KIMI: 12, SMOLLM: 9, FIRST: 35}
    kimi = view.loc[KIMI, ["best run", "tok/s", "baseline tok/s"]]
    assert kimi.tolist() == ["aq-medai-k2, 4 draft tokens", "62.9", "63.6"]
    assert view.loc[SMOLLM, ["best run", "speedup"]].isna().all()
    assert view.loc[SMOLLM, "break-even"] == "2.37 (simulated)"  # 2.505 x 767.6 / 811.5
    assert view.loc[FIRST, "break-even"] == "near 2.39"
    best = views.best_by_shape(tables, costs)
    assert set(best["campaign"]) == {KIMI, FIRST}
    assert "h200_first_trial: n24000L, 6 steps" in set(best["label"])


def test_published_points_are_one_row_a_source_and_shape() -> None:
    points = reference_points()
    view = views.published_view(points)
    assert view["benchmarks"].sum() == len(points)
    vicuna = view[(view["target"] == "Vicuna-13B") & (view["benchmarks"] == 5)].iloc[0]
    # EAGLE-3, Table 1: 6.65, 7.54, 6.29, 6.17 and 6.47
    assert vicuna["accept length"] == "6.17\N{EN DASH}7.54"
    assert vicuna["training samples"] == "532,000"
    assert pd.isna(vicuna["steps, topk, tokens"])
    assert {"3, 1, 4", "3, 1, \N{EN DASH}"} <= set(view["steps, topk, tokens"].dropna())
    assert views.published_view(points.iloc[:0]).empty


# --- any table ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_no_table_breaks_a_view(seed: int) -> None:
    check_views(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5, 120))
def test_no_table_breaks_a_view_many(seed: int) -> None:
    check_views(seed)


def check_views(seed: int) -> None:
    tables = random_tables(seed)
    costs, speedups = costs_of(tables), speedups_of(tables)
    fits = scaling_fits(tables, costs)
    made = [
        views.runs_view(tables.runs),
        views.costs_view(costs),
        views.speedups_view(speedups),
        views.fairness_view(tables),
        views.sources_view(tables.runs),
        views.drift_view(tables),
        views.losslessness_view(tables),
        views.log_speeds_view(views.log_speeds(tables)),
        views.shorter_chains_view(tables),
        views.required_acceptance_view(costs),
        views.points_view(fits),
        views.curves_view(fits),
        views.drafters_view(tables.drafters),
        views.offline_view(tables),
        views.accept_lengths_view(tables),
        views.compare_view(tables, costs),
        views.best_by_shape(tables, costs),
    ]
    assert len(made[0]) == len(tables.runs)
    assert len(made[1]) == len(made[2]) == (tables.runs["role"] == "speculative").sum()
    assert all(table.columns.is_unique for table in made)


def test_the_longest_chain_is_not_compared_with_itself_at_another_load() -> None:
    chain = {"eagle_topk": 1, "num_steps": 3, "steps_histogram": [1, 0, 0, 1], "accept_length": 2.5}
    table = runs(
        speculative("s3-c1", **chain),
        speculative("s3-c8", max_concurrency=8, **chain),
        speculative("s1-c8", max_concurrency=8, eagle_topk=1, num_steps=1, accept_length=1.4),
        speculative("s1-c1", eagle_topk=1, num_steps=1, accept_length=1.6),
    )
    counted = [{"run_id": name, "steps_histogram": [1, 0, 0, 1]} for name in ("s3-c1", "s3-c8")]
    tables = Tables({}, table, requests(*counted), *[pd.DataFrame()] * 3, logs={}, problems=())
    view = views.shorter_chains_view(tables)
    # Half the steps accept a first draft: 1 + 0.5 at one step.
    assert view[["from", "concurrency", "steps", "expected", "difference"]].to_numpy().tolist() == [
        ["s3-c1", 1, 1, 1.5, "+0.10"],
        ["s3-c8", 8, 1, 1.5, "-0.10"],
    ]


def test_speeds_are_named_after_what_they_are() -> None:
    rows = [{"basis": basis, "tok_per_s": 2.0, "base_tok_per_s": 1.0} for basis in ("decode", "output")]
    assert {"decode tok/s", "baseline decode tok/s"} < set(views.costs_view(cost_rows(rows[0])).columns)
    assert {"output tok/s", "baseline output tok/s"} < set(views.speedups_view(speedup_rows(rows[1])).columns)
    mixed = views.speedups_view(speedup_rows(*rows))
    assert mixed[["tok/s", "which speed"]].to_numpy().tolist() == [[2.0, "decode"], [2.0, "output"]]
    assert "busy (s a pass)" in views.speedups_view(speedup_rows(rows[0] | {"busy_s": 0.5})).columns
