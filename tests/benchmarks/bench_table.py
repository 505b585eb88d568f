"""Tables and pages beside their floors: reading a parquet file, running an empty notebook. `make bench`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import nbformat
import pyarrow.parquet as pq
import pytest
from synthetic import SOURCE, make_campaign

from workbench.notebook import run_notebook
from workbench.paths import ROOT_ENV, notebooks_dir, recorded_dir, reference_points_csv
from workbench.report import render_page
from workbench.store import read_campaign
from workbench.table import load_tables, tables_of
from workbench.table.arrow import to_arrow
from workbench.table.columns import REQUESTS

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(1800)]

NUM_RUNS = 1000
ROUNDS = 3
TITLE = "Tables and pages beside their floors"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of its own."""
    shutil.copytree(notebooks_dir(), tmp_path / "notebooks")
    (tmp_path / "data" / "runs").mkdir(parents=True)
    shutil.copytree(recorded_dir() / SOURCE, tmp_path / "data" / "recorded" / SOURCE)
    shutil.copy(reference_points_csv(), tmp_path / "data")
    monkeypatch.setenv(ROOT_ENV, str(tmp_path))
    return tmp_path


def best(run: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Wall time of the quickest round."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return min(times)


def test_tables(root: Path, bench) -> None:  # type: ignore[no-untyped-def]
    folder = make_campaign(root / "data" / "runs" / "copies", NUM_RUNS)
    for path in folder.rglob("*.json"):
        then = path.stat().st_mtime - 60
        os.utime(path, (then, then))
    began = time.perf_counter()
    first = load_tables(folder)
    first_s = time.perf_counter() - began
    whole = root / "requests.parquet"
    rows = first.requests.astype(object).where(first.requests.notna(), None)
    pq.write_table(to_arrow(REQUESTS, rows.to_dict("records")), whole)
    floor = best(lambda: pq.read_table(whole).to_pandas())
    tables = best(lambda: load_tables(folder))
    requests = best(lambda: len(load_tables(folder).requests))
    began = time.perf_counter()
    anew = tables_of([read_campaign(folder)])
    anew_s = time.perf_counter() - began
    assert len(anew.requests) == len(first.requests)
    floor_name = f"parquet read of the {len(first.requests):,} requests"
    for what, seconds in (
        ("first time, kept", first_s),
        ("without keeping anything", anew_s),
        ("nothing changed, runs and logs", tables),
        ("nothing changed, runs, logs and requests", requests),
    ):
        what = f"tables of {NUM_RUNS:,} runs, {what}"
        bench.add("floors", TITLE, what=what, s=seconds, floor=floor_name, floor_s=floor, ratio=seconds / floor)


def test_a_page(root: Path, bench) -> None:  # type: ignore[no-untyped-def]
    empty = root / "notebooks" / "empty.ipynb"
    nbformat.write(nbformat.v4.new_notebook(metadata={"kernelspec": {"name": "python3", "display_name": "x"}}), empty)
    out = root / "reports"
    code = (
        "import papermill, sys; papermill.execute_notebook(sys.argv[1], sys.argv[2], kernel_name='python3', "
        "progress_bar=False)"
    )
    command = [sys.executable, "-c", code, str(empty), str(root / "out.ipynb")]
    floor = best(lambda: subprocess.run(command, check=True, capture_output=True))
    ours = best(lambda: run_notebook(empty, out / "empty.ipynb", {}))

    def page() -> None:
        run = run_notebook(root / "notebooks" / "20_report_campaign.ipynb", out / "page.ipynb", {"campaign": SOURCE})
        render_page(run.output, out / "page.html", run=run, campaign=SOURCE, campaign_title=SOURCE)

    name = "papermill of an empty notebook"
    bench.add(
        "floors", TITLE, what="our run of an empty notebook", s=ours, floor=name, floor_s=floor, ratio=ours / floor
    )
    for what in ("first time", "again"):
        seconds = best(page, 1)
        runs = len(read_campaign(recorded_dir() / SOURCE).runs)
        what = f"campaign page of {runs} recorded runs, {what}"
        bench.add("floors", TITLE, what=what, s=seconds, floor=name, floor_s=floor, ratio=seconds / floor)
    sys.stdout.write(
        "\n" + json.dumps({"benchmark": "page", "floor_s": floor, "empty_s": ours, "page_s": seconds}) + "\n"
    )
