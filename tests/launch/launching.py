"""Servers of a test, and what is left of them."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
from scripted_server import command

from workbench.launch.places import reserved_port
from workbench.launch.process import Server, serve

CASE = "SCRIPTED_CASE"
OWN = f"case-{os.getpid()}"
"""The case of a test that has one server at a time; others run in other processes."""


@contextlib.contextmanager
def served(folder: Path, *options: str, case: str = OWN, **settings: Any) -> Iterator[Server]:
    """A scripted server through `serve`, its log in ``folder``."""
    with reserved_port() as port:
        arguments: dict[str, Any] = {
            "env": {CASE: case},
            "log": folder / "server.log",
            "url": f"http://127.0.0.1:{port}",
            "ready_timeout_s": 30.0,
            **settings,
        }
        with serve(command(port, *options), **arguments) as server:
            yield server


def alive(case: str = OWN) -> set[int]:
    """Ids of the processes of a case, in whatever session they are."""
    found = set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(CASE) == case and process.status() != psutil.STATUS_ZOMBIE:
                found.add(process.pid)
    return found


def wait_for(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
