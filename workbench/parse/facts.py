"""What a log says about the server as a whole, gathered while its records stream by. Memory is bounded."""

from __future__ import annotations

import re
from collections import Counter

from workbench.parse.arguments import literal
from workbench.parse.records import (
    DecodeRecord,
    EventKind,
    LogEvent,
    PrefillRecord,
    RateDefinition,
    Record,
    StartupFacts,
    WeightBlock,
)
from workbench.parse.stretches import Stretch
from workbench.sglang_rules import (
    RATE_DEFINITION_SPANS,
    EffectiveShape,
    RateReading,
    Span,
    bracket_versions,
    effective_shape,
    intersect,
    layout_features,
    read_rates,
    text_features,
)

MAX_PAIRS = 4096
MAX_PAIRS_READ = 128
MAX_KEPT = 256

_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")


class FactsBuilder:
    """Feed every record and stretch of a log in order; `facts` may be asked at any time. The first statement wins."""

    def __init__(self) -> None:
        self._args: dict[str, object] = {}
        self._args_line: int | None = None
        self._starts = 0
        self._later_start = False
        self._is_embedded = False
        self._weights: list[WeightBlock] = []
        self._weight_ranks: frozenset[str] | None = None
        self._capacity: dict[str, int] = {}
        self._reset_to: int | None = None
        self._ready_line: int | None = None
        self._captures = 0
        self._capture_ranks: frozenset[str] | None = None
        self._verify_tokens: int | None = None
        self._adjustments: list[LogEvent] = []
        self._adjustment_texts: set[str] = set()
        self._pairs: Counter[tuple[float, float]] = Counter()
        self._layouts: set[tuple[str, tuple[str, ...]]] = set()
        self._features: set[str] = set()

    def feed(self, record: Record | Stretch) -> None:
        if isinstance(record, Stretch):
            self._feed_stretch(record)
        elif isinstance(record, DecodeRecord):
            self._feed_decode(record)
        elif isinstance(record, PrefillRecord):
            self._feed_layout("prefill", record.layout)
        elif isinstance(record, LogEvent) and record.kind is not EventKind.REQUEST_ERROR:
            self._features |= text_features(record.text)
            self._feed_event(record)

    def facts(self) -> StartupFacts:
        layout_bracket = bracket_versions(self._features).versions
        shape = self._shape(layout_bracket)
        stated, source = self._stated_draft_tokens(shape)
        reading = self._read_rates(shape.num_steps, stated, layout_bracket)
        if stated is None and reading.draft_tokens is not None:
            stated, source = reading.draft_tokens, "accept rate"
        bracket = bracket_versions(self._features, reading.definition)
        capacity = self._capacity
        return StartupFacts(
            server_args=dict(self._args),
            server_args_line=self._args_line,
            weights=tuple(self._weights),
            max_running_requests=capacity.get("max_running_requests", self._reset_to),
            max_total_num_tokens=capacity.get("max_total_num_tokens"),
            context_len=capacity.get("context_len"),
            ready_line=self._ready_line,
            graph_captures=self._captures,
            adjustments=tuple(self._adjustments),
            num_steps=shape.num_steps,
            eagle_topk=shape.eagle_topk,
            draft_tokens_effective=stated,
            rate_definition=RateDefinition(reading.definition or RateDefinition.UNKNOWN),
            version_bracket=bracket.versions,
            version_evidence=bracket.evidence,
            draft_tokens_source=source,
            server_starts=self._starts,
            is_embedded=self._is_embedded,
        )

    # ---- batch lines -----------------------------------------------------------------------------------------------

    def _feed_decode(self, record: DecodeRecord) -> None:
        self._feed_layout("decode", record.layout)
        if record.accept_len is not None and record.accept_rate is not None:
            self._feed_pair((record.accept_len, record.accept_rate), 1)

    def _feed_stretch(self, stretch: Stretch) -> None:
        met = [
            (lines.first_line(place), name, kind.layout)
            for name, lines in (("decode", stretch.decode), ("prefill", stretch.prefill))
            for place, kind in lines.kinds_met()
        ]
        for _, name, layout in sorted(met):
            self._feed_layout(name, layout)
        for pair, count in stretch.decode.pairs("accept_len", "accept_rate").items():
            self._feed_pair(pair, count)

    def _feed_pair(self, pair: tuple[float, float], count: int) -> None:
        if pair in self._pairs or len(self._pairs) < MAX_PAIRS:
            self._pairs[pair] += count

    def _feed_layout(self, kind: str, layout: tuple[str, ...]) -> None:
        if (kind, layout) not in self._layouts and len(self._layouts) < MAX_KEPT:
            self._layouts.add((kind, layout))
            self._features |= layout_features(kind, layout)

    # ---- other lines -----------------------------------------------------------------------------------------------

    def _feed_event(self, event: LogEvent) -> None:
        if event.kind is EventKind.SERVER_ARGS:
            self._feed_args(event)
        elif event.kind is EventKind.ADJUSTMENT:
            self._feed_adjustment(event)
        elif self._later_start:
            return
        elif event.kind is EventKind.EMBEDDED:
            self._is_embedded = True
        elif event.kind is EventKind.WEIGHTS:
            self._feed_weights(event)
        elif event.kind is EventKind.CAPACITY:
            self._feed_capacity(event)
        elif event.kind is EventKind.GRAPH_CAPTURE:
            self._feed_capture(event)
        elif event.kind is EventKind.READY and self._ready_line is None:
            self._ready_line = event.line

    def _feed_args(self, event: LogEvent) -> None:
        self._starts += 1
        # Two nodes print their arguments one after the other; after weights were loaded it is another start.
        self._later_start = self._later_start or (self._starts > 1 and bool(self._weights))
        if self._args_line is None:
            self._args_line = event.line
            self._args = {name: literal(text) for name, text in event.fields.items()}

    def _feed_adjustment(self, event: LogEvent) -> None:
        if len(self._adjustments) < MAX_KEPT and event.text not in self._adjustment_texts:
            self._adjustments.append(event)
            self._adjustment_texts.add(event.text)
        if self._reset_to is None:
            self._reset_to = _whole(event.fields.get("max_running_requests"))

    def _feed_weights(self, event: LogEvent) -> None:
        if self._weight_ranks is None:
            self._weight_ranks = event.ranks
        if event.ranks != self._weight_ranks or len(self._weights) >= MAX_KEPT:
            return
        fields = event.fields
        self._weights.append(
            WeightBlock(
                line=event.line,
                type=fields.get("type"),
                dtype=fields.get("dtype"),
                quant=fields.get("quant"),
                mem_usage_gb=_number(fields.get("mem usage")),
            )
        )

    def _feed_capacity(self, event: LogEvent) -> None:
        for name in ("max_running_requests", "max_total_num_tokens", "context_len"):
            value = _whole(event.fields.get(name))
            if value is not None:
                self._capacity.setdefault(name, value)

    def _feed_capture(self, event: LogEvent) -> None:
        if self._capture_ranks is None:
            self._capture_ranks = event.ranks
        if event.fields.get("phase") == "end" and event.ranks == self._capture_ranks:
            self._captures += 1
        if event.fields.get("what") == "target verify" and self._verify_tokens is None:
            per_request = event.fields.get("num_tokens_per_bs", event.fields.get("num_tokens_per_req"))
            self._verify_tokens = _whole(per_request)

    # ---- inference -------------------------------------------------------------------------------------------------

    def _shape(self, bracket: Span | None) -> EffectiveShape:
        """The three numbers after the server's own rewriting, from server_args."""
        if not isinstance(self._args.get("speculative_algorithm"), str):
            return EffectiveShape(None, None, None)
        names = ("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens")
        steps, topk, draft_tokens = (_as_int(self._args.get(name)) for name in names)
        if steps is None and topk is None:
            return EffectiveShape(None, None, draft_tokens)
        return effective_shape(steps, topk, draft_tokens, bracket[1] if bracket else None)

    def _stated_draft_tokens(self, shape: EffectiveShape) -> tuple[int | None, str | None]:
        if shape.num_draft_tokens is not None:
            return shape.num_draft_tokens, "server_args"
        if self._verify_tokens is not None:
            return self._verify_tokens, "graph capture"
        return None, None

    def _read_rates(self, steps: int | None, draft_tokens: int | None, bracket: Span | None) -> RateReading:
        if not self._pairs:
            return RateReading(None, None)
        possible = tuple(
            name for name, span in RATE_DEFINITION_SPANS.items() if bracket is None or intersect((span,), (bracket,))
        )
        pairs = dict(self._pairs.most_common(MAX_PAIRS_READ))
        reading = read_rates(pairs, steps=steps, draft_tokens=draft_tokens, definitions=possible)
        if reading.definition is None and len(possible) == 1 and draft_tokens is None:
            return RateReading(possible[0], None)
        return reading


def _as_int(value: object) -> int | None:
    """A whole number of at most 18 digits, as everywhere else in a log."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if abs(value) < 10**18 else None


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 19 else None


def _number(text: str | None) -> float | None:
    match = _NUMBER.match(text) if text is not None else None
    return float(match[0]) if match is not None else None
