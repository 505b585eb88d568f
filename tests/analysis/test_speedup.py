import time

import pandas as pd
import pytest
from analysis_tables import baseline, recorded, requests, runs, speculative, timed

from workbench.analysis.cost import cost_df
from workbench.analysis.speedup import losslessness_df, speedup_df

BASE = [1.0, 1.1, 0.9, 1.05]


def _rows(spec: float = 0.5, passes: int = 2, **values: object) -> list[dict[str, object]]:
    """Requests of both arms: ``passes`` equal baseline passes, one speculative pass at a multiple of their time."""
    plain = [row for repeat in range(passes) for row in timed("base", BASE, repeat=repeat)]
    return [row | values for row in [*plain, *timed("spec", [second * spec for second in BASE])]]


def _one(runs_table: pd.DataFrame, requests_table: pd.DataFrame) -> pd.Series:
    table = speedup_df(runs_table, requests_table)
    assert len(table) == 1
    return table.iloc[0]


def test_requests_of_both_arms_are_paired_by_prompt() -> None:
    row = _one(runs(baseline(output_tok_per_s=1.0), speculative(output_tok_per_s=1.0)), requests(*_rows()))
    assert (row["speedup"], row["verdict"], row["n"]) == (pytest.approx(2.0), "win", 4)
    assert (row["tok_per_s"], row["base_tok_per_s"]) == pytest.approx((800 / 4.05, 400 / 4.05))
    assert (row["baseline_run_id"], row["drafter"], row["basis"]) == ("base", "d", "output")


def test_only_prompts_that_both_arms_finished_are_compared() -> None:
    # The speculative arm failed on the one prompt on which it would have been slow.
    rows = [row for row in _rows() if not (row["run_id"] == "spec" and row["prompt_index"] == 3)]
    failed = {"run_id": "spec", "prompt_index": 3, "ok": False, "latency_s": 60.0, "completion_tokens": 5}
    row = _one(runs(baseline(), speculative()), requests(*rows, failed))
    assert (row["speedup"], row["n"]) == (pytest.approx(2.0), 3)
    assert "1 failed requests of the speculative arm left out" in row["reason"]


def test_first_tokens_known_in_both_arms_make_it_decode_speed() -> None:
    row = _one(runs(baseline(), speculative()), requests(*_rows(ttft_s=0.1)))
    assert row["basis"] == "decode"
    # 99 tokens a request after the first, which takes 0.1 s of each
    assert row["speedup"] == pytest.approx((4.05 - 0.4) / (2.025 - 0.4))


def test_a_baseline_measured_once_leaves_the_drift_unknown() -> None:
    row = _one(runs(baseline(), speculative()), requests(*_rows(passes=1)))
    assert (row["low"], row["high"]) == pytest.approx((2.0, 2.0))
    assert row["verdict"] == "not decidable"


def test_repeats_anywhere_in_the_campaign_tell_the_drift() -> None:
    other = [*timed("other", [1.0]), *timed("other", [1.2], repeat=1)]
    table = speedup_df(
        runs(baseline(), speculative(), baseline("other", baseline_group="B")), requests(*_rows(passes=1), *other)
    )
    assert "s.d. of 1 repeats" in table["reason"].item()
    assert table["low"].item() < 2.0 < table["high"].item()


def test_baselines_before_and_after_are_passes_of_one_arm() -> None:
    rows = [*timed("before", BASE), *timed("after", [2 * second for second in BASE]), *timed("spec", BASE)]
    row = _one(runs(baseline("before"), baseline("after"), speculative()), requests(*rows))
    assert row["speedup"] == pytest.approx(1.5)  # 8 x 100 tokens in 12.15 s against 400 in 4.05 s
    assert "plain passes lie 100% apart" in row["reason"]
    assert row["verdict"] == "noise"


