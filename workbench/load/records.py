"""What a load leaves behind: one record a request, and the speeds that follow from the records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Self

from workbench.load.answer import Answer

NOT_SENT = "not sent"
_DIGITS = 6


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request. Times are seconds by the client's monotonic clock, from the start of the load.

    ``arrivals`` is empty unless streamed: seconds since the request was sent, and completion tokens received by then,
    for every event that brought tokens. ``error`` is ``kind: detail``; a failed request has no figures but its times.
    """

    prompt_index: int
    repeat: int
    started_s: float
    finished_s: float
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    spec_verify_ct: int | None = None
    spec_correct_drafts_histogram: tuple[int, ...] | None = None
    e2e_latency_s: float | None = None
    finish_reason: str | None = None
    text_hash: str | None = None
    output_ids: tuple[int, ...] | None = None
    arrivals: tuple[tuple[float, int], ...] = ()
    error: str | None = None

    def with_answer(self, answer: Answer, *, token_ids: bool) -> Self:
        """This record and what the server said."""
        return replace(
            self,
            prompt_tokens=answer.count("prompt_tokens"),
            completion_tokens=answer.count("completion_tokens"),
            cached_tokens=answer.count("cached_tokens"),
            spec_verify_ct=answer.count("spec_verify_ct"),
            spec_correct_drafts_histogram=answer.histogram,
            e2e_latency_s=answer.e2e_latency_s,
            finish_reason=answer.finish_reason,
            text_hash=answer.text_hash,
            output_ids=tuple(answer.output_ids) if token_ids and answer.output_ids is not None else None,
            arrivals=tuple(answer.arrivals),
        )

    @property
    def ok(self) -> bool:
        return self.error is None

    @property
    def latency_s(self) -> float:
        """From sending to the last byte."""
        return self.finished_s - self.started_s

    @property
    def ttft_s(self) -> float | None:
        """From sending to the first event with a token; ``None`` unless streamed."""
        return self.arrivals[0][0] if self.arrivals else None

    @property
    def itl_s(self) -> tuple[float, ...]:
        """Time between tokens, one figure a token: an event with n tokens counts as n gaps of an n-th of the wait."""
        gaps: list[float] = []
        for (before, seen), (now, tokens) in zip(self.arrivals, self.arrivals[1:], strict=False):
            gaps += [(now - before) / (tokens - seen)] * (tokens - seen)
        return tuple(gaps)

    def as_json(self) -> dict[str, object]:
        """A line of ``requests.jsonl``: what is known, seconds to the microsecond."""
        line = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "arrivals"}
        line |= {"latency_s": self.latency_s, "ttft_s": self.ttft_s, "itl_s": self.itl_s if self.arrivals else None}
        return {name: _json(value) for name, value in line.items() if value is not None}


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The records of one load in the order of sending, failed ones included.

    Attributes
    ----------
    wall_s
        From the first request sent to the last answer.
    busy_window_s
        How long all slots had a request; ``None`` with fewer requests than slots.
    decode_tok_per_s
        Tokens a second in that window, see `decode_speed`.
    output_tok_per_s
        Tokens of all finished requests over ``wall_s``; ``None`` when none finished.
    client_cpu_share
        Processor time of the client over ``wall_s``. Near 1 the client was the limit, not the server.
    """

    records: tuple[RequestRecord, ...]
    wall_s: float
    decode_tok_per_s: float | None
    output_tok_per_s: float | None
    busy_window_s: float | None
    client_cpu_share: float

    @property
    def failures(self) -> Counter[str]:
        """Failed requests by kind."""
        return Counter(record.error.partition(":")[0] for record in self.records if record.error is not None)

    @property
    def gave_up(self) -> bool:
        """Nothing finished, or so many requests failed in a row that the rest was not sent."""
        return NOT_SENT in self.failures or not any(record.ok for record in self.records)


def summarise(records: Sequence[RequestRecord], concurrency: int, client_cpu_s: float) -> LoadResult:
    """Speeds of a load from its records."""
    wall = max((r.finished_s for r in records), default=0.0) - min((r.started_s for r in records), default=0.0)
    tokens = [record.completion_tokens for record in records if record.ok and record.completion_tokens is not None]
    window = busy_window(records, concurrency)
    return LoadResult(
        records=tuple(records),
        wall_s=wall,
        decode_tok_per_s=decode_speed(records, concurrency),
        output_tok_per_s=sum(tokens) / wall if tokens and wall > 0 else None,
        busy_window_s=window[1] - window[0] if window else None,
        client_cpu_share=client_cpu_s / wall if wall > 0 else 0.0,
    )


def busy_window(records: Sequence[RequestRecord], concurrency: int) -> tuple[float, float] | None:
    """When all slots had a request: from the start of the C-th to the first answer that no request follows.

    The moments between an answer and the next request of its slot belong to it.
    """
    if len(records) < concurrency:
        return None
    start = sorted(record.started_s for record in records)[concurrency - 1]
    end = sorted(record.finished_s for record in records)[len(records) - concurrency]
    return (start, end) if end > start else None


def decode_speed(records: Sequence[RequestRecord], concurrency: int) -> float | None:
    """Tok/s while all slots are busy; ``None`` when they never are, or when nothing finished.

    One request at a time and streamed, the time to the first event and the tokens in it are left out. In every other
    case the tokens of the busy window are counted: by their arrivals when streamed, else as if they had come evenly
    over the request. Failed requests give no tokens, but the time that they held a slot counts.
    """
    good = [record for record in records if record.ok and record.completion_tokens]
    if concurrency == 1 and good and all(record.arrivals for record in good):
        tokens = sum((record.completion_tokens or 0) - record.arrivals[0][1] for record in good)
        seconds = sum(record.latency_s - record.arrivals[0][0] for record in good)
        return tokens / seconds if tokens > 0 and seconds > 0 else None
    window = busy_window(records, concurrency)
    if window is None or not good:
        return None
    return sum(_tokens_within(record, *window) for record in good) / (window[1] - window[0])


def _tokens_within(record: RequestRecord, start: float, end: float) -> float:
    if record.arrivals:
        return _received(record, end) - _received(record, start)
    length = record.latency_s
    overlap = min(record.finished_s, end) - max(record.started_s, start)
    share = max(0.0, overlap) / length if length > 0 else float(start <= record.started_s <= end)
    return share * (record.completion_tokens or 0)


def _received(record: RequestRecord, at: float) -> int:
    return max((tokens for seconds, tokens in record.arrivals if record.started_s + seconds <= at), default=0)


def _json(value: object) -> object:
    if isinstance(value, float):
        return round(value, _DIGITS)
    return [_json(part) for part in value] if isinstance(value, tuple) else value
