"""Server logs of SGLang 0.3.6 to 0.5.23, and vLLM's speculative lines, to typed records.

Streaming, pure, and without raising on any text: what is not understood is counted.
A value counts only when something ends it (a comma, a newline): a number at the end of a cut line stays unknown.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from workbench.parse.batch import MARKERS, read_batch
from workbench.parse.blocks import Skeletons, lines_of
from workbench.parse.counts import CountsBuilder
from workbench.parse.events import TRIGGER, quotes_requests, read_event
from workbench.parse.groups import stretch_of
from workbench.parse.lines import (
    NO_HEAD,
    Head,
    LineBlock,
    clean_text,
    find_head,
    line_blocks,
    split_pieces,
    undecodable,
)
from workbench.parse.records import DecodeRecord, PrefillRecord, Record
from workbench.parse.stretches import Stretch
from workbench.parse.templates import PlainReader
from workbench.parse.vllm import ENGINE_MARKER, SPEC_MARKERS, read_engine, read_spec

# Of fewer lines a stretch takes as long as their records.
_FEW_TOGETHER = 16


def iter_records(chunks: Iterable[bytes], counts: CountsBuilder | None = None) -> Iterator[Record]:
    """Read records as they come. Memory does not depend on the size of the log or of its lines.

    Parameters
    ----------
    chunks
        The log in pieces of any size, cut anywhere.
    counts
        Raised while reading; ask it when the iteration has ended.
    """
    for found in iter_stretches(chunks, counts):
        if isinstance(found, Stretch):
            yield from found.records()
        else:
            yield found


def iter_stretches(chunks: Iterable[bytes], counts: CountsBuilder | None = None) -> Iterator[Record | Stretch]:
    """The same in the same order, but batch lines that follow each other come as columns where there are many."""
    builder = counts if counts is not None else CountsBuilder()
    plain, skeletons = PlainReader(), Skeletons(_is_silent)
    for piece in line_blocks(chunks, builder):
        if isinstance(piece, LineBlock):
            yield from _read_block(piece, plain, skeletons, builder)
        else:
            yield from _read_line(*piece, plain, builder)


def _read_block(
    block: LineBlock, plain: PlainReader, skeletons: Skeletons, counts: CountsBuilder
) -> Iterator[Record | Stretch]:
    lines = lines_of(block)
    number, offset = counts.lines + 1, block.offset - block.begin
    counts.lines += len(lines.starts)
    groups, places = skeletons.split(lines)
    left = _Left(stretch_of(groups, lines.starts, number, offset), counts)
    raws = ((place, lines.line(place)) for place in places.tolist())
    alone = [(place, raw) for place, raw in raws if _is_candidate(raw) or not raw.isascii()]
    if alone and left.stretch.num_parts([number + place for place, _ in alone]) * _FEW_TOGETHER > len(left.stretch):
        left.fall_apart()
    for place, raw in alone:
        for record in _read_line(number + place, offset + int(lines.starts[place]), raw, True, plain, counts):
            yield from left.before(record.line)
            yield record
    yield from left.before(number + len(lines.starts))


class _Left:
    """What is still to come of the lines of a block that were read together: a stretch, or records one by one."""

    def __init__(self, stretch: Stretch, counts: CountsBuilder) -> None:
        self.stretch = stretch
        self._counts = counts
        self._records: deque[DecodeRecord | PrefillRecord] = deque()

    def fall_apart(self) -> None:
        """For a block with so many other records that stretches would be of a few lines."""
        self._records.extend(self.stretch.records())
        self.stretch = self.stretch.split(0)[0]

    def before(self, line: int) -> Iterator[Record | Stretch]:
        while self._records and self._records[0].line < line:
            _count(self._records[0], self._counts)
            yield self._records.popleft()
        if self.stretch:
            now, self.stretch = self.stretch.split(line)
            self._counts.decode += len(now.decode)
            self._counts.prefill += len(now.prefill)
            if now:
                yield now


def _read_line(
    number: int, offset: int, raw: bytes, ended: bool, plain: PlainReader, counts: CountsBuilder
) -> Iterator[Record]:
    if not raw.isascii():
        counts.undecodable_bytes += undecodable(raw)
    if _is_candidate(raw):
        text = clean_text(raw, ended)
        record = plain.read(text, number, offset)
        if record is None:
            yield from _read_pieces(text, number, offset, counts)
        else:
            _count(record, counts)
            yield record


def _is_silent(raw: bytes) -> bool:
    return not _is_candidate(raw)


# The access line of a request that went well, which is most of a busy server's log.
_ACCESS = re.compile(rb'\[[^\]\[]*\] INFO: +[0-9a-f.:]+ - "[A-Z]+ [^" ]+ HTTP/[0-9.]+" 200 OK\r?\Z')
_ANYWHERE = re.compile(b"|".join(re.escape(marker) for marker in (*MARKERS, *SPEC_MARKERS, ENGINE_MARKER)))


def _is_candidate(raw: bytes) -> bool:
    """Whether a line can hold anything: cheap, because most lines do not. Colours may stand inside the words."""
    if _ACCESS.match(raw) is not None:
        return False
    if b"e batch" in raw or b"l batch" in raw:
        return True
    return TRIGGER.search(raw) is not None or _ANYWHERE.search(raw) is not None or b"\x1b" in raw


_READERS: tuple[tuple[tuple[str, ...], Callable[[str, Head, int, int], Record | None]], ...] = (
    (tuple(marker.decode() for marker in MARKERS), read_batch),
    (tuple(marker.decode() for marker in SPEC_MARKERS), read_spec),
    (("Engine ", ENGINE_MARKER.decode()), read_engine),
)


def _read_pieces(text: str, number: int, offset: int, counts: CountsBuilder) -> Iterator[Record]:
    """Records of a line that more than one message, or something other than a batch line, may stand on."""
    head = NO_HEAD
    for piece in split_pieces(text):
        reader = next((read for starts, read in _READERS if piece.startswith(starts)), None)
        if reader is not None:
            record = reader(piece, head, number, offset)
            counts.unparsed_batch_lines += record is None and reader is read_batch
            # The next record on this line has a stamp of its own, or none.
            head = NO_HEAD
        else:
            found, message = find_head(piece)
            head = found or head
            if quotes_requests(message):
                return
            record = read_event(message, head, number, offset)
            head = NO_HEAD if piece.endswith(("\n", "\r")) else head
        if record is not None:
            _count(record, counts)
            yield record


def _count(record: Record, counts: CountsBuilder) -> None:
    counts.decode += isinstance(record, DecodeRecord)
    counts.prefill += isinstance(record, PrefillRecord)
    counts.truncated += record.truncated
