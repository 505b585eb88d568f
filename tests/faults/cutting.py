"""The n-th change below a folder fails: the process stops before it, the power goes, or the disk is full from then on.

Changes are what Python tells its audit hooks (PEP 578) of files that are opened for writing, renamed and removed and
of folders that are made, every ``fsync``, and `WRITE`. A loss of power also takes half of what was written and not
synced since.
"""

from __future__ import annotations

import errno
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

STOP, POWER, UNLUCKY, FULL, QUOTA, NONE = "stop", "power", "unlucky", "full", "quota", "none"
STOPS = (STOP, POWER, UNLUCKY)
"""Unlucky is a loss of power that spares the JSON files, which would not be read in halves."""
STOPPED = 77
WRITE = "faults.write"
"""What a scenario tells, with the path, before more is written to a file that is open."""
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_ERRORS = {FULL: errno.ENOSPC, QUOTA: errno.EDQUOT}
_FREEING = {"os.remove", "os.rmdir"}


@dataclass
class Cut:
    """Counts the changes below ``root``; at the ``at``-th of them ``kind`` happens."""

    root: Path
    kind: str
    at: int
    count: int = 0
    durable: dict[str, int] = field(default_factory=dict)
    """How much of a file that was opened for writing and not synced since would be there after a loss of power."""
    told: list[str] = field(default_factory=list)
    _on: bool = True

    def install(self) -> None:
        """Once and for ever: an audit hook cannot be taken away."""
        sys.addaudithook(self._hear)
        whole = os.fsync

        def fsync(handle: int) -> None:
            path = os.readlink(f"/proc/self/fd/{handle}")
            self._change("fsync", path)
            whole(handle)
            self.durable.pop(path, None)

        os.fsync = fsync

    def end(self) -> None:
        """All is done: the last point at which the power may go."""
        self._change("end", f"{self.root}/")

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._on or event not in ("open", WRITE, "os.rename", "os.remove", "os.mkdir", "os.rmdir"):
            return
        path = arguments[1] if event == "os.rename" else arguments[0]
        if isinstance(path, int) or (event == "open" and not int(arguments[2] or 0) & _WRITES):
            return
        path = os.path.abspath(os.fsdecode(path))
        self._change(event, path)
        if event == "open":
            emptied = int(arguments[2]) & os.O_TRUNC or not os.path.exists(path)
            self.durable[path] = 0 if emptied else self.durable.get(path, os.path.getsize(path))
        elif event == "os.rename":
            self._renamed(os.path.abspath(os.fsdecode(arguments[0])), path)

    def _renamed(self, old: str, new: str) -> None:
        moved = {path for path in self.durable if path == old or path.startswith(f"{old}/")}
        self.durable.pop(new, None)
        self.durable |= {new + path[len(old) :]: self.durable.pop(path) for path in moved}

    def _change(self, event: str, path: str) -> None:
        if not path.startswith(f"{self.root}/"):
            return
        self.count += 1
        self.told.append(f"{event} {path.removeprefix(f'{self.root}/')}")
        if self.count == self.at and self.kind in STOPS:
            self._stop()
        if self.count >= self.at and self.kind in _ERRORS and event not in _FREEING:
            raise OSError(_ERRORS[self.kind], os.strerror(_ERRORS[self.kind]), path)

    def _stop(self) -> None:
        self._on = False
        for path, durable in self.durable.items() if self.kind in (POWER, UNLUCKY) else ():
            spared = self.kind == UNLUCKY and path.endswith(".json")
            if os.path.isfile(path) and os.path.getsize(path) > durable and not spared:
                os.truncate(path, (durable + os.path.getsize(path)) // 2)
        os._exit(STOPPED)
