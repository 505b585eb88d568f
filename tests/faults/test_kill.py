"""kill -9 of every process that takes part in a campaign or a report, in every phase that it is there for."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from injecting import (
    BASELINE,
    GONE_S,
    Tally,
    assert_no_part_passes_as_whole,
    content,
    gpu_project,
    held_file,
    is_held,
    locks_held,
    log_says,
    part_of,
    records_left,
    requests_of,
    variables,
    wait_for,
    workbench,
)
from live_campaigns import STALLED, briefly, of_case, run, run_folder, states, status

from workbench import live
from workbench.measure import plan_of
from workbench.sweep import find_campaign

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
CHILDREN = ["--children", "1", "--children-session", "--dies-with-children"]
STARTS = {steps: f"eagle3-d-s{steps}-k1-n{steps + 1}" for steps in (2, 3, 4)}
# How a phase is made to last, where the command is to stand still instead, and how one sees that a start is in it.
PHASES: dict[str, tuple[list[str], str, Callable[[Path, str], object]]] = {
    "starting": (["--start-fault", "silent"], "", lambda root, start: log_says(root, start, "child pid")),
    "loading": (["--load-s", "60"], "", lambda root, start: log_says(root, start, "Load weight begin")),
    "warm-up": (["--fault", "stall"], "", requests_of),
    "measuring": (
        STALLED,
        "",
        lambda root, start: any(p.stat().st_size for p in requests_of(root, start)),
    ),
    "writing": ([], "*/eagle3-*/windows.json|", is_held),
    "settling": ([], '*/eagle3-*/status.json|"ok"', is_held),
}
CAUSES = {
    "server": "killed by SIGKILL",
    "server child": "a process of the server died: Subprocess scheduler_0 (pid=1) crashed with exit code -9",
    "watchdog": "killed by SIGKILL",
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """A project of which the baseline is measured, and some speculative starts are not: as many as is asked for."""
    root = gpu_project(tmp_path / "project", sweep=[{"speculative_num_steps": [*STARTS][: request.param]}])
    for name, value in variables(root).items():
        monkeypatch.setenv(name, value)
    assert briefly(run("only=baseline-default")) == {BASELINE: "ok"}
    return root


def kill(process: psutil.Process | subprocess.Popen[str], tally: Tally) -> None:
    process.kill()
    tally.injected += 1


def assert_nothing_is_left(root: Path, finished: dict[str, bytes], tally: Tally) -> None:
    """No process, place of a GPU, port or lock; what was whole is as it was, and nothing else passes as whole."""
    wait_for(lambda: of_case(root) == [], GONE_S)
    wait_for(lambda: locks_held(root) == [], GONE_S)
    tally.lost += content(run_folder(root, BASELINE)) != finished
    assert tally.lost == 0
    assert_no_part_passes_as_whole()


def assert_goes_on(root: Path, finished: dict[str, bytes], tally: Tally) -> None:
    """The same again completes the campaign and measures no finished run again."""
    ended = run()
    assert set(briefly(ended).values()) <= {"ok", "kept"} and ended[0].reused
    assert set(states(root).values()) == {"ok"} and len(assert_no_part_passes_as_whole()) == len(ended)
    tally.lost += content(run_folder(root, BASELINE)) != finished
    assert tally.lost == 0 and records_left(root) == []
    tally.survived = tally.injected


@pytest.mark.slow
@pytest.mark.parametrize("root", [1], indirect=True, ids=[""])
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("victim", ["command", "kernel", "papermill"])
def test_kill_9_of_who_measures(root: Path, victim: str, phase: str, tally: Tally) -> None:
    (options, hold, reached), start = PHASES[phase], STARTS[2]
    finished = content(run_folder(root, BASELINE))
    with workbench(root, "run", "small", hold=hold, speculative=[*options, *CHILDREN]) as process:
        wait_for(lambda: reached(root, start) or process.poll() is not None)
        assert process.poll() is None, process.communicate()
        kill(process if victim == "command" else wait_for(lambda: part_of(root, victim)), tally)
        out, err = process.communicate(timeout=60)
        assert_nothing_is_left(root, finished, tally)
    (left,) = live.missing(plan_of(find_campaign("small")))
    begun = phase not in ("starting", "loading")
    assert left.reason == ("what measured it is gone; it will be measured again" if begun else "not begun")
    assert process.returncode == (-signal.SIGKILL if victim == "command" else 4), out + err
    if victim != "command":
        assert "The run notebook failed: " in out and left.run_id in out
        assert ("ended by signal 9" if victim == "papermill" else "Kernel died") in out
    held_file(root).unlink(missing_ok=True)
    assert_goes_on(root, finished, tally)


@pytest.mark.slow
@pytest.mark.parametrize("root", [len(STARTS)], indirect=True, ids=[""])
@pytest.mark.parametrize("phase", PHASES)
def test_kill_9_of_what_serves(root: Path, phase: str, tally: Tally) -> None:
    """A server dies with its process, with one of its children, with its watchdog: each takes one run with it."""
    options, hold, reached = PHASES[phase]
    finished = content(run_folder(root, BASELINE))
    with workbench(root, "run", "small", hold=hold, speculative=[*options, *CHILDREN]) as process:
        for victim, start in zip(CAUSES, STARTS.values(), strict=True):
            wait_for(lambda start=start: reached(root, start) or process.poll() is not None)
            assert process.poll() is None, process.communicate()
            kill(wait_for(lambda victim=victim: part_of(root, victim)), tally)
            held_file(root).unlink(missing_ok=True)
        out, err = process.communicate(timeout=60)
        assert_nothing_is_left(root, finished, tally)
    is_measured = phase in ("writing", "settling")
    assert process.returncode == (0 if is_measured else 1), out + err
    assert states(root) == {BASELINE: "ok"} | {f"{s}-c1": "ok" if is_measured else "failed" for s in STARTS.values()}
    for victim, start in zip(CAUSES, STARTS.values(), strict=True):
        if not is_measured:
            assert CAUSES[victim] in status(run_folder(root, start))["reason"] and CAUSES[victim] in " ".join(
                out.split()
            )
    assert_goes_on(root, finished, tally)


REPORTING = {"executing": "", "writing": "*/small-report_campaign.html|"}


# Kernel and papermill have ended when the page is written.
@pytest.mark.slow
@pytest.mark.parametrize("root", [1], indirect=True, ids=[""])
@pytest.mark.parametrize(
    ("victim", "phase"), [*((v, "executing") for v in ("command", "kernel", "papermill")), ("command", "writing")]
)
def test_kill_9_while_a_report_is_made(root: Path, victim: str, phase: str, tally: Tally) -> None:
    shutil.copy(NOTEBOOKS / "20_report_campaign.ipynb", root / "notebooks")
    run()
    finished = content(root / "data" / "runs")
    call = ("report", "--campaign", "small", "--notebook", "report_campaign")
    with workbench(root, *call, hold=REPORTING[phase]) as process:
        wait_for(
            lambda: (
                process.poll() is not None
                or (held_file(root).exists() if phase == "writing" else part_of(root, "kernel"))
            )
        )
        assert process.poll() is None, process.communicate()
        kill(process if victim == "command" else wait_for(lambda: part_of(root, victim)), tally)
        out, err = process.communicate(timeout=60)
        wait_for(lambda: of_case(root) == [], GONE_S)
    reports = root / "reports"
    if victim == "command":
        assert process.returncode == -signal.SIGKILL and not list(reports.glob("small-*.html"))
    else:
        summary = json.loads((reports / "small-report_campaign.summary.json").read_text())
        assert (process.returncode, summary["status"]) == (1, "failed"), out + err
        assert ("Kernel died" if victim == "kernel" else "ended by signal 9") in summary["reason"]
    with workbench(root, *call) as process:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, out + err
    assert json.loads((reports / "small-report_campaign.summary.json").read_text())["status"] == "ok"
    assert list(reports.glob(".*partial*")) == []
    tally.lost += content(root / "data" / "runs") != finished
    assert tally.lost == 0
    tally.survived += 1
