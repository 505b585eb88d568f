"""The tables of a campaign kept on disk: only runs and logs that are new or changed are read again.

A run is as it was when none of its files, its log and its drafter changed: names, sizes, times and inodes tell. What
was kept by another version of the code that reads is not used. Without a place to keep anything, all is read each time.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from workbench.errors import Problem, UsageError
from workbench.files import as_text, read_chunks
from workbench.paths import recorded_dir, reports_dir, runs_dir, slug
from workbench.store import Campaign, read_head, run_folders, try_run
from workbench.table.arrow import to_arrow, to_frame
from workbench.table.columns import REQUESTS, SETTINGS, Column
from workbench.table.lazy import LogEntry, Piece
from workbench.table.logs import LogSummary, summarise_log
from workbench.table.reading import LogRead, RunRead, RunsReader, windows_of
from workbench.table.shelf import Entry, Segment, open_segments, write_segment

CHUNK_RUNS = 200
_CHUNK_LOG_BYTES = 384 << 20
_SETTLED_S = 2.0  # a file that changed less long ago may change again within the same tick of its clock
_FEW_SEGMENTS = 8
_PACKAGE = Path(__file__).parent.parent
_READERS = ("errors.py", "files.py", "spec.py", "store.py", "parse", "sglang_rules", "table")

# What reading raises of files that somebody cut, changed or took away.
_DAMAGED = (OSError, ValueError, KeyError, TypeError, IndexError, pa.ArrowException)

Stat = list[int]
Place = tuple[Segment, int]
KnownLogs = dict[str, tuple[Path, int]]


@dataclass(frozen=True, slots=True)
class HeldLog:
    """``entry`` is ``None`` where the log cannot be read."""

    problems: tuple[Problem, ...]
    entry: LogEntry | None


@dataclass(frozen=True, slots=True)
class Held:
    """What was read of a campaign; its larger tables are read when they are asked for.

    ``found`` are the problems of folders, ``runs`` those that could be read.
    """

    found: tuple[Problem, ...]
    runs: Sequence[RunRead]
    logs: Mapping[Path, HeldLog]
    requests: Callable[[], pd.DataFrame]
    settings: Callable[[], pd.DataFrame]
    windows: Callable[[], pd.DataFrame]
    pieces: tuple[Piece, ...] = ()


def shelf_of(folder: Path) -> Path | None:
    """Where the tables of a campaign are kept; ``None`` for a folder that is no campaign of this project."""
    try:
        path, roots = folder.resolve(), {recorded_dir().resolve(), runs_dir().resolve()}
        if path.parent not in roots:
            return None
        name = f"{slug(path.name)}-{hashlib.sha256(os.fsencode(path)).hexdigest()[:12]}"
        return reports_dir() / ".cache" / "tables" / name / readers_version()
    except (UsageError, OSError, RuntimeError):
        return None


@cache
def readers_version() -> str:
    """Changes with the code that reads, with Python and with the libraries that hold what was read."""
    said = hashlib.sha256(f"{sys.version_info[:2]} {pd.__version__} {pa.__version__}".encode())
    for room in _READERS:
        path = _PACKAGE / room
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            said.update(file.relative_to(_PACKAGE).as_posix().encode() + b"\0" + file.read_bytes())
    return said.hexdigest()[:16]


def hold(
    folder: Path, *, workers: int = 1, announce: Callable[[int], None] | None = None, shelf: Path | None = None
) -> Held | None:
    """Read what is new or changed of a campaign, and keep it; ``None`` where nothing can be kept.

    Parameters
    ----------
    workers
        Processes that read at once.
    announce
        Told how many runs are read, before they are.
    """
    shelf = shelf or shelf_of(folder)
    if shelf is None:
        return None
    for _ in range(2):
        # Another process may tidy up between the look into a folder and the opening of a file.
        try:
            return _hold(read_head(folder), shelf, workers, announce)
        except _DAMAGED:
            _set_aside(shelf)
    return None


def _set_aside(shelf: Path) -> None:
    """Take away what cannot be used; what was kept can always be read again."""
    shutil.rmtree(shelf, ignore_errors=True)


def _hold(head: Campaign, shelf: Path, workers: int, announce: Callable[[int], None] | None) -> Held:
    folders = run_folders(head.path)
    drafters = {drafter.name: _hash(drafter.model_dump_json()) for drafter in head.drafters}
    state = _State(head.path, drafters)
    segments = open_segments(shelf)
    current = state.current(segments, folders)
    missing = [folder for folder in folders if folder.name not in current]
    if missing:
        if announce is not None:
            announce(len(missing))
        written = list(_read_missing(head, shelf, missing, state.known_logs(segments), workers))
        fresh = [Segment(index) for index in written]
        segments += fresh
        current |= {run["name"]: (new, at) for new in fresh for at, run in enumerate(new.runs)}
    if _is_untidy(segments, len(folders)):
        segments, current = _tidied(shelf, segments, current, folders)
        _forget_other_versions(shelf)
    return _held(head.path, shelf, [current[folder.name] for folder in folders])


# --- what is as it was -------------------------------------------------------------------------------------------


class _State:
    """How the files of a campaign are now; each is looked at once."""

    def __init__(self, campaign: Path, drafters: Mapping[str, str]) -> None:
        self._campaign, self._drafters = campaign, drafters
        self._logs: dict[str, Stat | None] = {}

    def log(self, name: str) -> Stat | None:
        if name not in self._logs:
            self._logs[name] = stat_of(self._campaign / name)
        return self._logs[name]

    def current(self, segments: Sequence[Segment], folders: Sequence[Path]) -> dict[str, Place]:
        """Where the runs are that are as they were."""
        held: dict[str, list[Place]] = {}
        for segment in segments:
            for at, run in enumerate(segment.runs):
                held.setdefault(run["name"], []).append((segment, at))
        found = {}
        for folder in folders:
            places = held.get(folder.name, ())
            files = files_of(folder)[0] if places else ""
            same = (place for place in places if self._is_same(place[0].runs[place[1]], files))
            if (place := next(same, None)) is not None:
                found[folder.name] = place
        return found

    def known_logs(self, segments: Sequence[Segment]) -> KnownLogs:
        """Where the summaries are of logs that are as they were."""
        known: KnownLogs = {}
        for segment in segments:
            places = {log["path"]: at for at, log in enumerate(segment.logs) if log["text"] is not None}
            for run in segment.runs:
                at = places.get(run["log_path"])
                if at is not None and run["log_stat"] is not None and run["log_stat"] == self.log(run["log"]):
                    known[run["log_path"]] = (segment.index, at)
        return known

    def _is_same(self, run: Entry, files: str) -> bool:
        if run["files"] != files or run["drafter_as"] != self._drafters.get(run["drafter"] or "", ""):
            return False
        return run["log"] is None or (run["log_stat"] is not None and run["log_stat"] == self.log(run["log"]))


def files_of(folder: Path) -> tuple[str, float]:
    """What identifies the files of a run folder, and when the last of them changed."""
    said, latest = [], 0.0
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                stat = entry.stat()
            except OSError:  # a link to nowhere
                said.append(f"{entry.name}\0-")
                continue
            latest = max(latest, stat.st_mtime)
            said.append(f"{entry.name}\0{stat.st_size}\0{stat.st_mtime_ns}\0{stat.st_ino}")
    return _hash("\n".join(sorted(said))), latest


def stat_of(path: Path) -> Stat | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return [stat.st_size, stat.st_mtime_ns, stat.st_ino]


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


# --- reading what is missing -------------------------------------------------------------------------------------


def _read_missing(
    head: Campaign, shelf: Path, missing: Sequence[Path], known: KnownLogs, workers: int
) -> Iterator[Path]:
    chunks = list(_chunks(head.path, missing))
    read = partial(_read_chunk, head, shelf, known)
    if workers < 2 or len(chunks) < 2:
        yield from map(read, chunks)
        return
    with ProcessPoolExecutor(min(workers, len(chunks)), mp_context=get_context("spawn")) as pool:
        yield from pool.map(read, chunks)


def _chunks(campaign: Path, folders: Sequence[Path]) -> Iterator[list[Path]]:
    """Runs that share a log together, as many as may be in memory at once."""
    by_log: dict[str, list[Path]] = {}
    for folder in folders:
        by_log.setdefault(_named_log(folder) or f"./{folder.name}", []).append(folder)
    chunk: list[Path] = []
    size = 0
    for log, sharing in by_log.items():
        stat = stat_of(campaign / log)
        more = 0 if stat is None else stat[0] * (10 if log.endswith(".gz") else 1)
        if chunk and (len(chunk) + len(sharing) > CHUNK_RUNS or size + more > _CHUNK_LOG_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk, size = chunk + sharing, size + more
    if chunk:
        yield chunk


def _named_log(folder: Path) -> str | None:
    """The log that a run says it has, as a path from the campaign's folder."""
    try:
        named = json.loads((folder / "status.json").read_bytes())["log_file"]
        return os.path.normpath(os.path.join(folder.name, named))  # noqa: PTH118
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _read_chunk(head: Campaign, shelf: Path, known: KnownLogs, folders: Sequence[Path]) -> Path:
    """Read some runs and their logs into a segment of their own."""
    campaign = head.path
    # Before reading: what changes meanwhile is read again the next time.
    before = {folder.name: files_of(folder) for folder in folders}
    named = {folder.name: _named_log(folder) for folder in folders}
    began = time.time()
    stats = {name: stat_of(campaign / name) for name in set(named.values()) if name is not None}
    found: dict[str, list[Problem]] = {folder.name: [] for folder in folders}
    runs = [run for folder in folders if (run := try_run(folder, found[folder.name])) is not None]
    logs = _as_they_were(campaign, known, {_within(campaign, run.log) for run in runs if run.log is not None})
    reader = RunsReader(head.info.name, head.drafters, logs)
    read = {run.path.name: (run.spec.drafter, part) for run, part in zip(runs, reader.read(runs), strict=True)}
    drafters = {drafter.name: _hash(drafter.model_dump_json()) for drafter in head.drafters}
    entries = []
    for folder in folders:
        drafter, part = read.get(folder.name, (None, None))
        files, latest = before[folder.name]
        entry: Entry = {
            "name": folder.name,
            "files": files if began - latest > _SETTLED_S else "",
            "drafter": drafter,
            "drafter_as": drafters.get(drafter or "", ""),
            "found": _said(found[folder.name]),
            **_of_run(campaign, part, named[folder.name], stats, began),
        }
        rows = ([], []) if part is None else (part.requests, part.settings)
        entries.append((entry, to_arrow(REQUESTS, rows[0]), to_arrow(SETTINGS, rows[1])))
    told = [
        ({"path": _within(campaign, path), "problems": _said(log.problems)}, log.summary) for path, log in logs.items()
    ]
    return write_segment(shelf, entries, told)


