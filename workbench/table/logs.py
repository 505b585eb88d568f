"""One server log to a summary: facts, events, counts and the decode windows as a table."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
import pandas as pd

from workbench.parse.records import LogEvent, LogKind, ParseCounts, Record, StartupFacts
from workbench.parse.server_log import CountsBuilder, FactsBuilder, iter_stretches, kind_of
from workbench.parse.stretches import Stretch
from workbench.table.lines import Floats, Lines, lines_of
from workbench.table.put_off import Lazy
from workbench.table.speeds import main_speed, main_speeds_df
from workbench.table.starts import StartsBuilder
from workbench.table.windows import WindowsBuilder, possible_time

MAX_EVENTS = 2_000


@dataclass(frozen=True)
class LogSummary(Lazy):
    """What one server log says. ``windows`` has the WINDOWS columns, ``events`` are cut at `MAX_EVENTS`.

    ``lines`` are the windows as arrays.

    ``num_impossible`` counts decode lines whose accept length no server can have; there it is missing in ``windows``.
    ``starts_before`` counts the servers that the text holds before the one that is told of here, whose first line is
    ``first_line``. ``incomplete`` says what of the file could not be read; empty when all of it was.
    """

    name: str
    kind: LogKind
    facts: StartupFacts
    events: tuple[LogEvent, ...]
    events_left_out: int
    counts: ParseCounts
    windows: pd.DataFrame
    num_impossible: int = 0
    starts_before: int = 0
    first_line: int = 1
    incomplete: str = ""
    lines: Lines = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.__dict__["lines"] = lines_of(self.windows)


def summarise_log(
    chunks: Iterable[bytes], *, name: str, campaign: str = "", server_id: str = "", last_start_only: bool = False
) -> LogSummary:
    """Read a log once, keeping one row a decode line and nothing of the rest but events and counts.

    Parameters
    ----------
    last_start_only
        Where several servers wrote to one file, tell of the last one only: facts, events, windows and counts then begin
        at its first line. Otherwise the facts are those of the first one and the windows those of all.
    """
    counts, starts = CountsBuilder(), StartsBuilder()
    kept, before = _Kept(), ParseCounts()
    for record in iter_stretches(chunks, counts):
        if starts.feed(record) and last_start_only and isinstance(record, LogEvent):
            # The line that shows the start is counted already, and belongs to it.
            before = replace(counts.counts(), lines=record.line - 1, bytes=record.offset)
            kept = _Kept()
            for event in starts.carried:
                kept.feed(event)
        kept.feed(record)
    summary = kept.summary(name, _since(before, counts.counts()), campaign=campaign, server_id=server_id)
    return replace(summary, starts_before=starts.count - 1, first_line=starts.line) if last_start_only else summary


class _Kept:
    """What is kept of the records of one server, or of a whole log."""

    def __init__(self) -> None:
        self._facts, self._windows = FactsBuilder(), WindowsBuilder()
        self._events: list[LogEvent] = []
        self._left_out = 0
        self._kind = LogKind.UNKNOWN

    def feed(self, record: Record | Stretch) -> None:
        self._facts.feed(record)
        self._windows.feed(record)
        self._kind = self._kind if self._kind is LogKind.SGLANG else kind_of(record) or self._kind
        if not isinstance(record, LogEvent):
            return
        if len(self._events) < MAX_EVENTS:
            self._events.append(replace(record, time=possible_time(record.time)))
        else:
            self._left_out += 1

    def summary(self, name: str, counts: ParseCounts, *, campaign: str, server_id: str) -> LogSummary:
        facts = self._facts.facts()
        table = self._windows.table(facts, campaign=campaign, server_id=server_id)
        events, impossible = tuple(self._events), self._windows.num_impossible
        return LogSummary(name, self._kind, facts, events, self._left_out, counts, table, impossible)


def _since(before: ParseCounts, now: ParseCounts) -> ParseCounts:
    """The counts of the lines after ``before``."""
    names = [item.name for item in fields(ParseCounts) if item.name != "hint"]
    return replace(now, **{name: getattr(now, name) - getattr(before, name) for name in names})


def log_figures(lines: Lines) -> Mapping[str, object]:
    """Figures of the decode lines of one log; see `log_figures_by`."""
    if not len(lines):
        return NO_LINES
    length, rate, graph = lines["accept_len"], lines["accept_rate_printed"], lines["cuda_graph"]
    running = lines["running_req"]
    weight = np.clip(np.where(np.isnan(running), 1.0, running), 1.0, None)
    known, graph = np.isfinite(length), graph[~np.isnan(graph)]
    weighed = float(weight[known].sum())
    share = float(graph.mean()) if len(graph) else None
    rank = lines["dp_rank"]
    ranks = [main_speed(lines.only(rank == number)) for number in np.unique(rank[~np.isnan(rank)])]
    return {
        "num_windows": len(lines),
        "num_idle_windows": int(lines.flag("idle").sum()),
        "num_truncated": int(lines.flag("truncated").sum()),
        "cuda_graph_share": share,
        "accept_rate_printed": float(np.nanmean(rate)) if np.isfinite(rate).any() else None,
        "peak_running_req": _peak(running),
        "peak_queue_req": _peak(lines["queue_req"]),
        "accept_length_log": float((length[known] * weight[known]).sum()) / weighed if weighed else None,
        "cuda_graph": None if share is None else share >= 0.5,
        "log_median_tok_per_s": _sum_known(median for median, _ in ranks),
        "log_client_tok_per_s": _sum_known(client for _, client in ranks),
    }


def _peak(values: Floats) -> int | None:
    return None if np.isnan(values).all() else int(np.nanmax(values))


def _sum_known(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


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
