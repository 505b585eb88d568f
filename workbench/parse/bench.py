"""Result files of other benchmark tools to plain records.

- ``sglang.bench_serving``: one JSON object a line. Its ``accept_length`` is the server's lifetime average.
- SGLang's ``bench_speculative.py``: one JSON object a line, a grid point each.
- SpecForge's ``bench_eagle3.py``: one JSON object, data set names to lists of results.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any


@dataclass(frozen=True, slots=True)
class ServingResult:
    """One line of bench_serving. ``None`` means: absent or null. ``extra`` keeps the other numbers and texts."""

    backend: str | None
    dataset_name: str | None
    request_rate: float | None
    max_concurrency: int | None
    duration_s: float | None
    completed: int | None
    total_input_tokens: int | None
    total_output_tokens: int | None
    request_throughput: float | None
    output_tok_per_s: float | None
    mean_ttft_ms: float | None
    median_ttft_ms: float | None
    p99_ttft_ms: float | None
    mean_tpot_ms: float | None
    median_tpot_ms: float | None
    p99_tpot_ms: float | None
    accept_length: float | None
    extra: Mapping[str, float | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SpeculativePoint:
    """One grid point of a speculation sweep. Steps 0 is the baseline. ``dataset`` is None for bench_speculative."""

    dataset: str | None
    batch_size: int | None
    num_steps: int | None
    eagle_topk: int | None
    num_draft_tokens: int | None
    accept_length: float | None
    output_tok_per_s: float | None
    step_time_s: float | None = None
    accuracy: float | None = None
    num_samples: int | None = None


@dataclass(frozen=True, slots=True)
class BenchFile:
    """Everything that one file holds. ``unread`` names each line or entry that is none of the known records."""

    serving: tuple[ServingResult, ...]
    speculative: tuple[SpeculativePoint, ...]
    unread: tuple[str, ...]


def parse_bench(data: bytes | str) -> BenchFile:
    """Read a result file of any of the three tools."""
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    serving: list[ServingResult] = []
    points: list[SpeculativePoint] = []
    unread: list[str] = []
    for where, entry in _entries(text):
        if not isinstance(entry, dict):
            unread.append(f"{where}: no JSON object")
        elif "output_throughput" in entry and "duration" in entry:
            serving.append(_serving(entry))
        elif "acc_length" in entry and "num_draft_tokens" in entry:
            points.append(_grid_point(entry))
        elif _is_specforge(entry):
            points.extend(_specforge(entry))
        else:
            unread.append(f"{where}: an object without the keys of a known tool")
    return BenchFile(tuple(serving), tuple(points), tuple(unread))


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
        yield "file", value


def _load(text: str) -> object:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value


def _float(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if isfinite(number) else None


def _int(value: object) -> int | None:
    number = _float(value)
    return int(number) if number is not None and number.is_integer() else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


# Field: (key in the file, reader).
_SERVING: Mapping[str, tuple[str, Callable[[object], float | int | str | None]]] = {
    "backend": ("backend", _text),
    "dataset_name": ("dataset_name", _text),
    "request_rate": ("request_rate", _float),
    "max_concurrency": ("max_concurrency", _int),
    "duration_s": ("duration", _float),
    "completed": ("completed", _int),
    "total_input_tokens": ("total_input_tokens", _int),
    "total_output_tokens": ("total_output_tokens", _int),
    "request_throughput": ("request_throughput", _float),
    "output_tok_per_s": ("output_throughput", _float),
    "mean_ttft_ms": ("mean_ttft_ms", _float),
    "median_ttft_ms": ("median_ttft_ms", _float),
    "p99_ttft_ms": ("p99_ttft_ms", _float),
    "mean_tpot_ms": ("mean_tpot_ms", _float),
    "median_tpot_ms": ("median_tpot_ms", _float),
    "p99_tpot_ms": ("p99_tpot_ms", _float),
    "accept_length": ("accept_length", _float),
}


def _serving(entry: Mapping[str, object]) -> ServingResult:
    values: dict[str, Any] = {name: read(entry.get(key)) for name, (key, read) in _SERVING.items()}
    known = {key for key, _ in _SERVING.values()}
    others = {
        key: value
        for key, value in entry.items()
        if key not in known and isinstance(value, int | float | str) and not isinstance(value, bool)
    }
    return ServingResult(**values, extra=others)


def _grid_point(entry: Mapping[str, object]) -> SpeculativePoint:
    return SpeculativePoint(
        dataset=None,
        batch_size=_int(entry.get("batch_size")),
        num_steps=_int(entry.get("steps")),
        eagle_topk=_int(entry.get("topk")),
        num_draft_tokens=_int(entry.get("num_draft_tokens")),
        accept_length=_float(entry.get("acc_length")),
        output_tok_per_s=_float(entry.get("speed")),
        step_time_s=_float(entry.get("step_time")),
    )


def _is_specforge(entry: Mapping[str, object]) -> bool:
    return any(_results(value) for value in entry.values())


def _results(value: object) -> list[Mapping[str, object]]:
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, dict) and "batch_size" in item and "metrics" in item]


def _specforge(entry: Mapping[str, object]) -> Iterator[SpeculativePoint]:
    """One point for each repetition, so that the spread stays visible."""
    for dataset, value in entry.items():
        for result in _results(value):
            metrics = result["metrics"]
            for metric in metrics if isinstance(metrics, list) else [metrics]:
                if isinstance(metric, dict):
                    yield SpeculativePoint(
                        dataset=dataset,
                        batch_size=_int(result.get("batch_size")),
                        num_steps=_int(result.get("steps")),
                        eagle_topk=_int(result.get("topk")),
                        num_draft_tokens=_int(result.get("num_draft_tokens")),
                        accept_length=_float(metric.get("accept_length")),
                        output_tok_per_s=_float(metric.get("output_throughput")),
                        accuracy=_float(metric.get("accuracy")),
                        num_samples=_int(result.get("num_samples")),
                    )
