"""Server logs of SGLang 0.3.6 to 0.5.23, and vLLM's speculative lines: whose a log is, and all of it in memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from workbench.parse.counts import CountsBuilder
from workbench.parse.facts import FactsBuilder
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
from workbench.parse.stream import iter_records, iter_stretches
from workbench.parse.stretches import Stretch

__all__ = [
    "CountsBuilder",
    "FactsBuilder",
    "ServerLog",
    "describe_kind",
    "iter_records",
    "iter_stretches",
    "kind_of",
    "parse_log",
]


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


def kind_of(record: Record | Stretch) -> LogKind | None:
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
