"""Byte chunks to physical lines, and a physical line to the pieces that one process wrote in one go."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import pairwise

from workbench.parse.counts import CountsBuilder

MAX_LINE_BYTES = 1 << 20
"""Of a longer physical line only the beginning is read: memory must not depend on the file."""

_BLOCK_BYTES = 1 << 18
_GATHERED_BYTES = 1 << 22
_FEW_BYTES = 512
PADDING = bytes(1024)

PhysicalLine = tuple[int, int, bytes, bool]
"""Number from 1, byte offset, bytes without the newline, whether a newline (and nothing left out) followed."""


@dataclass(frozen=True, slots=True)
class LineBlock:
    """Whole lines, newlines included: ``data[begin:end]``. The first of them stands at ``offset`` in the log.

    Behind them the data has at least as many bytes as `PADDING`, which mean nothing.
    """

    offset: int
    data: bytes
    begin: int
    end: int


def physical_lines(chunks: Iterable[bytes], counts: CountsBuilder) -> Iterator[PhysicalLine]:
    """Split at ``\\n`` only, whatever the chunk borders."""
    start = _Unfinished()
    offset = 0
    for block in _blocks(chunks):
        counts.see_block(block)
        first, *others = block.split(b"\n")
        start.add(first)
        if not others:
            continue
        yield from _finish(start, offset, counts, newline=True)
        offset += start.size + 1
        start = _Unfinished()
        last = others.pop()
        number = counts.lines
        for raw in others:
            number += 1
            yield number, offset, raw, True
            offset += len(raw) + 1
        counts.lines = number
        start.add(last)
    if start.size:
        yield from _finish(start, offset, counts, newline=False)


def line_blocks(chunks: Iterable[bytes], counts: CountsBuilder) -> Iterator[LineBlock | PhysicalLine]:
    """The same with lines left together, where they came together and are neither few nor longer than the cap.

    Chunks smaller than a file's are not waited for: somebody may be writing them. Lines of a block are not counted.
    """
    start, offset = _Unfinished(), 0
    for data in _gathered(chunks, counts):
        size, begin = len(data) - len(PADDING), 0
        if start.size:
            newline = data.find(b"\n")
            start.add(data[: newline if newline >= 0 else size])
            if newline < 0:
                continue
            yield from _finish(start, offset, counts, newline=True)
            offset += start.size + 1
            start, begin = _Unfinished(), newline + 1
        end = data.rfind(b"\n", begin) + 1
        if end:
            yield from _together(LineBlock(offset, data, begin, end), counts)
            offset += end - begin
        start.add(data[max(begin, end) : size])
    if start.size:
        yield from _finish(start, offset, counts, newline=False)


def _together(block: LineBlock, counts: CountsBuilder) -> Iterator[LineBlock | PhysicalLine]:
    if block.end - block.begin >= _FEW_BYTES and not _has_overlong(block):
        yield block
        return
    offset = block.offset
    for raw in block.data[block.begin : block.end - 1].split(b"\n"):
        line = _Unfinished()
        line.add(raw)
        yield from _finish(line, offset, counts, newline=True)
        offset += len(raw) + 1


def _has_overlong(block: LineBlock) -> bool:
    begin = block.begin
    while block.end - begin > MAX_LINE_BYTES:
        newline = block.data.rfind(b"\n", begin, begin + MAX_LINE_BYTES + 1)
        if newline < 0:
            return True
        begin = newline + 1
    return False


def _gathered(chunks: Iterable[bytes], counts: CountsBuilder) -> Iterator[bytes]:
    """Chunks put together, the padding behind them."""
    held: list[bytes] = []
    size = 0
    for chunk in _blocks(chunks):
        counts.see_block(chunk)
        held.append(chunk)
        size += len(chunk)
        if size >= _GATHERED_BYTES or len(chunk) < _BLOCK_BYTES:
            yield b"".join([*held, PADDING])
            held, size = [], 0
    if held:
        yield b"".join([*held, PADDING])


def _blocks(chunks: Iterable[bytes]) -> Iterator[bytes]:
    for chunk in chunks:
        if len(chunk) <= _BLOCK_BYTES:
            yield chunk
        else:
            for begin in range(0, len(chunk), _BLOCK_BYTES):
                yield chunk[begin : begin + _BLOCK_BYTES]


class _Unfinished:
    """The beginning of a line whose end has not come yet, kept up to the cap."""

    __slots__ = ("kept", "kept_size", "size")

    def __init__(self) -> None:
        self.kept: list[bytes] = []
        self.kept_size = 0
        self.size = 0

    def add(self, piece: bytes) -> None:
        self.size += len(piece)
        room = MAX_LINE_BYTES - self.kept_size
        if room > 0 and piece:
            self.kept.append(piece[:room])
            self.kept_size += len(self.kept[-1])


def _finish(start: _Unfinished, offset: int, counts: CountsBuilder, *, newline: bool) -> Iterator[PhysicalLine]:
    counts.lines += 1
    raw = b"".join(start.kept)
    whole = start.size == start.kept_size
    if not whole:
        counts.overlong_lines += 1
        # The cap may fall inside a character: that is not the log's fault.
        raw = raw[:-4] + raw[-4:].decode("utf-8", "ignore").encode()
    yield counts.lines, offset, raw, newline and whole


def undecodable(raw: bytes) -> int:
    """How many bytes are not UTF-8."""
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return sum("\udc80" <= char <= "\udcff" for char in raw.decode("utf-8", "surrogateescape"))
    return 0


# ---- text ---------------------------------------------------------------------------------------------------------

# Colour and cursor sequences, and terminal titles.
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")


def clean_text(raw: bytes, ended: bool) -> str:
    """Text of a line without terminal sequences, unwrapped from a container's JSON. Ends in a newline if it did."""
    text = raw.decode("utf-8", "replace")
    if text.startswith("{"):
        text, ended = _unwrap_json(text, ended)
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    return text + "\n" if ended else text


