"""This process's end of the watchdog: starts it, hears of the server, orders the stop."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from workbench.errors import LaunchError
from workbench.launch import state, watchdog

START_LIMIT_S = 30.0
_SPARE_S = 2.0


class Guard:
    """A started server. `stop` must be called, whatever happens; it may be called again.

    Attributes
    ----------
    mark
        What every process of the server carries in its environment.
    pid
        Of the server, which leads a process group of the same number.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], log: Path, cwd: Path | None = None) -> None:
        self.mark = state.new_mark()
        self._exit_code: int | None = None
        self._left: list[int] | None = None
        self._heard = b""
        self._log = log
        job = {
            "argv": list(argv),
            "env": {"PYTHONUNBUFFERED": "1", **env, state.MARK: self.mark},
            "cwd": str(cwd or Path.cwd()),
            "log": str(log),
            "parent": os.getpid(),
        }
        # -P: the folder of the script must not come before installed packages.
        self._process = subprocess.Popen(
            [sys.executable, "-P", watchdog.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            self._order(json.dumps(job))
            self.pid = self._await_pid(argv)
        except BaseException:
            self.stop(0.0)
            raise

    @property
    def exit_code(self) -> int | None:
        """The server's, negative for a signal; ``None`` while it runs."""
        self._listen(0.0)
        if self._exit_code is None and self._process.poll() is not None:
            self._listen(0.0)
            return self._exit_code if self._exit_code is not None else -9  # the server dies with its watchdog
        return self._exit_code

    def stop(self, grace_s: float) -> list[int]:
        """End the server with all that it started; ids of processes that could not be ended.

        A Ctrl-C meanwhile takes the grace away, and is raised when all has ended.
        """
        if self._left is not None:
            return self._left
        self._order(f"{grace_s:g}")
        limit_s = grace_s + watchdog.FAMILY_GRACE_S + watchdog.KILL_LIMIT_S + _SPARE_S
        try:
            self._process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
        except KeyboardInterrupt:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=limit_s)
            self._finish()
            raise
        return self._finish()

    def _finish(self) -> list[int]:
        self._process.wait()
        self._listen(0.0)
        # What the watchdog could not see or could not do: it was killed, or this is no Linux.
        self._left = state.end_processes(state.marked(self.mark), grace_s=0.0)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        return self._left

    def _order(self, text: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(text.encode() + b"\n")
            self._process.stdin.flush()

    def _await_pid(self, argv: Sequence[str]) -> int:
        deadline = time.monotonic() + START_LIMIT_S
        ended = False
        while not ended and time.monotonic() < deadline:
            # Asked first: one that ends between the two has still said what it had to say.
            ended = self._process.poll() is not None
            for said in self._listen(0.1):
                if "pid" in said:
                    return int(str(said["pid"]))
                if "error" in said:
                    raise _not_started(str(said["error"]), argv, self._log)
        raise LaunchError("the process that starts the server did not answer", where=argv[0])

    def _listen(self, timeout_s: float) -> list[dict[str, object]]:
        """What the watchdog said since the last time."""
        pipe = self._process.stdout
        if pipe is None or pipe.closed:
            return []
        while select.select([pipe], [], [], timeout_s)[0]:
            data = os.read(pipe.fileno(), 4096)
            self._heard += data
            timeout_s = 0.0
            if not data:
                break
        *lines, self._heard = self._heard.split(b"\n")
        said: list[dict[str, object]] = [json.loads(line) for line in lines]
        for facts in said:
            if "exit_code" in facts:
                self._exit_code = int(str(facts["exit_code"]))
        return said


def _not_started(message: str, argv: Sequence[str], log: Path) -> LaunchError:
    if str(log) in message:
        return LaunchError(
            f"the server's log cannot be written ({message})",
            where=log,
            next_step="free some space, or choose a folder that you may write to",
            kind="missing_file",
        )
    return LaunchError(
        f"the server's program cannot be started ({message})",
        where=argv[0],
        next_step="install it, or correct the path or the launch prefix",
        kind="missing_file",
    )
