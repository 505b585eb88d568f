"""Speedups, drift, equal texts and intervals of tables are those of runs and requests, and follow every change."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from workbench.analysis import key_figures, of_tables
from workbench.analysis import remembered as rooms
from workbench.analysis.cost import cost_df
from workbench.analysis.speedup import drift_df, losslessness_df, speedup_df
from workbench.paths import ROOT_ENV, recorded_dir
from workbench.table import Tables, load_tables


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recorded campaign with requests at concurrency 1 and above, in a project of its own."""
    recorded = recorded_dir() / "h200_first_trial"
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setenv(ROOT_ENV, str(tmp_path))
    copy = Path(shutil.copytree(recorded, tmp_path / "data" / "runs" / recorded.name))
    age(copy)
    return copy


@pytest.fixture
def worked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """How many values of which kind are worked out."""
    found: list[tuple[str, int]] = []
    together = rooms.remembered_together

    def counted(what: str, campaign: str, keys: list[str | None], work_out: Callable[..., object]) -> object:
        def one(places: list[int]) -> object:
            found.append((what, len(places)))
            return work_out(places)

        return together(what, campaign, keys, one)  # type: ignore[arg-type]

    for room in (of_tables, key_figures):
        monkeypatch.setattr(room, "remembered_together", counted)
    return found


def age(folder: Path) -> None:
    """Files that changed just now are not trusted to stay: let them be older than that."""
    for path in folder.rglob("*"):
        then = min(path.stat().st_mtime, time.time() - 60)
        os.utime(path, (then, then))


def said(tables: Tables) -> list[str]:
    frames = of_tables.speedups(tables), of_tables.drift(tables), of_tables.losslessness(tables)
    return [*(frame.to_csv() for frame in frames), repr(figures(tables))]


def figures(tables: Tables) -> key_figures.KeyFigures:
    return key_figures.of_tables(tables, cost_df(tables.runs), of_tables.speedups(tables))


def anew(tables: Tables) -> list[str]:
    runs, requests = tables.runs, tables.requests
    speedups = speedup_df(runs, requests)
    frames = speedups, drift_df(runs, requests), losslessness_df(requests, runs)
    of_runs = key_figures.of_runs(runs, requests, cost_df(runs), speedups)
    return [*(frame.to_csv() for frame in frames), repr(of_runs)]


def lose_request(run: Path) -> None:
    path = run / "requests.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-3]))


def change_prompts(run: Path) -> None:
    spec = json.loads((run / "spec.json").read_text())
    spec["workload"]["temperature"] = 0.7
    (run / "spec.json").write_text(json.dumps(spec))


def fail(run: Path) -> None:
    status = json.loads((run / "status.json").read_text())
    (run / "status.json").write_text(json.dumps(status | {"status": "failed", "reason": "killed"}))


def test_it_is_the_same_from_memory(folder: Path, worked: list[tuple[str, int]]) -> None:
    expected = anew(load_tables(folder))
    assert said(load_tables(folder)) == expected
    assert {what for what, _ in worked} == {"speedups", "spreads", "passes", "losslessness", "accept-lengths"}
    worked.clear()
    assert said(load_tables(folder)) == expected
    assert worked == []


@pytest.mark.parametrize("change", [lose_request, change_prompts, fail])
@pytest.mark.parametrize("role", ["speculative", "baseline"])
def test_a_change_of_a_run_is_followed(change: Callable[[Path], None], role: str, folder: Path) -> None:
    tables = load_tables(folder)
    before = said(tables)
    of_role = tables.runs[(tables.runs["role"] == role) & (tables.runs["max_concurrency"] == 1)]
    [run] = [folder / name for name in of_role["run_id"].head(1)]
    change(run)
    age(folder)
    changed = load_tables(folder)
    found = said(changed)
    assert found != before
    assert found == anew(changed)


def test_another_version_of_the_code_works_all_out_anew(
    folder: Path, worked: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    said(load_tables(folder))
    first = sum(number for _, number in worked)
    worked.clear()
    monkeypatch.setattr(rooms, "version", lambda: "another")
    said(load_tables(folder))
    assert sum(number for _, number in worked) == first > 0


def test_other_requests_in_place_of_those_read_are_used(folder: Path) -> None:
    tables = load_tables(folder)
    said(tables)
    half = tables.requests[tables.requests["prompt_index"].astype("Float64") < 3]
    assert said(tables.but(requests=half)) == anew(tables.but(requests=half))


def test_some_columns_of_some_runs(folder: Path) -> None:
    tables = load_tables(folder)
    some = tables.runs.iloc[[3, 7]]
    names = ["run_id", "repeat", "prompt_index", "steps_histogram"]
    found = tables.requests_of(some, names)
    assert "requests" not in tables.__dict__
    expected = tables.requests[tables.requests["run_id"].isin(some["run_id"])][names]
    pd.testing.assert_frame_equal(found, expected.reset_index(drop=True))


def test_only_requests_that_have_a_value(folder: Path) -> None:
    tables = load_tables(folder)
    names = ["run_id", "prompt_index", "steps_histogram"]
    found = tables.requests_of(tables.runs, names, having="steps_histogram")
    whole = tables.requests[names]
    expected = whole[whole["steps_histogram"].notna()]
    assert 0 < len(expected) < len(whole)
    pd.testing.assert_frame_equal(found, expected.reset_index(drop=True))
    pd.testing.assert_frame_equal(
        tables.but(requests=tables.requests).requests_of(tables.runs, names, having=names[2]), expected
    )