def _as_they_were(campaign: Path, known: KnownLogs, wanted: set[str]) -> dict[Path, LogRead]:
    opened: dict[Path, Segment] = {}
    logs = {}
    for name in sorted(wanted & known.keys()):
        index, at = known[name]
        if index not in opened:
            opened[index] = Segment(index)
        segment = opened[index]
        logs[(campaign / name).resolve()] = LogRead(segment.summary(at), _problems(segment.logs[at]["problems"]))
    return logs


def _of_run(
    campaign: Path, part: RunRead | None, named: str | None, stats: Mapping[str, Stat | None], began: float
) -> Entry:
    """What is kept of a run beside its tables; ``log`` is the file that is watched, ``log_path`` what was read."""
    path = None if part is None or part.log is None else _within(campaign, part.log)
    stat = None if named is None else stats.get(named)
    settled = stat is not None and began - stat[1] / 1e9 > _SETTLED_S
    watched: Entry = {"log": named, "log_stat": stat if settled else None, "log_path": path}
    if part is None:
        return watched | {"row": None}
    return watched | {
        "run_id": part.run_id,
        "server_id": part.server_id,
        "recorded_at": part.recorded_at,
        "spans": [list(span) for span in part.spans],
        "row": part.row,
        "problems": _said(part.problems),
        "doubts": _said(part.doubts),
    }


