from __future__ import annotations

import pandas as pd
import pytest
from analysis_tables import baseline, recorded, runs, speculative
from answer_tables import exactly, speedup_rows, speedups_of, with_runs

from workbench.analysis.answers import bounded, by_concurrency, pays, short_passes, timing_noise, undecided
from workbench.analysis.speedup import drift_df

KIMI, FIRST = "kimi_k25", "h200_first_trial"


# --- does it pay -------------------------------------------------------------------------------------------------


def test_kimi_nothing_beat_the_baseline() -> None:
    # 62.9 / 63.6 = 0.989; noted figures give no verdict, so there is no advice against speculation.
    assert pays(speedups_of(recorded(KIMI))) == (
        "Nothing beat the baseline. The best of 7 runs (aq-medai-k2, 4 draft tokens) reached 62.9 output tok/s against "
        "63.6, 0.99x (one figure an arm)."
    )


def test_kimi_with_a_faster_run_is_not_decided() -> None:
    faster = with_runs(recorded(KIMI), {"custom-v3-n16-graph": exactly("output_tok_per_s", 100.0)})
    assert pays(speedups_of(faster)) == (
        "Whether speculation pays is not decided: the best of 7 runs (custom-v3, 16 draft tokens, graphs) reached "
        "100 output tok/s against 90, 1.11x; no verdict: one figure an arm, no repeats."
    )


def test_first_trial_says_do_not_enable() -> None:
    said = pays(speedups_of(recorded(FIRST)))
    assert said.startswith(
        "Do not enable speculation here: nothing beat the baseline at concurrency 1, 8 or 32. "
        "The best of 26 runs (n24000L, 6 steps, mix_heldout) reached 672 output tok/s against 754, 0.89x (95 % 0."
    )
    assert said.endswith("; 23 of 26 runs lose beyond noise.")


def test_simulated_runs_never_lead() -> None:
    assert pays(speedup_rows({"origin": "simulated", "speedup": 3.0, "verdict": "win"})) == (
        "Whether speculation pays was not measured: the acceptance of every sound speculative run is simulated "
        "(3.00x at concurrency 1)."
    )
    both = speedup_rows({"origin": "simulated", "speedup": 3.0, "verdict": "win"}, {"speedup": 0.5, "verdict": "loss"})
    assert pays(both).startswith(
        "Do not enable speculation here: nothing beat the baseline. The only run (run 1) reached "
    )


def test_a_win_is_said_with_its_concurrency_and_interval() -> None:
    table = speedup_rows(
        {"speedup": 1.2, "low": 1.1, "high": 1.3, "verdict": "win", "method": "paired bootstrap over prompts"},
        {"speedup": 1.6, "low": 0.9, "high": 2.0, "verdict": "noise"},
        {"speedup": 0.6, "max_concurrency": 8, "verdict": "loss"},
    )
    assert pays(table) == (
        "Speculation pays at concurrency 1: the only winning run (run 0) reached 120 tok/s against 100, "
        "1.20x (95 % 1.10-1.30)."
    )


def test_a_gain_within_noise_is_no_win() -> None:
    table = speedup_rows({"speedup": 1.2, "low": 0.9, "high": 1.5, "verdict": "noise", "method": "a bootstrap"})
    assert pays(table) == (
        "Whether speculation pays is not decided: the only run (run 0) reached 120 tok/s against 100, "
        "1.20x (95 % 0.90-1.50), within noise."
    )


def test_one_loss_among_open_runs_is_counted_without_advice() -> None:
    table = speedup_rows({"speedup": 0.9}, {"speedup": 0.8}, {"speedup": 0.7, "verdict": "loss"})
    said = pays(table)
    assert said.startswith("Nothing beat the baseline. The best of 3 runs (run 0) reached ")
    assert said.endswith("; 1 of 3 runs loses beyond noise.")


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("client's figure and median log window", " (0.80-1.00 by the client and the log)"),
        ("one figure an arm", " (0.80-1.00 in the source)"),
    ],
)
def test_a_range_that_is_no_interval_is_not_called_one(method: str, said: str) -> None:
    assert f"0.90x{said}." in pays(speedup_rows({"speedup": 0.9, "low": 0.8, "high": 1.0, "method": method}))


def test_an_interval_that_nothing_bounds_is_said_in_words_and_not_drawn() -> None:
    table = speedup_rows(
        {"speedup": 0.9, "low": 0.05, "high": 94_000.0, "method": "paired bootstrap over prompts"},
        {"speedup": 0.8, "low": 0.5, "high": 1.5, "method": "paired bootstrap over prompts"},
        {"speedup": 0.7, "low": 0.1, "high": 7.0, "method": "client's figure and median log window"},
    )
    assert "0.90x (too few passes to bound it)" in pays(table)
    assert bounded(table)["high"].dropna().tolist() == [1.5, 7.0]
    assert bounded(table)["low"].dropna().tolist() == [0.5, 0.1]


def test_without_any_speed_nothing_is_claimed() -> None:
    nothing = "Whether speculation pays was not measured: no sound speculative run has a speed beside a baseline's."
    assert pays(speedup_rows()) == nothing
    assert pays(speedup_rows({"speedup": None})) == nothing


def test_runs_of_one_label_are_told_apart() -> None:
    table = speedup_rows(
        {"label": "x", "speedup": 0.5, "prompt_set": "p"}, {"label": "x", "speedup": 0.9, "prompt_set": "q"}
    )
    assert "The best of 2 runs (x, q) reached" in pays(table)


# --- by concurrency ----------------------------------------------------------------------------------------------


def test_first_trial_by_concurrency() -> None:
    # 1394.7 / 4179.7 and 3375.6 / 7884
    said = by_concurrency(speedups_of(recorded(FIRST)))
    assert said == "Best speedup by concurrency: 0.89x at 1, 0.33x at 8 and 0.43x at 32."


