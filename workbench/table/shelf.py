"""What was read of runs, on disk: segments that are written whole or not at all and never changed afterwards.

A segment holds some runs and logs of one campaign: ``<id>.requests.parquet``, ``<id>.settings.parquet`` and
``<id>.windows.parquet`` (a row group a log), ``<id>.logs.jsonl`` (a summary a line) and, written last, ``<id>.json``,
which says what is where. Processes need no lock: each writes segments of its own and reads all that are whole; of a run
that two hold the first is as good as the other. Files stay open, so that one that is removed meanwhile can be read on.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ConfigDict, TypeAdapter

from workbench.files import replacing
from workbench.parse.records import LogEvent, LogKind, ParseCounts, StartupFacts
from workbench.table.arrow import lists_of, schema_of, to_frame
from workbench.table.columns import REQUESTS, SETTINGS, WINDOWS, Column, frame
from workbench.table.lines import Floats
from workbench.table.logs import LogSummary

_TABLES: Mapping[str, tuple[Column, ...]] = {"requests": REQUESTS, "settings": SETTINGS, "windows": WINDOWS}
# Texts that many rows share are read once each: row by row they take longer than all numbers.
_SHARED = {"requests": ("campaign", "run_id", "prompt_set")}
_SUFFIXES = (".json", ".logs.jsonl", *(f".{name}.parquet" for name in _TABLES))
_LEFT_BEHIND_S = 3600.0
_NUMBERS = [column.name for column in WINDOWS if column.dtype in {"int", "float", "bool"}]
_NO_WINDOWS = frame(WINDOWS, [])
Entry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Text:
    """All of a `LogSummary` but its windows."""

    __pydantic_config__ = ConfigDict(ser_json_inf_nan="constants")

    name: str
    kind: LogKind
    facts: StartupFacts
    events: tuple[LogEvent, ...]
    events_left_out: int
    counts: ParseCounts
    num_impossible: int


_TEXT = TypeAdapter(_Text)


class Segment:
    """An open segment. ``runs`` and ``logs`` are what its index says of each, in the order of its tables."""

    def __init__(self, index: Path) -> None:
        self.index = index
        held = json.loads(index.read_bytes())
        self.runs: list[Entry] = held["runs"]
        self.logs: list[Entry] = held["logs"]
        self._tables = {
            name: pq.ParquetFile(
                _beside(index, f".{name}.parquet"), read_dictionary=[*lists_of(columns), *_SHARED.get(name, ())]
            )
            for name, columns in _TABLES.items()
        }
        self._texts = pa.OSFile(str(_beside(index, ".logs.jsonl")))
        self._starts = {
            name: np.cumsum([0, *(run[f"num_{name}"] for run in self.runs)]) for name in _TABLES if name != "windows"
        }

    def rows(self, name: str, place: int) -> tuple[int, int]:
        """Where the rows of a run begin and end in a table."""
        return int(self._starts[name][place]), int(self._starts[name][place + 1])

    def table(self, name: str, columns: Sequence[str]) -> pa.Table:
        """Some columns; texts that many rows share are dictionaries."""
        return self._tables[name].read(columns=list(columns), use_threads=False)

    def windows(self, place: int) -> pd.DataFrame:
        """The windows of a log."""
        group = self.logs[place]["group"]
        table = schema_of(WINDOWS).empty_table() if group is None else self._tables["windows"].read_row_group(group)
        return to_frame(WINDOWS, table)

    def columns(self, place: int) -> dict[str, Floats]:
        """The numbers and flags of a log's windows, as in `workbench.table.lines`."""
        group = self.logs[place]["group"]
        if group is None:
            return {name: np.zeros(0) for name in _NUMBERS}
        table = self._tables["windows"].read_row_group(group, columns=_NUMBERS, use_threads=False)
        return {name: _floats(table[name]) for name in _NUMBERS}

    def summary(self, place: int) -> LogSummary:
        return replace(self.without_windows(place), windows=self.windows(place))

    def without_windows(self, place: int) -> LogSummary:
        """What a log says but its windows, of which there seem to be none."""
        begin, size = self.logs[place]["text"]
        self._texts.seek(begin)
        text = _TEXT.validate_json(self._texts.read(size))
        return LogSummary(
            name=text.name,
            kind=text.kind,
            facts=text.facts,
            events=text.events,
            events_left_out=text.events_left_out,
            counts=text.counts,
            windows=_NO_WINDOWS,
            num_impossible=text.num_impossible,
        )

    def remove(self) -> None:
        """Take its files away, the index first."""
        for suffix in _SUFFIXES:
            _beside(self.index, suffix).unlink(missing_ok=True)


