"""Real inputs, changed: cut, flipped, with other types, deeper, larger, with signs that nobody expects."""

from __future__ import annotations

import copy
import json
from typing import Any

import yaml
from hypothesis import strategies as st
from words import BYTES, DECIMALS, NUMBERS, TEXTS

JSON, JSON_LINES, YAML, TEXT = "json", "json lines", "yaml", "text"
_DEEP = (30, 3_000, 100_000)


@st.composite
def changed(draw: st.DrawFn, seed: bytes, kind: str) -> bytes:
    """A seed with a few changes: of its values where it has any, or of its bytes."""
    if kind != TEXT and draw(st.booleans()):
        seed = draw(_other_values(seed, kind))
        if draw(st.integers(0, 3)):
            return seed
    for _ in range(draw(st.integers(1, 3))):
        seed = draw(_other_bytes(seed))
    return seed


# --- bytes -------------------------------------------------------------------------------------------------------


@st.composite
def _other_bytes(draw: st.DrawFn, data: bytes) -> bytes:
    start, end = sorted((draw(st.integers(0, len(data))), draw(st.integers(0, len(data)))))
    way = draw(st.sampled_from(("cut", "flip", "insert", "remove", "repeat", "replace", "tail", "lines")))
    if way == "cut":
        return data[:end]
    if way == "tail":
        return data[start:]
    if way == "flip":
        return (
            data[:start] + bytes([data[start] ^ draw(st.integers(1, 255))]) + data[start + 1 :] if data[start:] else b""
        )
    if way == "remove":
        return data[:start] + data[end:]
    if way == "repeat":
        return data[:end] + data[start:end][:20_000] * draw(st.integers(1, 3)) + data[end:]
    if way == "lines":
        lines = data.split(b"\n")
        one, other = draw(st.integers(0, len(lines) - 1)), draw(st.integers(0, len(lines) - 1))
        lines[one], lines[other] = lines[other], lines[one]
        return b"\n".join(lines)
    new = draw(st.one_of(st.sampled_from(BYTES), st.binary(max_size=8), st.sampled_from(TEXTS).map(_bytes)))
    return data[:start] + new + data[end if way == "replace" and end - start < 200 else start :]


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


# --- values ------------------------------------------------------------------------------------------------------


@st.composite
def _other_values(draw: st.DrawFn, seed: bytes, kind: str) -> bytes:
    if kind == JSON_LINES:
        lines = seed.split(b"\n")
        at = draw(st.integers(0, len(lines) - 1))
        if lines[at].strip():
            lines[at] = draw(_other_values(lines[at], JSON))
        return b"\n".join(lines)
    value = yaml.safe_load(seed) if kind == YAML else json.loads(seed)
    for _ in range(draw(st.integers(1, 2))):
        value = draw(other_value(value))
    deep = draw(st.sampled_from((0, 0, 0, 0, 0, 0, *_DEEP)))
    text = json.dumps(value, ensure_ascii=draw(st.booleans()) or kind == YAML)
    if deep:
        opening, closing = draw(st.sampled_from((("[", "]"), ('{"a":', "}"))))
        place = draw(st.sampled_from(("null", text)))
        text = text.replace(place, opening * deep + "1" + closing * deep, 1)
    # Every JSON text of ours is YAML, too, but for lone surrogates.
    return _bytes(text)


@st.composite
def other_value(draw: st.DrawFn, value: Any) -> Any:
    """The value with one part of it replaced, left out, doubled, renamed or wrapped."""
    value = copy.deepcopy(value)
    holder: Any = {"": value}
    key: Any = ""
    while isinstance(holder[key], dict | list) and holder[key] and draw(st.integers(0, 5)):
        holder = holder[key]
        key = draw(st.sampled_from(sorted(holder, key=str) if isinstance(holder, dict) else range(len(holder))))
    way = draw(st.sampled_from(("replace", "replace", "leave out", "double", "rename", "wrap", "steal")))
    if holder is not value and way in ("leave out", "rename") and isinstance(holder, dict) and "" not in holder:
        kept = holder.pop(key)
        if way == "rename":
            holder[draw(st.sampled_from(TEXTS))] = kept
    elif way == "double" and isinstance(holder, list):
        holder.insert(key, holder[key])
    elif way == "wrap":
        holder[key] = draw(st.sampled_from(([holder[key]], {"a": holder[key]}, [[holder[key]] * 3])))
    elif way == "steal" and isinstance(value, dict) and value:
        holder[key] = copy.deepcopy(value[draw(st.sampled_from(sorted(value, key=str)))])
    else:
        holder[key] = draw(nasty)
    return value if holder is value or not (isinstance(holder, dict) and list(holder) == [""]) else holder[""]


nasty = st.one_of(
    st.sampled_from((None, True, False, [], {}, [[]], {"": ""}, [None] * 5, {"a": {"b": []}})),
    st.sampled_from(TEXTS),
    st.sampled_from(NUMBERS),
    st.sampled_from(DECIMALS),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=20),
)