def _within(campaign: Path, path: Path) -> str:
    return os.path.relpath(path, campaign.resolve())


def _said(problems: Sequence[Problem]) -> list[list[str]]:
    return [[as_text(problem.where), as_text(problem.what)] for problem in problems]


def _problems(said: Sequence[Sequence[str]]) -> tuple[Problem, ...]:
    return tuple(Problem(where, what) for where, what in said)


# --- what is held ------------------------------------------------------------------------------------------------


def _held(campaign: Path, shelf: Path, places: Sequence[Place]) -> Held:
    entries = [segment.runs[at] for segment, at in places]
    logs: dict[Path, HeldLog] = {}
    sharing: dict[Path, list[Entry]] = {}
    for (segment, _), run in zip(places, entries, strict=True):
        if run["log_path"] is not None:
            path = campaign / run["log_path"]
            if path not in logs:
                logs[path] = _held_log(campaign, path, run, segment)
            sharing.setdefault(path, []).append(run)
    return Held(
        found=tuple(problem for run in entries for problem in _problems(run["found"])),
        runs=[_as_read(campaign, run) for run in entries if run["row"] is not None],
        logs=logs,
        requests=partial(_sound, campaign, shelf, "requests", partial(_table, places, "requests", REQUESTS)),
        settings=partial(_sound, campaign, shelf, "settings", partial(_table, places, "settings", SETTINGS)),
        windows=partial(_windows, logs, sharing),
        pieces=tuple(_piece(as_text(campaign.name), path, logs, runs) for path, runs in sharing.items()),
    )