def _floats(column: pa.ChunkedArray) -> Floats:
    numbers = column.cast(pa.int8()) if pa.types.is_boolean(column.type) else column
    return np.asarray(numbers.to_numpy(), dtype=np.float64)


def open_segments(folder: Path) -> list[Segment]:
    """The segments in a folder that are whole; damaged ones and what killed processes left are removed."""
    segments = []
    for index in sorted(folder.glob("*.json")):
        try:
            segments.append(Segment(index))
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
            _remove(index)
    whole = {segment.index.name.split(".", 1)[0] for segment in segments}
    for path in [*folder.iterdir()] if folder.is_dir() else []:
        if path.name.split(".", 1)[0] not in whole and _age_s(path) > _LEFT_BEHIND_S:
            path.unlink(missing_ok=True)
    return segments


def _remove(index: Path) -> None:
    for suffix in _SUFFIXES:
        _beside(index, suffix).unlink(missing_ok=True)


def _age_s(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0


def write_segment(
    folder: Path,
    runs: Sequence[Entry],
    requests: pa.Table,
    settings: pa.Table,
    logs: Iterable[tuple[Entry, LogSummary | None]],
) -> Path:
    """Write runs (what to say of each, the requests and settings of all of them in their order) and logs as a segment.

    Raises
    ------
    OSError
        When it cannot be written; nothing of it is left then.
    """
    folder.mkdir(parents=True, exist_ok=True)
    index = folder / f"{uuid.uuid4().hex}.json"
    try:
        for name, table in (("requests", requests), ("settings", settings)):
            with replacing(_beside(index, f".{name}.parquet")) as temporary:
                pq.write_table(table.unify_dictionaries().combine_chunks(), temporary, compression="zstd")
        listed = _write_logs(index, logs)
        with replacing(index) as temporary:
            temporary.write_text(json.dumps({"runs": list(runs), "logs": listed}), encoding="utf-8")
    except BaseException:
        _remove(index)
        raise
    return index


def _write_logs(index: Path, logs: Iterable[tuple[Entry, LogSummary | None]]) -> list[Entry]:
    schema, listed, groups, begin = schema_of(WINDOWS), [], 0, 0
    with ExitStack() as stack:
        rows = stack.enter_context(replacing(_beside(index, ".windows.parquet")))
        texts = stack.enter_context(replacing(_beside(index, ".logs.jsonl")))
        file = stack.enter_context(texts.open("wb"))
        # Of the few numbers of a log neither dictionaries nor statistics are worth their time.
        plain = pq.ParquetWriter(rows, schema, compression="zstd", use_dictionary=False, write_statistics=False)
        writer = stack.enter_context(plain)
        for entry, log in logs:
            said = {"readable": False, "num_windows": 0, "has_accept_length": False, **entry}
            entry = said | {"text": None, "group": None}
            if log is not None:
                line = _as_json(log)
                file.write(line)
                # Without a text the log is read again from its own file when somebody asks for it.
                entry["text"], begin = [begin, len(line)] if line else None, begin + len(line)
                entry["readable"] = True
                entry["num_windows"] = len(log.windows)
                entry["has_accept_length"] = bool(log.windows["accept_len"].notna().any())
            if log is not None and len(log.windows):
                table = pa.Table.from_pandas(log.windows, schema=schema, preserve_index=False)
                writer.write_table(table, row_group_size=len(table))
                entry["group"], groups = groups, groups + 1
            listed.append(entry)
    return listed


def _as_json(log: LogSummary) -> bytes:
    """A line that holds the summary but its windows; empty where anything would come back as something else."""
    held = _Text(log.name, log.kind, log.facts, log.events, log.events_left_out, log.counts, log.num_impossible)
    try:
        text = _TEXT.dump_json(held)
        return text + b"\n" if _TEXT.validate_json(text) == held else b""
    except ValueError:  # what pydantic raises, of either way
        return b""


def _beside(index: Path, suffix: str) -> Path:
    return index.with_name(index.name.removesuffix(".json") + suffix)
