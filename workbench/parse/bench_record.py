"""One result of somebody else's benchmark tool as a record, and how single values of their JSON are taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite


@dataclass(frozen=True, slots=True)
class BenchResult:
    """What a file tells of one configuration at one load. ``None`` means: it does not tell.

    ``where`` is the place in the file. ``speculative`` says whether a drafter was used. Several values of a figure are
    repetitions of the same measurement. ``accept_length`` counts the bonus token; ``notes`` say what else a figure
    holds. ``unfinished`` is why the result is not whole. ``server_info`` is the server's own account of itself.
    """

    tool: str
    where: str
    engine: str | None = None
    model: str | None = None
    draft: str | None = None
    speculative: bool | None = None
    algorithm: str | None = None
    num_steps: int | None = None
    eagle_topk: int | None = None
    num_draft_tokens: int | None = None
    prompt_set: str | None = None
    num_prompts: int | None = None
    temperature: float | None = None
    max_new_tokens: int | None = None
    max_concurrency: int | None = None
    output_tok_per_s: tuple[float, ...] = ()
    decode_tok_per_s: tuple[float, ...] = ()
    accept_length: tuple[float, ...] = ()
    completion_tokens: int | None = None
    num_requests: int | None = None
    num_failed: int | None = None
    recorded_at: str | None = None
    tool_version: str | None = None
    server_info: Mapping[str, object] | None = None
    unfinished: str | None = None
    notes: tuple[str, ...] = field(default=())


def part(value: object, *keys: str | int) -> object:
    """What lies at these keys and places, ``None`` where there is nothing."""
    for key in keys:
        if isinstance(key, str) and isinstance(value, Mapping):
            value = value.get(key)
        elif isinstance(key, int) and isinstance(value, list) and key < len(value):
            value = value[key]
        else:
            return None
    return value


def number(value: object) -> float | None:
    """A finite number; ``true`` and numbers written as text are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if isfinite(found) else None


def whole(value: object) -> int | None:
    found = number(value)
    return int(found) if found is not None and found.is_integer() else None


def text(value: object) -> str | None:
    return value.strip() or None if isinstance(value, str) else None


def known(*values: float | None) -> tuple[float, ...]:
    return tuple(value for value in values if value is not None)


def objects(value: object) -> Sequence[Mapping[str, object]]:
    """The objects of a list, or the one object that stands in its place."""
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, Mapping)]