def test_a_gain_is_named_with_what_keeps_it_from_counting() -> None:
    table = speedup_rows(
        {"label": "x, 1 at once", "speedup": 1.5, "max_concurrency": 1, "verdict": "win"},
        {"label": "y, 1 at once", "speedup": 1.2, "max_concurrency": 1, "verdict": "win"},
        {"label": "y, 8 at once", "speedup": 1.1, "max_concurrency": 8, "verdict": "not decidable"},
        {"label": "x, 8 at once", "speedup": 1.0, "max_concurrency": 8, "verdict": "noise"},
        {"label": "x, 32 at once", "speedup": 0.9, "max_concurrency": 32, "verdict": "loss"},
    )
    said = by_concurrency(table)
    assert said == "Best speedup by concurrency: 1.50x at 1 (x), 1.10x at 8 (y, not decided) and 0.90x at 32."


def test_one_concurrency_is_said_and_none_is_silent() -> None:
    assert by_concurrency(speedups_of(recorded(KIMI))) == "Only concurrency 1 was measured with a baseline beside it."
    assert by_concurrency(speedup_rows()) is None
    assert by_concurrency(speedup_rows({"speedup": 1.0, "origin": "simulated"})) is None


# --- not decided -------------------------------------------------------------------------------------------------


def test_runs_without_a_verdict_are_grouped_by_reason() -> None:
    rows = [{"verdict": "not decidable", "reason": "no repeats"} for _ in range(7)]
    rows.append({"verdict": "not decidable", "reason": "no baseline"})
    rows.append({"verdict": "loss", "reason": "x"})
    assert undecided(speedup_rows(*rows)) == [
        "Not decided: run 0; run 1; run 2; run 3; 3 more (no repeats).",
        "Not decided: run 7 (no baseline).",
    ]


def test_thousands_of_reasons_stay_a_few_lines() -> None:
    rows = [{"verdict": "not decidable", "reason": f"reason {number}"} for number in range(3000)]
    said = undecided(speedup_rows(*rows))
    assert len(said) == 4
    assert said[-1] == "2,997 more reasons in the table of speedups."


def test_the_log_that_disagrees_with_its_clients_is_not_averaged_away() -> None:
    # Recorded: at concurrency 8 the clients saw 0.55, the median window says 0.97.
    said = undecided(speedups_of(recorded("h200_smollm2")))
    assert any("concurrency 8 (client 0.55, median window 0.97: they disagree" in line for line in said)


# --- how sure ----------------------------------------------------------------------------------------------------


def test_first_trial_intervals_are_wide_and_why() -> None:
    tables = recorded(FIRST)
    drift = drift_df(tables.runs, tables.requests)
    said = str(timing_noise(speedups_of(tables), tables.runs, drift))
    assert said.startswith("Timing intervals are wide, ")
    # 705.6 / 823.7 - 1 = -14 %; six servers in the waves, two in the pair called alone
    assert said.endswith(
        "passes of the same baseline differ by up to 14%, 2 to 6 servers were alive on the GPU and most configurations "
        "have 1 pass."
    )


def test_fewer_servers_and_more_passes_change_the_reasons() -> None:
    tables = recorded(FIRST)
    alone = tables.runs.assign(servers_alive=1, repeats=3)
    no_drift = drift_df(tables.runs, tables.requests).assign(relative=1.0)
    said = str(
        timing_noise(speedups_of(tables), alone.astype({"servers_alive": "Int64", "repeats": "Int64"}), no_drift)
    )
    assert said.endswith("of the speedup in the median: most configurations have 3 passes.")


def test_narrow_intervals_and_ranges_of_logs_need_no_reason() -> None:
    some = runs(baseline(), speculative())
    drift = pd.DataFrame({"relative": [1.0]})
    narrow = speedup_rows({"speedup": 1.0, "low": 0.9, "high": 1.1, "method": "paired bootstrap over prompts"})
    logs = speedup_rows({"speedup": 1.0, "low": 0.5, "high": 1.5, "method": "client's figure and median log window"})
    wide = speedup_rows({"speedup": 1.0, "low": 0.5, "high": 1.5, "method": "paired bootstrap over prompts"})
    assert timing_noise(narrow, some, drift) is None
    assert timing_noise(logs, some, drift) is None
    assert timing_noise(speedup_rows(), some, drift) is None
    assert timing_noise(wide, some, drift) == (
        "Timing intervals are wide, 100% of the speedup in the median: there are few passes."
    )


def test_short_passes_are_named_with_their_loads() -> None:
    table = runs(
        baseline(max_concurrency=1, pass_busy_s=[2.0, 3.0, 9.0]),
        baseline("b8", max_concurrency=8, pass_busy_s=[0.4, 0.6, 9.0]),
        speculative(max_concurrency=8, pass_busy_s=[0.3, 0.5]),  # median of all five: 0.5
        speculative("s32", max_concurrency=32, pass_busy_s=[0.7, 5.0, 0.8]),
        speculative("untimed", max_concurrency=64),
    )
    assert short_passes(table) == (
        "Passes at 8 and 32 at once are short (all slots busy for 0.5 to 0.8 s): a few requests decide the speed; "
        "raise workload.requests_per_slot."
    )
    assert short_passes(table[table["max_concurrency"] == 1]) is None
    assert short_passes(recorded(FIRST).runs) is None


def test_the_page_of_the_recorded_step_costs_says_so() -> None:
    assert str(short_passes(recorded("h200_step_cost").runs)).startswith(
        "Passes at 2, 4, 8 and 16 at once are short (all slots busy for 1.1 to 1.9 s)"
    )
