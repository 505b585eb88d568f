"""How SGLang's log lines looked, by version: what a line's shape says about the version that printed it.

A layout is what the parser keeps of a batch line besides its values: the mark after ``batch``, the keys in printed
order, the mark at the end (``","``, ``""``, or ``"?"`` for a line that was cut). Each observed feature allows some
ranges of versions; the bracket is what all of them allow.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from workbench.sglang_rules.rates import RATE_DEFINITION_SPANS, RATE_L_OVER_N, RATE_L_OVER_S_PLUS_1
from workbench.sglang_rules.versions import FIRST_VERSION, LATEST_VERSION, Span, intersect, version_key

CUT = "?"


def _since(version: str) -> tuple[Span, ...]:
    return ((version, LATEST_VERSION),)


def _until(version: str) -> tuple[Span, ...]:
    return ((FIRST_VERSION, version),)


# Features of a batch line that are not single keys.
LAYOUT_SPANS: Mapping[str, tuple[Span, ...]] = {
    "batch line: full stop after 'batch'": _until("0.5.3.post3"),
    "batch line: comma after 'batch'": _since("0.5.4"),
    "batch line: comma after 'batch', no iteration number": _since("0.5.4.post1"),
    "decode line ends with a comma": (("0.4.3", "0.4.5"), ("0.4.9.post3", "0.5.8")),
    "decode line ends without a comma": (("0.3.6", "0.4.2"), ("0.4.6", "0.4.9.post1"), ("0.5.9", LATEST_VERSION)),
    "decode line has a graph flag": _since("0.4.6.post5"),
    "decode line has no graph flag": _until("0.4.6"),
    "decode line has an accept length": _since("0.4.1.post7"),
    "decode line has an accept length but no accept rate": (("0.4.1.post7", "0.5.3.post1"),),
    "decode line has an accept rate": _since("0.5.3.post2"),
    "prefill line has a graph flag": _since("0.5.9"),
    "prefill line has no graph flag": _until("0.5.8"),
    "prefill line: throughput before graph flag": (("0.5.9", "0.5.9"),),
    "prefill line: graph flag before throughput": _since("0.5.10"),
    "prefill line has #pending-token": _since("0.5.11"),
    "prefill line has no #pending-token": _until("0.5.10"),
    "prefill line has a cache hit rate": _until("0.4.2"),
    "prefill line has no cache hit rate": _since("0.4.3"),
}

# Keys that came, and some that went, in batch lines of either kind.
KEY_SPANS: Mapping[str, tuple[Span, ...]] = {
    "largest-len": (("0.4.3", "0.4.4"),),
    "timestamp": (("0.4.9.post1", "0.4.9.post1"),),
    "pre-allocated usage": _since("0.4.6"),
    "#retracted-req": _since("0.4.8"),
    "#prealloc-req": _since("0.5.3"),
    "#transfer-req": _since("0.5.3"),
    "#inflight-req": _since("0.5.3"),
    "#bootstrap-req": _since("0.5.12"),
    "#optimistic-req": _since("0.5.16"),
    "#host-receive-req": _since("0.5.21"),
    "#replay-token": _since("0.5.21"),
    "#token full": (("0.4.9", "0.4.9.post1"),),
    "#full token": _since("0.4.9.post3"),
    "mamba num": _since("0.5.3.post2"),
    "#gpu token": _since("0.5.13"),
    "cpu graph": _since("0.5.2"),
    "npu graph": _since("0.5.9"),
    "musa graph": _since("0.5.9"),
    "waiting-image-req": _since("0.5.9"),
    "est. decode TFLOPS/s (per GPU)": _since("0.5.10"),
    "est. prefill TFLOPS/s (per GPU)": _since("0.5.10"),
    "fwd occupancy": _since("0.5.11"),
    "fwd+idle occupancy": _since("0.5.21"),
    "cap len": _since("0.5.16"),
    "block accept len": _since("0.5.16"),
}

# Texts of other lines.
EVENT_SPANS: tuple[tuple[str, re.Pattern[str], tuple[Span, ...]], ...] = tuple(
    (name, re.compile(pattern), spans)
    for name, pattern, spans in (
        ("server_args=ServerArgs(...)", r"server_args=ServerArgs\(", _until("0.5.18")),
        ("server_args={...}", r"server_args=\{", _since("0.5.19")),
        ("'Load weight end' with elapsed=", r"Load weight end\. elapsed=", _since("0.5.9")),
        ("'Load weight end' with quant=", r"Load weight end\. .*\bquant=", _since("0.5.10")),
        ("'Post-capture KV sizing'", r"Post-capture KV sizing|KV Cache VA upper bound", _since("0.5.17")),
        ("'graph end' with elapsed=", r"CUDA graph end\. (?:bs=\[[^\]]*\], )?elapsed=", _since("0.5.14")),
        ("'graph end' with Time elapsed:", r"graph end\. Time elapsed:", (("0.4.3", "0.5.13"),)),
        ("'Max running requests is reset'", r"Max running requests is reset to", _since("0.5.4")),
        ("'Spec v2 is enabled'", r"Spec v2 is enabled", (("0.5.7", "0.5.12"),)),
        ("'Spec v1 is used'", r"Spec v1 is used", (("0.5.11", "0.5.12"),)),
        ("'Non-overlap (synchronous) spec v2'", r"Non-overlap \(synchronous\) spec v2", _since("0.5.13")),
        ("'eagle_topk is adjusted to 1'", r"speculative_eagle_topk is adjusted to 1 when", (("0.4.6", "0.4.8"),)),
        ("'Scheduler watchdog timeout'", r"Scheduler watchdog timeout", _since("0.5.7")),
        ("'Watchdog timeout (self.'", r"Watchdog timeout \(self\.", _until("0.5.6")),
        ("'Decode out of memory happened'", r"Decode out of memory happened", _until("0.4.6.post5")),
        ("'crashed with exit code'", r"Subprocess .* crashed with exit code", _since("0.5.10")),
    )
)


@dataclass(frozen=True, slots=True)
class Bracket:
    """The closed range of possible versions, and the features that set its ends.

    ``versions`` is None when nothing was observed or when the features contradict each other, as in a log that
    several versions wrote.
    """

    versions: Span | None
    evidence: tuple[str, ...]


def bracket_versions(features: Collection[str], rate_definition: str | None = None) -> Bracket:
    """Intersect what all features allow. ``rate_definition`` is what the printed accept rates turned out to mean."""
    allowed = {name: _spans_of(name) for name in sorted(features)}
    if rate_definition is not None and rate_definition in RATE_DEFINITION_SPANS:
        allowed[f"accept rate is {rate_definition}"] = _definition_spans(rate_definition)
    left: tuple[Span, ...] = ((FIRST_VERSION, LATEST_VERSION),)
    for spans in allowed.values():
        left = intersect(left, spans)
    if not allowed or not left:
        return Bracket(None, ())
    since = min((span[0] for span in left), key=version_key)
    until = max((span[1] for span in left), key=version_key)
    ends = {since, until} - {FIRST_VERSION, LATEST_VERSION}
    evidence = tuple(name for name, spans in allowed.items() if any(end in span for span in spans for end in ends))
    return Bracket((since, until), evidence)


def _definition_spans(definition: str) -> tuple[Span, ...]:
    # L/N is also what L/(S+1) looks like when N = S + 1.
    if definition == RATE_L_OVER_N:
        return ((RATE_DEFINITION_SPANS[RATE_L_OVER_S_PLUS_1][0], RATE_DEFINITION_SPANS[RATE_L_OVER_N][1]),)
    return (RATE_DEFINITION_SPANS[definition],)


def _spans_of(feature: str) -> tuple[Span, ...]:
    if feature in LAYOUT_SPANS:
        return LAYOUT_SPANS[feature]
    if feature.startswith("key "):
        return KEY_SPANS[feature.removeprefix("key ")]
    return next(spans for name, _, spans in EVENT_SPANS if name == feature)


def text_features(text: str) -> frozenset[str]:
    """The features of a line that is not a batch line."""
    return frozenset(name for name, pattern, _ in EVENT_SPANS if pattern.search(text))


def layout_features(kind: str, layout: tuple[str, ...]) -> frozenset[str]:
    """The features of a batch line; ``kind`` is ``"decode"`` or ``"prefill"``. A cut line shows what it has only."""
    if len(layout) < 2:
        return frozenset()
    mark, *keys, end = layout
    found = {f"key {key}" for key in keys if key in KEY_SPANS}
    found.update(_mark_features(mark, keys))
    found.update(_decode_features(keys, end) if kind == "decode" else _prefill_features(keys, end))
    return frozenset(found)


def _mark_features(mark: str, keys: Collection[str]) -> Iterable[str]:
    if mark == ".":
        yield "batch line: full stop after 'batch'"
    elif mark == "," and "iteration" in keys:
        yield "batch line: comma after 'batch'"
    elif mark == ",":
        yield "batch line: comma after 'batch', no iteration number"


def _has_graph_flag(keys: Iterable[str]) -> bool:
    return any(key.endswith(" graph") for key in keys)


def _decode_features(keys: Collection[str], end: str) -> Iterable[str]:
    if _has_graph_flag(keys):
        yield "decode line has a graph flag"
    if "accept rate" in keys:
        yield "decode line has an accept rate"
    elif "accept len" in keys and end != CUT:
        yield "decode line has an accept length but no accept rate"
    elif "accept len" in keys:
        yield "decode line has an accept length"
    if end == CUT:
        return
    if not _has_graph_flag(keys):
        yield "decode line has no graph flag"
    yield "decode line ends with a comma" if end == "," else "decode line ends without a comma"


def _prefill_features(keys: Collection[str], end: str) -> Iterable[str]:
    order = list(keys)
    graph = next((i for i, key in enumerate(order) if key.endswith(" graph")), None)
    speed = next((i for i, key in enumerate(order) if key.startswith("input throughput")), None)
    if graph is not None:
        yield "prefill line has a graph flag"
    if graph is not None and speed is not None:
        before = graph < speed
        yield f"prefill line: {'graph flag before throughput' if before else 'throughput before graph flag'}"
    if "#pending-token" in keys:
        yield "prefill line has #pending-token"
    if "cache hit rate" in keys:
        yield "prefill line has a cache hit rate"
    if end == CUT:
        return
    if graph is None:
        yield "prefill line has no graph flag"
    if "#pending-token" not in keys:
        yield "prefill line has no #pending-token"
    if "cache hit rate" not in keys:
        yield "prefill line has no cache hit rate"
