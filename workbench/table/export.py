"""Decode lines of logs, as printed, to a terminal table, CSV, JSON lines or Parquet: row by row, in bounded memory."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TextIO

from workbench.errors import UsageError
from workbench.files import replacing, write_advice
from workbench.parse.records import DecodeRecord, Record, VllmEngineRecord, VllmSpecRecord
from workbench.table.columns import Column
from workbench.terminal import printable

Row = dict[str, object]

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


def decode_rows(log: str, records: Iterable[Record]) -> Iterator[Row]:
    """One row a decode line (SGLang) or speculative metrics line (vLLM)."""
    engine: VllmEngineRecord | None = None
    for record in records:
        if isinstance(record, VllmEngineRecord):
            engine = record
        elif isinstance(record, DecodeRecord):
            yield _decode_row(log, record)
        elif isinstance(record, VllmSpecRecord):
            yield _vllm_row(log, record, engine)
            engine = None


def write_rows(rows: Iterable[Row], how: str, out: Path | None) -> int:
    """Write rows to ``out``, or to standard output, and return how many. A file appears only when it is whole.

    Raises
    ------
    UsageError
        For an unknown format, Parquet without a file to write to, or a file that cannot be written.
    """
    writers: Mapping[str, Callable[[Iterable[Row], TextIO], int]] = {
        "table": _write_table,
        "csv": _write_csv,
        "json": _write_json,
    }
    if how == "parquet" and out is None:
        raise UsageError("Parquet is binary", where="--format parquet", next_step="name a file with --out FILE")
    if how not in writers and how != "parquet":
        raise UsageError(f"unknown format {how!r}", where="--format", next_step="choose table, csv, json or parquet")
    if out is None:
        return writers[how](rows, sys.stdout)
    try:
        with replacing(out) as temporary:
            if how == "parquet":
                return _write_parquet(rows, temporary)
            with temporary.open("w", encoding="utf-8", newline="") as file:
                return writers[how](rows, file)
    except OSError as error:
        raise UsageError(
            f"cannot be written ({error.strerror or error})", where=out, next_step=write_advice(error)
        ) from error


def _decode_row(log: str, record: DecodeRecord) -> Row:
    row: Row = {name: getattr(record, name, None) for name in NAMES}
    row |= {"log": log, "ranks": " ".join(sorted(record.ranks)), "extra": _extra(record.extra)}
    return row


def _vllm_row(log: str, record: VllmSpecRecord, engine: VllmEngineRecord | None) -> Row:
    row: Row = dict.fromkeys(NAMES)
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
    return row


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


def _write_table(rows: Iterable[Row], file: TextIO) -> int:
    count, shown_log = 0, None
    for row in rows:
        if row["log"] != shown_log:
            shown_log = row["log"]
            file.write(f"{_one_line(str(shown_log))}\n" + "  ".join(f"{n:>{w}}" for n, w in _WIDTHS.items()) + "\n")
        cells = [f"{_cell(row[name]):>{width}}" for name, width in _WIDTHS.items()]
        file.write("  ".join(cells) + ("  cut off" if row["truncated"] else "") + "\n")
        count += 1
    return count


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "on" if value else "OFF"
    if isinstance(value, float):
        return f"{value:.2f}"
    return _one_line(value.isoformat(" ", "seconds") if isinstance(value, datetime) else str(value))


def _one_line(text: str) -> str:
    return printable(text.replace("\n", " "))


def _write_csv(rows: Iterable[Row], file: TextIO) -> int:
    writer = csv.DictWriter(file, NAMES, lineterminator="\n")
    writer.writeheader()
    count = 0
    for row in rows:
        writer.writerow(_plain(row))
        count += 1
    return count


def _write_json(rows: Iterable[Row], file: TextIO) -> int:
    count = 0
    for row in rows:
        file.write(json.dumps(_plain(row), ensure_ascii=False) + "\n")
        count += 1
    return count


def _plain(row: Row) -> Row:
    time = row["time"]
    return {**row, "time": time.isoformat() if isinstance(time, datetime) else None}


def _write_parquet(rows: Iterable[Row], out: Path) -> int:
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
    source, count = iter(rows), 0
    with pq.ParquetWriter(out, schema) as writer:
        while batch := list(islice(source, _BATCH)):
            writer.write_table(pa.Table.from_pylist(batch, schema=schema))
            count += len(batch)
    return count
