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
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from workbench.errors import Problem, UsageError
from workbench.files import as_text, read_chunks
from workbench.paths import recorded_dir, reports_dir, runs_dir, slug
from workbench.store import Campaign, read_head, run_folders
from workbench.table.arrow import schema_of, to_arrow, to_frame
from workbench.table.columns import REQUESTS, SETTINGS, Column
from workbench.table.current import Place, State, hash_text
from workbench.table.filling import CHUNK_RUNS, problems_of, read_missing
from workbench.table.lazy import LogEntry, OfRuns, Piece
from workbench.table.lines import Lines, lines_in
from workbench.table.logs import LogSummary, summarise_log
from workbench.table.reading import RunRead, in_spans, windows_of
from workbench.table.shelf import Entry, Segment, open_segments, write_segment

_FEW_SEGMENTS = 8
_T = TypeVar("_T")
_U = TypeVar("_U")
_PACKAGE = Path(__file__).parent.parent
_READERS = ("errors.py", "files.py", "spec.py", "store.py", "parse", "sglang_rules", "table")

# What reading raises of files that somebody cut, changed or took away.
_DAMAGED = (OSError, ValueError, KeyError, TypeError, IndexError, pa.ArrowException)


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
    of_runs: OfRuns | None = None


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
    drafters = {drafter.name: hash_text(drafter.model_dump_json()) for drafter in head.drafters}
    state = State(head.path, drafters)
    segments = open_segments(shelf)
    current = state.current(segments, folders)
    missing = [folder for folder in folders if folder.name not in current]
    if missing:
        if announce is not None:
            announce(len(missing))
        written = list(read_missing(head, shelf, missing, state.known_logs(segments), workers))
        fresh = [Segment(index) for index in written]
        segments += fresh
        current |= {run["name"]: (new, at) for new in fresh for at, run in enumerate(new.runs)}
    if _is_untidy(segments, len(folders)):
        segments, current = _tidied(shelf, segments, current, folders)
        _forget_other_versions(shelf)
    return _held(head.path, shelf, [current[folder.name] for folder in folders])


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
        found=tuple(problem for run in entries for problem in problems_of(run["found"])),
        runs=[_as_read(campaign, run) for run in entries if run["row"] is not None],
        logs=logs,
        requests=partial(
            _sound, campaign, shelf, partial(_table, places, "requests", REQUESTS), lambda anew: anew.requests()
        ),
        settings=partial(
            _sound, campaign, shelf, partial(_table, places, "settings", SETTINGS), lambda anew: anew.settings()
        ),
        windows=partial(_windows, logs, sharing),
        pieces=tuple(_piece(as_text(campaign.name), path, logs, runs) for path, runs in sharing.items()),
        of_runs=OfRuns(partial(_requests_of, campaign, shelf, places), _made_from(campaign, entries)),
    )


def _requests_of(
    campaign: Path,
    shelf: Path,
    places: Sequence[Place],
    run_ids: Collection[str],
    columns: Sequence[str],
    having: str | None,
) -> pd.DataFrame:
    wanted, kept = set(run_ids), [column for column in REQUESTS if column.name in columns]
    chosen = [(segment, at) for segment, at in places if segment.runs[at].get("run_id") in wanted]

    def read() -> pd.DataFrame:
        table = _taken(chosen, "requests", kept)
        return to_frame(kept, table if having is None else table.filter(table[having].is_valid()))

    def again(anew: Held) -> pd.DataFrame:
        assert anew.of_runs is not None
        return anew.of_runs.read(run_ids, columns, having)

    return _sound(campaign, shelf, read, again)


def _made_from(campaign: Path, entries: Sequence[Entry]) -> dict[str, str]:
    """What the requests of each run were read from; a name that two folders have stands for neither of them."""
    read = [run for run in entries if run["row"] is not None]
    named = Counter(run["run_id"] for run in read)
    return {
        run["run_id"]: hash_text("\0".join([readers_version(), str(campaign), run["name"], run["files"]]))
        for run in read
        if run["files"] and named[run["run_id"]] == 1
    }


def _sound(
    campaign: Path, shelf: Path, read: Callable[[], pd.DataFrame], again: Callable[[Held], pd.DataFrame]
) -> pd.DataFrame:
    """A table, made anew where what was kept turns out to be damaged only now."""
    try:
        return read()
    except _DAMAGED:
        _set_aside(shelf)
        anew = hold(campaign, shelf=shelf)
        if anew is None:
            raise
        return again(anew)


def _as_read(campaign: Path, run: Entry) -> RunRead:
    return RunRead(
        run_id=run["run_id"],
        server_id=run["server_id"],
        recorded_at=run["recorded_at"],
        log=None if run["log_path"] is None else campaign / run["log_path"],
        spans=[(start, end) for start, end in run["spans"]],
        row=run["row"],
        problems=problems_of(run["problems"]),
        doubts=problems_of(run["doubts"]),
        requests=(),
        settings=(),
    )


