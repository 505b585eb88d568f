"""Everything else in a server log that matters: start-up lines, adjustments, errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from workbench.parse.arguments import split_arguments
from workbench.parse.lines import Head
from workbench.parse.records import EventKind, LogEvent

MAX_TEXT = 2000
MAX_READ = 4000
"""Of a longer message only the beginning is looked at, except for server_args."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """``triggers`` are the literal texts of which one stands in every line of this kind."""

    kind: EventKind
    pattern: re.Pattern[str]
    triggers: tuple[str, ...]


def _rule(kind: EventKind, pattern: str, *triggers: str) -> _Rule:
    return _Rule(kind, re.compile(pattern), triggers)


# The first rule that matches gives the kind.
_RULES: tuple[_Rule, ...] = (
    _rule(EventKind.SERVER_ARGS, r"server_args=(?:ServerArgs\(|\{)", "server_args="),
    _rule(EventKind.EMBEDDED, r"\AEmbedded engine of workbench ", "Embedded engine of workbench"),
    _rule(EventKind.READY, r"The server is fired up and ready to roll!", "fired up and ready"),
    _rule(EventKind.WEIGHTS, r"Load weight end\. (?=.*\btype=)", "Load weight end"),
    _rule(
        EventKind.KV_CACHE,
        r"KV [Cc]ache (?:is allocated|allocated|VA upper bound)\. ",
        *("KV Cache is", "KV cache allocated", "KV Cache VA"),
    ),
    _rule(EventKind.CAPACITY, r"(?=max_total_num_tokens=[0-9]+, )", "max_total_num_tokens="),
    _rule(EventKind.EXCEPTION, r"hit an exception|Capture .*graph failed", "hit an exception", "graph failed"),
    _rule(EventKind.GRAPH_CAPTURE, r"Capture .*graph (?:begin|end)\.? ?|Capture cuda graph bs ", "Capture "),
    _rule(EventKind.RETRACTION, r"Retract requests|#retracted_reqs", "Retract requests", "#retracted_reqs"),
    _rule(EventKind.FLUSH, r"Cache flushed successfully|Cache not flushed", "Cache flushed", "Cache not flushed"),
    _rule(
        EventKind.NCCL,
        r"Watchdog caught collective operation timeout|NCCL error|NCCL WARN|nccl\w+Error\b|ncclRemoteError",
        *("Watchdog caught", "NCCL error", "NCCL WARN", "ncclSystem", "ncclInternal", "ncclUnhandled", "ncclRemote"),
    ),
    _rule(EventKind.WATCHDOG, r"atchdog timeout \(|Health check failed\.", "atchdog timeout (", "Health check failed"),
    _rule(
        EventKind.CHILD_DEATH,
        r"Received sigquit from a child process|scheduler died during|crashed with exit code|exited during startup",
        *("sigquit from a child", "died during", "crashed with exit", "exited during startup"),
    ),
    _rule(
        EventKind.OOM,
        r"OutOfMemoryError|CUDA out of memory|Not enough memory\. Please try|out of memory\. Try to lower"
        r"|Out of memory: Killed|oom-kill",
        *("OutOfMemory", "out of memory", "Not enough memory", "Out of memory:", "oom-kill"),
    ),
    # The last line of a traceback stands alone, without a stamp.
    _rule(EventKind.EXCEPTION, r"\A[A-Za-z_][\w.]*(?:Error|Exception)(?::|\s*\Z)", "Error", "Exception"),
    _rule(
        EventKind.ADJUSTMENT,
        r"Max running requests is reset to|is adjusted|Overlap scheduler is disabled|[Ss]pec v[12] is (?:enabled|used)"
        r"|Mixed chunked prefill is disabled|Speculative token map specified|Overriding the draft model's"
        r"|speculative_adaptive disabled|Attention backend not |does not require setting speculative_draft"
        r"|Switch adaptive runtime state|Custom allreduce is disabled|Disable (?:\w+ )?(?:CUDA|cuda) graph"
        r"|(?:CUDA|Cuda|cuda) graph is disabled|greater than the derived context_length",
        *("is reset to", "is adjusted", "is disabled", "pec v1 is", "pec v2 is", "Speculative token map"),
        *("Overriding the draft", "adaptive disabled", "Attention backend not", "does not require setting"),
        *("Switch adaptive", "Disable ", "derived context_length"),
    ),
    _rule(EventKind.REQUEST_ERROR, r'"POST (\S+) HTTP/[0-9.]+" ([45][0-9]{2})\b', '" 4', '" 5'),
)

# Plain alternatives without groups: the regex engine then skips to possible first letters.
_TRIGGERS = sorted({re.escape(text) for rule in _RULES for text in rule.triggers})
_TRIGGER_TEXT = re.compile("|".join(_TRIGGERS))
TRIGGER = re.compile(_TRIGGER_TEXT.pattern.encode())
TRIGGER_DIGITS = re.compile("|".join(sorted({re.sub("[0-9]", "[0-9]+", text) for text in _TRIGGERS})).encode())
"""What would be a trigger, or would be none, with other digits."""

# What may stand before a message: Docker Compose, Kubernetes, Ray, a bare stamp, a level.
_PREFIX = re.compile(
    r"(?:[\w.-]+ +\| |\S+ (?:stdout|stderr) [FP] |\([^()]*pid=[^()]*\) |[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.,]+\S* )*"
)
_QUOTED = re.compile(r"(?:Receive|Finish): obj=")


def quotes_requests(message: str) -> bool:
    """Whether a message prints a request or a reply, whose text may look like anything."""
    return _QUOTED.search(message) is not None


def read_event(message: str, head: Head, line: int, offset: int) -> LogEvent | None:
    """The event of a message (the text after its stamp), None when it says nothing of interest."""
    if _TRIGGER_TEXT.search(message, 0, MAX_READ) is None:
        return None
    prefix = _PREFIX.match(message[:MAX_READ])
    message = message[prefix.end() if prefix is not None else 0 :]
    beginning = message[:MAX_READ]
    for rule in _RULES:
        match = rule.pattern.search(beginning)
        if match is not None:
            fields, cut = _fields(rule.kind, message, match)
            text = beginning.strip()[:MAX_TEXT]
            return LogEvent(rule.kind, line, offset, head.time, head.ranks, text, fields, truncated=cut)
    return None


# ---- fields -------------------------------------------------------------------------------------------------------

_ASSIGNMENT = re.compile(
    r"([A-Za-z#][\w#+/-]*(?: [\w#+/-]+)*)(?:=|: )(\[[^\]]*\]|[^,\s\[]+(?: (?:GB|MB|s)\b)?)(?=\.?[,\s]|\. )"
)
_PAIRED = frozenset({EventKind.WEIGHTS, EventKind.KV_CACHE, EventKind.CAPACITY, EventKind.GRAPH_CAPTURE})
_RESET = re.compile(r"Max running requests is reset to ([0-9]+) for")
_SWITCH = re.compile(r"steps ([0-9]+) -> ([0-9]+), draft_tokens ([0-9]+) -> ([0-9]+)(?=\D)")
_RETRACTED = re.compile(r"#retracted_reqs: ([0-9]+)(?=[,\s])")
_RANK = re.compile(r"\[Rank ([0-9]+)\]")
_OP = re.compile(r"OpType=(\w+)(?=,)")
_EXIT = re.compile(r"exit code:? (-?[0-9]+)(?=[\s.)])")
_WHAT = re.compile(r"Capture (.*?) ?(?:CUDA|cuda) graph (begin|end|bs)")


def _fields(kind: EventKind, message: str, match: re.Match[str]) -> tuple[dict[str, str], bool]:
    """What the message says in numbers, and whether its end is missing."""
    if kind is EventKind.SERVER_ARGS:
        arguments, whole = split_arguments(message, match.end())
        return arguments, not whole
    if kind is EventKind.REQUEST_ERROR:
        return {"path": match[1], "status": match[2]}, False
    message = message[:MAX_READ]
    if kind not in _PAIRED:
        return dict(_numbers(kind, message)), False
    fields = dict(_capture_fields(message)) if kind is EventKind.GRAPH_CAPTURE else {}
    rest = message[match.end() :]
    ended = rest.endswith(("\n", "\r"))
    # Without a newline the last pair may be cut, unit and all.
    for key, value in _ASSIGNMENT.findall(rest if ended else rest[: rest.rfind(",") + 1]):
        fields[key] = value.rstrip(".")
    return fields, not ended


def _capture_fields(message: str) -> Iterator[tuple[str, str]]:
    found = _WHAT.search(message)
    if found is not None:
        yield from (("what", found[1] or "target"), ("phase", found[2]))


def _numbers(kind: EventKind, message: str) -> Iterator[tuple[str, str]]:
    patterns: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = {
        EventKind.ADJUSTMENT: (
            (_RESET, ("max_running_requests",)),
            (_SWITCH, ("steps_before", "steps", "draft_tokens_before", "draft_tokens")),
        ),
        EventKind.RETRACTION: ((_RETRACTED, ("num_requests",)),),
        EventKind.NCCL: ((_RANK, ("rank",)), (_OP, ("op_type",))),
        EventKind.CHILD_DEATH: ((_EXIT, ("exit_code",)),),
    }.get(kind, ())
    for pattern, names in patterns:
        found = pattern.search(message)
        if found is not None:
            yield from zip(names, found.groups(), strict=True)
