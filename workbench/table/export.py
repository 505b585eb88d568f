"""Decode lines of logs, as printed, to a terminal table, CSV, JSON lines or Parquet, in bounded memory."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

from workbench.errors import UsageError
from workbench.files import replacing, write_advice
from workbench.parse.records import DecodeRecord, Record, VllmEngineRecord, VllmSpecRecord
from workbench.parse.stretches import BatchLines, Stretch
from workbench.table.columns import Column
from workbench.terminal import no_formula, printable

Part = dict[str, list[Any]]
"""Some rows: the values of each column of `PARSED`, ``None`` where one is missing."""

PARSED: tuple[Column, ...] = (
    Column("log", "str", "", "log file", "argument"),
    Column("line", "int", "", "line of the log, from 1", "log"),
    Column("time", "time", "", "time stamp as printed", "log"),
    Column("ranks", "str", "", "rank tags, sorted", "log"),
    Column("running_req", "int", "", "requests running", "log"),
    Column("queue_req", "int", "", "requests queued", "log"),
    Column("tokens", "int", "tokens", "tokens in the KV cache", "log"),
    Column("token_usage", "float", "", "share of the KV cache used", "log"),
    Column("accept_len", "float", "tokens/step", "accept length, bonus included", "log"),
    Column("accept_rate", "float", "", "accept rate as printed; its definition differs by version", "log"),
    Column("cuda_graph", "bool", "", "the step ran in a CUDA graph", "log"),
    Column("gen_tok_per_s", "float", "tok/s", "generation throughput", "log"),
    Column("truncated", "bool", "", "the line was cut off", "log"),
    Column("extra", "str", "JSON", "every other key, as printed", "log"),
)
NAMES = tuple(column.name for column in PARSED)
_BATCH = 20_000
_to_json = json.JSONEncoder().encode  # in ASCII: a log's name may hold what a terminal obeys


def decode_parts(log: str, found: Iterable[Record | Stretch]) -> Iterator[Part]:
    """One row a decode line (SGLang) or speculative metrics line (vLLM)."""
    engine: VllmEngineRecord | None = None
    for record in found:
        if isinstance(record, VllmEngineRecord):
            engine = record
        elif isinstance(record, Stretch):
            yield _decode_part(log, record.decode)
        elif isinstance(record, DecodeRecord):
            yield _part_of_record(log, record)
        elif isinstance(record, VllmSpecRecord):
            yield _vllm_part(log, record, engine)
            engine = None


def num_rows(part: Part) -> int:
    return len(part["line"])


def write_parts(parts: Iterable[Part], how: str, out: Path | None) -> int:
    """Write rows to ``out``, or to standard output, and return how many. A file appears only when it is whole.

    Raises
    ------
    UsageError
        For an unknown format, Parquet without a file to write to, or a file that cannot be written.
    """
    writers: Mapping[str, Callable[[Iterable[Part], TextIO], int]] = {
        "table": _write_table,
        "csv": _write_csv,
        "json": _write_json,
    }
    if how == "parquet" and out is None:
        raise UsageError("Parquet is binary", where="--format parquet", next_step="name a file with --out FILE")
    if how not in writers and how != "parquet":
        raise UsageError(f"unknown format {how!r}", where="--format", next_step="choose table, csv, json or parquet")
    if out is None:
        return writers[how](parts, sys.stdout)
    try:
        with replacing(out) as temporary:
            if how == "parquet":
                return _write_parquet(parts, temporary)
            with temporary.open("w", encoding="utf-8", newline="") as file:
                return writers[how](parts, file)
    except OSError as error:
        raise UsageError(
            f"cannot be written ({error.strerror or error})", where=out, next_step=write_advice(error)
        ) from error


def _decode_part(log: str, lines: BatchLines) -> Part:
    size = len(lines)
    return {
        **{name: lines.objects(name) for name in NAMES if name in DecodeRecord.__match_args__},
        "log": [log] * size,
        "line": lines.line.tolist(),
        "time": lines.time.tolist(),
        "ranks": lines.by_kind([_ranks(kind.ranks) for kind in lines.kinds]),
        "truncated": [False] * size,
        "extra": [_extra(extra) for extra in lines.extras()] if lines.others else [""] * size,
    }


def _part_of_record(log: str, record: DecodeRecord) -> Part:
    part: Part = {name: [getattr(record, name, None)] for name in NAMES}
    return part | {"log": [log], "ranks": [_ranks(record.ranks)], "extra": [_extra(record.extra)]}


def _ranks(ranks: frozenset[str]) -> str:
    return " ".join(sorted(ranks))


def _vllm_part(log: str, record: VllmSpecRecord, engine: VllmEngineRecord | None) -> Part:
    row: dict[str, object] = dict.fromkeys(NAMES)
    row |= {
        "log": log,
        "line": record.line,
        "time": record.time,
        "ranks": "",
        "accept_len": record.mean_acceptance_length,
        "accept_rate": record.draft_acceptance_rate,
        "truncated": record.truncated,
        "extra": _extra({**record.extra, **_positions(record)}),
    }
    if engine is not None:
        row |= {
            "running_req": engine.running_req,
            "queue_req": engine.queue_req,
            "token_usage": engine.kv_usage,
            "gen_tok_per_s": engine.gen_tok_per_s,
        }
    return {name: [value] for name, value in row.items()}


def _positions(record: VllmSpecRecord) -> dict[str, str]:
    rates = ", ".join(f"{rate:g}" for rate in record.per_position_rate)
    return {"Per-position acceptance rate": rates} if rates else {}


def _extra(extra: Mapping[str, str]) -> str:
    return json.dumps(dict(extra), ensure_ascii=False) if extra else ""


# --- writers -----------------------------------------------------------------------------------------------------

_WIDTHS = {
    "line": 7,
    "time": 19,
    "ranks": 8,
    "running_req": 11,
    "queue_req": 9,
    "tokens": 9,
    "accept_len": 10,
    "accept_rate": 11,
    "cuda_graph": 10,
    "gen_tok_per_s": 13,
}


def _write_table(parts: Iterable[Part], file: TextIO) -> int:
    count, shown_log = 0, None
    head = "  ".join(f"{name:>{width}}" for name, width in _WIDTHS.items()) + "\n"
    for part in parts:
        rows = zip(*(_cells(part[name], width) for name, width in _WIDTHS.items()), strict=True)
        for log, is_cut, cells in zip(part["log"], part["truncated"], rows, strict=True):
            if log != shown_log:
                shown_log = log
                file.write(f"{_one_line(log)}\n{head}")
            file.write("  ".join(cells) + ("  cut off\n" if is_cut else "\n"))
        count += num_rows(part)
    return count


def _cells(values: list[Any], width: int) -> list[str]:
    cells = {value: f"{_cell(value):>{width}}" for value in set(values)}
    return [cells[value] for value in values]


def _cell(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "on" if value else "OFF"
        case float():
            return f"{value:.2f}"
        case datetime():
            return value.isoformat(" ", "seconds")
    return _one_line(value) if isinstance(value, str) else str(value)


def _one_line(text: str) -> str:
    return printable(text.replace("\n", " "))


def _write_csv(parts: Iterable[Part], file: TextIO) -> int:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(NAMES)
    count = 0
    for part in parts:
        columns = zip(PARSED, _plain(part), strict=True)
        writer.writerows(
            zip(*(_safe(values) if column.dtype == "str" else values for column, values in columns), strict=True)
        )
        count += num_rows(part)
    return count


def _safe(values: list[str]) -> list[str]:
    """Names and texts of others, for a spreadsheet or a terminal."""
    texts = {value: no_formula(printable(value)) for value in set(values)}
    return [texts[value] for value in values]


def _write_json(parts: Iterable[Part], file: TextIO) -> int:
    row = "{" + ", ".join(f"{_to_json(column.name)}: %s" for column in PARSED) + "}\n"
    count = 0
    for part in parts:
        columns = [_json_texts(values, column.dtype) for column, values in zip(PARSED, _plain(part), strict=True)]
        file.writelines(row % texts for texts in zip(*columns, strict=True))
        count += num_rows(part)
    return count


def _json_texts(values: list[Any], dtype: str) -> list[str]:
    if dtype in ("int", "float"):
        # As the encoder does it; row by row it takes several times as long.
        return ["null" if value is None else repr(value) for value in values]
    texts = {value: _to_json(value) for value in set(values)}
    return [texts[value] for value in values]


def _plain(part: Part) -> list[list[Any]]:
    """The columns in order, times as text."""
    texts = {time: time.isoformat() for time in set(part["time"]) if time is not None}
    times = [texts.get(time) for time in part["time"]]
    return [times if name == "time" else part[name] for name in NAMES]


def _write_parquet(parts: Iterable[Part], out: Path) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {
        "str": pa.string(),
        "int": pa.int64(),
        "float": pa.float64(),
        "bool": pa.bool_(),
        "time": pa.timestamp("us"),
    }
    schema = pa.schema([(column.name, kinds[column.dtype]) for column in PARSED])
    count = 0
    with pq.ParquetWriter(out, schema) as writer:
        for part in _of_size(parts, _BATCH):
            writer.write_table(pa.Table.from_pydict(part, schema=schema))
            count += num_rows(part)
    return count


def _of_size(parts: Iterable[Part], size: int) -> Iterator[Part]:
    """The same rows, as many in every part; fewer in the last one."""
    held: Part = {name: [] for name in NAMES}
    for part in parts:
        for name in NAMES:
            held[name] += part[name]
        while num_rows(held) >= size:
            yield {name: values[:size] for name, values in held.items()}
            held = {name: values[size:] for name, values in held.items()}
    if num_rows(held):
        yield held
