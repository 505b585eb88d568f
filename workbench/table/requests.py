"""Request records to rows. Names differ by who wrote the file and by SGLang version; the meaning does not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

# SGLang renamed the histogram at 0.5.12 and dropped the old name at 0.5.21 (sglang.md section 3).
_HISTOGRAM_KEYS = ("steps_histogram", "spec_correct_drafts_histogram", "spec_accept_histogram")
_HASH_KEYS = ("text_hash", "text_sha")


def request_row(campaign: str, run_id: str, prompt_set: str, record: Mapping[str, object]) -> dict[str, object]:
    """One row of the requests table; a value of the wrong type is left out rather than guessed."""
    error = record.get("error")
    return {
        "campaign": campaign,
        "run_id": run_id,
        "prompt_set": prompt_set,
        "prompt_index": _int(record.get("prompt_index")),
        "repeat": _int(record.get("repeat")) or 0,
        "ok": bool(record.get("ok", error is None)),
        "error": None if error is None else str(error),
        "prompt_tokens": _int(record.get("prompt_tokens")),
        "completion_tokens": _int(record.get("completion_tokens")),
        "spec_verify_ct": _int(record.get("spec_verify_ct")),
        "latency_s": _float(record.get("latency_s")),
        "ttft_s": _float(record.get("ttft_s")),
        "e2e_latency_s": _float(record.get("e2e_latency_s")),
        "text_hash": next((str(record[key]) for key in _HASH_KEYS if record.get(key) is not None), None),
        "steps_histogram": _histogram(record),
    }


def add_histograms(histograms: Iterable[Sequence[int]]) -> list[int]:
    """Sum of histograms of different lengths."""
    return [sum(column) for column in zip_longest(*histograms, fillvalue=0)]


def pooled_accept_length(rows: Sequence[Mapping[str, object]]) -> float | None:
    """Tokens a verify step over all rows: from the histograms, else ``sum(tokens - 1) / sum(steps)``.

    The token that the prefill produced is not counted. ``None`` without any verify step.
    """
    with_steps = [row for row in rows if _int(row["spec_verify_ct"])]
    histograms = [row["steps_histogram"] for row in with_steps]
    if histograms and all(isinstance(h, list) and sum(h) for h in histograms):
        total = add_histograms(h for h in histograms if isinstance(h, list))
        return sum((drafts + 1) * steps for drafts, steps in enumerate(total)) / sum(total)
    counted = [(_int(row["completion_tokens"]), _int(row["spec_verify_ct"])) for row in with_steps]
    known = [(tokens, steps) for tokens, steps in counted if tokens is not None and steps]
    return sum(t - 1 for t, _ in known) / sum(s for _, s in known) if known else None


def output_speed(rows: Sequence[Mapping[str, object]], concurrency: int | None) -> float | None:
    """End-to-end output tok/s of one request at a time: tokens over latency, pooled.

    Above one request at a time the wall clock is not in the records, so there is no figure here.
    """
    if concurrency != 1:
        return None
    pairs = [(_int(r["completion_tokens"]), _float(r["latency_s"])) for r in rows]
    known = [(tokens, seconds) for tokens, seconds in pairs if tokens is not None and seconds]
    return sum(t for t, _ in known) / sum(s for _, s in known) if known else None


def decode_speed(rows: Sequence[Mapping[str, object]], concurrency: int | None) -> float | None:
    """Tok/s after the first token of one request at a time; needs the time to first token of every request."""
    if concurrency != 1:
        return None
    parts = [(_int(r["completion_tokens"]), _float(r["latency_s"]), _float(r["ttft_s"])) for r in rows]
    if not parts or any(tokens is None or latency is None or ttft is None for tokens, latency, ttft in parts):
        return None
    tokens = sum(t - 1 for t, _, _ in parts if t)
    seconds = sum(latency - ttft for t, latency, ttft in parts if t and latency is not None and ttft is not None)
    return tokens / seconds if seconds > 0 else None


def _histogram(record: Mapping[str, object]) -> list[int] | None:
    for key in _HISTOGRAM_KEYS:
        value = record.get(key)
        if isinstance(value, list) and all(isinstance(v, int) and v >= 0 for v in value):
            return value
    return None


def _int(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _float(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
