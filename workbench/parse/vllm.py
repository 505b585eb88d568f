"""vLLM's lines about speculation and engine load, V0 and V1, key by key."""

from __future__ import annotations

import re
from collections.abc import Mapping

from workbench.parse.lines import Head
from workbench.parse.records import VllmEngineRecord, VllmSpecRecord

SPEC_MARKERS = (b"SpecDecoding metrics:", b"Speculative metrics:")
ENGINE_MARKER = b"Avg prompt throughput:"

_SPEC_START = re.compile(r"(?:SpecDecoding|Speculative) metrics: ?")
_ENGINE_START = re.compile(r"(?:Engine [0-9]+: )?(?=Avg prompt throughput: )")
_NUMBER = re.compile(r"(-?[0-9]{1,18}(?:\.[0-9]+)?)(%| tokens/s| tokens| reqs)?\.?")

_Keys = Mapping[str, tuple[str, tuple[str, ...]]]
# Key: (field, the units that make the value whole; "" where none is printed).
_SPEC_KEYS: _Keys = {
    "Mean acceptance length": ("mean_acceptance_length", ("",)),
    "Draft acceptance rate": ("draft_acceptance_rate", ("%", "")),
    "Avg Draft acceptance rate": ("draft_acceptance_rate", ("%", "")),
    "Accepted": ("accepted_tokens", (" tokens",)),
    "Drafted": ("drafted_tokens", (" tokens",)),
    "Number of accepted tokens": ("accepted_tokens", ("",)),
    "Number of draft tokens": ("drafted_tokens", ("",)),
    "Number of draft tokens tokens": ("drafted_tokens", ("",)),
}
_ENGINE_KEYS: _Keys = {
    "Avg prompt throughput": ("prompt_tok_per_s", (" tokens/s",)),
    "Avg generation throughput": ("gen_tok_per_s", (" tokens/s",)),
    "Running": ("running_req", (" reqs",)),
    "Waiting": ("queue_req", (" reqs",)),
    "Pending": ("queue_req", (" reqs",)),
    "GPU KV cache usage": ("kv_usage", ("%",)),
}
_COUNTS = frozenset({"accepted_tokens", "drafted_tokens", "running_req", "queue_req"})
_POSITIONS = "Per-position acceptance rate"


def read_spec(piece: str, head: Head, line: int, offset: int) -> VllmSpecRecord | None:
    """The record of a piece that begins with a speculative marker; None when no value can be read from it."""
    start = _SPEC_START.match(piece)
    if start is None:
        return None
    pairs, cut = _pairs(piece[start.end() :])
    values, extra = _convert(pairs, _SPEC_KEYS)
    rates = _positions(pairs.get(_POSITIONS, ""))
    extra.pop(_POSITIONS, None)
    if not values and not rates and not extra:
        return None
    return VllmSpecRecord(
        line=line,
        offset=offset,
        time=head.time,
        mean_acceptance_length=values.get("mean_acceptance_length"),
        draft_acceptance_rate=values.get("draft_acceptance_rate"),
        accepted_tokens=_count(values, "accepted_tokens"),
        drafted_tokens=_count(values, "drafted_tokens"),
        per_position_rate=rates,
        truncated=cut,
        extra=extra,
    )


def read_engine(piece: str, head: Head, line: int, offset: int) -> VllmEngineRecord | None:
    """The record of a piece that begins with an engine marker; None when no value can be read from it."""
    start = _ENGINE_START.match(piece)
    if start is None:
        return None
    pairs, cut = _pairs(piece[start.end() :])
    values, _ = _convert(pairs, _ENGINE_KEYS)
    if not values:
        return None
    return VllmEngineRecord(
        line=line,
        offset=offset,
        time=head.time,
        prompt_tok_per_s=values.get("prompt_tok_per_s"),
        gen_tok_per_s=values.get("gen_tok_per_s"),
        running_req=_count(values, "running_req"),
        queue_req=_count(values, "queue_req"),
        kv_usage=values.get("kv_usage"),
        truncated=cut,
    )


def _pairs(body: str) -> tuple[dict[str, str], bool]:
    """Pairs whose end is certain, as printed, and whether the line was cut. A list keeps its commas."""
    bare = body.rstrip()
    items = bare.split(", ")
    # A space is no end: values have units behind one.
    cut = not body.endswith(("\n", "\r")) or bare.endswith("...")
    if bare.endswith(","):
        items[-1] = items[-1].removesuffix(",")
    pairs: dict[str, str] = {}
    key = ""
    for item in items:
        name, colon, value = item.partition(": ")
        if colon and name not in pairs:
            key = name
            pairs[key] = value
        elif not colon and key:
            pairs[key] += ", " + item
        else:
            cut = True
            break
    if cut and key:
        del pairs[key]
    return pairs, cut


def _convert(pairs: Mapping[str, str], keys: _Keys) -> tuple[dict[str, float], dict[str, str]]:
    values: dict[str, float] = {}
    extra: dict[str, str] = {}
    for key, text in pairs.items():
        name, units = keys.get(key, ("", ()))
        match = _NUMBER.fullmatch(text)
        whole = match is not None and (match[2] or "") in units and (name not in _COUNTS or match[1].isdigit())
        if match is not None and whole and name not in values:
            number = f"{match[1]}e-2" if match[2] == "%" else match[1]
            values[name] = int(number) if name in _COUNTS else float(number)
        else:
            extra[key] = text.rstrip(".")
    return values, extra


def _count(values: Mapping[str, float], name: str) -> int | None:
    return int(values[name]) if name in values else None


def _positions(text: str) -> tuple[float, ...]:
    """All rates or none: a list with a hole would shift the positions."""
    matches = [_NUMBER.fullmatch(item) for item in text.split(", ")] if text else []
    if not all(match is not None and match[2] is None for match in matches):
        return ()
    return tuple(float(match[1]) for match in matches if match is not None)
