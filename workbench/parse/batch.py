"""``Decode batch`` and ``Prefill batch`` lines, of every layout, key by key."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from workbench.parse.lines import STAMP, TAGS, Head, make_head, parse_time
from workbench.parse.records import DecodeRecord, PrefillRecord

MARKERS = (b"Decode batch", b"Prefill batch")

Value = int | float | bool
_Fields = Mapping[str, tuple[str, Callable[[str], Value]]]

_WHOLE = re.compile(r"-?[0-9]{1,18}")
_DECIMAL = re.compile(r"-?[0-9]{1,18}(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,2})?")
_FLAGS: Mapping[str, bool] = {"True": True, "False": False}


def to_whole(text: str) -> int:
    if _WHOLE.fullmatch(text) is None:
        raise ValueError(text)
    return int(text)


def to_decimal(text: str) -> float:
    if _DECIMAL.fullmatch(text) is None:
        raise ValueError(text)
    return float(text)


def to_flag(text: str) -> bool:
    if text not in _FLAGS:
        raise ValueError(text)
    return _FLAGS[text]


_SHARED: _Fields = {
    "#running-req": ("running_req", to_whole),
    "#queue-req": ("queue_req", to_whole),
    "token usage": ("token_usage", to_decimal),
    "full token usage": ("token_usage", to_decimal),
    "gpu token usage": ("token_usage", to_decimal),
    "cuda graph": ("cuda_graph", to_flag),
    "cpu graph": ("cuda_graph", to_flag),
    "npu graph": ("cuda_graph", to_flag),
    "musa graph": ("cuda_graph", to_flag),
}
DECODE_FIELDS: _Fields = {
    **_SHARED,
    "#token": ("tokens", to_whole),
    "#full token": ("tokens", to_whole),
    "#gpu token": ("tokens", to_whole),
    "accept len": ("accept_len", to_decimal),
    "accept rate": ("accept_rate", to_decimal),
    "gen throughput (token/s)": ("gen_tok_per_s", to_decimal),
}
PREFILL_FIELDS: _Fields = {
    **_SHARED,
    "#new-seq": ("new_seq", to_whole),
    "#new-token": ("new_tokens", to_whole),
    "#cached-token": ("cached_tokens", to_whole),
    "input throughput (token/s)": ("input_tok_per_s", to_decimal),
}
# A line without any of these ended early, wherever its newline is: every version prints one of them at its end.
_DECODE_END = frozenset({"#queue-req"})
_PREFILL_END = frozenset(
    {
        "#queue-req",
        "#unbootstrapped-req",
        "#prealloc-req",
        "#bootstrap-req",
        "#inflight-req",
        "#transferring-req",
        "input throughput (token/s)",
    }
)

_BODY = r"(Decode|Prefill) batch(?: \[([0-9]{1,18})\])?([.,])"
_START = re.compile(_BODY + r"(?=\s|\Z)")
# The usual line, whole and alone: anything else takes the careful way.
_PLAIN = re.compile(rf"\[({STAMP})({TAGS})\] {_BODY} ([^\[\r\n]*\r?\n)")
_PAIR_THEN_TEXT = re.compile(r"([^:]+: \S+)(\s+time: [0-9.]+)?(\s.*)?", re.DOTALL)
_TIME_AFTER = re.compile(r"time: [0-9.]+\s*")  # 0.4.7, prefill side of a disaggregated server
_TWO_PLACES = re.compile(r"\.[0-9]{2,}\Z")
_LONGEST_KEY = 80
_MOST_KEYS = 64


def read_plain_line(text: str, line: int, offset: int) -> DecodeRecord | PrefillRecord | None:
    """The record of a line that holds one record and nothing else; None when it has to be taken apart first."""
    match = _PLAIN.fullmatch(text)
    if match is None:
        return None
    stamp, tags, kind, iteration, mark, body = match.groups()
    if " batch" in body or "pid=" in body:
        return None
    return _record(kind, iteration, mark, body, make_head(stamp, tags), line, offset)


def read_batch(piece: str, head: Head, line: int, offset: int) -> DecodeRecord | PrefillRecord | None:
    """The record of a piece that begins with a marker, None when no value can be read from it."""
    match = _START.match(piece)
    if match is None:
        return None
    kind, iteration, mark = match.groups()
    return _record(kind, iteration, mark, piece[match.end() :].lstrip(" "), head, line, offset)


def _record(
    kind: str, iteration: str | None, mark: str, body: str, head: Head, line: int, offset: int
) -> DecodeRecord | PrefillRecord | None:
    decode = kind == "Decode"
    found = _read_body(body, DECODE_FIELDS if decode else PREFILL_FIELDS, _DECODE_END if decode else _PREFILL_END)
    if not found.fields and not found.extra:
        return None
    values: dict[str, object] = dict(found.fields)
    if iteration is not None:
        values["iteration"] = int(iteration)
        found.keys.insert(0, "iteration")
    time = head.time if head.time is not None else parse_time(found.extra.get("timestamp", ""))
    make: Callable[..., DecodeRecord | PrefillRecord] = DecodeRecord if decode else PrefillRecord
    return make(
        line=line,
        offset=offset,
        time=time,
        ranks=head.ranks,
        truncated=found.cut,
        extra=found.extra,
        layout=_shared_layout((mark, *found.keys, "?" if found.cut else found.end)),
        **values,
    )


@lru_cache(maxsize=256)
def _shared_layout(layout: tuple[str, ...]) -> tuple[str, ...]:
    """One object for all lines of a layout, so that keeping it costs nothing."""
    return layout


@dataclass(slots=True)
class _Body:
    """What is read so far. ``cut`` says that the rest is missing or not this record's; ``end`` is the last mark."""

    fields: dict[str, Value] = field(default_factory=dict)
    extra: dict[str, str] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    cut: bool = False
    end: str = "?"


