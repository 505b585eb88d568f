"""A server's ``/metrics`` text, and the accept length between two readings of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

Labels = tuple[tuple[str, str], ...]

_SAMPLE = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?[0-9]+)?\s*", re.ASCII)
_LABEL = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"(?:,\s*|$)', re.ASCII)
_ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}
_ESCAPE = re.compile(r'\\[\\"n]')

TOKENS = "sglang:generation_tokens_total"
VERIFY_CALLS = "sglang:spec_verify_calls_total"
# The first one present counts the finished requests; both are raised together with the tokens.
FINISHED = ("sglang:num_requests_total", "sglang:e2e_request_latency_seconds_count")


@dataclass(frozen=True, slots=True)
class MetricsText:
    """Samples by name, then by labels sorted by name. ``unread_lines`` are neither samples nor comments."""

    samples: Mapping[str, Mapping[Labels, float]]
    unread_lines: int = 0

    def total(self, name: str) -> float | None:
        """Sum over all labels, None when the metric is absent."""
        found = self.samples.get(name)
        return sum(found.values()) if found else None


@dataclass(frozen=True, slots=True)
class CounterWindow:
    """What the counters gained between two readings. None: absent, or lower than before (the server restarted)."""

    generation_tokens: float | None
    requests: float | None
    verify_calls: float | None

    @property
    def accept_length(self) -> float | None:
        """(tokens - requests) / verify calls: the first token of a request comes from its prefill.

        All three counters are raised when a request finishes, so both readings must be taken while the server idles.
        """
        if self.generation_tokens is None or self.requests is None or not self.verify_calls:
            return None
        return (self.generation_tokens - self.requests) / self.verify_calls


def parse_metrics(text: str, beginning: tuple[str, ...] = ("",)) -> MetricsText:
    """Read Prometheus text, or the lines of it that begin so. Histograms appear as the samples they consist of."""
    samples: dict[str, dict[Labels, float]] = {}
    unread = 0
    for line in text.splitlines():
        if not line.startswith(beginning) or not line.strip() or line.startswith("#"):
            continue
        match = _SAMPLE.fullmatch(line)
        value = _value(match[3]) if match is not None else None
        labels = _labels(match[2] or "") if match is not None else None
        if match is None or value is None or labels is None:
            unread += 1
        else:
            samples.setdefault(match[1], {})[labels] = value
    return MetricsText(samples, unread)


def _value(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _labels(text: str) -> Labels | None:
    found: list[tuple[str, str]] = []
    position = 0
    while position < len(text):
        match = _LABEL.match(text, position)
        if match is None:
            return None
        found.append((match[1], _ESCAPE.sub(lambda escape: _ESCAPES[escape[0]], match[2])))
        position = match.end()
    return tuple(sorted(found))


def gain(before: MetricsText, after: MetricsText, name: str) -> float | None:
    """What a counter gained, over all labels. A label set that is new counts from zero."""
    old, new = before.samples.get(name, {}), after.samples.get(name)
    if not new:
        return None
    gains = [value - old.get(labels, 0.0) for labels, value in new.items()]
    lost = any(labels not in new for labels in old)
    return None if lost or not all(isfinite(part) and part >= 0 for part in gains) else sum(gains)


def counters_between(before: str, after: str) -> CounterWindow:
    """What the counters of two ``/metrics`` texts say about the time between them."""
    # A server has hundreds of other samples, most of them buckets of histograms.
    wanted = (TOKENS, VERIFY_CALLS, *FINISHED)
    first, second = parse_metrics(before, wanted), parse_metrics(after, wanted)
    finished = next((name for name in FINISHED if name in second.samples), FINISHED[0])
    return CounterWindow(
        generation_tokens=gain(first, second, TOKENS),
        requests=gain(first, second, finished),
        verify_calls=gain(first, second, VERIFY_CALLS),
    )


def accept_length_between(before: str, after: str) -> float | None:
    """Accept length from the counters of two ``/metrics`` texts; None when they do not hold it."""
    return counters_between(before, after).accept_length
