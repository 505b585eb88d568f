"""The process between a server and whoever asked for it: when that one stops the server or dies, everything is ended.

Run as ``python -P watchdog.py`` with one line of JSON on standard input: ``argv``, ``env``, ``cwd``, ``log``,
``parent``. After that, a number on standard input is the order to stop with that many seconds of grace, and the end of
standard input means that the parent is gone. Lines of JSON on standard output say ``error`` (the server could not be
started), ``pid``, ``exit_code``, and last ``left``: processes that could not be ended.

It is small and in a session of its own, so that it outlives kernels and terminals. On Linux orphans of the server
become its children, whatever session they are in, and the server dies with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

POLL_S = 0.1
LOST_GRACE_S = 0.7
"""Grace when nobody waits any more: from the parent's death to the last process in less than 3 s."""
FAMILY_GRACE_S = 0.5
KILL_LIMIT_S = 5.0
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


class Watchdog:
    """One server. Every child is reaped here and nowhere else."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.parent = int(job["parent"])
        self.hurry = False
        self.exit_code: int | None = None
        signal.signal(signal.SIGTERM, self._on_sigterm)
        for ignored in (signal.SIGINT, signal.SIGHUP):
            signal.signal(ignored, signal.SIG_IGN)
        with Path(job["log"]).open("ab") as log:
            self.server = subprocess.Popen(
                job["argv"],
                env=job["env"],
                cwd=job["cwd"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )

    def watch(self) -> float:
        """Wait for the end; the seconds of grace that the server still gets."""
        while True:
            if select.select([0], [], [], POLL_S)[0]:
                order = os.read(0, 64).strip()
                return float(order) if order else LOST_GRACE_S
            if self._is_alone():
                return LOST_GRACE_S
            self._reap()
            if self.exit_code is not None:
                return 0.0

    def end(self, grace_s: float) -> list[int]:
        """End the server, then all that is left of what it started; ids of processes that cannot be ended."""
        if self.exit_code is None:
            self._signal(self.server.pid, signal.SIGTERM)
            self._wait(grace_s, lambda: self.exit_code is not None)
        if self._family():
            for pid in self._family():
                self._signal(pid, signal.SIGTERM)
            self._wait(FAMILY_GRACE_S, lambda: not self._family())
        deadline = time.monotonic() + KILL_LIMIT_S
        while (family := self._family()) and time.monotonic() < deadline:
            for pid in family:
                self._signal(pid, signal.SIGKILL)
            time.sleep(0.05)
        return family

    def _wait(self, seconds: float, done: Any) -> None:
        deadline = time.monotonic() + seconds
        while not done() and time.monotonic() < deadline:
            if self.hurry or self._is_alone():
                deadline = min(deadline, time.monotonic() + LOST_GRACE_S)
            time.sleep(0.05)
            self._reap()

    def _is_alone(self) -> bool:
        return self.hurry or os.getppid() != self.parent

    def _family(self) -> list[int]:
        """Ids of everything below this process or in the server's group that has not ended."""
        import psutil  # here: 30 ms that the start of a server need not wait for

        self._reap()
        members = {child.pid: child for child in psutil.Process().children(recursive=True)}
        for process in psutil.process_iter():
            with contextlib.suppress(OSError, psutil.Error):
                if os.getpgid(process.pid) == self.server.pid:
                    members[process.pid] = process
        alive = []
        for pid, process in members.items():
            with contextlib.suppress(psutil.Error):
                if process.status() != psutil.STATUS_ZOMBIE:
                    alive.append(pid)
        return alive

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self.server.pid:
                    self.exit_code = os.waitstatus_to_exitcode(status)
                    report(exit_code=self.exit_code)

    @staticmethod
    def _signal(pid: int, number: signal.Signals) -> None:
        with contextlib.suppress(OSError):
            os.kill(pid, number)

    def _on_sigterm(self, *_: object) -> None:
        self.hurry = True


def report(**facts: object) -> None:
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(facts).encode() + b"\n")


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _die_with_parent() -> None:
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> int:
    with open(0, "rb", buffering=0, closefd=False) as orders:  # unbuffered: what follows the line stays unread
        line = orders.readline()
    if not line.endswith(b"\n"):
        return 1
    if sys.platform == "linux":
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        watchdog = Watchdog(json.loads(line))
    except (OSError, ValueError) as error:  # ValueError: an argument or a variable that no program can be given
        report(error=str(error), errno=getattr(error, "errno", None))
        return 1
    report(pid=watchdog.server.pid)
    grace_s = 0.0
    try:
        grace_s = watchdog.watch()
    finally:
        report(left=watchdog.end(grace_s))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
