"""The key figures of a log, and what the log does not say."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from workbench.analysis.diagnosis.reading import Case, Reading
from workbench.analysis.diagnosis.words import load
from workbench.analysis.wording import count, number
from workbench.parse.records import EventKind, RateDefinition

_COLUMNS = ("name", "value", "text", "unit", "source")
_Row = tuple[str, float | None, str, str, str]


def figures_df(case: Case) -> pd.DataFrame:
    """Name, value (NaN for what is text), text with sensible digits, unit and source of each figure that is known."""
    rows = [*_acceptance(case.log), *_server(case.log), *_speeds(case.log, ""), *_against(case), *_reading(case.log)]
    if case.baseline is not None:
        rows += _speeds(case.baseline, "baseline ")
    # By columns, because a table of rows takes as long as all rules together.
    columns = dict(zip(_COLUMNS, map(list, zip(*rows, strict=True)), strict=True))
    return pd.DataFrame(columns | {"value": np.array(columns["value"], dtype=np.float64)})


def _acceptance(log: Reading) -> Iterator[_Row]:
    facts = log.facts
    if log.algorithm is not None:
        yield "speculative algorithm", None, log.algorithm, "", _args_source(log)
    if log.draft_weights is not None and log.draft_weights.type is not None:
        yield "draft class", None, log.draft_weights.type, "", f"weight block, line {log.draft_weights.line}"
    if log.accept_length is not None:
        source = f"{count(log.num_accept_lines, 'decode line')}{log.over_all_loads or ','} weighted by running requests"
        yield "accept length", log.accept_length, f"{log.accept_length:.2f}", "tokens/step", source
    if log.accept_rate is not None:
        yield "accept rate", log.accept_rate, f"{log.accept_rate:.2f}", "", "(accept length - 1) / steps"
    printed = log.figure("accept_rate_printed")
    if printed is not None:
        known = facts.rate_definition is not RateDefinition.UNKNOWN
        meaning = f"printed as {facts.rate_definition}" if known else "definition unknown"
        meaning = "accepted / drafted tokens" if log.is_vllm else meaning
        yield "accept rate as printed", printed, f"{printed:.2f}", "", f"mean of the decode lines, {meaning}"
    for name, value in (
        ("speculative steps", facts.num_steps),
        ("topk", facts.eagle_topk),
        ("draft tokens in use", facts.draft_tokens_effective),
    ):
        if value is not None and log.is_speculative:
            stated = _args_source(log) if facts.server_args else "inferred from the decode lines"
            yield name, value, str(value), "", stated


def _args_source(log: Reading) -> str:
    line = log.facts.server_args_line
    return "server_args" if line is None else f"server_args, line {line}"


def _server(log: Reading) -> Iterator[_Row]:
    facts = log.facts
    if log.is_embedded:
        yield "engine", None, "embedded engine of the workbench", "", "log line"
    elif facts.version_bracket is not None:
        low, high = facts.version_bracket
        yield "SGLang version", None, low if low == high else f"{low} to {high}", "", "layout of the log lines"
    if len(log.graph_on):
        share = float(log.graph_on.mean())
        yield "decode lines in a CUDA graph", share, f"{share:.0%}", "", count(len(log.graph_on), "decode line")
    if log.running_limit is not None:
        source = "capacity line" if facts.max_running_requests is not None else _args_source(log)
        yield "max running requests", log.running_limit, f"{log.running_limit:,}", "", source
    if facts.max_total_num_tokens is not None:
        yield "KV cache", facts.max_total_num_tokens, f"{facts.max_total_num_tokens:,}", "tokens", "capacity line"
    for name, key in (("most requests running", "peak_running_req"), ("most requests queued", "peak_queue_req")):
        peak = log.figure(key)
        if peak is not None:
            yield name, peak, f"{peak:,.0f}", "", "decode lines"
    retracted = len(log.events(EventKind.RETRACTION))
    if retracted:
        yield "retractions", retracted, str(retracted), "", "log lines"


def _speeds(log: Reading, whose: str) -> Iterator[_Row]:
    for level in log.levels:
        reached = log.speed_at(level)
        if reached is None:
            continue
        lines = count(log.lines_at(level), "decode line")
        at = f"at {load(level, log.ranks_at(level))} running"
        yield f"{whose}speed {at}", reached, number(reached), "tok/s", f"median of {lines}"
        length = log.accept_length_at(level)
        if length is not None and reached > 0:
            cycle = 1000 * length * level * log.ranks_at(level) / reached
            yield f"time of a step {at}", cycle, f"{cycle:.1f}", "ms", "accept length x running / speed"


def _against(case: Case) -> Iterator[_Row]:
    for item in case.level_speeds:
        at = f"at {item.load} running"
        open_point = "" if item.is_decidable else "; not decidable"
        length = case.log.accept_length_at(item.level)
        for how, speedup in (("over the whole log (estimate)", item.whole_log), ("by median line", item.median)):
            yield f"speedup {how} {at}", speedup, f"{speedup:.2f}", "x", f"both logs{open_point}"
            if length is not None:
                needed, source = length / speedup, f"accept length / speedup{open_point}"
                yield f"break-even accept length {how} {at}", needed, f"{needed:.2f}", "tokens/step", source


def _reading(log: Reading) -> Iterator[_Row]:
    counts = log.log.counts
    yield "lines read", counts.lines, f"{counts.lines:,}", "", "log"
    yield "decode lines", counts.decode, f"{counts.decode:,}", "", "log"
    for name, seen in (
        ("idle decode lines, left out of speeds", int(log.lines.flag("idle").sum())),
        ("lines cut off", counts.truncated),
        ("batch lines not understood", counts.unparsed_batch_lines),
        ("bytes that are no UTF-8", counts.undecodable_bytes),
        ("overlong lines cut", counts.overlong_lines),
    ):
        if seen:
            yield name, seen, f"{seen:,}", "", "log"


def not_known(case: Case, *, has_draft_checks: bool) -> tuple[str, ...]:
    """What the log leaves open, each with the way to find out."""
    return tuple([*_open_points(case.log), *_open_speculation(case, has_draft_checks=has_draft_checks)])


def _open_points(log: Reading) -> Iterator[str]:
    facts = log.facts
    if log.is_no_server_log:
        return
    if log.is_vllm:
        yield "flags, graphs and draft class: a vLLM log's metrics lines do not state them"
        return
    if not facts.server_args:
        yield (
            "the start arguments: keep the log from its first line, or save GET /server_info (before 0.5.6 "
            "/get_server_info)"
        )
    bracket = facts.version_bracket
    if not log.is_embedded and (bracket is None or bracket[0] != bracket[1]):
        known = "" if bracket is None else f" (the layout says {bracket[0]} to {bracket[1]})"
        asked = "" if log.is_on_cpu else "pip show sglang, or "
        yield f"the exact SGLang version{known}: {asked}version in GET /server_info"
    if not log.is_on_cpu and not len(log.graph_on) and len(log.lines):
        yield "whether CUDA graphs were on: lines before SGLang 0.4.6.post5 and cut ones do not say"


def _open_speculation(case: Case, *, has_draft_checks: bool) -> Iterator[str]:
    log = case.log
    if not log.is_speculative:
        return
    if case.baseline is None and not case.accepts_nothing:
        yield f"whether speculation pays: start {baseline_hint(log)} and give its log with --baseline"
    elif case.baseline is not None and not case.is_pair:
        yield "whether speculation pays: these two logs cannot be compared, for the reason that a finding gives"
    if log.is_vllm:
        return
    missing = [
        name
        for name, value in (
            ("steps", log.facts.num_steps),
            ("topk", log.facts.eagle_topk),
            ("draft tokens", log.facts.draft_tokens_effective),
        )
        if value is None
    ]
    if missing:
        yield f"{' and '.join(missing)} in use: the server_args line or GET /server_info states them"
    if log.facts.rate_definition is RateDefinition.UNKNOWN and not np.isnan(log.lines["accept_rate_printed"]).all():
        yield "what the printed accept rate means: it has three definitions by version; use accept length"
    if log.draft_weights is None:
        yield "the drafter's class: the second 'Load weight end' line of the start-up names it"
    if not has_draft_checks:
        yield "whether the draft checkpoint fits the target: add --draft DRAFT_DIR --target TARGET_DIR"
    yield (
        "the spread behind the average accept length, and whether acceptance was simulated: the log shows neither; see "
        "meta_info of each response and SGLANG_SIMULATE_ACC_LEN in the server's environment"
    )


def baseline_hint(log: Reading) -> str:
    model = log.arg("model_path")
    if log.is_vllm:
        return "the same server without --speculative-config"
    return "the same server without the --speculative-* flags" + (f" ({model})" if isinstance(model, str) else "")