def _held_log(campaign: Path, path: Path, run: Entry, segment: Segment) -> HeldLog:
    at, log = next((at, log) for at, log in enumerate(segment.logs) if log["path"] == run["log_path"])
    problems = problems_of(log["problems"])
    if not log["readable"]:
        return HeldLog(problems, None)
    read = partial(_summary, segment, at, partial(_read_again, campaign, path, run["server_id"]))
    known = None if run["log_stat"] is None else f"{readers_version()} {path} {run['log_stat']}"
    return HeldLog(problems, LogEntry(read, log["num_windows"], log["has_accept_length"], known))


def _summary(segment: Segment, at: int, read_again: Callable[[], LogSummary]) -> LogSummary:
    """What was kept of a log, read from the log itself where that cannot be used; its windows when asked for."""
    if segment.logs[at]["text"] is None:
        return read_again()
    try:
        said = segment.without_windows(at)
    except _DAMAGED:
        return read_again()
    again = cache(read_again)
    windows = partial(_or_else, partial(segment.windows, at), lambda: again().windows)
    columns = partial(_or_else, partial(segment.columns, at), lambda: again().lines)
    lines = lines_in(columns, segment.logs[at]["num_windows"])
    return said.put_off({"windows": windows}).but(lines=lines)


def _or_else(read: Callable[[], _T], other: Callable[[], _U]) -> _T | _U:
    try:
        return read()
    except _DAMAGED:
        return other()


def _read_again(campaign: Path, path: Path, server_id: str) -> LogSummary:
    name = as_text(campaign.name)
    return summarise_log(read_chunks(path, []), name=f"{name}/{server_id}", campaign=name, server_id=server_id)


def _table(places: Sequence[Place], name: str, columns: Sequence[Column]) -> pd.DataFrame:
    """The rows of the runs, in the order of the runs."""
    return to_frame(columns, _taken(places, name, columns))


def _taken(places: Sequence[Place], name: str, columns: Sequence[Column]) -> pa.Table:
    segments = list({id(segment): segment for segment, _ in places}.values())
    tables = {id(segment): segment.table(name, [column.name for column in columns]) for segment in segments}
    rows = ((tables[id(segment)], *segment.rows(name, at)) for segment, at in places)
    taken = [table.slice(start, end - start) for table, start, end in _stretches(rows)]
    if not taken:
        return to_arrow(columns, [])
    return (
        pa.concat_tables(taken)
        .unify_dictionaries()
        .select([column.name for column in columns])
        .cast(schema_of(columns))
    )


def _stretches(rows: Iterable[tuple[pa.Table, int, int]]) -> Iterator[tuple[pa.Table, int, int]]:
    """Rows of tables (from, to) with those that follow one another in one table put together."""
    held: tuple[pa.Table, int, int] | None = None
    for table, start, end in rows:
        if held is not None and held[0] is table and held[2] == start:
            held = (table, held[1], end)
            continue
        if held is not None:
            yield held
        held = (table, start, end)
    if held is not None:
        yield held


def _windows(logs: Mapping[Path, HeldLog], sharing: Mapping[Path, Sequence[Entry]]) -> pd.DataFrame:
    return windows_of(
        (entry.read().windows, [(run["run_id"], run["server_id"], run["spans"]) for run in runs])
        for path, runs in sharing.items()
        if (entry := logs[path].entry) is not None
    )


def _lines(entry: LogEntry | None, runs: Sequence[Entry]) -> dict[str, Lines]:
    if entry is None:
        return {}
    lines, places = entry.read().lines, dict[str, list[npt.NDArray[np.intp]]]()
    for run in runs:
        places.setdefault(run["run_id"], []).append(np.flatnonzero(in_spans(run["spans"], lines["offset"])))
    return {run_id: lines.only(np.concatenate(found)) for run_id, found in places.items()}


def _piece(campaign: str, path: Path, logs: Mapping[Path, HeldLog], runs: Sequence[Entry]) -> Piece:
    entry = logs[path].entry
    known = None if entry is None or entry.made_from is None else entry.made_from
    spans = hash_text(json.dumps([(run["run_id"], run["server_id"], run["spans"]) for run in runs]))
    return Piece(campaign, partial(_lines, entry, runs), None if known is None else f"{known} {spans}")


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
    logs: dict[str, tuple[Segment, int]] = {}
    for segment, at in places:
        for number, log in enumerate(segment.logs):
            if log["path"] == segment.runs[at]["log_path"]:
                logs.setdefault(log["path"], (segment, number))
    # One summary in memory at a time.
    read = (
        (log := segment.logs[number], None if log["text"] is None else segment.summary(number))
        for segment, number in logs.values()
    )
    runs = [segment.runs[at] for segment, at in places]
    return write_segment(shelf, runs, _taken(places, "requests", REQUESTS), _taken(places, "settings", SETTINGS), read)


def _forget_other_versions(shelf: Path) -> None:
    for other in shelf.parent.iterdir():
        if other != shelf:
            shutil.rmtree(other, ignore_errors=True)
