"""The command as a process of its own, through papermill and a kernel; servers are the scripted one."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest
from live_campaigns import (
    RUNS,
    STALLED,
    environment,
    of_case,
    play,
    run_folder,
    servers,
    small_disk,
    starts,
    states,
    status,
    write_project,
)
from live_campaigns import run as run_campaign
from model_folders import CONFIG, draft_tensors, write_folder
from scripted_server import running

from workbench import run as run_module
from workbench.cli import main
from workbench.errors import InputError, RunFolderError
from workbench.models import SMOLLM2
from workbench.notebook import check_parameters
from workbench.recording import alone
from workbench.run import Request
from workbench.terminal import Lines

GONE_S = 12.0
# One byte differs from ones.
OTHER = ("BF16", (8,), b"\x81\x3f" + b"\x80\x3f" * 7)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = write_project(tmp_path / "project")
    play(monkeypatch, project)
    return project


def command(root: Path, *arguments: str, **options: list[str]) -> subprocess.Popen[str]:
    """``workbench run small`` in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "workbench", "run", "small", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment(root, **options)},
        cwd=root,
        start_new_session=True,
    )


def finished(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code and both outputs."""
    try:
        out, err = process.communicate(timeout=90)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise AssertionError(f"it did not end: {process.communicate()}") from None
    return process.returncode, out, err


@contextmanager
def under_way(root: Path, *arguments: str, until: Callable[[], object], **options: list[str]) -> Iterator[Any]:
    """A command that has come to a certain point; nothing of it is left behind."""
    process = command(root, *arguments, **options)
    try:
        wait_for(lambda: until() or process.poll() is not None)
        assert process.poll() is None, finished(process)
        yield process
    finally:
        for left in of_case(root):
            left.kill()
        process.communicate(timeout=30)


def wait_for(condition: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def log_says(root: Path, text: str) -> bool:
    return any(text in path.read_text(errors="replace") for path in root.rglob("_servers/eagle3*/server-*.log"))


def in_flight(root: Path) -> bool:
    """Whether the speculative run has its first answers."""
    return any(path.stat().st_size for path in root.glob("data/runs/small/eagle3*/requests.jsonl"))


def notebook_of(root: Path) -> nbformat.NotebookNode:
    return nbformat.read(root / "data/runs/small/_notebooks/10_run_campaign.ipynb", as_version=4)


# --- without a kernel --------------------------------------------------------------------------------------------


def test_the_notebook_takes_what_the_command_line_gives(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root / "data")
    request = Request("campaigns/small.yaml", ("repeats=2",), engine="sglang", attach="http://h:1", log="their.log")
    given = request.parameters()
    assert given == {
        "campaign": str(root / "data" / "campaigns" / "small.yaml"),
        "settings": ["repeats=2", "engine=sglang", "name=small-sglang"],
        "force": False,
        "allow_refused": False,
        "attach": "http://h:1",
        "log": str(root / "data" / "their.log"),
        "ray": "",
    }
    assert check_parameters(root / "notebooks" / run_module.NOTEBOOK, given) == given
    assert Request("small", engine="reference").parameters()["settings"] == []
    packed = Request("small", ("places=2",), places=4, interference=True)
    assert packed.parameters()["settings"] == ["places=2", "places=4", "interference=true"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("absent",), 3, "no campaign file 'absent'"),
        (("small", "--set", "repeat=3"), 3, "did you mean 'repeats'?"),
        (("small", "--attach", "nowhere"), 2, "not the URL of a server"),
        (("small", "--attach", "http://127.0.0.1:9"), 6, "no healthy server answers there"),
        (("small", "--attach", "http://127.0.0.1:9", "--log", "absent.log"), 3, "no such log"),
        (("small", "--log", "absent.log"), 2, "give --attach URL"),
        (("small", "--attach", "http://127.0.0.1:9", "--places", "2"), 2, "is one place"),
        (("small", "--interference"), 2, "there are no neighbours"),
        (("small", "--attach", "http://127.0.0.1:9", "--executor", "ray"), 2, "is one place"),
        (("small", "--ray-address", "auto"), 2, "add --executor ray"),
        (("small", "--executor", "ray", "--ray-address", "ray://h:10001"), 2, "is no address of a cluster itself"),
        (("small", "--set", "launch_prefix=[]"), 3, "no folder '/models/t' for the reference engine"),
        (("small", "--engine", "sglang", "--set", "launch_prefix=[]"), 3, "no folder '/models/t' for the sglang"),
        (
            ("small", "--engine", "sglang", "--set", "launch_prefix=[]", "--set", "target.model_path=a/b"),
            5,
            "needs the package sglang",
        ),
        (
            ("small", "--engine", "sglang", "--set", "launch_prefix=[]", "--set", f"target.model_path={SMOLLM2}"),
            3,
            "which only the embedded engine knows",
        ),
    ],
)
def test_what_can_be_known_before_is_said_before(
    root: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int, said: str
) -> None:
    assert main(["run", *arguments]) == code
    printed = capsys.readouterr()
    assert said in printed.err and "  -> " in printed.err and printed.out == ""
    assert not (root / "data" / "runs").exists()


def test_a_second_command_is_told_so_at_once(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("_command", "_lock"):
        with alone(root / "data" / "runs" / "small", name):
            assert main(["run", "small"]) == RunFolderError.exit_code
        assert "another command measures this campaign now" in capsys.readouterr().err


def test_other_weights_than_were_measured_are_said_before_a_kernel_starts(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drafter = write_folder(root / "models" / "d", CONFIG, draft_tensors())
    drafters = json.dumps([{"name": "d", "model_path": str(drafter)}])
    settings = (f"drafters={drafters}", "baseline_again=false")
    (_, measured) = run_campaign(*settings)
    write_folder(drafter, CONFIG, draft_tensors(norm__weight=OTHER))
    more = [argument for setting in settings for argument in ("--set", setting)]
    assert main(["run", "small", *more]) == 3
    said = capsys.readouterr().err
    assert f"than lie in {drafter} now: 1 of the finished runs, first {measured.run_id}" in said
    assert "--set name=..." in said and "--force" in said
    assert not (root / "data/runs/small/_notebooks").exists() and len(starts(root)) == 2

    assert main(["run", "small", *more, "--dry-run"]) == 0
    planned = capsys.readouterr().out
    assert "1. baseline-default" in planned and "nothing would be started: " in planned
    assert f"first {measured.run_id}" in planned
    assert main(["run", "small", *more, "--dry-run", "--force"]) == 0
    assert "nothing would be started" not in capsys.readouterr().out


def test_a_dry_run_of_an_attached_server(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running("--model-path", "/models/t") as url:
        assert main(["run", "small", "--attach", url, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert out == f"1. attached-baseline  (concurrency 1), the server at {url}; nothing is started\n"


def test_a_dry_run_says_what_is_measured_alone(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "small", "--places", "2", "--interference", "--dry-run"]) == 0
    out = capsys.readouterr().out
    shown = re.findall(r"^\d\. .*$", out, re.M)
    assert shown == [
        "1. baseline-default  (concurrency 1, alone)",
        "2. eagle3-d-s3-k1-n4-alone  (concurrency 1, alone)",
        "3. eagle3-d-s3-k1-n4  (concurrency 1)",
        "4. baseline-default-again  (concurrency 1, alone)",
    ]


def test_lines_of_another_process_are_passed_on(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = root / "progress.log"
    path.write_text("10:00:00  of an earlier run\n")
    with run_module._followed(path, Lines()), path.open("a") as file:
        file.write("10:00:01  one\n10:00:02~ passing\n10:00:03  tw")
        file.flush()
        file.write("o\n")
    # No terminal: what only passes comes every ten seconds.
    assert capsys.readouterr().err == "10:00:01  one\n10:00:03  two\n"


def test_a_disk_that_cannot_be_written(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "data" / "runs").write_text("a file where a folder belongs")
    assert main(["run", "small"]) == InputError.exit_code
    assert "cannot be written" in capsys.readouterr().err


# --- through papermill -------------------------------------------------------------------------------------------


def test_the_command_measures_tells_and_keeps_the_notebook(root: Path) -> None:
    code, out, err = finished(command(root, speculative=["--start-fault", "oom"]))
    assert code == 1
    assert out.startswith("2 of 3 runs are measured, missing are:\n")
    assert re.search(r"^  eagle3-d-s3-k1-n4-c1-\w+  failed       the GPU ran out of memory", out, re.M)
    notebook, pages = out.splitlines()[-2:]
    assert notebook == f"executed notebook: {root / 'data/runs/small/_notebooks/10_run_campaign.ipynb'}"
    assert pages == "its pages: workbench report --campaign small"
    assert "[2/3] eagle3-d-s3-k1-n4: 1 run" in err and "loading weights" in err
    outputs = json.dumps(notebook_of(root))
    assert "Of 3 runs: 2 runs measured, 0 kept from before, 1 failed." in outputs
    assert states(root) == dict.fromkeys(RUNS, "ok") | {RUNS[1]: "failed"}
    assert of_case(root) == []


def test_a_campaign_folder_that_is_renamed_meanwhile_is_named_and_not_begun_anew(root: Path) -> None:
    folder, other = root / "data" / "runs" / "small", root / "data" / "runs" / "other"
    begun = lambda: any(path.stat().st_size for path in folder.glob("baseline*/requests.jsonl"))  # noqa: E731
    with under_way(root, until=begun, all=["--step-ms", "40"]) as process:
        folder.rename(other)
        code, out, err = finished(process)
    assert (code, out) == (InputError.exit_code, "")
    assert "small: the folder is gone: it was renamed or removed while it was measured into\n" in err
    assert not folder.exists() and of_case(root) == []


@pytest.mark.slow
def test_the_same_command_goes_on_here_in_silence(root: Path) -> None:
    finished(command(root, "--set", "only=[baseline*]"))
    code, out, err = finished(command(root, "--quiet"))
    assert (code, out.splitlines()[0], err) == (0, "3 of 3 runs are measured.", "")
    assert states(root) == dict.fromkeys(RUNS, "ok")
    assert len(starts(root)) == 3


@pytest.mark.slow
def test_papermill_by_hand_does_the_same(root: Path, tmp_path: Path) -> None:
    call = [sys.executable, "-m", "papermill", "notebooks/10_run_campaign.ipynb", str(tmp_path / "out.ipynb")]
    subprocess.run([*call, "-p", "campaign", "small"], cwd=root, check=True, capture_output=True, timeout=90)
    assert states(root) == dict.fromkeys(RUNS, "ok")


@pytest.mark.slow
def test_an_attached_server_through_the_command(root: Path, tmp_path: Path) -> None:
    finished(command(root, "--set", "only=baseline-default"))
    log = tmp_path / "their.log"
    flags = ("--speculative-algorithm", "EAGLE3", "--speculative-num-steps", "2", "--model-path", "/models/t")
    with running(*flags, log=log) as url:
        code, out, _ = finished(command(root, "--attach", url, "--log", str(log)))
        assert (code, out.splitlines()[0]) == (0, "1 of 1 runs are measured.")
    assert states(root) == {"baseline-default-c1": "ok", "attached-eagle3-s2-c1": "ok"}
    assert status(run_folder(root, "attached"))["log_spans"]


PHASES: dict[str, tuple[list[str], Callable[[Path], object]]] = {
    "starting": (["--load-s", "60"], lambda root: log_says(root, "Load weight begin")),
    "capturing": (["--capture-s", "60"], lambda root: log_says(root, "CUDA graph begin")),
    "warm-up": (["--fault", "stall"], lambda root: list(root.glob("data/runs/small/eagle3*/requests.jsonl"))),
    "measuring": (STALLED, in_flight),
}


@pytest.mark.slow
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("how", ["SIGINT", "SIGINT to the group", "SIGTERM"])
def test_stopping_the_command(root: Path, phase: str, how: str) -> None:
    options, reached = PHASES[phase]
    with under_way(root, until=lambda: reached(root), speculative=options) as process:
        number = getattr(signal, how.split()[0])
        stopped = time.monotonic()
        (os.killpg if how.endswith("group") else os.kill)(process.pid, number)
        code, _, err = finished(process)
        assert time.monotonic() - stopped < GONE_S
        assert of_case(root) == []
    assert code == 130
    assert "Stopped; the same command goes on. 1 of 3 runs are measured, missing are:" in err and err.endswith(
        "workbench: interrupted\n"
    )
    assert states(root) == {"baseline-default-c1": "ok", "eagle3-d-s3-k1-n4-c1": "interrupted"}
    assert "KeyboardInterrupt" in json.dumps(notebook_of(root))
    code, _, _ = finished(command(root))
    assert (code, states(root), len(starts(root))) == (0, dict.fromkeys(RUNS, "ok"), 4)


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["kernel", "command"])
def test_kill_9_leaves_no_process_and_nothing_is_lost(root: Path, victim: str) -> None:
    with under_way(root, until=lambda: in_flight(root), speculative=STALLED) as process:
        pid = process.pid if victim == "command" else kernel_of(root).pid
        assert servers(root)
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: servers(root) == [], GONE_S)
        code, out, _ = finished(process)
        wait_for(lambda: of_case(root) == [], GONE_S)
    assert states(root) == {"baseline-default-c1": "ok", "eagle3-d-s3-k1-n4-c1": "running"}
    assert code == (4 if victim == "kernel" else -9)
    if victim == "kernel":
        assert "The run notebook failed" in out and "it will be measured again" in out
        assert notebook_of(root).cells
    code, _, _ = finished(command(root))
    assert (code, states(root)) == (0, dict.fromkeys(RUNS, "ok"))


@pytest.mark.slow
def test_a_second_command_meanwhile(root: Path) -> None:
    with under_way(root, until=lambda: in_flight(root), speculative=STALLED) as process:
        code, out, err = finished(command(root))
        assert (code, out) == (3, "") and "another command measures this campaign now" in err
        assert process.poll() is None and len(servers(root)) == 1
    assert states(root)["baseline-default-c1"] == "ok"


def kernel_of(root: Path) -> psutil.Process:
    (found,) = (process for process in of_case(root) if "ipykernel_launcher" in " ".join(process.cmdline()))
    return found


@pytest.fixture
def runs_disk(root: Path) -> Iterator[Path]:
    try:
        with small_disk(root / "data" / "runs", "4m") as folder:
            yield folder
    except OSError:
        pytest.skip("this user may not mount a file system")


@pytest.mark.slow
def test_a_full_disk(root: Path, runs_disk: Path) -> None:
    assert finished(command(root, "--set", "only=baseline-default"))[0] == 0
    before = {path: path.read_bytes() for path in run_folder(root, "baseline-default").iterdir()}
    left = shutil.disk_usage(runs_disk).free - 40_000
    (runs_disk / "filler").write_bytes(b"x" * left)
    code, out, err = finished(command(root, "--set", "workload.max_new_tokens=400"))
    assert (code, out) == (3, ""), err
    assert "No space left on device" in err and "  -> free space" in err
    assert "of 3 runs are measured, missing are:" in err
    assert {path: path.read_bytes() for path in before} == before
    assert of_case(root) == []


@pytest.mark.slow
def test_a_read_only_folder(root: Path, runs_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(runs_disk)], check=True)
    code, out, err = finished(command(root))
    assert (code, out) == (3, "") and "Read-only file system" in err and "  -> " in err
    assert starts(root) == []
