"""Real processes: the scripted server, its children, and scripts that are interrupted or killed while they serve."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
from launching import CASE, OWN, alive, served, wait_for
from scripted_server import command, running

from workbench import files
from workbench.errors import LaunchError, LogError, UsageError
from workbench.launch import ready
from workbench.launch.guard import Guard
from workbench.launch.places import reserved_port
from workbench.launch.process import attach, serve
from workbench.parse.server_log import parse_log

PHASES = [
    *["starting", "loading weights", "allocating the KV cache", "capturing CUDA graphs", "warming up", "ready"],
    *["stopping", "stopped"],
]


def generate(url: str) -> int:
    connection = HTTPConnection(urlsplit(url).netloc, timeout=10)
    body = json.dumps({"text": "a b", "sampling_params": {"max_new_tokens": 8}})
    connection.request("POST", "/generate", body, {"Content-Type": "application/json"})
    status = connection.getresponse().status
    connection.close()
    return status


# ---- a start that goes well --------------------------------------------------------------------------------------


def test_a_server_is_ready_inside_the_block_and_gone_behind_it(tmp_path: Path, state_home: Path) -> None:
    phases: list[str] = []
    with served(tmp_path, "--children", "1", on_phase=phases.append, gpus=(2, 3)) as server:
        assert generate(server.url) == 200
        assert server.failure() is None
        assert server.pid is not None and os.getpgid(server.pid) == server.pgid == os.getsid(server.pid)
        environment = psutil.Process(server.pid).environ()
        assert (environment["CUDA_VISIBLE_DEVICES"], environment["CUDA_DEVICE_ORDER"]) == ("2,3", "PCI_BUS_ID")
        (record,) = state_home.rglob("servers/*.json")
        noted = json.loads(record.read_text())
        assert (noted["pid"], noted["url"], noted["argv"][1]) == (server.pid, server.url, command(0)[1])
        assert len(alive()) == 2
    assert phases == PHASES
    assert alive() == set()
    assert not list(state_home.rglob("servers/*.json"))
    assert parse_log((tmp_path / "server.log").read_bytes()).facts.ready_line is not None


def test_the_block_s_own_error_comes_through_and_the_server_goes(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), served(tmp_path):
        raise ZeroDivisionError
    assert alive() == set()


def test_an_error_of_the_listener_ends_the_server(tmp_path: Path) -> None:
    def listener(phase: str) -> None:
        if phase in ("ready", "stopping"):
            raise RuntimeError(phase)

    with pytest.raises(RuntimeError, match="stopping"), served(tmp_path, on_phase=listener):
        pass
    assert alive() == set()


def test_a_log_is_appended_to_and_old_lines_do_not_count(tmp_path: Path) -> None:
    old = "[2026-01-05 10:00:00] The server is fired up and ready to roll!\n"
    (tmp_path / "server.log").write_text(old)
    with pytest.raises(LaunchError) as caught, served(tmp_path, "--start-fault", "die"):
        pass
    assert caught.value.what == "the server ended (exit code 1)"
    assert (tmp_path / "server.log").read_text().startswith(old)


def test_secrets_do_not_stay_in_the_log_or_in_the_record(tmp_path: Path, state_home: Path) -> None:
    with served(tmp_path, "--api-key", "s3cr3t-value") as server:
        (record,) = state_home.rglob("servers/*.json")
        assert "s3cr3t-value" not in record.read_text()
        assert "'s3cr3t-value'" in (tmp_path / "server.log").read_text()
        assert server.failure() is None
    assert "api_key='************'" in (tmp_path / "server.log").read_text()


# ---- starts that fail --------------------------------------------------------------------------------------------


FAULTS = {
    "oom": ("oom", "the GPU ran out of memory: torch.OutOfMemoryError: CUDA out of memory"),
    "nccl": ("nccl", "the GPUs could not talk to each other (NCCL)"),
    "missing-file": ("missing_file", "FileNotFoundError: [Errno 2] No such file or directory: '/models/absent'"),
    "exception": ("child_death", "a process of the server died: ValueError: unsupported head size 7"),
    "child-death": ("child_death", "a process of the server died: Rank 0 scheduler died during initialization"),
    "exit2": ("bad_flag", "the server refused its command line: ambiguous option: --cuda-graph-max-bs"),
    "no-module": ("missing_file", "No module named 'sglang'"),
    "killed": ("unknown", "the server ended (killed by SIGKILL)"),
    "never-ready": ("timeout", "not ready within 2 s; it was still warming up"),
    "no-ready-line": ("timeout", "not ready within 2 s; /health is answered, but the log never said so"),
    "deaf": ("timeout", "not ready within 2 s; its log says that it is ready, but /health is not answered"),
    "silent": ("timeout", "not ready within 2 s; its log says nothing of interest"),
}


def test_every_way_not_to_start_is_named(tmp_path: Path) -> None:
    """All at once, as disjoint servers may be started from threads."""

    def start(fault: str) -> LaunchError:
        limit_s = 2.0 if FAULTS[fault][0] == "timeout" else 30.0
        options = ("--start-fault", fault, "--children", "1")
        with (
            pytest.raises(LaunchError) as caught,
            served(tmp_path / fault, *options, case=fault, ready_timeout_s=limit_s, stop_grace_s=0.2),
        ):
            pass
        return caught.value

    with ThreadPoolExecutor(4) as pool:
        errors = dict(zip(FAULTS, pool.map(start, FAULTS), strict=True))
    other = {fault: str(errors[fault]) for fault, (kind, _) in FAULTS.items() if errors[fault].kind != kind}
    assert other == {}
    assert {fault: errors[fault].what for fault, (_, said) in FAULTS.items() if said not in errors[fault].what} == {}
    assert {fault for fault, error in errors.items() if error.where != str(tmp_path / fault / "server.log")} == set()
    assert {fault for fault in FAULTS if alive(fault)} == set()


def test_a_server_that_lives_on_after_fatal_words_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ready, "FATAL_GRACE_S", 0.2)
    options = ("--start-fault", "fatal-but-alive")
    with pytest.raises(LaunchError) as caught, served(tmp_path, *options, stop_grace_s=0.2):
        pass
    assert caught.value.kind == "child_death"
    assert alive() == set()


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with running() as taken:
        port = urlsplit(taken).port
        assert port is not None
        log = tmp_path / "server.log"
        with (
            pytest.raises(LaunchError) as caught,
            serve(command(port), env={CASE: OWN}, log=log, url=taken, ready_timeout_s=20),
        ):
            pass
        assert caught.value.kind == "port"
        assert generate(taken) == 200


def test_a_program_or_a_place_that_is_not_there(tmp_path: Path) -> None:
    url, log = "http://127.0.0.1:1", tmp_path / "server.log"
    with (
        pytest.raises(LaunchError, match="cannot be started") as caught,
        serve(["no-such-program"], env={}, log=log, url=url, ready_timeout_s=5),
    ):
        pass
    assert (caught.value.kind, caught.value.where) == ("missing_file", "no-such-program")
    with (
        pytest.raises(LaunchError, match=r"cannot be started \(embedded null byte"),
        serve(["true"], env={"N": "a\0b"}, log=log, url=url, ready_timeout_s=5),
    ):
        pass
    (tmp_path / "file").touch()
    with (
        pytest.raises(LaunchError, match="log cannot be written"),
        serve(["true"], env={}, log=tmp_path / "file" / "server.log", url=url, ready_timeout_s=5),
    ):
        pass
    with (
        pytest.raises(UsageError, match="not the URL"),
        served(tmp_path, url="127.0.0.1:1"),
    ):
        pass
    assert alive() == set()


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FULL_BELOW_BYTES", 1 << 62)
    said = r"the server ended \(exit code 1\); the disk of .* is full"
    with pytest.raises(LaunchError, match=said), served(tmp_path, "--start-fault", "die"):
        pass


# ---- under load, and stopping ------------------------------------------------------------------------------------


def test_a_server_that_dies_under_load_says_why(tmp_path: Path) -> None:
    with served(tmp_path, "--fault", "oom@2", "--children", "1", "--children-session") as server:
        assert generate(server.url) == 200
        with pytest.raises(ConnectionError):
            generate(server.url)
        assert wait_for(lambda: server.failure() is not None)
        failure = server.failure()
        assert failure is not None and failure.kind == "oom"
        # What outlived it does not keep the GPUs until the end of the block.
        assert wait_for(lambda: alive() == set())


def test_what_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    began = time.monotonic()
    with served(tmp_path, "--ignore-sigterm", "--children", "2", "--children-session", stop_grace_s=0.3):
        assert len(alive()) == 3
        began = time.monotonic()
    assert alive() == set()
    assert 0.3 < time.monotonic() - began < 8


def test_a_launch_prefix_that_passes_no_signals_on(tmp_path: Path) -> None:
    """The shell dies of SIGTERM and leaves the server behind; so does many a wrapper script."""
    with reserved_port() as port:
        wrapped = ["sh", "-c", '"$@" & wait', "sh", *command(port)]
        url, log = f"http://127.0.0.1:{port}", tmp_path / "server.log"
        with serve(wrapped, env={CASE: OWN}, log=log, url=url, ready_timeout_s=30) as server:
            assert server.pid in alive() and len(alive()) == 2
            assert generate(url) == 200
        assert alive() == set()
    assert "SIGTERM received" in log.read_text()


def test_the_watchdog_s_own_death_is_survived_by_nothing(tmp_path: Path) -> None:
    with served(tmp_path, "--children", "1", "--children-session") as server:
        assert server.pid is not None
        watchdog = psutil.Process(server.pid).parent()
        assert watchdog is not None
        watchdog.kill()
        # On Linux the server itself goes with it, at once; its child waits for the end of the block.
        assert wait_for(lambda: server.pid not in alive())
        assert server.failure() is not None
    assert alive() == set()


def test_ctrl_c_takes_the_grace_away(tmp_path: Path) -> None:
    """A second interrupt, while the server is being stopped, neither leaves it alone nor waits for it."""
    log = tmp_path / "server.log"
    guard = Guard(command(1, "--ignore-sigterm"), {**os.environ, CASE: OWN}, log)
    assert wait_for(lambda: b"ready" in log.read_bytes() or b"bind" in log.read_bytes())
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    began = time.monotonic()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        guard.stop(60.0)
    assert time.monotonic() - began < 10
    assert guard.stop(60.0) == []
    assert alive() == set()


# ---- interrupted and killed at every phase -----------------------------------------------------------------------

SCRIPT = """\
import os, sys, time
sys.path[:0] = {paths!r}
from pathlib import Path
from launching import served