def _unwrap_json(text: str, ended: bool) -> tuple[str, bool]:
    """``{"log": "...\\n", "time": ...}`` of Docker's json-file driver, ``{"message": ...}`` of log shippers."""
    try:
        outer = json.loads(text)
    except (ValueError, RecursionError):
        return text, ended
    if not isinstance(outer, dict):
        return text, ended
    stamp = next((outer[key] for key in ("time", "timestamp", "@timestamp") if isinstance(outer.get(key), str)), "")
    if isinstance(outer.get("log"), str):
        # Docker keeps the newline inside and splits at 16 KB, so only that newline ends a value.
        return f"{stamp} {outer['log']}", False
    inner = next((outer[key] for key in ("message", "msg") if isinstance(outer.get(key), str)), None)
    return (text, ended) if inner is None else (f"{stamp} {inner}", True)


# ---- stamps and pieces --------------------------------------------------------------------------------------------

STAMP = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,9})?"
TAGS = r"(?: [A-Z_]+[0-9]+)*"
_HEAD = re.compile(rf"\[({STAMP})({TAGS})\] ?")
_ANY_STAMP = re.compile(rf"(?<![0-9])({STAMP})(?![0-9])")

# Where another message begins, or one has ended. Every alternative starts with a literal, so that the search is quick.
_CUT = re.compile(
    r"\n|\r(?!\n)"
    r"|\[[0-9]{4}-[0-9]{2}-[0-9]{2}[ T]"
    r"|\([A-Za-z_]\w{0,80} pid=[0-9]"
    r"|DEBUG [0-9]{2}-[0-9]{2} |INFO [0-9]{2}-[0-9]{2} |WARNING [0-9]{2}-[0-9]{2} |ERROR [0-9]{2}-[0-9]{2} "
    r"|Decode batch|Prefill batch"
    r"|SpecDecoding metrics:|Speculative metrics:"
    r"|Engine [0-9]{1,9}: Avg prompt throughput:|Avg prompt throughput:"
)


@dataclass(frozen=True, slots=True)
class Head:
    """The stamp and rank tags before a message; ``time`` is naive, as printed."""

    time: datetime | None
    ranks: frozenset[str]


NO_HEAD = Head(None, frozenset())


def split_pieces(text: str) -> list[str]:
    """Cut where another message begins: a stamp, a process prefix, a marker, a carriage return."""
    cuts = [match.end() if match[0] in "\r\n" else match.start() for match in _CUT.finditer(text)]
    borders = [0, *cuts, len(text)]
    return [text[start:end] for start, end in pairwise(borders) if start < end]


def find_head(piece: str) -> tuple[Head | None, str]:
    """The head of a piece, and the rest after it. A stamp anywhere counts when there is no bracketed one at its start.

    Returns
    -------
    tuple
        The head is None when the piece has no stamp.
    """
    match = _HEAD.match(piece)
    if match is not None:
        return make_head(match[1], match[2]), piece[match.end() :]
    found = _ANY_STAMP.findall(piece[:400])
    return (make_head(found[-1], "") if found else None), piece


@lru_cache(maxsize=256)
def make_head(stamp: str, tags: str) -> Head:
    return Head(parse_time(stamp), frozenset(tags.split()))


def parse_time(stamp: str) -> datetime | None:
    """A stamp as printed, its zone ignored; None when it is no date."""
    try:
        return datetime.fromisoformat(stamp).replace(tzinfo=None)
    except ValueError:
        return None
