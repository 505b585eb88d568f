"""What the tests of faults share: projects whose servers hold GPU places, victims, and what must be true afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from filelock import FileLock
from live_campaigns import PROMPTS, environment, of_case, write_project

from workbench.paths import runs_dir
from workbench.store import read_campaign, read_metrics, read_requests

HOOKS = Path(__file__).with_name("hooks")
GONE_S = 12.0
BASELINE = "baseline-default-c1"
PARTS = {
    "kernel": "ipykernel_launcher",
    "papermill": "workbench.notebook.child",
    "server": "scripted_server.py",
    "server child": "time.sleep(600)",
    "watchdog": "watchdog.py",
}


@dataclass
class Tally:
    """Faults of a test. A finished run that is not as it was afterwards is lost."""

    injected: int = 0
    survived: int = 0
    lost: int = 0


def gpu_project(folder: Path, **changes: object) -> Path:
    """Its servers take two places of GPUs; that there are none on this machine is all the same to the locks."""
    fixed = {"engine": "sglang", "sglang_version": "0.5.14", "server": {"tp_size": 2}, "baseline_again": False}
    return write_project(folder, **(fixed | changes))


def variables(root: Path, *, hold: str = "", **options: list[str]) -> dict[str, str]:
    """Environment of a process in a project; it stands still where ``hold`` says, see `hooks`."""
    own = {"CUDA_VISIBLE_DEVICES": "0,1", **environment(root, **options)}
    if hold:
        own |= {"PYTHONPATH": str(HOOKS), "FAULTS_HOLD": hold, "FAULTS_HELD": str(held_file(root))}
    return own


def held_file(root: Path) -> Path:
    return root / "held"


@contextmanager
def workbench(root: Path, *arguments: str, hold: str = "", **options: list[str]) -> Iterator[subprocess.Popen[str]]:
    """The command in a process group of its own; nothing of it is left behind."""
    process = subprocess.Popen(
        [sys.executable, "-m", "workbench", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **variables(root, hold=hold, **options)},
        cwd=root,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        for left in of_case(root):
            with contextlib.suppress(psutil.Error):
                left.kill()
        process.communicate(timeout=30)


def wait_for(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
    return found


def part_of(root: Path, part: str) -> psutil.Process | None:
    """The process of a command that plays a part, or the first of them."""
    for process in of_case(root):
        with contextlib.suppress(psutil.Error):
            if PARTS[part] in " ".join(process.cmdline()):
                return process
    return None


def log_says(root: Path, start: str, text: str) -> bool:
    return any(text in path.read_text(errors="replace") for path in root.rglob(f"_servers/{start}/server-*.log"))


def requests_of(root: Path, start: str) -> list[Path]:
    """The file of the answers of a run, once there is one."""
    return list(root.glob(f"data/runs/small/{start}-c1-*/requests.jsonl"))


def is_held(root: Path, start: str) -> bool:
    return held_file(root).exists() and f"/{start}-" in held_file(root).read_text()


def content(folder: Path) -> dict[str, bytes]:
    """Every file of a folder by its name."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def locks_held(root: Path) -> list[str]:
    """Locks below a project that somebody has."""
    paths = [*root.rglob("state/**/*.lock"), *root.glob("data/runs/*/_lock"), *root.glob("data/runs/*/_command")]
    held = []
    for path in paths:
        lock = FileLock(path)
        try:
            lock.acquire(timeout=0)
        except TimeoutError:
            held.append(path.name)
        else:
            lock.release()
    return held


def records_left(root: Path) -> list[str]:
    """Notes of running servers."""
    return [json.loads(path.read_text())["url"] for path in root.rglob("state/**/servers/*.json")]


def assert_no_part_passes_as_whole(campaign: str = "small") -> list[str]:
    """Every run of a campaign that says it is whole is whole; their names."""
    found = read_campaign(runs_dir() / campaign)
    whole = [run for run in found.runs if run.status.status == "ok"]
    for run in whole:
        records, problems = read_requests(run)
        assert (len(records), problems, len(run.windows)) == (PROMPTS, [], 1), run.path
        assert read_metrics(run) is not None and run.resolved is not None, run.path
        assert run.log is not None and run.status.log_spans[-1][1] <= run.log.stat().st_size, run.path
    return [run.spec.run_id for run in whole]
