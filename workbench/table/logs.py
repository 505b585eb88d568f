"""One server log to a summary: facts, events, counts and the decode windows as a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pandas as pd

from workbench.parse.records import LogEvent, LogKind, ParseCounts, StartupFacts
from workbench.parse.server_log import CountsBuilder, FactsBuilder, iter_records, kind_of
from workbench.table.speeds import main_level_speeds
from workbench.table.windows import WindowsBuilder

MAX_EVENTS = 2_000


@dataclass(frozen=True, slots=True)
class LogSummary:
    """What one server log says. ``windows`` has the WINDOWS columns, ``events`` are cut at `MAX_EVENTS`."""

    name: str
    kind: LogKind
    facts: StartupFacts
    events: tuple[LogEvent, ...]
    events_left_out: int
    counts: ParseCounts
    windows: pd.DataFrame


def summarise_log(chunks: Iterable[bytes], *, name: str, campaign: str = "", server_id: str = "") -> LogSummary:
    """Read a log once, keeping one row a decode line and nothing of the rest but events and counts."""
    counts, facts, windows = CountsBuilder(), FactsBuilder(), WindowsBuilder()
    events: list[LogEvent] = []
    left_out = 0
    kind = LogKind.UNKNOWN
    for record in iter_records(chunks, counts):
        facts.feed(record)
        windows.feed(record)
        kind = kind if kind is LogKind.SGLANG else kind_of(record) or kind
        if isinstance(record, LogEvent):
            if len(events) < MAX_EVENTS:
                events.append(record)
            else:
                left_out += 1
    known = facts.facts()
    table = windows.table(known, campaign=campaign, server_id=server_id)
    return LogSummary(name, kind, known, tuple(events), left_out, counts.counts(), table)


def log_figures(windows: pd.DataFrame) -> Mapping[str, object]:
    """Figures of a run's decode windows, for the columns of ``runs`` that come from the log.

    ``accept_length_log`` weights lines by running requests, because a line is a fixed number of steps. Speeds are those
    of `workbench.table.speeds` at the load that holds most lines; those of data parallel ranks are added up.
    """
    if windows.empty:
        return {"num_windows": 0}
    graph = windows["cuda_graph"].dropna().astype(float)
    median, client = main_level_speeds(windows)
    return {
        "num_windows": len(windows),
        "num_idle_windows": int(windows["idle"].sum()),
        "num_truncated": int(windows["truncated"].sum()),
        "cuda_graph_share": float(graph.mean()) if len(graph) else None,
        "cuda_graph": bool(graph.mean() >= 0.5) if len(graph) else None,
        "accept_length_log": _weighted_accept_length(windows),
        "accept_rate_printed": _known(windows["accept_rate_printed"].mean()),
        "log_median_tok_per_s": median,
        "log_client_tok_per_s": client,
        "peak_running_req": _known(windows["running_req"].max()),
        "peak_queue_req": _known(windows["queue_req"].max()),
    }


def _weighted_accept_length(windows: pd.DataFrame) -> float | None:
    known = windows.dropna(subset=["accept_len"])
    weight = known["running_req"].astype(float).fillna(1.0).clip(lower=1.0)
    return float((known["accept_len"] * weight).sum() / weight.sum()) if len(known) else None


def _known(value: object) -> float | None:
    return None if value is None or pd.isna(value) else float(value)  # type: ignore[arg-type, call-overload]