def _read_body(body: str, known: _Fields, closing: frozenset[str]) -> _Body:
    found = _Body()
    items = body.split(", ")
    last = items.pop()
    for item in items:
        _add(item, known, found)
        if found.cut or len(found.keys) > _MOST_KEYS:
            found.cut = True
            return found
    _add_last(last, known, found, closing)
    found.cut = found.cut or closing.isdisjoint(found.keys)
    return found


def _add(item: str, known: _Fields, found: _Body) -> None:
    """Take one ``key: value`` whose end is certain. What cannot be this record's ends it."""
    key, colon, value = item.partition(": ")
    if key in known and known[key][0] not in found.fields:
        name, convert = known[key]
        try:
            found.fields[name] = convert(value)
            found.keys.append(key)
        except ValueError:
            _add_odd(key, value, known, found)
    elif colon:
        _add_unknown(key, value, found)
    else:
        _add_loose(item, found)


def _add_unknown(key: str, value: str, found: _Body) -> None:
    """A key without a field, or one more pool's. The same key twice means that another record began."""
    if key in found.keys or not value or ": " in value or len(key) > _LONGEST_KEY or _is_cut(value):
        found.cut = True
    else:
        found.extra[key] = value
        found.keys.append(key)


def _add_odd(key: str, value: str, known: _Fields, found: _Body) -> None:
    """A known key with a value of another form: ``full=12``, ``nan``, or a space and one more pair after it."""
    name, convert = known[key]
    pool, equals, number = value.partition("=")
    first, _, rest = value.partition(" ")
    try:
        if value in ("nan", "inf", "-inf"):
            _add_unknown(key, value, found)
        elif equals and pool.isidentifier():
            found.fields[name] = convert(number)
            found.keys.append(f"{key} {pool}")
        elif _TIME_AFTER.fullmatch(rest):
            found.fields[name] = convert(first)
            found.keys.append(key)
            _add(rest.strip(), known, found)
        else:
            found.cut = True
    except ValueError:
        found.cut = True


def _add_loose(item: str, found: _Body) -> None:
    """``swa=12`` belongs to the key before it; other text is kept as a key without a value."""
    pool, equals, value = item.partition("=")
    last = found.keys[-1].removesuffix(" full") if found.keys else ""
    name = f"{last} {pool}" if equals and pool.isidentifier() else item
    if not item.strip() or _is_cut(item) or len(item) > _LONGEST_KEY or name in found.extra:
        found.cut = True
    else:
        found.extra[name] = value if name != item else ""
        found.keys.append(name)


def _add_last(last: str, known: _Fields, found: _Body, closing: frozenset[str]) -> None:
    """Take what stands behind the last comma, as far as its end is certain."""
    bare = last.rstrip()
    ended = len(bare) < len(last)
    if not bare or bare.endswith(","):
        if bare:
            _add(bare[:-1], known, found)
        found.end = "," if ended else "?"
        return
    match = _PAIR_THEN_TEXT.fullmatch(bare)
    if not ended or match is None:
        found.cut = True
        return
    pair, time, foreign = match.groups()
    if not _ends_whole(pair, found, known, closing):
        found.cut = True
        return
    _add(pair, known, found)
    if time is not None:
        _add(time.strip(), known, found)
    found.end = "?" if foreign else ""


def _ends_whole(pair: str, found: _Body, known: _Fields, closing: frozenset[str]) -> bool:
    """Whether the last value of a line is whole: terminals wrap lines, and copying cuts them.

    Decimals are always printed with two places, so they show it themselves. A whole number does not, unless the line
    has come to its usual end.
    """
    key, _, value = pair.partition(": ")
    if key in known and known[key][1] is to_decimal:
        return _TWO_PLACES.search(value) is not None
    return key in closing or not closing.isdisjoint(found.keys) or value in _FLAGS


def _is_cut(text: str) -> bool:
    return text.endswith(("...", "…", "\ufffd"))
