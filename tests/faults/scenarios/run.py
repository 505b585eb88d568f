"""A campaign of which the baseline is measured, and now the rest: a run folder from nothing to its end.

The server is one for the whole walk; its log is copied, so that each point has its own.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cutting import WRITE
from injecting import BASELINE, assert_no_part_passes_as_whole, content
from live_campaigns import briefly, run_folder, states, write_project
from live_campaigns import run as run_campaign
from scripted_server import running

from workbench import measure
from workbench.attached import Attachment, attached_server
from workbench.errors import RunFolderError
from workbench.recording import Served
from workbench.store import read_campaign
from workbench.sweep import Start

LESS = "baseline_again=false"
_SERVER: list[Attachment] = []


@contextlib.contextmanager
def running_server(log: Path) -> Iterator[None]:
    log.unlink(missing_ok=True)
    with running("--model-path", "/models/t", "--enable-metrics", log=log) as url:
        _SERVER.append(Attachment(url, log))
        yield
        _SERVER.pop()


@contextlib.contextmanager
def _served(work: Any, start: Start, log: Path) -> Iterator[Served]:
    with attached_server(_SERVER[0], log) as (server, copy):
        assert copy is not None
        yield Served(server, ("python", "--model-path", "/models/t"), (), copy.catch_up, copy.faults)


def _append_line(file: Any, record: Any) -> None:
    sys.audit(WRITE, file.name)
    _append(file, record)


_append = measure._append_line
measure._served, measure._append_line = _served, _append_line


def prepare(root: Path) -> None:
    write_project(root)
    with running_server(root.with_name("first.log")):
        assert briefly(run_campaign(LESS, "only=baseline-default")) == {BASELINE: "ok"}
    shutil.copytree(run_folder(root, BASELINE), root / "finished")


def meanwhile(folder: Path) -> contextlib.AbstractContextManager[None]:
    return running_server(folder / "theirs.log")


def act(root: Path) -> None:
    run_campaign(LESS)


def read(root: Path) -> None:
    """The baseline is as it was; of the other run it is said that it is not whole, if it is not."""
    assert content(run_folder(root, BASELINE)) == content(root / "finished"), "LOST"
    assert any(name.startswith(BASELINE) for name in whole(root)), "LOST"


def whole(root: Path) -> list[str]:
    try:
        read_campaign(root / "data" / "runs" / "small")
    except RunFolderError as error:
        raise AssertionError(f"LOST: {error}") from error
    return assert_no_part_passes_as_whole()


def go_on(root: Path) -> None:
    ended = run_campaign(LESS)
    assert ended[0].reused, "LOST: the baseline is measured again"
    assert set(states(root).values()) == {"ok"} and len(whole(root)) == 2
    read(root)
    assert all(again.reused for again in run_campaign(LESS))
