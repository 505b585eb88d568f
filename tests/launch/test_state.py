"""What earlier servers left behind, and where that is noted."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from launching import CASE, OWN, alive, served
from scripted_server import command

from workbench.launch import state
from workbench.launch.state import sweep_stale


def abandoned(tmp_path: Path, *options: str) -> psutil.Process:
    """A scripted server whose starter and watchdog were both killed outright."""
    text = (
        "import os, subprocess, sys; from workbench.launch import state\n"
        "mark = state.new_mark()\n"
        f"argv = {command(1, '--ignore-sigterm', '--start-fault', 'silent')!r}\n"
        f"process = subprocess.Popen(argv, env={{**os.environ, {CASE!r}: {OWN!r}, state.MARK: mark}},\n"
        "    start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
        "print(process.pid, mark, flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    pid, mark = done.stdout.split()
    process = psutil.Process(int(pid))
    state.write_record(mark, {"pid": process.pid, "born": state.born(process.pid)})
    return process


def test_stale_servers_are_swept_at_the_next_start(tmp_path: Path, state_home: Path) -> None:
    stale = abandoned(tmp_path)
    with served(tmp_path / "other", case="other") as server:
        assert not stale.is_running() or stale.status() == psutil.STATUS_ZOMBIE
        # A server whose starter lives is left alone.
        assert sweep_stale() == ()
        assert server.failure() is None
    assert not list(state_home.rglob("servers/*.json"))


def test_a_record_alone_is_enough_when_the_environment_is_not(
    tmp_path: Path, state_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale = abandoned(tmp_path)
    monkeypatch.setattr(state, "MARK", "ANOTHER_NAME")
    assert sweep_stale() == (stale.pid,)
    assert alive() == set()


def test_a_clock_that_was_set_makes_no_process_another(monkeypatch: pytest.MonkeyPatch) -> None:
    mark = state.new_mark()
    began = state.born(os.getpid())
    monkeypatch.setattr(psutil, "boot_time", lambda: 0.0)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert state.born(os.getpid()) == began is not None
    assert state.starter_lives(mark)
    assert not state.starter_lives(f"{os.getpid()}.{began + 1}.abc")


def test_a_record_never_ends_a_process_that_got_the_number_later(tmp_path: Path, state_home: Path) -> None:
    mark = "999999999.1.abc"
    state.write_record(mark, {"pid": os.getpid(), "born": (state.born(os.getpid()) or 0) - 1000})
    assert sweep_stale() == ()
    assert not list(state_home.rglob("servers/*.json"))


def test_broken_records_stop_nothing(state_home: Path) -> None:
    folder = state.state_dir() / "servers"
    folder.mkdir()
    for name, text in (("999999999.1.a", "{"), ("999999999.1.b", "[]"), ("no-mark", "{}")):
        (folder / f"{name}.json").write_text(text)
    assert sweep_stale() == ()
    assert [path.name for path in folder.iterdir()] == ["no-mark.json"]


def test_where_the_state_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state.platform, "node", lambda: "node 7")
    assert state.state_dir() == tmp_path / "state" / "workbench" / "node-7"
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert state.state_dir() == tmp_path / "home" / ".local" / "state" / "workbench" / "node-7"
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    monkeypatch.setattr(state.tempfile, "gettempdir", lambda: str(tmp_path / "temp"))
    assert state.state_dir() == tmp_path / "temp" / f"workbench-{os.getuid()}" / "node-7"
