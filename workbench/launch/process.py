"""Serve: a server for the time of a block, ready inside it and gone after it, whatever happens."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from workbench.errors import LaunchError, LogError
from workbench.launch import state
from workbench.launch.failure import LaunchFailure, explain
from workbench.launch.guard import Guard
from workbench.launch.ready import READY, STARTING, STOPPED, STOPPING, Waiting, answers, disk_note, log_end
from workbench.launch.redaction import blank_out, secret_values, shown_argv

STOP_GRACE_S = 20.0
"""SGLang looks for SIGTERM every 5 s and then gives its schedulers 15 s to release their memory (0.5.14)."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server that answers. ``started_at`` is UTC, ISO 8601; the rest is ``None`` where somebody else runs it."""

    url: str
    pid: int | None
    pgid: int | None
    log: Path | None
    started_at: str
    _guard: Guard | None = field(default=None, repr=False, compare=False)
    _secrets: tuple[str, ...] = field(default=(), repr=False, compare=False)

    def failure(self) -> LaunchFailure | None:
        """Why the server has ended; ``None`` while it runs, and for a server that somebody else runs."""
        code = self._guard.exit_code if self._guard is not None else None
        if code is None or self.log is None:
            return None
        return explain(log_end(self.log), code, note=disk_note(self.log), secrets=self._secrets)


@contextlib.contextmanager
def serve(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    log: Path,
    url: str,
    ready_timeout_s: float,
    gpus: Sequence[int] | None = None,
    on_phase: Callable[[str], None] | None = None,
    cwd: Path | None = None,
    stop_grace_s: float = STOP_GRACE_S,
) -> Iterator[Server]:
    """Start a server, wait until it is ready, and end it with all that it started when the block is left.

    The server has a session of its own, and a watchdog ends it within 3 s when this process dies, however that
    happens. What earlier servers left behind is ended first.

    Parameters
    ----------
    env
        Added to this process's environment.
    log
        What the server prints is appended to it. When the server has ended, secret values in it are blanked out.
    ready_timeout_s
        From the start to the ready line in the log and an answer of ``/health``.
    gpus
        The only ones that the server sees; ``None`` leaves that as it is.
    on_phase
        Told ``starting``, ``loading weights``, ``allocating the KV cache``, ``capturing CUDA graphs``,
        ``warming up``, ``ready``, ``stopping``, ``stopped``, as far as the log shows them.
    stop_grace_s
        Between asking the server to end and killing it.

    Raises
    ------
    LaunchError
        When the server does not start or does not become ready, with the cause and the end of its log, or when some
        of its processes cannot be ended.
    """
    tell = on_phase if on_phase is not None else _nobody
    full_env = {**os.environ, **env, **_gpu_env(gpus)}
    secrets = secret_values(argv, full_env)
    state.sweep_stale()
    offset = _open_log(log)
    tell(STARTING)
    with _blanked_out(log, secrets), _guarded(argv, full_env, log, cwd, stop_grace_s, tell) as guard:
        server = Server(url, guard.pid, guard.pid, log, _now(), guard, secrets)
        _write_record(server, guard.mark, shown_argv(argv, full_env), gpus)
        failure = Waiting(guard, url, log, offset, ready_timeout_s, tell).until_ready(secrets)
        if failure is not None:
            raise failure.error(log)
        tell(READY)
        yield server


def attach(url: str, log: Path | None = None, *, timeout_s: float = 30.0) -> Server:
    """A server that somebody else runs, and leaves running.

    Raises
    ------
    LaunchError
        When ``/health`` is not answered with 200 in time.
    LogError
        When the log does not exist.
    """
    if log is not None and not log.is_file():
        raise LogError("no such log", where=log, next_step="give the file that the server writes to")
    if not answers(url, timeout_s):
        raise LaunchError("no healthy server answers there", where=url, next_step=f"try curl {shlex.quote(url)}/health")
    return Server(url, None, None, log, _now())


@contextlib.contextmanager
def _guarded(
    argv: Sequence[str],
    env: Mapping[str, str],
    log: Path,
    cwd: Path | None,
    grace_s: float,
    tell: Callable[[str], None],
) -> Iterator[Guard]:
    guard = Guard(argv, env, log, cwd)
    try:
        yield guard
    finally:
        try:
            tell(STOPPING)
        finally:
            left = guard.stop(grace_s)
        if left:
            raise LaunchError(
                f"processes of the server cannot be ended: {', '.join(map(str, left))}",
                next_step="they hang in a driver or belong to another user; their GPUs stay taken meanwhile",
            )
        state.forget_record(guard.mark)
        tell(STOPPED)


@contextlib.contextmanager
def _blanked_out(log: Path, secrets: Sequence[str]) -> Iterator[None]:
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            blank_out(log, secrets)


def _write_record(server: Server, mark: str, argv: Sequence[str], gpus: Sequence[int] | None) -> None:
    assert server.pid is not None
    content = {
        "pid": server.pid,
        "born": state.born(server.pid),
        "url": server.url,
        "log": str(server.log),
        "argv": argv,
        "gpus": None if gpus is None else list(gpus),
    }
    state.write_record(mark, {**content, "started_at": server.started_at})


def _nobody(_: str) -> None:
    return None


def _gpu_env(gpus: Sequence[int] | None) -> dict[str, str]:
    if gpus is None:
        return {}
    # Numbers in the order of the bus, as nvidia-smi counts; CUDA's own order is by speed.
    return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus)), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def _open_log(log: Path) -> int:
    """Make sure that the log can be written; its size so far."""
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as file:
            return file.tell()
    except OSError as error:
        raise LaunchError(
            f"the server's log cannot be written ({error.strerror or error})",
            where=log,
            next_step="free some space, or choose a folder that you may write to",
            kind="missing_file",
        ) from error


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