def _sound(campaign: Path, shelf: Path, name: str, read: Callable[[], pd.DataFrame]) -> pd.DataFrame:
    """A table, made anew where what was kept turns out to be damaged only now."""
    try:
        return read()
    except _DAMAGED:
        _set_aside(shelf)
        anew = hold(campaign, shelf=shelf)
        if anew is None:
            raise
        table: pd.DataFrame = getattr(anew, name)()
        return table


def _as_read(campaign: Path, run: Entry) -> RunRead:
    return RunRead(
        run_id=run["run_id"],
        server_id=run["server_id"],
        recorded_at=run["recorded_at"],
        log=None if run["log_path"] is None else campaign / run["log_path"],
        spans=[(start, end) for start, end in run["spans"]],
        row=run["row"],
        problems=_problems(run["problems"]),
        doubts=_problems(run["doubts"]),
        requests=(),
        settings=(),
    )


def _held_log(campaign: Path, path: Path, run: Entry, segment: Segment) -> HeldLog:
    at, log = next((at, log) for at, log in enumerate(segment.logs) if log["path"] == run["log_path"])
    problems = _problems(log["problems"])
    if not log["readable"]:
        return HeldLog(problems, None)
    read = partial(_summary, segment, at, partial(_read_again, campaign, path, run["server_id"]))
    known = None if run["log_stat"] is None else f"{readers_version()} {path} {run['log_stat']}"
    return HeldLog(problems, LogEntry(read, log["num_windows"], log["has_accept_length"], known))


def _summary(segment: Segment, at: int, read_again: Callable[[], LogSummary]) -> LogSummary:
    """What was kept of a log, read from the log itself where that cannot be used."""
    if segment.logs[at]["text"] is None:
        return read_again()
    try:
        return segment.summary(at)
    except _DAMAGED:
        return read_again()


def _read_again(campaign: Path, path: Path, server_id: str) -> LogSummary:
    name = as_text(campaign.name)
    return summarise_log(read_chunks(path, []), name=f"{name}/{server_id}", campaign=name, server_id=server_id)


