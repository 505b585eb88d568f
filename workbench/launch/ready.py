"""Waiting for a server: its log is read as it grows, until it says that it is ready and a request is answered."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from workbench.errors import UsageError
from workbench.files import CHUNK_BYTES, is_full
from workbench.launch.failure import TAIL_BYTES, LaunchFailure, explain, is_fatal
from workbench.launch.guard import Guard
from workbench.parse.records import EventKind, LogEvent, Record
from workbench.parse.server_log import iter_records
from workbench.provenance import without_secrets

FATAL_GRACE_S = 20.0
"""A server that has said something fatal may still end by itself, with more to say."""
POLL_S = 0.05
HEALTH_TIMEOUT_S = 5.0
_KNOWN_BYTES = 256

STARTING, READY, STOPPING, STOPPED = "starting", "ready", "stopping", "stopped"
_PHASES = {
    EventKind.SERVER_ARGS: "loading weights",
    EventKind.KV_CACHE: "allocating the KV cache",
    EventKind.GRAPH_CAPTURE: "capturing CUDA graphs",
    EventKind.CAPACITY: "warming up",
}


class Waiting:
    """One server that is being waited for."""

    def __init__(
        self, guard: Guard, url: str, log: Path, offset: int, timeout_s: float, on_phase: Callable[[str], None]
    ) -> None:
        self.guard, self.url, self.log, self.offset, self.on_phase = guard, url, log, offset, on_phase
        self.timeout_s = timeout_s
        self.deadline = time.monotonic() + timeout_s
        self.phase = STARTING
        self.said_ready = False
        self.said_fatal = False

    def until_ready(self, secrets: Sequence[str] = ()) -> LaunchFailure | None:
        """Return when the server is ready, with ``None``, or when it will never be, with the reason."""
        for record in iter_records(self._growing()):
            self._see(record)
            if self.said_ready:
                break
        while self.said_ready and self._goes_on():
            if answers(self.url, min(HEALTH_TIMEOUT_S, max(0.1, self.deadline - time.monotonic()))):
                return None
            time.sleep(POLL_S)
        code = self.guard.exit_code
        waited_s = None if self.said_fatal else self.timeout_s
        return explain(log_end(self.log), code, waited_s=waited_s, note=self._note(code), secrets=secrets)

    def _growing(self) -> Iterator[bytes]:
        """The log from where it was when the server started, to where it is when there is nothing to wait for."""
        with self.log.open("rb") as file:
            file.seek(self.offset)
            while True:
                going = self._goes_on()
                if chunk := file.read(CHUNK_BYTES):
                    yield chunk
                elif not going:
                    return
                else:
                    if os.fstat(file.fileno()).st_size < file.tell():
                        file.seek(0)  # somebody emptied it
                    time.sleep(POLL_S)

    def _goes_on(self) -> bool:
        return self.guard.exit_code is None and time.monotonic() < self.deadline

    def _see(self, record: Record) -> None:
        if not isinstance(record, LogEvent):
            return
        self.said_ready = self.said_ready or record.kind is EventKind.READY
        if not self.said_fatal and is_fatal(record.text):
            self.said_fatal = True
            self.deadline = min(self.deadline, time.monotonic() + FATAL_GRACE_S)
        phase = _PHASES.get(record.kind)
        if phase is not None and phase != self.phase:
            self.phase = phase
            self.on_phase(phase)

    def _note(self, exit_code: int | None) -> str | None:
        if exit_code is not None or self.said_fatal:
            return disk_note(self.log)
        if self.said_ready:
            return "its log says that it is ready, but /health is not answered"
        if answers(self.url, 1.0):
            return "/health is answered, but the log never said so: it needs log level info"
        return f"it was still {self.phase}" if self.phase != STARTING else "its log says nothing of interest"


def server_address(url: str) -> SplitResult:
    """The parts of a server's URL.

    Raises
    ------
    UsageError
        When it is none, or holds a password.
    """
    with contextlib.suppress(ValueError):
        parts = urlsplit(url)
        if parts.username or parts.password:
            advice = "give the key in WORKBENCH_API_KEY: URLs are written down"
            raise UsageError("a URL with a password in it", where=f"the URL of {parts.hostname}", next_step=advice)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return parts
    raise UsageError("not the URL of a server", where=without_secrets(url), next_step="give http://HOST:PORT")


def answers(url: str, timeout_s: float) -> bool:
    """Whether ``/health`` says 200 in time. No proxy is used, whatever the environment says."""
    parts = server_address(url)
    assert parts.hostname is not None
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=timeout_s)
    # The connection's own limit is one of each read: a server that drips, or says 100 over and over, would never end.
    limit = threading.Timer(timeout_s, _shut, [connection])
    limit.daemon = True
    # ValueError: a name that no address can have.
    with contextlib.closing(connection), contextlib.suppress(OSError, HTTPException, ValueError):
        limit.start()
        try:
            connection.request("GET", parts.path.rstrip("/") + "/health")
            return connection.getresponse().status == 200
        finally:
            limit.cancel()
    return False


def _shut(connection: HTTPConnection) -> None:
    with contextlib.suppress(OSError, AttributeError):  # it has none yet, or none any more
        connection.sock.shutdown(socket.SHUT_RDWR)


def disk_note(log: Path) -> str | None:
    """Said when a server may have ended because nothing more could be written."""
    return f"the disk of {log.parent} is full" if is_full(log.parent) else None


class OwnLog:
    """The size of a log that a server of ours writes; ``faults`` says, each time that it was seen, what is missing.

    Somebody may rotate it or empty it as it is written: the server goes on in the old file or at the new beginning.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.faults: list[str] = []
        self._seen = self._look()

    def size(self) -> int:
        before, self._seen = self._seen, self._look()
        (inode, beginning, size), (inode_before, beginning_before, size_before) = self._seen, before
        if inode is None:
            self.faults.append("the server's log is gone (rotated, say): lines are missing")
        elif inode != inode_before or size < size_before or not beginning.startswith(beginning_before):
            self.faults.append("the server's log was emptied or replaced (rotated, say): lines may be missing")
        return size

    def _look(self) -> tuple[int | None, bytes, int]:
        """Another beginning tells that it was emptied, also when it has become as long as before."""
        try:
            with self.path.open("rb") as file:
                found = os.fstat(file.fileno())
                return found.st_ino, file.read(_KNOWN_BYTES), found.st_size
        except OSError:
            return None, b"", 0


def log_end(log: Path) -> bytes:
    """The last part of a log; empty when it cannot be read."""
    with contextlib.suppress(OSError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL_BYTES))
        return file.read()
    return b""