def test_single_figures_show_a_speedup_but_decide_nothing() -> None:
    row = _one(runs(baseline(output_tok_per_s=90.0), speculative(output_tok_per_s=74.9)), requests())
    assert row["speedup"] == pytest.approx(0.8322, abs=1e-4)
    assert (row["verdict"], row["reason"], row["n"]) == ("not decidable", "one figure an arm, no repeats", 1)
    assert pd.isna(row["low"])


def test_a_range_in_the_source_stays_a_range() -> None:
    spec = speculative(output_tok_per_s=50.0, output_tok_per_s_low=40.0, output_tok_per_s_high=60.0)
    row = _one(runs(baseline(output_tok_per_s=100.0), spec), requests())
    assert (row["low"], row["speedup"], row["high"], row["verdict"]) == (0.4, 0.5, 0.6, "not decidable")


@pytest.mark.parametrize(
    ("spec", "median", "verdict"), [(55.0, 97.0, "not decidable"), (28.0, 43.0, "loss"), (200.0, 180.0, "win")]
)
def test_single_figures_with_logs_need_both_readings(spec: float, median: float, verdict: str) -> None:
    row = _one(
        runs(
            baseline(output_tok_per_s=100.0, log_median_tok_per_s=100.0),
            speculative(output_tok_per_s=spec, log_median_tok_per_s=median),
        ),
        requests(),
    )
    assert (row["speedup"], row["verdict"]) == (spec / 100, verdict)
    assert (row["low"], row["high"]) == (min(spec, median) / 100, max(spec, median) / 100)


def test_above_concurrency_one_prompts_are_not_paired() -> None:
    rows = [row for row in _rows(passes=5) if row["run_id"] == "base"]
    rows += [row for repeat in range(5) for row in timed("spec", [0.5] * 4, repeat=repeat)]
    at_eight = {"max_concurrency": 8}
    row = _one(runs(baseline(**at_eight), speculative(**at_eight)), requests(*rows))
    assert row["method"].startswith("bootstrap over passes")
    assert (row["tok_per_s"], row["verdict"], row["n"]) == (1600.0, "win", 5)
    few = _one(runs(baseline(**at_eight), speculative(**at_eight)), requests(*_rows()))
    assert few["verdict"] == "not decidable"
    assert few["speedup"] == pytest.approx(2.0)
    # A figure for the whole load stands before one that is made up of requests.
    figures = {**at_eight, "output_tok_per_s": 10.0}
    assert _one(runs(baseline(**figures), speculative(**figures)), requests(*_rows()))["speedup"] == 1.0


def test_without_a_baseline_the_speed_still_stands() -> None:
    row = _one(runs(speculative(output_tok_per_s=74.9)), requests(*_rows()))
    assert (row["verdict"], row["reason"]) == ("not decidable", "no baseline in the campaign")
    assert pd.isna(row["speedup"])


def test_nothing_measured_is_said() -> None:
    row = _one(runs(baseline(output_tok_per_s=90.0), speculative(status="failed")), requests())
    assert row["reason"] == "the run is failed: it is not judged"


def test_empty_tables_give_an_empty_table_with_its_columns() -> None:
    empty = speedup_df(runs(), requests())
    assert empty.empty
    assert list(empty.columns) == list(speedup_df(runs(baseline(), speculative()), requests()).columns)
    assert speedup_df(runs(baseline()), requests()).empty


def test_requests_that_made_no_token_do_not_break_the_ratio() -> None:
    rows = [row | {"completion_tokens": 1, "ttft_s": 0.01} for row in _rows()]
    assert _one(runs(baseline(), speculative()), requests(*rows))["verdict"] == "not decidable"