def tell(phase):
    print(phase, flush=True)
    if phase == {phase!r} == "stopping":
        time.sleep(60)

options = {options!r}
try:
    with served(Path({folder!r}), *options, case={case!r}, on_phase=tell, stop_grace_s=0.3):
        if {forks!r} and os.fork() == 0:
            time.sleep(6)  # holds what the script held open
            os._exit(0)
        print("inside", flush=True)
        time.sleep(60 if {phase!r} == "inside" else 0)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
HELD = {
    "starting": (),
    "loading weights": ("--load-s", "60"),
    "capturing CUDA graphs": ("--capture-s", "60"),
    "warming up": ("--warm-s", "60"),
    "inside": (),
    "stopping": (),
}


StartScript = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start_script(tmp_path: Path) -> Iterator[StartScript]:
    """Start a script that serves and stays in a phase; at the end of the test none of them is left."""
    started: list[subprocess.Popen[str]] = []
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

    def start(phase: str, case: str, *options: str, forks: bool = False) -> subprocess.Popen[str]:
        text = SCRIPT.format(
            paths=paths, phase=phase, options=options, folder=str(tmp_path / case), case=case, forks=forks
        )
        started.append(subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for script in started:
        script.kill()
        script.communicate()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_whenever_the_script_ends_its_server_ends(start_script: StartScript, how: signal.Signals) -> None:
    """All phases at once, since each waits. The servers ignore SIGTERM and have a child in a session of its own."""
    options = ("--children", "1", "--children-session", "--ignore-sigterm")
    cases = {phase: f"{how.name}-{number}" for number, phase in enumerate(HELD)}
    scripts = {phase: start_script(phase, case, *HELD[phase], *options) for phase, case in cases.items()}
    for phase, script in scripts.items():
        assert script.stdout is not None
        while (line := script.stdout.readline().rstrip("\n")) != phase:
            assert line, f"the script of {phase!r} ended"
        if phase != "starting":
            assert wait_for(partial(has_processes, cases[phase], 2)), phase
        # As papermill's kernel dies when papermill is asked to end: without a word to what it started.
        script.send_signal(signal.SIGTERM if (phase, how) == ("warming up", signal.SIGKILL) else how)
    printed = {phase: script.communicate(timeout=30)[0] for phase, script in scripts.items()}
    assert {phase for phase in HELD if not wait_for(partial(has_processes, cases[phase], 0), 6)} == set()
    if how is signal.SIGINT:
        assert {phase for phase, text in printed.items() if "interrupted" not in text} == set()


def has_processes(case: str, number: int) -> bool:
    return len(alive(case)) == number


@pytest.mark.parametrize("forks", [False, True])
def test_three_seconds_after_kill_9_nothing_is_left(start_script: StartScript, forks: bool) -> None:
    script = start_script("inside", OWN, "--children", "2", "--ignore-sigterm", forks=forks)
    assert script.stdout is not None
    while script.stdout.readline() != "inside\n":
        pass
    members = alive()
    groups = {os.getpgid(pid) for pid in members}
    assert len(members) == 3 and len(groups) == 1
    script.kill()
    began = time.monotonic()
    script.wait()
    assert wait_for(lambda: not any(_group_lives(group) for group in groups), 10)
    assert time.monotonic() - began < 3


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


# ---- servers of others -------------------------------------------------------------------------------------------


def test_a_server_that_somebody_else_runs_is_used_and_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "theirs.log"
    with running(log=log) as url:
        server = attach(url, log)
        assert (server.url, server.pid, server.pgid, server.log) == (url, None, None, log)
        assert generate(server.url) == 200
        assert server.failure() is None
        with pytest.raises(LogError, match="no such log"):
            attach(url, tmp_path / "absent.log")
    with pytest.raises(LaunchError, match="no healthy server"):
        attach(url, timeout_s=0.5)
    with pytest.raises(UsageError, match="not the URL"):
        attach("127.0.0.1:30000")
