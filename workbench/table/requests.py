"""Request records to rows. Names differ by who wrote the file and by SGLang version; the meaning does not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

from workbench.spec import MAX_COUNT

# SGLang renamed the histogram at 0.5.12 and dropped the old name at 0.5.21 (sglang.md section 3).
_HISTOGRAM_KEYS = ("steps_histogram", "spec_correct_drafts_histogram", "spec_accept_histogram")
_HASH_KEYS = ("text_hash", "text_sha")
_COUNTS = ("prompt_index", "repeat", "prompt_tokens", "completion_tokens", "spec_verify_ct")
_SECONDS = ("latency_s", "ttft_s", "e2e_latency_s")

Row = dict[str, object]


def request_rows(
    campaign: str, run_id: str, prompt_set: str, records: Iterable[Mapping[str, object]]
) -> tuple[list[Row], list[str]]:
    """Rows of the requests table, and what of the records could not be used.

    A value that cannot be what its name says is left out rather than guessed; the rest of its request is used.
    """
    rows = []
    faults: dict[str, list[int]] = {}
    head: Row = {"campaign": campaign, "run_id": run_id, "prompt_set": prompt_set}
    for number, record in enumerate(records, 1):
        row, wrong = _request_row(head, record)
        rows.append(row)
        for fault in wrong:
            faults.setdefault(fault, []).append(number)
    return rows, [f"{fault} in {_of(numbers)}" for fault, numbers in faults.items()]


def _of(numbers: Sequence[int]) -> str:
    return f"request {numbers[0]}" if len(numbers) == 1 else f"{len(numbers):,} requests, the first is {numbers[0]}"


def _request_row(head: Row, record: Mapping[str, object]) -> tuple[Row, list[str]]:
    row, faults = dict(head), []
    for name in _COUNTS:
        row[name] = _count(record.get(name))
    for name in _SECONDS:
        row[name] = _seconds(record.get(name))
    for name in (*_COUNTS, *_SECONDS):
        if row[name] is None and record.get(name) is not None:
            kind = "a whole number" if name in _COUNTS else "a number of seconds"
            faults.append(f"{name} is left out, not {kind} from 0,")
    row["text_hash"], row["steps_histogram"] = _first_text(record, _HASH_KEYS), None
    row["output_ids"] = ids = _whole_numbers(record.get("output_ids"))
    if ids is None and record.get("output_ids") is not None:
        faults.append("output_ids is left out, not a list of whole numbers from 0,")
    row["distinct_4"] = None if ids is None else distinct_4(ids)
    key = next((key for key in _HISTOGRAM_KEYS if record.get(key) is not None), None)
    if key is not None:
        row["steps_histogram"] = histogram = _whole_numbers(record[key])
        if histogram is None:
            faults.append(f"{key} is left out, not a list of whole numbers from 0,")
        elif row["spec_verify_ct"] not in (None, sum(histogram)):
            faults.append(f"{key} does not add up to spec_verify_ct and is used as it is")
    row["repeat"] = row["repeat"] or 0
    row["ok"], row["error"] = _outcome(record, faults)
    return row, faults


def _outcome(record: Mapping[str, object], faults: list[str]) -> tuple[bool, str | None]:
    """Whether the request finished, what the record says or else whether it names an error; and the error."""
    error, ok = record.get("error"), record.get("ok")
    if ok is not None and not isinstance(ok, bool):
        faults.append("ok is left out, neither true nor false,")
    named = None if error in (None, "", False) else _clean(str(error))
    return ok if isinstance(ok, bool) else named is None, named


def distinct_4(ids: Sequence[int]) -> float:
    """Different runs of four tokens over all of them: 1 when none comes twice, near 0 in a loop."""
    runs = list(zip(ids, ids[1:], ids[2:], ids[3:], strict=False))
    return len(set(runs)) / len(runs) if runs else 1.0


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
    known = [(tokens, steps) for tokens, steps in counted if tokens and steps]
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


def _whole_numbers(value: object) -> list[int] | None:
    if not isinstance(value, list) or not set(map(type, value)) <= {int}:
        return None
    return value if not value or (min(value) >= 0 and max(value) <= MAX_COUNT) else None


def _count(value: object) -> int | None:
    # Not isinstance: true is an int too.
    return value if type(value) is int and 0 <= value <= MAX_COUNT else None


def _seconds(value: object) -> float | None:
    """A finite number from 0; JSON writers let NaN, Infinity and 1e400 through."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_COUNT:
        return None
    return float(value)


def _first_text(record: Mapping[str, object], keys: Sequence[str]) -> str | None:
    for key in keys:
        value = record.get(key)
        if isinstance(value, str):
            return _clean(value)
    return None


def _clean(text: str) -> str:
    """Text without halves of surrogate pairs, which JSON can hold and no table or page can."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _int(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _float(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