def test_the_recorded_trial_has_no_win_and_three_runs_within_the_noise() -> None:
    tables = recorded("h200_first_trial")
    table = speedup_df(tables.runs, tables.requests).set_index("run_id")
    noise = set(table.index[table["verdict"] == "noise"])
    assert noise == {f"eagle3-n24000L-s{steps}-mix_heldout-c1" for steps in (4, 5, 6)}
    assert set(table["verdict"]) == {"loss", "noise"}
    # 3183 tokens in 4.73897 s against two passes of 3612 tokens in 5.01072 s and 4.56497 s
    best = table.loc["eagle3-n24000L-s6-mix_heldout-c1"]
    assert best["speedup"] == pytest.approx((3183 / 4.73897) / (2 * 3612 / (5.01072 + 4.56497)), rel=1e-5)
    assert best["low"] < 0.8
    assert best["high"] > 1.0


def test_the_recorded_simulation_at_concurrency_8_is_not_decidable() -> None:
    tables = recorded("h200_smollm2")
    row = speedup_df(tables.runs, tables.requests).set_index("run_id").loc["sim25-s3-c8"]
    assert row["speedup"] == pytest.approx(0.55, abs=0.001)
    assert row["high"] == pytest.approx(0.98, abs=0.015)
    assert row["verdict"] == "not decidable"
    assert "cold starts and short phases" in row["reason"]


def test_recorded_texts_equal_the_baselines_on_few_prompts_and_plain_passes_on_all() -> None:
    tables = recorded("h200_first_trial")
    table = losslessness_df(tables.requests, tables.runs).dropna(subset=["share"])
    plain_end = table[~table["run_id"].str.contains("ignore_eos")]
    mix, bench = (plain_end[plain_end["prompt_set"] == name] for name in ("mix_heldout", "mt_bench_first_turn"))
    assert (mix["num_same"].min(), mix["num_same"].max()) == (5, 8)
    assert (bench["num_same"].min(), bench["num_same"].max()) == (1, 3)
    assert set(table["control_share"].dropna()) == {1.0}


def test_resampling_the_recorded_trial_takes_less_than_a_second() -> None:
    tables = recorded("h200_first_trial")
    start = time.process_time()
    speedup_df(tables.runs, tables.requests, n_boot=2000)
    assert time.process_time() - start < 1.0


# --- passes that the client timed --------------------------------------------------------------------------------


def _busy(speeds: list[float], seconds: list[float], output: float) -> dict[str, object]:
    """A run at concurrency 8 whose passes were timed; its decode speed is tokens over seconds of all of them."""
    tokens = sum(speed * second for speed, second in zip(speeds, seconds, strict=True))
    return {
        "max_concurrency": 8,
        "pass_decode_tok_per_s": speeds,
        "pass_busy_s": seconds,
        "decode_tok_per_s": tokens / sum(seconds),
        "output_tok_per_s": output,
    }


def test_above_concurrency_one_the_windows_of_the_client_decide() -> None:
    # 4 x 100 tok/s for 3 s and 200 for 6 s: 2400 tokens in 18 s. The requests would tell another speed.
    base = baseline(**_busy([100.0] * 4 + [200.0], [3.0] * 4 + [6.0], 90.0))
    spec = speculative(accept_length=2.0, **_busy([200.0] * 5, [4.0] * 5, 180.0))
    rows = [row for repeat in range(5) for name in ("base", "spec") for row in timed(name, [1.0], repeat=repeat)]
    row = _one(runs(base, spec), requests(*rows))
    assert (row["tok_per_s"], row["base_tok_per_s"]) == pytest.approx((200.0, 2400 / 18))
    assert row["speedup"] == pytest.approx(1.5)
    assert (row["basis"], row["n"], row["busy_s"], row["verdict"]) == ("decode", 5, 3.0, "win")
    # The fast pass is drawn four times or more in 0.7 % of all draws, three times or more in 5.8 %: the low end is that
    # of three, 200 against (600 + 3600) / (6 + 18); not drawn at all (33 %) is the high end, 200 against 100.
    assert (row["low"], row["high"]) == pytest.approx((200 / 175, 2.0))


