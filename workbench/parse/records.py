"""Typed records that the parsers return. Plain data: no reading, no meaning beyond what the text says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class LogKind(StrEnum):
    """What a text looks like."""

    SGLANG = "sglang"
    VLLM = "vllm"
    UNKNOWN = "unknown"


class RateDefinition(StrEnum):
    """What a printed ``accept rate`` means (L accept length, S steps, N draft tokens, root included)."""

    L_OVER_S_PLUS_1 = "L/(S+1)"
    L_OVER_N = "L/N"
    DRAFTS_OVER_N_MINUS_1 = "(L-1)/(N-1)"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class DecodeRecord:
    """One decode line. ``None`` means: not in the line, or cut off.

    ``offset`` is the byte offset of the physical line in the (decompressed) log, ``line`` its number from 1.
    ``ranks`` holds tags such as ``{"TP0", "DP1"}``. ``tokens`` and ``token_usage`` are the first (full) pool's.
    ``extra`` keeps every key that has no field here, as printed.
    ``layout`` is the shape of the line: the mark after ``batch``, the keys in printed order, the mark at the end
    (``","``, ``""``, or ``"?"`` when the line was cut).
    """

    line: int
    offset: int
    time: datetime | None
    ranks: frozenset[str]
    running_req: int | None = None
    queue_req: int | None = None
    tokens: int | None = None
    token_usage: float | None = None
    accept_len: float | None = None
    accept_rate: float | None = None
    cuda_graph: bool | None = None
    gen_tok_per_s: float | None = None
    iteration: int | None = None
    truncated: bool = False
    extra: Mapping[str, str] = field(default_factory=dict)
    layout: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PrefillRecord:
    """One prefill line; fields as in `DecodeRecord`."""

    line: int
    offset: int
    time: datetime | None
    ranks: frozenset[str]
    new_seq: int | None = None
    new_tokens: int | None = None
    cached_tokens: int | None = None
    running_req: int | None = None
    queue_req: int | None = None
    token_usage: float | None = None
    input_tok_per_s: float | None = None
    cuda_graph: bool | None = None
    iteration: int | None = None
    truncated: bool = False
    extra: Mapping[str, str] = field(default_factory=dict)
    layout: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VllmSpecRecord:
    """One vLLM speculative metrics line.

    ``mean_acceptance_length`` includes the bonus token, as SGLang's accept len does. ``draft_acceptance_rate`` is a
    fraction from 0 to 1, however it was printed. vLLM's own stamps have no year: ``time`` is None unless something
    before them does.
    """

    line: int
    offset: int
    time: datetime | None
    mean_acceptance_length: float | None = None
    draft_acceptance_rate: float | None = None
    accepted_tokens: int | None = None
    drafted_tokens: int | None = None
    per_position_rate: tuple[float, ...] = ()
    truncated: bool = False
    extra: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class VllmEngineRecord:
    """One vLLM ``Engine NNN: Avg prompt throughput`` line. ``kv_usage`` is a fraction from 0 to 1."""

    line: int
    offset: int
    time: datetime | None
    prompt_tok_per_s: float | None = None
    gen_tok_per_s: float | None = None
    running_req: int | None = None
    queue_req: int | None = None
    kv_usage: float | None = None
    truncated: bool = False


class EventKind(StrEnum):
    """What else a server log says that matters."""

    READY = "ready"
    SERVER_ARGS = "server_args"
    EMBEDDED = "embedded_engine"
    WEIGHTS = "weights"
    KV_CACHE = "kv_cache"
    CAPACITY = "capacity"
    GRAPH_CAPTURE = "graph_capture"
    ADJUSTMENT = "adjustment"
    FLUSH = "flush"
    OOM = "oom"
    RETRACTION = "retraction"
    WATCHDOG = "watchdog"
    NCCL = "nccl"
    CHILD_DEATH = "child_death"
    EXCEPTION = "exception"
    REQUEST_ERROR = "request_error"


@dataclass(frozen=True, slots=True)
class LogEvent:
    """A line that is neither decode nor prefill but says something; ``text`` is cut at 2,000 characters.

    ``fields`` are as printed; ``truncated`` says that some of them are missing because the line was cut.
    """

    kind: EventKind
    line: int
    offset: int
    time: datetime | None
    ranks: frozenset[str]
    text: str
    fields: Mapping[str, str] = field(default_factory=dict)
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class WeightBlock:
    """One ``Load weight end`` line; the second one of a rank is the draft's."""

    line: int
    type: str | None
    dtype: str | None
    quant: str | None
    mem_usage_gb: float | None


@dataclass(frozen=True, slots=True)
class StartupFacts:
    """What the log says about the server, first statement wins. ``None`` or empty means: the log does not say.

    ``server_args`` maps argument names to plain Python values (literals only; anything else stays a string).
    ``weights`` are in order of printing, of the first rank that printed any: target first, draft second.
    ``draft_tokens_effective`` is what the server really uses, after its own rewriting.
    ``version_bracket`` is the closed range of SGLang versions in which these lines are possible, ``version_evidence``
    what sets its ends. ``draft_tokens_source`` is ``"server_args"``, ``"graph capture"`` or ``"accept rate"``.
    ``server_starts`` counts server_args lines: above 1, several logs were written to one file.
    ``is_embedded`` says that it is the workbench's own engine, which prints SGLang's lines.
    """

    server_args: Mapping[str, object] = field(default_factory=dict)
    server_args_line: int | None = None
    weights: tuple[WeightBlock, ...] = ()
    max_running_requests: int | None = None
    max_total_num_tokens: int | None = None
    context_len: int | None = None
    ready_line: int | None = None
    graph_captures: int = 0
    adjustments: tuple[LogEvent, ...] = ()
    num_steps: int | None = None
    eagle_topk: int | None = None
    draft_tokens_effective: int | None = None
    rate_definition: RateDefinition = RateDefinition.UNKNOWN
    version_bracket: tuple[str, str] | None = None
    version_evidence: tuple[str, ...] = ()
    draft_tokens_source: str | None = None
    server_starts: int = 0
    is_embedded: bool = False


@dataclass(frozen=True, slots=True)
class ParseCounts:
    """What was read and what was not understood. ``hint`` is what the beginning of the text looks like."""

    lines: int = 0
    bytes: int = 0
    decode: int = 0
    prefill: int = 0
    truncated: int = 0
    undecodable_bytes: int = 0
    unparsed_batch_lines: int = 0
    overlong_lines: int = 0
    hint: str = ""


Record = DecodeRecord | PrefillRecord | VllmSpecRecord | VllmEngineRecord | LogEvent
