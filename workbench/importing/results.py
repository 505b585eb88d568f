"""A result file of a benchmark tool to the runs in it."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import fields, replace
from pathlib import Path

from pydantic import ValidationError

from workbench.errors import Problem
from workbench.importing.found import NOT_STATED, Engine, Found, Source, Stated, clean, named, of_server
from workbench.parse.bench import BenchResult, parse_bench
from workbench.spec import MAX_COUNT, Range, ReportedFigures, SpecDecodeConfig, Workload

_LEAST_SPEED, _FASTEST = 0.0, 1e9
_LONGEST = 1000.0
_JSON_START = re.compile(rb"\s*(?:\{|\[\s*[{\[])")
_MORE_THAN_MOST = 1.1  # some tools count the token of the prefill, so a length may lie a little above steps + 1


def read_results(file: Path, data: bytes, stated: Stated, problems: list[Problem]) -> list[Found]:
    """The runs of a file; what of it is no result, or no possible figure, is added to ``problems``.

    Where there is no result in it at all, it is another kind of file, and nothing is added.
    """
    parsed = parse_bench(data)
    if not parsed.results:
        return []
    problems += [Problem(str(file), what) for what in parsed.unread]
    found = []
    for result in parsed.results:
        try:
            one = _found(result, file, stated, problems)
        except ValidationError as error:
            problems.append(Problem(f"{file}, {result.where}" if result.where else str(file), unusable(error)))
            continue
        if one.figures is not None and (_has_speed(one.figures) or one.unfinished):
            found.append(one)
        else:
            problems.append(Problem(one.source.place, "no usable speed in this result; it is left out"))
    return found


def _has_speed(figures: ReportedFigures) -> bool:
    return figures.output_tok_per_s is not None or figures.decode_tok_per_s is not None


def _digest(result: BenchResult) -> str:
    """Of what the result says, not of its place: a file that grows or is copied holds the same results."""
    said = {each.name: getattr(result, each.name) for each in fields(result) if each.name not in ("where", "notes")}
    return hashlib.sha256(json.dumps(said, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def unusable(error: ValidationError) -> str:
    """In a few words, the first value that a run folder cannot hold."""
    fault = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, fault['loc'])) or 'a value'}: {fault['msg']}; it is left out"


def _found(result: BenchResult, file: Path, stated: Stated, problems: list[Problem]) -> Found:
    digest = _digest(result)
    source = Source(result.tool, file, digest[:16], digest[:12], clean(result.where) or "")
    versions = {} if result.tool_version is None else {result.tool: clean(result.tool_version) or ""}
    found = Found(
        source=source,
        engine=_engine(result.engine),
        speculative=stated.speculative if result.speculative is None else result.speculative,
        model=result.model,
        draft=result.draft,
        decode=SpecDecodeConfig(
            speculative_algorithm=clean(result.algorithm),
            speculative_num_steps=_positive(result.num_steps),
            speculative_eagle_topk=_positive(result.eagle_topk),
            speculative_num_draft_tokens=_positive(result.num_draft_tokens),
        ),
        workload=_workload(result, file, stated),
        versions=versions,
        recorded_at=clean(result.recorded_at),
        unfinished=clean(result.unfinished),
        server_info=result.server_info,
    )
    if result.server_info is not None:
        found = of_server(found, result.server_info)
    found = replace(found, model=found.model or stated.target)
    impossible: list[str] = []
    figures = _figures(result, found, impossible)
    problems += [Problem(source.place, what) for what in impossible]
    return replace(found, figures=figures, notes=(*result.notes, *impossible))


def _engine(name: str | None) -> Engine:
    return "sglang" if name == "sglang" else "vllm" if name == "vllm" else "unknown"


def _workload(result: BenchResult, file: Path, stated: Stated) -> Workload:
    """Prompts that nobody names are those of their file: they are compared with no other's."""
    temperature = result.temperature
    return Workload(
        prompt_set=named(result.prompt_set or stated.prompts or f"{NOT_STATED} ({file.name})"),
        num_prompts=_positive(result.num_prompts),
        temperature=temperature if temperature is not None and temperature >= 0 else None,
        max_new_tokens=_positive(result.max_new_tokens),
        max_concurrency=_positive(result.max_concurrency) or stated.concurrency,
    )


def _figures(result: BenchResult, found: Found, impossible: list[str]) -> ReportedFigures:
    steps = found.decode.speculative_num_steps
    longest = _LONGEST if steps is None else min((steps + 1) * _MORE_THAN_MOST, _LONGEST)
    lengths = result.accept_length if found.speculative else ()
    return ReportedFigures(
        source=found.source.text,
        output_tok_per_s=_range("output speed", result.output_tok_per_s, _LEAST_SPEED, _FASTEST, impossible),
        decode_tok_per_s=_range("decode speed", result.decode_tok_per_s, _LEAST_SPEED, _FASTEST, impossible),
        accept_length=_range("accept length", lengths, 1.0, longest, impossible, inclusive=True),
        completion_tokens=_count(result.completion_tokens),
        num_requests=_count(result.num_requests),
        num_failed=_count(result.num_failed),
        notes="; ".join(result.notes) or None,
    )


def _range(
    name: str, values: tuple[float, ...], low: float, high: float, impossible: list[str], *, inclusive: bool = False
) -> Range | None:
    """Repetitions as a range; a value that cannot be is left out and said."""
    good = [value for value in values if (low <= value <= high if inclusive else low < value < high)]
    impossible += [f"{name} {value:.4g} cannot be and is left out" for value in values if value not in good]
    return Range(low=min(good), high=max(good)) if good else None


def _positive(value: int | None) -> int | None:
    return value if value is not None and 1 <= value <= MAX_COUNT else None


def _count(value: int | None) -> int | None:
    return value if value is not None and 0 <= value <= MAX_COUNT else None


def looks_like_results(data: bytes) -> bool:
    """Whether a file begins as JSON does. Some logs do, too: ``{"log": ...}`` of a container."""
    return _JSON_START.match(data) is not None
