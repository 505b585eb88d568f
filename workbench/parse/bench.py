"""Result files of other benchmark tools to one kind of record: JSON, or one JSON object a line.

Which fields mean what was read in the sources of these versions, see `workbench.parse.bench_tools`:

- ``sglang.bench_serving`` of SGLang 0.4.6 to 0.5.23
- SGLang's ``scripts/playground/bench_speculative.py`` (commit 01d2a3d)
- SpecForge: ``benchmarks/bench_eagle3.py`` (1d66672), ``specforge/benchmarks/report.py`` (3a6c8d7), and the
  ``--output-json`` of ``specforge benchmark`` 0.2.0 (``specforge/benchmarks/sglang.py``, f28b5ec)
- GuideLLM 0.8.1, report schema 2; reports since 0.4 name what is read here alike
- AIPerf 0.13.0, export schema 1.4
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from workbench.parse.bench_record import BenchResult
from workbench.parse.bench_tools import results_of

__all__ = ["BenchFile", "BenchResult", "parse_bench"]

MOST_RESULTS = 100_000


@dataclass(frozen=True, slots=True)
class BenchFile:
    """Everything that one file holds. ``unread`` names each line or entry that is none of the known records."""

    results: tuple[BenchResult, ...]
    unread: tuple[str, ...]


def parse_bench(data: bytes | str) -> BenchFile:
    """Read a result file of any of the tools; at most `MOST_RESULTS` results of it."""
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    results: list[BenchResult] = []
    unread: list[str] = []
    for where, entry in _entries(text):
        if not isinstance(entry, dict):
            unread.append(_in_file(where, "no JSON object"))
            continue
        found = results_of(entry, where)
        if not found:
            unread.append(_in_file(where, "an object without the keys of a known tool"))
        results += found
        if len(results) > MOST_RESULTS:
            unread.append(_in_file(where, f"more than {MOST_RESULTS:,} results, the others are left out"))
            break
    return BenchFile(tuple(results[:MOST_RESULTS]), tuple(unread))


def _in_file(where: str, what: str) -> str:
    return f"{where}: {what}" if where else what


def _entries(text: str) -> Iterator[tuple[str, object]]:
    """The whole text if it is one JSON value, else its lines."""
    whole = _load(text)
    if whole is not None:
        yield from _values(whole)
        return
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            yield f"line {number}", _load(line)


def _values(value: object) -> Iterator[tuple[str, object]]:
    """The items of a list, or the value itself, each with a name for messages."""
    if isinstance(value, list):
        for number, item in enumerate(value, 1):
            yield f"item {number}", item
    else:
        yield "", value


def _load(text: str) -> object:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value
