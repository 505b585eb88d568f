"""A project with one small campaign whose engine is the scripted server."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from workbench import measure
from workbench.paths import ROOT_ENV
from workbench.recording import Ended
from workbench.sweep import find_campaign

CASE = "SCRIPTED_CASE"
NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "10_run_campaign.ipynb"
PROMPTS = 6
WARMUP = PROMPTS + 1
"""Requests before the first measured one, at one at a time: short ones to all prompts, and a round of one."""
STALLED = ["--fault", f"stall@{WARMUP + 2}+"]
"""A server that answers one measured request and no further one."""
RUNS = ("baseline-default-c1", "eagle3-d-s3-k1-n4-c1", "baseline-default-again-c1")


def write_project(root: Path, **changes: object) -> Path:
    """A project folder; ``changes`` go into its campaign ``small``."""
    (root / "notebooks").mkdir(parents=True)
    shutil.copy(NOTEBOOK, root / "notebooks")
    (root / "data" / "prompts").mkdir(parents=True)
    (root / "data" / "prompts" / "few.jsonl").write_text(
        "".join(json.dumps({"text": f"prompt {number}"}) + "\n" for number in range(PROMPTS))
    )
    write_campaign(root, **changes)
    return root


def write_campaign(root: Path, **changes: object) -> Path:
    content: dict[str, Any] = {
        "name": "small",
        "title": "A small campaign",
        "engine": "reference",
        "target": {"name": "T", "model_path": "/models/t"},
        "drafters": [{"name": "d", "model_path": "/models/d"}],
        "workload": {"prompt_set": "few", "num_prompts": PROMPTS, "max_new_tokens": 8},
        "sweep": [{"speculative_num_steps": 3}],
        "launch_prefix": [sys.executable, str(Path(__file__).with_name("scripted_launch.py"))],
        "request_timeout_s": 20,
        **changes,
    }
    path = root / "data" / "campaigns" / f"{content['name']}.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    return path


def environment(root: Path, **options: list[str]) -> dict[str, str]:
    """Variables of a process in that project; ``options`` as in `scripted_launch`."""
    return {
        ROOT_ENV: str(root),
        "XDG_STATE_HOME": str(root / "state"),
        "SCRIPTED": json.dumps(options),
        "SCRIPTED_COUNT": str(root / "starts.txt"),
        CASE: str(root),
    }


def play(monkeypatch: pytest.MonkeyPatch, root: Path, **options: list[str]) -> None:
    """Set this process to the project; ``options`` are what the scripted servers of this test do."""
    for name, value in environment(root, **options).items():
        monkeypatch.setenv(name, value)


def starts(root: Path) -> list[str]:
    """The command line of every server that was started."""
    return (root / "starts.txt").read_text().splitlines() if (root / "starts.txt").exists() else []


def of_case(root: Path) -> list[psutil.Process]:
    """Processes of a project that still run, without this one."""
    return [process for process in psutil.process_iter() if _case(process) == str(root)]


def servers(root: Path) -> list[psutil.Process]:
    return [process for process in of_case(root) if "scripted_server" in " ".join(_command(process))]


def _case(process: psutil.Process) -> str | None:
    try:
        if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
            return None
        return process.environ().get(CASE)
    except (psutil.Error, OSError):
        return None


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def status(folder: Path) -> dict[str, Any]:
    content = json.loads((folder / "status.json").read_text())
    assert isinstance(content, dict)
    return content


def states(root: Path, campaign: str = "small") -> dict[str, str]:
    """State by run id, without the hash at its end."""
    folders = sorted((root / "data" / "runs" / campaign).glob("*/status.json"))
    return {path.parent.name.rpartition("-")[0]: status(path.parent)["status"] for path in folders}


def run_folder(root: Path, start: str, campaign: str = "small") -> Path:
    (found,) = (root / "data" / "runs" / campaign).glob(f"{start}-*")
    return found


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system of that size; raises OSError where this user may not mount one."""
    import subprocess

    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=False)
    if done.returncode != 0:
        raise OSError("cannot mount")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def run(*settings: str, said: list[str] | None = None, **options: Any) -> list[Ended]:
    say = (said if said is not None else []).append
    return measure.run_campaign(find_campaign("small", settings), say=say, **options)


def briefly(ended: list[Ended]) -> dict[str, str]:
    return {run.run_id.rpartition("-")[0]: "kept" if run.reused else str(run.state) for run in ended}
