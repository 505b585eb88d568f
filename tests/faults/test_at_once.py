"""Commands that meet on one project, commands that are told to end, and a clock that goes backwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from injecting import (
    BASELINE,
    GONE_S,
    HOOKS,
    Tally,
    assert_no_part_passes_as_whole,
    content,
    gpu_project,
    locks_held,
    variables,
    wait_for,
    workbench,
)
from live_campaigns import STALLED, briefly, of_case, run, run_folder, starts, states
from notebook_files import code, markdown, write_notebook

from workbench.store import read_requests, read_run

REPORTS = 10


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = gpu_project(tmp_path / "project")
    for name, value in variables(root).items():
        monkeypatch.setenv(name, value)
    return root


@pytest.mark.slow
def test_ten_reports_at_once(root: Path, tally: Tally) -> None:
    """The tables are not kept yet, so that all ten write them, run the notebook, and write the page and the index."""
    run()
    finished = content(root / "data" / "runs")
    shows = "from workbench.table import load_tables\nfrom workbench.paths import runs_dir\n"
    shows += "tables = load_tables(runs_dir() / campaign)\nprint(len(tables.runs), 'runs', len(tables.requests))"
    cells = (markdown("# Page"), code("campaign: str = 'small'", "parameters"), code(shows))
    write_notebook(root / "notebooks" / "20_report_campaign.ipynb", *cells)
    call = ("report", "--campaign", "small", "--notebook", "report_campaign")
    with ExitStack() as stack:
        processes = [stack.enter_context(workbench(root, *call)) for _ in range(REPORTS)]
        said = [process.communicate(timeout=200) for process in processes]
        assert [process.returncode for process in processes] == [0] * REPORTS, said
    tally.injected = REPORTS - 1
    reports = root / "reports"
    assert json.loads((reports / "small-report_campaign.summary.json").read_text())["status"] == "ok"
    page, index = (reports / name for name in ("small-report_campaign.html", "index.html"))
    assert "2 runs 12" in page.read_text() and page.read_text().rstrip().endswith("</html>")
    assert "small-report_campaign.html" in index.read_text() and "Not listed above" not in index.read_text()
    assert [path.name for path in reports.iterdir() if path.name.startswith((".small", ".writing"))] == []
    tally.lost += content(root / "data" / "runs") != finished
    assert tally.lost == 0
    tally.survived = REPORTS - 1


@pytest.mark.slow
@pytest.mark.parametrize("other", ["run", "tune"])
def test_two_commands_on_one_campaign_at_the_same_moment(root: Path, other: str, tally: Tally) -> None:
    with workbench(root, "run", "small") as one, workbench(root, other, "small") as two:
        said = [process.communicate(timeout=90) for process in (one, two)]
    tally.injected = 1
    codes = [one.returncode, two.returncode]
    refused = codes.index(3)
    assert "another command measures this campaign now" in said[refused][1], said
    assert codes[1 - refused] in (0, 1), said
    assert set(briefly(run()).values()) <= {"ok", "kept"} and set(states(root).values()) == {"ok"}
    if refused == 1:
        assert len(starts(root)) == 2
    assert_no_part_passes_as_whole()
    tally.survived = 1


@pytest.mark.slow
@pytest.mark.parametrize("how", ["SIGINT to the group", "SIGTERM", "SIGHUP", "SIGKILL"])
def test_stopping_tune(root: Path, how: str, tally: Tally) -> None:
    run("only=baseline-default")
    finished = content(run_folder(root, BASELINE))
    with workbench(root, "tune", "small", all=STALLED) as process:
        at_work = lambda: [p for p in root.glob("data/runs/small/*/requests.jsonl") if b"{" in p.read_bytes()][1:]  # noqa: E731
        wait_for(lambda: at_work() or process.poll() is not None)
        assert process.poll() is None, process.communicate()
        (os.killpg if "group" in how else os.kill)(process.pid, getattr(signal, how.split()[0]))
        tally.injected = 1
        out, err = process.communicate(timeout=60)
        wait_for(lambda: of_case(root) == [], GONE_S)
        wait_for(lambda: locks_held(root) == [], GONE_S)
    assert process.returncode == (-9 if how == "SIGKILL" else 130), out + err
    assert sorted(states(root).values()) == sorted(["ok", "running" if how == "SIGKILL" else "interrupted"])
    tally.lost += content(run_folder(root, BASELINE)) != finished
    assert tally.lost == 0
    assert set(briefly(run()).values()) <= {"ok", "kept"}
    tally.survived = 1


MEASURE = """
import time
from datetime import UTC, datetime
assert datetime.now(UTC) > datetime.now(UTC) and time.time() > time.time()
from live_campaigns import briefly, run
print([briefly(run(force=force)) for force in (False, True, True, False)])
"""


@pytest.mark.slow
def test_a_clock_that_goes_backwards(root: Path, tally: Tally) -> None:
    """An hour at every look at it. Durations come from a clock that nobody sets; stamps only name things."""
    paths = os.pathsep.join([str(HOOKS), str(Path(__file__).parents[1])])
    own = {**os.environ, **variables(root), "PYTHONPATH": paths, "FAULTS_CLOCK": "1"}
    done = subprocess.run(
        [sys.executable, "-c", MEASURE], env=own, cwd=root, capture_output=True, text=True, timeout=60
    )
    tally.injected = 1
    assert done.returncode == 0, done.stderr
    names = ("baseline-default-c1", "eagle3-d-s3-k1-n4-c1")
    ok, kept = ({name: word for name in names} for word in ("ok", "kept"))
    assert done.stdout.strip() == str([ok, ok, ok, kept])
    for name in names:
        found = read_run(run_folder(root, name))
        records, _ = read_requests(found)
        assert all(0 < record["latency_s"] < 20 and record["started_s"] < record["finished_s"] for record in records)
        assert 0 < found.windows[0].wall_s < 20 and (found.windows[0].started_s or -1) > 0
    assert len(list((root / "data/runs/small/_kept").iterdir())) == 4
    assert_no_part_passes_as_whole()
    tally.survived = 1
