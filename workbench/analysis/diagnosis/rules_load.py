"""What the load meets: CUDA graphs, queues, a full KV cache, unequal data parallel ranks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np

from workbench.analysis.diagnosis.model import Certainty, Finding
from workbench.analysis.diagnosis.reading import MIN_LINES, NOTABLE_SHARE, Case, Reading
from workbench.analysis.diagnosis.words import at_line
from workbench.analysis.frames import means_by
from workbench.analysis.wording import count, one_of
from workbench.parse.records import EventKind
from workbench.sglang_rules.versions import at_least

SPECULATIVE_LIMIT = 48  # max_running_requests that SGLang sets under speculation when none is asked for
FULL_CACHE = 0.9  # token usage
MAX_RANKS = 8  # ranks named in a sentence


def graph_off(case: Case) -> Iterator[Finding]:
    """Decode steps without a CUDA graph pay launch overhead for every kernel of target and drafter."""
    log = case.log
    off, running = log.lines["cuda_graph"] == 0, log.lines["running_req"]
    num_off = int(off.sum())
    if log.is_on_cpu or num_off < max(1.0, NOTABLE_SHARE * len(log.graph_on)):
        return
    running_off, running_on = (running[lines & ~np.isnan(running)] for lines in (off, log.lines.flag("cuda_graph")))
    shown = f"cuda graph: False in {num_off:,} of {count(len(log.graph_on), 'decode line')}"
    shown += f" (first: line {int(log.lines['line'][off][0])})"
    limit = log.graph_limit
    if limit is None and len(running_on) and len(running_off) and running_off.min() > running_on.max():
        limit = int(running_on.max())
    if limit is not None and len(running_off) and running_off.min() > limit:
        yield _batch_above_graphs(log, shown, limit, int(running_off.max()))
    else:
        yield _graphs_off(log, shown, num_off)


def _batch_above_graphs(log: Reading, shown: str, limit: int, peak: int) -> Finding:
    fix = f"{_graph_size_flag(log)} {peak}"
    known = log.graph_limit is not None
    return Finding(
        "graph_off",
        f"Batches above {limit} run without CUDA graphs",
        Certainty.CERTAIN if known else Certainty.LIKELY,
        (shown, f"graphs were {'captured' if known else 'on'} up to {limit} requests, {peak} were running"),
        f"restart with {fix} (baseline too), then diagnose again",
        "AngelSlim 9",
        headline=f"Batches above {limit} requests run without CUDA graphs and up to {peak} were running; restart with "
        f"{fix} before judging the drafter",
    )


def _graphs_off(log: Reading, shown: str, num_off: int) -> Finding:
    flag = next((name for name in ("disable_cuda_graph", "disable_decode_cuda_graph") if log.arg(name) is True), None)
    if flag:
        evidence = [shown, at_line(log.facts.server_args_line, f"server_args: {flag}=True")]
        fix = f"remove --{flag.replace('_', '-')}"
    else:
        evidence = [shown]
        peak = log.figure("peak_running_req") or 1
        # Small batches are always captured, unless graphs are switched off.
        size = f" and with {_graph_size_flag(log)} {peak:.0f}" if peak > 8 else ""
        fix = f"start without --disable-cuda-graph{size}"
    lines, share = len(log.graph_on), num_off / len(log.graph_on)
    where = f"every decode line ({lines:,})" if num_off == lines else f"{share:.0%} of {count(lines, 'decode line')}"
    length = "" if log.accept_length is None else f" before judging the drafter (accept length {log.accept_length:.2f})"
    return Finding(
        "graph_off",
        f"CUDA graphs are off in {where}",
        Certainty.CERTAIN,
        tuple(evidence),
        f"{fix}; measure again before changing the drafter: without graphs every step pays launch overhead that no "
        "realistic accept length wins back",
        headline=f"CUDA graphs are off in {where}: {fix}{length}",
    )


def _graph_size_flag(log: Reading) -> str:
    """The name changed in 0.5.14, and since 0.5.20 the old one stops the server."""
    bracket = log.facts.version_bracket
    if bracket is None:
        return "--cuda-graph-max-bs (--cuda-graph-max-bs-decode from 0.5.14)"
    return "--cuda-graph-max-bs-decode" if at_least(bracket[0], "0.5.14") else "--cuda-graph-max-bs"


def requests_queue(case: Case) -> Iterator[Finding]:
    """Requests wait: at a limit that speculation set, at one that was asked for, or for room in the KV cache."""
    log = case.log
    waits = log.lines["queue_req"] > 0
    if waits.sum() < max(1.0, NOTABLE_SHARE * len(log.lines)) or np.isnan(log.lines["running_req"][waits]).all():
        return
    queued = log.windows[waits]
    peak = int(queued["running_req"].max())
    worst = queued.sort_values("queue_req", ascending=False, kind="stable").iloc[0]
    shown = at_line(int(worst["line"]), f"{int(worst['running_req'])} running, {int(worst['queue_req'])} queued")
    limit = log.running_limit or peak
    ranks = max(1, int(log.windows["dp_rank"].nunique()))
    reset = log.adjustment("Max running requests is reset")
    if log.is_speculative and (reset is not None or SPECULATIVE_LIMIT in (limit, peak)):
        yield _capped_by_speculation(case, shown, limit, int(worst["queue_req"]))
    elif queued["token_usage"].median() >= FULL_CACHE:
        yield _cache_full(log, shown)
    elif peak * ranks >= 0.95 * limit:
        yield _limit_reached(log, shown, limit)


def _capped_by_speculation(case: Case, shown: str, limit: int, queue: int) -> Finding:
    log = case.log
    reset = log.adjustment("Max running requests is reset")
    evidence = [shown]
    if reset is not None:
        evidence.append(at_line(reset.line, reset.text))
    elif limit == SPECULATIVE_LIMIT:
        evidence.append(f"{SPECULATIVE_LIMIT} is what SGLang sets under speculation when none is asked for")
    base = None if case.baseline is None else case.baseline.running_limit
    if base is not None and base != limit:
        evidence.append(f"baseline: max_running_requests {base}")
    return Finding(
        "capped_by_speculation",
        f"Speculation caps the server at {limit} running requests while {queue} wait",
        Certainty.CERTAIN if reset is not None else Certainty.LIKELY,
        tuple(evidence),
        f"set --max-running-requests {limit + queue} explicitly on this server and on the baseline; any throughput "
        "comparison above the cap is unfair until then",
        headline=f"Speculation caps the server at {limit} running requests while {queue} wait; set "
        f"--max-running-requests {limit + queue} here and on the baseline",
    )


def _cache_full(log: Reading, shown: str) -> Finding:
    tokens = log.facts.max_total_num_tokens
    return Finding(
        "cache_full",
        "Requests wait for room in the KV cache",
        Certainty.LIKELY,
        (shown, f"token usage {log.windows['token_usage'].max():.2f}" + (f" of {tokens:,} tokens" if tokens else "")),
        "raise --mem-fraction-static, or send fewer requests at once; the drafter's own KV cache takes part of it",
    )


def _limit_reached(log: Reading, shown: str, limit: int) -> Finding:
    return Finding(
        "limit_reached",
        f"The load exceeds the limit of {limit} running requests",
        Certainty.LIKELY,
        (shown,),
        f"raise --max-running-requests above {limit} if that limit is not meant, on the baseline too",
        is_fault=False,
    )


def speculative_cap_unused(case: Case) -> Iterator[Finding]:
    """The cap of 48 was set but no request has met it yet."""
    event = case.log.adjustment("Max running requests is reset")
    if event is None or (case.log.lines["queue_req"] > 0).any():
        return
    yield Finding(
        "speculative_cap_unused",
        f"Speculation set max_running_requests to {case.log.running_limit or SPECULATIVE_LIMIT}; no request waited",
        Certainty.CERTAIN,
        (at_line(event.line, event.text),),
        "set --max-running-requests explicitly, here and on the baseline, before measuring higher concurrency",
        is_fault=False,
    )


def retractions(case: Case) -> Iterator[Finding]:
    """Retracted requests are computed again from their prompt."""
    events = case.log.events(EventKind.RETRACTION)
    if not events:
        return
    limit = case.log.running_limit
    yield Finding(
        "retractions",
        f"The KV cache ran full {count(len(events), 'time')} and running requests were thrown back",
        Certainty.CERTAIN,
        tuple(at_line(event.line, event.text) for event in events[:2]),
        "raise --mem-fraction-static, or lower --max-running-requests" + (f" below {limit}" if limit else ""),
        headline=f"The KV cache ran full {count(len(events), 'time')} and running requests were computed again; raise "
        "--mem-fraction-static or lower --max-running-requests before comparing speeds",
    )


def unequal_ranks(case: Case) -> Iterator[Finding]:
    """Data parallel ranks serve the same model: their accept lengths should agree."""
    rank = case.log.lines["dp_rank"][~np.isnan(case.log.lines["accept_len"])]
    numbers, sizes = np.unique(rank[~np.isnan(rank)], return_counts=True)
    enough = {int(number): size for number, size in zip(numbers, sizes, strict=True) if size >= MIN_LINES}
    if len(enough) < 2:
        return
    means = means_by(case.log.lines["dp_rank"], case.log.lines["accept_len"])
    low, high = (end(means[number] for number in enough) for end in (min, max))
    if high - low < max(0.2, 0.1 * high):
        return
    yield Finding(
        "unequal_ranks",
        f"Data parallel ranks accept differently: {low:.2f} to {high:.2f}",
        Certainty.SUSPECTED,
        (
            one_of(
                f"DP{number}: {means[number]:.2f} in {size} lines" for number, size in islice(enough.items(), MAX_RANKS)
            ),
        ),
        "serve the same prompts with --dp-size 1; if accept length rises there, the fault is in data parallel "
        "attention under speculation, not in the drafter",
        "sglang 16274",
    )
