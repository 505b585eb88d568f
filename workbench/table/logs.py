"""One server log to a summary: facts, events, counts and the decode windows as a table."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from workbench.parse.records import LogEvent, LogKind, ParseCounts, StartupFacts
from workbench.parse.server_log import CountsBuilder, FactsBuilder, iter_records, kind_of
from workbench.table.speeds import main_speeds_df
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
    """Figures of the windows of one log or run; see `log_figures_by`."""
    whole = log_figures_by(windows.assign(all=0), ["all"])
    return next(iter(whole.values()), NO_LINES)


NO_LINES: Mapping[str, object] = {"num_windows": 0}


def log_figures_by(windows: pd.DataFrame, by: Sequence[str]) -> dict[Hashable, Mapping[str, object]]:
    """Figures of decode windows, for the columns of ``runs`` that come from the log, by the values of ``by``.

    ``accept_length_log`` weights lines by running requests, because a line is a fixed number of steps. Speeds are those
    of `workbench.table.speeds` at the load that holds most lines; those of data parallel ranks are added up.
    """
    known = windows["accept_len"].notna()
    weight = windows["running_req"].astype(float).fillna(1.0).clip(lower=1.0).where(known)
    lines = windows.assign(
        graph=windows["cuda_graph"].astype("Float64"),
        weight=weight,
        weighted=windows["accept_len"] * weight,
        idle=windows["idle"].fillna(False).astype(int),
        truncated=windows["truncated"].fillna(False).astype(int),
    )
    table = lines.groupby([*by]).agg(
        num_windows=("line", "size"),
        num_idle_windows=("idle", "sum"),
        num_truncated=("truncated", "sum"),
        cuda_graph_share=("graph", "mean"),
        weight=("weight", "sum"),
        weighted=("weighted", "sum"),
        accept_rate_printed=("accept_rate_printed", "mean"),
        peak_running_req=("running_req", "max"),
        peak_queue_req=("queue_req", "max"),
    )
    table["accept_length_log"] = (table.pop("weighted") / table.pop("weight")).where(table["num_windows"] > 0)
    table["cuda_graph"] = (table["cuda_graph_share"] >= 0.5).astype("boolean")
    speeds = main_speeds_df(windows, by).reindex(table.index)
    table["log_median_tok_per_s"], table["log_client_tok_per_s"] = speeds["median"], speeds["client"]
    values = table.astype(object).where(table.notna(), None)
    return dict(zip(table.index, values.to_dict("records"), strict=True))