def _table(places: Sequence[Place], name: str, columns: Sequence[Column]) -> pd.DataFrame:
    """The rows of the runs, in the order of the runs."""
    return to_frame(columns, _taken(places, name, columns))


def _taken(places: Sequence[Place], name: str, columns: Sequence[Column]) -> pa.Table:
    segments = list({id(segment): segment for segment, _ in places}.values())
    tables = [segment.table(name) for segment in segments]
    first = dict(zip(map(id, segments), np.cumsum([0, *map(len, tables)]), strict=False))
    ranges = [(first[id(segment)], *segment.rows(name, at)) for segment, at in places]
    whole = pa.concat_tables(tables).unify_dictionaries() if tables else to_arrow(columns, [])
    order = np.concatenate([np.arange(base + start, base + end) for base, start, end in ranges] or [np.arange(0)])
    in_order = len(order) == len(whole) and bool((order == np.arange(len(whole))).all())
    return whole if in_order else whole.take(pa.array(order))


def _windows(logs: Mapping[Path, HeldLog], sharing: Mapping[Path, Sequence[Entry]]) -> pd.DataFrame:
    return windows_of(
        (entry.read().windows, [(run["run_id"], run["server_id"], run["spans"]) for run in runs])
        for path, runs in sharing.items()
        if (entry := logs[path].entry) is not None
    )


def _piece(campaign: str, path: Path, logs: Mapping[Path, HeldLog], runs: Sequence[Entry]) -> Piece:
    entry = logs[path].entry
    known = None if entry is None or entry.made_from is None else entry.made_from
    spans = _hash(json.dumps([(run["run_id"], run["server_id"], run["spans"]) for run in runs]))
    return Piece(campaign, partial(_windows, logs, {path: runs}), None if known is None else f"{known} {spans}")


# --- tidying up --------------------------------------------------------------------------------------------------


def _is_untidy(segments: Sequence[Segment], num_runs: int) -> bool:
    held = sum(len(segment.runs) for segment in segments)
    return len(segments) > _FEW_SEGMENTS + 2 * num_runs // CHUNK_RUNS or held > 2 * num_runs + CHUNK_RUNS


def _tidied(
    shelf: Path, segments: Sequence[Segment], current: Mapping[str, Place], folders: Sequence[Path]
) -> tuple[list[Segment], dict[str, Place]]:
    """The current runs in few segments, the others and what else they held removed."""
    by_segment: dict[int, list[Place]] = {}
    for folder in folders:
        place = current[folder.name]
        by_segment.setdefault(id(place[0]), []).append(place)
    groups: list[list[Place]] = [[]]
    for places in by_segment.values():
        if groups[-1] and len(groups[-1]) + len(places) > CHUNK_RUNS:
            groups.append([])
        groups[-1] += places
    new = [Segment(_merged(shelf, places)) for places in groups if places]
    for segment in segments:
        segment.remove()
    return new, {run["name"]: (segment, at) for segment in new for at, run in enumerate(segment.runs)}


def _merged(shelf: Path, places: Sequence[Place]) -> Path:
    requests, settings = _taken(places, "requests", REQUESTS), _taken(places, "settings", SETTINGS)
    runs, begin, start = [], 0, 0
    logs: dict[str, tuple[Segment, int]] = {}
    for segment, at in places:
        run = segment.runs[at]
        own, said = requests.slice(begin, run["num_requests"]), settings.slice(start, run["num_settings"])
        begin, start = begin + run["num_requests"], start + run["num_settings"]
        runs.append((run, own, said))
        for number, log in enumerate(segment.logs):
            if log["path"] == run["log_path"]:
                logs.setdefault(log["path"], (segment, number))
    # One summary in memory at a time.
    read = (
        (log := segment.logs[number], None if log["text"] is None else segment.summary(number))
        for segment, number in logs.values()
    )
    return write_segment(shelf, runs, read)


def _forget_other_versions(shelf: Path) -> None:
    for other in shelf.parent.iterdir():
        if other != shelf:
            shutil.rmtree(other, ignore_errors=True)
