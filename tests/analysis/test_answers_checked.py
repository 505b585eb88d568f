"""Sentences of the checks: energy, processors; those on text and step time stand beside their tables."""

from __future__ import annotations

import pandas as pd
import pytest
from analysis_tables import baseline, runs, speculative
from answer_tables import cost_rows, speedup_rows

from workbench.analysis.acceptance import sources_df
from workbench.analysis.answers import break_even, energy, on_cpu, pays, serve_on_a_gpu
from workbench.analysis.fairness import fairness_df, resolved_df
from workbench.analysis.views import energy_view, runs_view
from workbench.table.columns import SETTINGS, frame


def settings(**used: dict[str, tuple[str | None, str | None]]) -> pd.DataFrame:
    """Asked and used by run and setting."""
    rows = [
        {"campaign": "c", "run_id": run, "setting": name, "asked": asked, "used": found, "source": "resolved.json"}
        for run, own in used.items()
        for name, (asked, found) in own.items()
    ]
    return frame(SETTINGS, rows)


# --- energy ------------------------------------------------------------------------------------------------------


def test_energy_of_the_fastest_run_beside_its_baseline() -> None:
    table = runs(
        baseline(energy_j_per_tok=0.5),
        speculative("fast", energy_j_per_tok=0.4),
        speculative("slow", energy_j_per_tok=0.9),
        speculative("forced", energy_j_per_tok=0.1, origin="simulated"),
    )
    common = {"baseline_run_id": "base"}
    speedups = speedup_rows(
        {"run_id": "fast", "label": "fast", "speedup": 1.2, **common},
        {"run_id": "slow", "label": "slow", "speedup": 0.8, **common},
        {"run_id": "forced", "label": "forced", "speedup": 2.0, "origin": "simulated", **common},
    )
    assert energy(table, speedups) == (
        "A token takes 0.4 J of GPU energy with fast at concurrency 1, 0.5 J without speculation (0.80x)."
    )
    assert energy(table.assign(energy_j_per_tok=float("nan")), speedups) is None


def test_the_energy_table_holds_the_runs_whose_gpus_were_sampled() -> None:
    table = runs(
        baseline(energy_j_per_tok=0.5, gpu_power_w=350.0, gpu_peak_memory_bytes=40e9, decode_tok_per_s=700.0),
        speculative(),
    )
    view = energy_view(table)
    assert view["run"].tolist() == ["base"]
    assert view.loc[0, ["decode tok/s", "energy (J/tok)", "mean power (W)", "peak memory (GB)"]].tolist() == [
        700,
        0.5,
        350,
        40,
    ]
    assert energy_view(runs(speculative())).empty


# --- processors --------------------------------------------------------------------------------------------------


def test_a_cpu_says_nothing_of_a_gpu() -> None:
    cpu = runs(baseline(device="cpu"), speculative(device="cpu"))
    assert str(on_cpu(cpu)).startswith("Every run was served by a CPU")
    assert str(serve_on_a_gpu(cpu)).startswith("Serve the same pair with SGLang on a GPU")
    assert serve_on_a_gpu(runs(baseline())) is None
    assert on_cpu(runs(baseline(device="cuda"), speculative(device="cpu"))) is None
    assert on_cpu(runs(baseline())) is None
    assert on_cpu(runs()) is None


def test_on_a_cpu_no_graphs_are_spoken_of() -> None:
    row = {"num_draft_tokens": 4, "num_steps": 3, "break_even": 2.0, "accept_length": 1.6, "cuda_graph": None}
    assert "graphs" not in str(break_even(cost_rows({**row, "device": "cpu"})))
    assert "graphs not stated" in str(break_even(cost_rows({**row, "device": "cuda"})))
    assert "graphs" not in runs_view(runs(baseline(device="cpu")))
    assert "graphs" in runs_view(runs(baseline(device="cuda")))


@pytest.mark.parametrize(
    ("verdict", "method", "ends"),
    [
        ("noise", "paired bootstrap over prompts", "0.81x (95 % 0.66-1.02), within noise."),
        ("loss", "paired bootstrap over prompts", "0.81x (95 % 0.66-1.02), a loss beyond noise."),
    ],
)
def test_one_run_that_does_not_win_says_how_sure_that_is(verdict: str, method: str, ends: str) -> None:
    row = {"speedup": 0.81, "low": 0.66, "high": 1.02, "verdict": verdict, "method": method}
    assert pays(speedup_rows(row)).endswith(ends)


# --- sources of the accept length --------------------------------------------------------------------------------


def test_short_answers_explain_why_counters_say_less() -> None:
    # Histogram: 8 x 1 + 2 x 4 = 16 accepted tokens in 10 steps; 14 tokens in 2 answers, of which prefills made 2.
    row = {"steps_histogram": [8, 0, 0, 2], "spec_verify_ct": 10, "completion_tokens": 14, "num_requests": 2}
    lengths = {"accept_length_requests": 1.6, "accept_length_log": 1.6, "accept_length_counters": 1.2}
    found = sources_df(runs(speculative(**row, **lengths))).iloc[0]
    assert found["flagged"]
    assert found["reason"] == "4 of 16 accepted tokens lie beyond the ends of answers"


def test_a_difference_that_short_answers_do_not_explain_stays_unexplained() -> None:
    row = {"steps_histogram": [8, 0, 0, 2], "spec_verify_ct": 10, "completion_tokens": 14, "num_requests": 2}
    lengths = {"accept_length_requests": 1.6, "accept_length_log": 1.4, "accept_length_counters": 1.2}
    found = sources_df(runs(speculative(**row, **lengths))).iloc[0]
    assert found["flagged"]
    assert pd.isna(found["reason"])


# --- asked against used, and between the arms --------------------------------------------------------------------


def test_settings_that_servers_did_not_take() -> None:
    stated = settings(
        spec={"attention_backend": ("fa3", "triton"), "page_size": ("1", "1"), "dtype": (None, "bfloat16")},
        base={"attention_backend": ("FA3", "fa3")},
    )
    found = resolved_df(runs(baseline(), speculative()), stated)
    assert found[["label", "setting", "asked", "used"]].values.tolist() == [
        ["spec", "attention_backend", "fa3", "triton"]
    ]


def test_used_settings_that_differ_between_the_arms_matter() -> None:
    stated = settings(
        spec={"attention_backend": (None, "triton"), "page_size": (None, "1"), "port": (None, "1")},
        base={"attention_backend": (None, "fa3"), "page_size": (None, "1"), "port": (None, "2")},
    )
    found = fairness_df(runs(baseline(), speculative()), stated)
    assert found[["setting", "speculative", "baseline", "matters"]].values.tolist() == [
        ["attention_backend", "triton", "fa3", True]
    ]
    assert fairness_df(runs(baseline(), speculative())).empty
