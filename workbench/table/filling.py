"""Runs and logs that are new or changed to segments, several processes at once, a bounded part of them in memory."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from workbench.errors import Problem
from workbench.files import as_text
from workbench.store import Campaign, try_run
from workbench.table.arrow import to_arrow
from workbench.table.columns import REQUESTS, SETTINGS
from workbench.table.current import KnownLogs, Stat, files_of, hash_text, stat_of
from workbench.table.reading import LogRead, Row, RunRead, RunsReader
from workbench.table.shelf import Entry, Segment, write_segment

CHUNK_RUNS = 200
_CHUNK_LOG_BYTES = 384 << 20
_SETTLED_S = 2.0  # a file that changed less long ago may change again within the same tick of its clock


def read_missing(
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
    drafters = {drafter.name: hash_text(drafter.model_dump_json()) for drafter in head.drafters}
    entries: list[Entry] = []
    requests: list[Row] = []
    settings: list[Row] = []
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
        entries.append(entry)
        if part is not None:
            requests += part.requests
            settings += part.settings
    told = [
        ({"path": _within(campaign, path), "problems": _said(log.problems)}, log.summary) for path, log in logs.items()
    ]
    return write_segment(shelf, entries, to_arrow(REQUESTS, requests), to_arrow(SETTINGS, settings), told)


def _as_they_were(campaign: Path, known: KnownLogs, wanted: set[str]) -> dict[Path, LogRead]:
    opened: dict[Path, Segment] = {}
    logs = {}
    for name in sorted(wanted & known.keys()):
        index, at = known[name]
        if index not in opened:
            opened[index] = Segment(index)
        segment = opened[index]
        logs[(campaign / name).resolve()] = LogRead(segment.summary(at), problems_of(segment.logs[at]["problems"]))
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
        return watched | {"row": None, "num_requests": 0, "num_settings": 0}
    return watched | {
        "num_requests": len(part.requests),
        "num_settings": len(part.settings),
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


def problems_of(said: Sequence[Sequence[str]]) -> tuple[Problem, ...]:
    return tuple(Problem(where, what) for where, what in said)
