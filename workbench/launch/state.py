"""What this user's servers on this machine are: records, a mark in their environment, and the sweep of stale ones."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import signal
import tempfile
import uuid
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

from workbench.files import replacing
from workbench.paths import slug

MARK = "WORKBENCH_SERVER"
"""Variable in the environment of every process of a server: process id and birth of who started it, and a number."""

TERM_GRACE_S = 1.0


def state_dir() -> Path:
    """Folder for locks and records: of one user, on one machine (home folders are shared between nodes).

    Below ``$XDG_STATE_HOME``, else ``~/.local/state``, else the folder for temporary files.
    """
    for base in _bases():
        folder = base / slug(platform.node() or "localhost")
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if os.access(folder, os.W_OK) and folder.stat().st_uid == os.getuid():
                return folder
    return Path(tempfile.mkdtemp(prefix="workbench-"))


def _bases() -> Iterator[Path]:
    stated = os.environ.get("XDG_STATE_HOME")
    if stated:
        yield Path(stated) / "workbench"
    with contextlib.suppress(RuntimeError):
        yield Path.home() / ".local" / "state" / "workbench"
    yield Path(tempfile.gettempdir()) / f"workbench-{os.getuid()}"


def new_mark() -> str:
    return f"{os.getpid()}.{born(os.getpid())}.{uuid.uuid4().hex[:12]}"


def born(pid: int) -> int | None:
    """When a process began, in clock ticks since the machine did; ``None`` when it has ended.

    Unlike seconds since 1970 this does not move when the clock is set (proc(5), ``starttime`` of /proc/PID/stat).
    """
    try:
        behind_name = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
        return int(behind_name.split()[19])
    except (OSError, IndexError, ValueError):
        return None


def write_record(mark: str, content: Mapping[str, Any]) -> None:
    """Note a running server. A failure stops nothing: the server is found by its mark, too."""
    path = _record(mark)
    with contextlib.suppress(OSError), replacing(path) as temporary:
        temporary.write_text(json.dumps({**content, "mark": mark}, indent=2) + "\n", encoding="utf-8")


def forget_record(mark: str) -> None:
    with contextlib.suppress(OSError):
        _record(mark).unlink(missing_ok=True)


def count_servers(gpus: Collection[int] = ()) -> int:
    """Servers of this user on any of these GPUs, or without any GPU, whose starter still lives.

    A server that does not say which GPUs it has may be on any of them.
    """
    living = [path for path in (state_dir() / "servers").glob("*.json") if starter_lives(path.stem)]
    taken = [_gpus(path) for path in living]
    return sum(theirs is None or bool(set(theirs) & set(gpus)) or not (theirs or gpus) for theirs in taken)


def _gpus(path: Path) -> list[int] | None:
    try:
        gpus = json.loads(path.read_text(encoding="utf-8")).get("gpus")
    except (OSError, ValueError, AttributeError):
        return None
    return gpus if isinstance(gpus, list) else None


def marked(mark: str) -> list[psutil.Process]:
    """Running processes that carry a mark."""
    return [process for process, found in _all_marked() if found == mark]


def sweep_stale() -> tuple[int, ...]:
    """End what is left of servers whose starter is gone; the ids of the ended processes."""
    stale = {process.pid: process for process, mark in _all_marked() if not starter_lives(mark)}
    for path in sorted((state_dir() / "servers").glob("*.json")):
        if not starter_lives(path.stem):
            for process in _recorded(path):
                stale[process.pid] = process
            forget_record(path.stem)
    end_processes(list(stale.values()))
    return tuple(stale)


def end_processes(processes: list[psutil.Process], grace_s: float = TERM_GRACE_S) -> list[int]:
    """Ask, wait, kill; the ids of those that still run."""
    for number, limit_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 3.0)):
        for process in processes:
            with contextlib.suppress(psutil.Error):
                process.send_signal(number)
        _, processes = psutil.wait_procs(processes, timeout=limit_s)
    return [process.pid for process in processes]


def _record(mark: str) -> Path:
    return state_dir() / "servers" / f"{mark}.json"


def _all_marked() -> Iterator[tuple[psutil.Process, str]]:
    here = _namespace(os.getpid())
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            mark = process.environ().get(MARK)
            # Inside a container process ids mean something else: its own workbench takes care of them.
            if mark and process.pid != os.getpid() and _namespace(process.pid) == here:
                yield process, mark


def _namespace(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")  # noqa: PTH115 - the link's text, not a path
    except OSError:
        return None


@contextlib.contextmanager
def own_folder(base: Path, prefix: str = "") -> Iterator[Path]:
    """A folder in ``base`` for the time of the block, for this user only; those of processes that were killed go."""
    for left in base.glob(f"{prefix}*"):
        if not starter_lives(left.name.removeprefix(prefix)):
            shutil.rmtree(left, ignore_errors=True)
    made = base / f"{prefix}{new_mark()}"
    made.mkdir(mode=0o700)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def starter_lives(mark: str) -> bool:
    """Whether the process that made a mark still runs here."""
    try:
        pid, began, _ = mark.split(".")
        return _is_same(int(pid), int(began))
    except ValueError:
        return True  # not a mark of ours: left alone


def _is_same(pid: int, began: int) -> bool:
    try:
        return born(pid) == began and bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _recorded(path: Path) -> list[psutil.Process]:
    """The server of a record, if it still runs, with everything below it."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, psutil.Error):
        record = json.loads(path.read_bytes())
        if _is_same(int(record["pid"]), int(record["born"])):
            process = psutil.Process(int(record["pid"]))
            return [process, *process.children(recursive=True)]
    return []
