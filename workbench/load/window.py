"""Measured windows: a discarded round, an empty cache before each, the server's counters before and after."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.files import as_text
from workbench.load.client import OnRecord, drive
from workbench.load.records import LoadResult
from workbench.load.wire import fetch
from workbench.parse.metrics import counters_between
from workbench.plain import from_json
from workbench.prompts import Prompt
from workbench.provenance import without_secrets
from workbench.spec import Workload

# Above this share of a processor the client may have been the limit.
BUSY_CLIENT = 0.7
_SETTLE_S = 3.0
# Of the short requests before the discarded round: tokens, for each slot, and at least.
_SHORT_TOKENS, _SHORT_EACH, _SHORT_LEAST = 8, 3, 12
_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class Windows:
    """What was measured at one load.

    Attributes
    ----------
    windows
        One result a repeat; their records carry the number of the repeat.
    warmup
        The discarded round, ``None`` when there was none.
    log_spans
        What ``log_size`` said before and after each window.
    metrics_before, metrics_after
        The server's ``/metrics`` before the first and after the last window, ``None`` when it has none.
    server_info
        What the server says it uses, ``None`` when it does not say.
    problems
        What makes these figures weaker than they look.
    started_at
        `time.monotonic` when each window began, to lay telemetry beside it.
    """

    windows: tuple[LoadResult, ...]
    warmup: LoadResult | None
    log_spans: tuple[tuple[int, int], ...]
    metrics_before: str | None
    metrics_after: str | None
    server_info: dict[str, object] | None
    problems: tuple[str, ...]
    started_at: tuple[float, ...] = ()


def measure_window(
    url: str,
    prompts: Sequence[Prompt],
    workload: Workload,
    *,
    repeats: int = 1,
    warmup: int = 1,
    stream: bool = False,
    timeout_s: float = 600.0,
    return_token_ids: bool = False,
    on_record: OnRecord | None = None,
    log_size: Callable[[], int] | None = None,
) -> Windows:
    """Measure ``workload`` ``repeats`` times.

    Before the first window ``warmup`` rounds at the same concurrency are sent and discarded (one round: a request in
    every slot); before them and before each window the server's cache is emptied. With an earlier load's prompts in it
    the warm-up's prefill would be so small that the first window loads the larger kernels (0.2 s of a window of 2.3 s
    in ``data/recorded/h200_shapes`` at 8). Short requests come before the rounds, a few for each slot: prefills of a
    new size and batches that requests leave and join are slow the first time. Without them the first window of
    ``data/recorded/h200_wide`` falls behind the second during its first dozen requests at 1 and thirty at 8, by 0.06
    and 0.14 s in the median of 24 starts, and no further. A window in which the server was given up is the last.
    ``on_record`` is called for measured requests only.
    """
    url = url.rstrip("/")
    problems: list[str] = []

    def load(what: Workload, repeat: int, callback: OnRecord | None) -> LoadResult:
        return drive(
            url,
            prompts,
            what,
            stream=stream,
            timeout_s=timeout_s,
            return_token_ids=return_token_ids,
            repeat=repeat,
            on_record=callback,
        )

    discarded = None
    if warmup:
        problems += _flush_cache(url)
        round_of = workload.model_copy(update={"num_prompts": (workload.max_concurrency or 1) * warmup})
        discarded = load(_short(workload, len(prompts)), 0, None)
        if not discarded.gave_up:  # a server that answers nothing is waited for once, not twice
            discarded = load(round_of, 0, None)
    before = _metrics(url)
    windows, spans, started_at = [], [], []
    for repeat in range(repeats):
        problems += _flush_cache(url)
        start = log_size() if log_size else 0
        started_at.append(time.monotonic())
        windows.append(load(workload, repeat, on_record))
        spans.append((start, log_size() if log_size else 0))
        if windows[-1].gave_up:
            problems.append(f"the server no longer answers: {repeat + 1} of {repeats} windows were tried")
            break
    after = _settled_metrics(url, before, sum(record.ok for result in windows for record in result.records))
    return Windows(
        windows=tuple(windows),
        warmup=discarded,
        log_spans=tuple(spans) if log_size else (),
        metrics_before=before,
        metrics_after=after,
        server_info=server_info(url),
        problems=tuple(dict.fromkeys([*problems, *_weaknesses(windows, workload)])),
        started_at=tuple(started_at),
    )


def _short(workload: Workload, num_prompts: int) -> Workload:
    """Short answers to the first requests of a window."""
    requests = max(_SHORT_EACH * (workload.max_concurrency or 1), _SHORT_LEAST)
    tokens = min(workload.max_new_tokens or _SHORT_TOKENS, _SHORT_TOKENS)
    requests = min(requests, workload.num_prompts or num_prompts)
    return workload.model_copy(update={"num_prompts": requests, "max_new_tokens": tokens})


def server_info(url: str) -> dict[str, object] | None:
    """The server's own account of its settings, fit to be written down; older servers have it under another path."""
    for path in ("/server_info", "/get_server_info"):
        status, text = fetch(url.rstrip("/") + path)
        if status == 200:
            try:
                value = _writable(from_json(text))
            except (ValueError, RecursionError):
                return None
            return value if isinstance(value, dict) else None
    return None


def _writable(value: object) -> Any:
    """A value without secrets, half characters, and numbers that JSON has no word for."""
    if isinstance(value, dict):
        return {_writable(name): _writable(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_writable(each) for each in value]
    if isinstance(value, str):
        return without_secrets(as_text(value))
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _flush_cache(url: str) -> list[str]:
    """Empty the server's cache; what is wrong when that fails. It refuses while requests are pending, so it waits."""
    deadline = time.monotonic() + _SETTLE_S
    while True:
        status, text = fetch(url + "/flush_cache", method="POST")
        if status == 200:
            return []
        if status != 400 or time.monotonic() > deadline:
            said = " ".join(text.split())[:120]
            return [
                f"the cache was not emptied before the window (/flush_cache answered {status or 'nothing'}: {said})"
            ]
        time.sleep(_PAUSE_S)


def _metrics(url: str) -> str | None:
    status, text = fetch(url + "/metrics")
    return text if status == 200 else None


def _settled_metrics(url: str, before: str | None, finished: int) -> str | None:
    """The metrics once they count all ``finished`` requests; the last ones read when they never do."""
    if before is None:
        return None
    deadline = time.monotonic() + _SETTLE_S
    while True:
        after = _metrics(url)
        counted = None if after is None else counters_between(before, after).requests
        if counted is None or counted >= finished or time.monotonic() > deadline:
            return after
        time.sleep(_PAUSE_S)


def _weaknesses(windows: Sequence[LoadResult], workload: Workload) -> list[str]:
    concurrency = workload.max_concurrency or 1
    said = []
    for result in windows:
        failed = sum(result.failures.values())
        if failed:
            kinds = ", ".join(f"{kind} ({count})" for kind, count in result.failures.most_common())
            said.append(f"{failed} of {len(result.records)} requests failed: {kinds}")
        if result.busy_window_s is None:
            said.append(f"{len(result.records)} requests never filled {concurrency} slots: no decode speed")
        if result.client_cpu_share > BUSY_CLIENT:
            said.append(f"the client was busy {result.client_cpu_share:.0%} of the time and may have been the limit")
    return said