def test_several_baselines_are_pooled_alike_in_speedups_and_costs() -> None:
    # 5 x 100 tok/s for 4 s and 5 x 200 for 8 s: 10,000 tokens in 60 s
    first, again = _busy([100.0] * 5, [4.0] * 5, 90.0), _busy([200.0] * 5, [8.0] * 5, 180.0)
    spec = speculative(accept_length=2.0, **_busy([250.0] * 5, [4.0] * 5, 200.0))
    table = runs(
        baseline("before", completion_tokens=1, **first), baseline("after", completion_tokens=9, **again), spec
    )
    row, cost = _one(table, requests()), cost_df(table).iloc[0]
    assert row["base_tok_per_s"] == cost["base_tok_per_s"] == pytest.approx(10_000 / 60)
    assert row["speedup"] == cost["speedup"] == pytest.approx(1.5)
    assert cost["break_even"] == pytest.approx(2.0 / 1.5)


@pytest.mark.parametrize(
    ("seconds", "output", "verdict"), [(1.9, 90.0, "not decidable"), (1.9, 110.0, "win"), (2.0, 90.0, "win")]
)
def test_short_passes_decide_only_what_whole_passes_tell_too(seconds: float, output: float, verdict: str) -> None:
    base = baseline(**_busy([100.0] * 5, [9.0] * 5, 100.0))
    row = _one(runs(base, speculative(**_busy([120.0] * 5, [seconds] * 5, output))), requests())
    assert (row["speedup"], row["verdict"], row["busy_s"]) == (pytest.approx(1.2), verdict, seconds)
    assert ("short passes (busy 1.9 s)" in row["reason"]) is (seconds < 2)
    assert ("give 0.90x: measure longer ones" in row["reason"]) is (verdict == "not decidable")


def test_fewer_than_five_timed_passes_decide_nothing() -> None:
    base, spec = _busy([100.0] * 6, [9.0] * 6, 90.0), _busy([120.0] * 4, [9.0] * 4, 110.0)
    row = _one(runs(baseline(**base), speculative(**spec)), requests())
    assert (row["speedup"], row["verdict"]) == (pytest.approx(1.2), "not decidable")
    assert row["reason"] == "4 passes against 6; 5 of each are needed, the arms in turn"


@pytest.mark.parametrize("campaign", ["h200_step_cost", "h200_first_trial", "h200_smollm2", "kimi_k25"])
def test_break_even_is_accept_length_over_the_speedup_of_the_table(campaign: str) -> None:
    tables = recorded(campaign)
    both = cost_df(tables.runs).merge(speedup_df(tables.runs, tables.requests, n_boot=50), on=["campaign", "run_id"])
    known = both.dropna(subset=["break_even"])
    assert len(known)
    assert (known["accept_length"] / known["speedup_y"]).tolist() == pytest.approx(known["break_even"].tolist(), 1e-9)
    assert known["tok_per_s_x"].tolist() == pytest.approx(known["tok_per_s_y"].tolist(), 1e-9)


def test_the_recorded_speed_at_32_is_that_of_its_windows() -> None:
    # windows.json: speeds 5841.47, 5103.54, 5628.66, 5649.78, 5458.59 for 3.685, 4.233, 3.798, 3.766, 3.967 s
    # of the baseline, measured twice: 9458, 9255, 9187, 7345, 5899, 6819, 7060, 6875, 7177, 10252
    # for 2.194, 2.243, 2.148, 2.815, 3.529, 3.039, 2.954, 3.013, 2.944, 2.011 s
    tables = recorded("h200_step_cost")
    table = speedup_df(tables.runs, tables.requests, n_boot=50).set_index("run_id")
    row = table.loc["eagle3-smollm2-135m-eagle3-s3-k1-n4-c32-cc1236"]
    assert row["tok_per_s"] == pytest.approx(5524, abs=2)  # 107,436 tokens in 19.449 s
    assert row["base_tok_per_s"] == pytest.approx(7690, abs=3)  # 206,778 tokens in 26.891 s
    assert row["busy_s"] == pytest.approx((2.8153 + 2.9442) / 2, abs=0.001)  # median of the baseline's ten passes
