"""Server logs of SGLang 0.3.6 to 0.5.23, and vLLM's speculative lines, to typed records.

Streaming, pure, and without raising on any text: what is not understood is counted.
A value counts only when something ends it (a comma, a newline): a number at the end of a cut line stays unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter

from workbench.parse.batch import MARKERS, read_batch
from workbench.parse.blocks import Skeletons, lines_of
from workbench.parse.counts import CountsBuilder
from workbench.parse.events import TRIGGER, quotes_requests, read_event
from workbench.parse.facts import FactsBuilder
from workbench.parse.lines import NO_HEAD, Head, clean_text, find_head, line_blocks, split_pieces, undecodable
from workbench.parse.records import (
    DecodeRecord,
    EventKind,
    LogEvent,
    LogKind,
    ParseCounts,
    PrefillRecord,
    Record,
    StartupFacts,
    VllmEngineRecord,
    VllmSpecRecord,
)
from workbench.parse.templates import PlainReader
from workbench.parse.vllm import ENGINE_MARKER, SPEC_MARKERS, read_engine, read_spec

__all__ = ["CountsBuilder", "FactsBuilder", "ServerLog", "describe_kind", "iter_records", "kind_of", "parse_log"]


@dataclass(frozen=True, slots=True)
class ServerLog:
    """A whole log in memory, records in the order of the lines."""

    kind: LogKind
    decode: tuple[DecodeRecord, ...]
    prefill: tuple[PrefillRecord, ...]
    events: tuple[LogEvent, ...]
    vllm_spec: tuple[VllmSpecRecord, ...]
    vllm_engine: tuple[VllmEngineRecord, ...]
    facts: StartupFacts
    counts: ParseCounts


def iter_records(chunks: Iterable[bytes], counts: CountsBuilder | None = None) -> Iterator[Record]:
    """Read records as they come. Memory does not depend on the size of the log or of its lines.

    Parameters
    ----------
    chunks
        The log in pieces of any size, cut anywhere.
    counts
        Raised while reading; ask it when the iteration has ended.
    """
    builder = counts if counts is not None else CountsBuilder()
    plain, skeletons = PlainReader(), Skeletons(_is_access)
    for piece in line_blocks(chunks, builder):
        if len(piece) == 3:
            yield from _read_block(*piece, plain, skeletons, builder)
        else:
            yield from _read_line(*piece, plain, builder)


def _read_block(
    number: int, offset: int, data: bytes, plain: PlainReader, skeletons: Skeletons, counts: CountsBuilder
) -> Iterator[Record]:
    """Records of whole lines, of which the first has this number and offset."""
    lines = lines_of(data)
    batches, places = skeletons.split(lines)
    records = (record for batch in batches for record in batch.records(offset, number, lines.starts))
    together = sorted(records, key=itemgetter(0))
    next_one = iter(together)
    waiting = next(next_one, None)
    for place in places.tolist():
        while waiting is not None and waiting[0] < place:
            _count(waiting[1], counts)
            yield waiting[1]
            waiting = next(next_one, None)
        start = int(lines.starts[place])
        yield from _read_line(number + place, offset + start, lines.line(place), True, plain, counts)
    while waiting is not None:
        _count(waiting[1], counts)
        yield waiting[1]
        waiting = next(next_one, None)


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


def _is_access(raw: bytes) -> bool:
    return _ACCESS.match(raw) is not None


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


def kind_of(record: Record) -> LogKind | None:
    """Whose log a record shows, None for a line that any program may print. SGLang's word counts more than vLLM's."""
    if isinstance(record, VllmSpecRecord | VllmEngineRecord):
        return LogKind.VLLM
    return None if isinstance(record, LogEvent) and record.kind not in _SGLANG_ONLY else LogKind.SGLANG


def parse_log(data: bytes | str | Iterable[bytes]) -> ServerLog:
    """Read a whole log into memory."""
    if isinstance(data, str):
        data = data.encode("utf-8", "replace")
    chunks: Iterable[bytes] = (data,) if isinstance(data, bytes) else data
    counts, facts = CountsBuilder(), FactsBuilder()
    decode: list[DecodeRecord] = []
    prefill: list[PrefillRecord] = []
    events: list[LogEvent] = []
    vllm_spec: list[VllmSpecRecord] = []
    vllm_engine: list[VllmEngineRecord] = []
    kind = LogKind.UNKNOWN
    for record in iter_records(chunks, counts):
        facts.feed(record)
        kind = kind if kind is LogKind.SGLANG else kind_of(record) or kind
        match record:
            case DecodeRecord():
                decode.append(record)
            case PrefillRecord():
                prefill.append(record)
            case LogEvent():
                events.append(record)
            case VllmSpecRecord():
                vllm_spec.append(record)
            case VllmEngineRecord():
                vllm_engine.append(record)
    return ServerLog(
        kind=kind,
        decode=tuple(decode),
        prefill=tuple(prefill),
        events=tuple(events),
        vllm_spec=tuple(vllm_spec),
        vllm_engine=tuple(vllm_engine),
        facts=facts.facts(),
        counts=counts.counts(),
    )


_SGLANG_ONLY = frozenset(
    {EventKind.SERVER_ARGS, EventKind.READY, EventKind.WEIGHTS, EventKind.CAPACITY, EventKind.FLUSH}
)
_FATAL = (
    EventKind.OOM,
    EventKind.NCCL,
    EventKind.WATCHDOG,
    EventKind.CHILD_DEATH,
    EventKind.EXCEPTION,
)


def describe_kind(log: ServerLog) -> str:
    """One sentence for a log without any decode line: what it looks like, and what to look for."""
    if log.decode:
        return f"An SGLang server log with {len(log.decode)} decode lines."
    if log.counts.bytes == 0:
        return "The log is empty: look for the file that the server's stderr was written to."
    if log.kind is LogKind.VLLM:
        return _describe_vllm(log)
    if log.kind is LogKind.SGLANG:
        return _describe_sglang(log)
    looks = f"looks like {log.counts.hint}" if log.counts.hint else "looks like no server log that is known here"
    return (
        f"The text {looks} and has no decode line: look for the stderr of sglang.launch_server, "
        "with lines that hold 'Decode batch'."
    )


def _describe_vllm(log: ServerLog) -> str:
    if log.vllm_spec:
        return f"A vLLM server log with {len(log.vllm_spec)} lines about speculation and no SGLang decode line."
    return "A vLLM server log without speculation: look for lines that hold 'SpecDecoding metrics'."


def _describe_sglang(log: ServerLog) -> str:
    fatal = next((event for event in log.events if event.kind in _FATAL), None)
    if fatal is not None:
        return (
            f"An SGLang server log that holds an error (line {fatal.line}: {fatal.text[:160]!r}) and no decode line: "
            "look at that line first."
        )
    if log.facts.ready_line is None:
        return (
            "The start of an SGLang server log that never says it is ready: "
            "look for the rest of it, or for why the process ended."
        )
    return (
        f"An SGLang server log that is ready at line {log.facts.ready_line} but has no decode line: one is printed "
        "every 40 decode steps (--decode-log-interval), so look for a longer run or a log level of info."
    )
