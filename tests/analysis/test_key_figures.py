from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from nights import ARMS, requests
from run_folders import write_campaign, write_run

from workbench.analysis import key_figures
from workbench.analysis.cost import cost_df
from workbench.analysis.key_figures import KeyFigures
from workbench.analysis.scaling import ScalingFit
from workbench.analysis.speedup import speedup_df
from workbench.summary import Figure
from workbench.table import load_tables


def of(folder: Path) -> KeyFigures:
    tables = load_tables(folder)
    costs, speedups = cost_df(tables.runs), speedup_df(tables.runs, tables.requests)
    return key_figures.of_runs(tables.runs, tables.requests, costs, speedups)


def campaign(folder: Path, **spec: Any) -> Path:
    write_campaign(folder)
    for run_id, arm in ARMS.items():
        rows = requests(1.0, steps=50 if arm else None)
        write_run(folder / run_id, requests=rows, label=run_id.partition("-")[0], **arm, **spec)
    return folder


def test_each_run_s_figures_with_units_and_intervals(tmp_path: Path) -> None:
    found = of(campaign(tmp_path / "c"))
    by = {(figure["name"], figure["label"]): figure for figure in found.figures}
    assert set(by) == {
        ("accept_length", "eagle3"),
        *((name, arm) for name in ("decode_tok_per_s", "output_tok_per_s") for arm in ("baseline", "eagle3")),
        ("speedup", "eagle3"),
        ("break_even", "eagle3"),
    }
    length = by["accept_length", "eagle3"]
    # 100 tokens a prompt over 50, 51 and 52 steps.
    assert length["value"] == pytest.approx(100 / 51)
    assert length["low"] < length["value"] < length["high"]
    assert (length["unit"], length["interval"]) == ("tokens/step", "95 % bootstrap over prompts")
    gain = by["speedup", "eagle3"]
    assert (gain["value"], gain["unit"], gain["verdict"]) == (pytest.approx(1.0), "ratio", "noise")
    assert gain["low"] <= 1.0 <= gain["high"] and gain["run"] == "eagle3-c1-bbbbbb"
    # As fast as the baseline: it breaks even where it is.
    assert by["break_even", "eagle3"]["value"] == pytest.approx(length["value"])
    assert found.not_verified == () and found.left_out == 0


def test_every_figure_is_one_of_a_summary_and_plain_json(tmp_path: Path) -> None:
    found = of(campaign(tmp_path / "c"))
    for figure in found.figures:
        Figure.model_validate(json.loads(json.dumps(figure, allow_nan=False)))


def test_what_nobody_could_check_is_said(tmp_path: Path) -> None:
    folder = campaign(tmp_path / "c")
    write_run(folder / "dead", status={"status": "failed", "reason": "x"}, **ARMS["eagle3-c1-bbbbbb"])  # type: ignore[arg-type]
    write_run(
        folder / "lone",
        requests=[{"prompt_index": 0, "latency_s": 1.0, "completion_tokens": 9}, {"prompt_index": 1, "error": "no"}],
        workload={"prompt_set": "other", "max_concurrency": 1},
        **ARMS["eagle3-c1-bbbbbb"],  # type: ignore[arg-type]
    )
    unfinished, failed, undecided = of(folder).not_verified
    assert unfinished == "1 run did not finish: dead"
    assert failed == "1 request failed in 1 run"
    assert undecided.startswith("2 of 3 speedups not decidable: ")
    assert "the run is failed: it is not judged (1)" in undecided


def test_a_range_of_a_source_is_no_interval(tmp_path: Path) -> None:
    folder = campaign(tmp_path / "c")
    reported = {"source": "s", "output_tok_per_s": {"low": 80, "high": 90}, "accept_length": {"low": 1.5, "high": 2.5}}
    write_run(folder / "noted", files={"reported.json": reported}, **ARMS["eagle3-c1-bbbbbb"])  # type: ignore[arg-type]
    figures = [figure for figure in of(folder).figures if figure["run"] == "noted"]
    ranged = {figure["name"]: figure for figure in figures if "low" in figure and figure["name"] != "speedup"}
    assert (ranged["accept_length"]["low"], ranged["accept_length"]["high"]) == (1.5, 2.5)
    assert {figure["interval"] for figure in ranged.values()} == {"range in the source"}


def test_more_figures_than_a_summary_holds_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_figures, "MOST_FIGURES", 2)
    found = of(campaign(tmp_path / "c"))
    assert (len(found.figures), found.left_out) == (2, 5)


def test_curves() -> None:
    fit = ScalingFit(
        "training_samples",
        4,
        4,
        True,
        "",
        per_doubling=0.08,
        per_doubling_low=0.06,
        per_doubling_high=math.inf,
        data_needed=50_000.0,
        data_needed_low=40_000.0,
        interval_means="evaluation error only",
        notes=("one seed",),
    )
    lone = ScalingFit("training_samples", 1, 1, False, "one size")
    found = key_figures.of_curves({"mix": (pd.DataFrame(), fit), "other": (pd.DataFrame(), lone)})
    gain, needed = found.figures
    assert (gain["value"], gain["low"], gain["unit"]) == (0.08, 0.06, "tokens/step")
    assert "high" not in gain  # JSON has no word for infinity
    assert (needed["value"], needed["low"], needed["unit"]) == (50_000.0, 40_000.0, "training_samples")
    assert found.not_verified == ("1 group of runs with one training size each: no curve", "mix: one seed")
