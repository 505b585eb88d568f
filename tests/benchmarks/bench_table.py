"""Speed of reading run folders: a thousand copies of recorded runs. `make bench`; prints a JSON line."""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path

import pytest

from workbench.paths import recorded_dir
from workbench.store import read_campaign
from workbench.table import load_tables, tables_of

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(900)]

RECORDED = recorded_dir() / "h200_first_trial"
NUM_RUNS = 1000
LIMIT_S = 5.0


def many_runs(folder: Path) -> Path:
    """The recorded campaign with its runs copied until there are a thousand; copies share the logs of their servers."""
    shutil.copytree(RECORDED, folder)
    runs = sorted(path for path in RECORDED.iterdir() if (path / "spec.json").exists())
    for number in range(NUM_RUNS - len(runs)):
        source = runs[number % len(runs)]
        shutil.copytree(source, folder / f"{source.name}-copy{number:04}")
        spec = folder / f"{source.name}-copy{number:04}" / "spec.json"
        spec.write_text(spec.read_text().replace(f'"run_id": "{source.name}"', f'"run_id": "{spec.parent.name}"'))
    return folder


def test_a_thousand_runs(tmp_path: Path) -> None:
    folder = many_runs(tmp_path / RECORDED.name)
    once = load_tables(RECORDED)
    wall, processor = time.perf_counter(), time.process_time()
    campaign = read_campaign(folder)
    read = time.process_time() - processor
    tables = tables_of([campaign])
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    assert (len(tables.runs), tables.problems) == (NUM_RUNS, ())
    assert len(tables.requests) > NUM_RUNS / 35 * len(once.requests) * 0.9
    figures = {
        "benchmark": "table",
        "runs": NUM_RUNS,
        "requests": len(tables.requests),
        "windows": len(tables.windows),
        "logs": len(tables.logs),
        "processor_s": round(processor, 2),
        "of_which_reading_json_s": round(read, 2),
        "wall_s": round(wall, 2),
        "limit_s": LIMIT_S,
    }
    sys.stdout.write("\n" + json.dumps(figures) + "\n")
    # Processor time, so that other work on the machine does not count.
    assert processor < LIMIT_S
