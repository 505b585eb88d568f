"""One server log to a summary: facts, events, counts and the decode windows as a table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pandas as pd

from workbench.parse.records import (
    DecodeRecord,
    EventKind,
    LogEvent,
    LogKind,
    ParseCounts,
    PrefillRecord,
    StartupFacts,
    VllmEngineRecord,
    VllmSpecRecord,
)
from workbench.parse.server_log import CountsBuilder, FactsBuilder, iter_records
from workbench.table.columns import WINDOWS, frame

DEFAULT_LOG_INTERVAL = 40  # --decode-log-interval's default in every version
IDLE_SHARE = 0.1  # a speed below this share of its level's median holds idle time
MAX_EVENTS = 2_000
_DP = re.compile(r"^DP(\d+)$")


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
    counts, facts, windows = CountsBuilder(), FactsBuilder(), _Windows()
    events: list[LogEvent] = []
    left_out = 0
    kinds: set[LogKind] = set()
    for record in iter_records(chunks, counts):
        facts.feed(record)
        windows.feed(record)
        kinds.add(LogKind.VLLM if isinstance(record, VllmSpecRecord | VllmEngineRecord) else LogKind.SGLANG)
        if isinstance(record, LogEvent):
            if len(events) < MAX_EVENTS:
                events.append(record)
            else:
                left_out += 1
    known = facts.facts()
    kind = LogKind.VLLM if kinds == {LogKind.VLLM} else LogKind.SGLANG if kinds else LogKind.UNKNOWN
    table = windows.table(_log_interval(known), campaign=campaign, server_id=server_id)
    return LogSummary(name, kind, known, tuple(events), left_out, counts.counts(), table)


class _Windows:
    """Collects decode lines and marks those whose window holds idle time."""

    def __init__(self) -> None:
        self.rows: list[dict[str, object]] = []
        self._was_idle: dict[int, bool] = {}
        self._seen_ready = False
        self._reporter: dict[int, frozenset[str]] = {}
        self._last_vllm: VllmEngineRecord | None = None

    def feed(self, record: object) -> None:
        if isinstance(record, DecodeRecord):
            self._decode(record)
        elif isinstance(record, PrefillRecord):
            if record.running_req == 0:
                self._was_idle[dp_rank(record.ranks)] = True
        elif isinstance(record, LogEvent) and record.kind in (EventKind.READY, EventKind.FLUSH):
            self._seen_ready = True
            self._was_idle = dict.fromkeys({*self._was_idle, *self._reporter, 0}, True)
        elif isinstance(record, VllmEngineRecord):
            self._last_vllm = record
        elif isinstance(record, VllmSpecRecord):
            self._vllm(record)

    def _decode(self, record: DecodeRecord) -> None:
        rank = dp_rank(record.ranks)
        # Every TP and PP rank of a DP rank counts the same tokens: the first one seen speaks for all.
        if self._reporter.setdefault(rank, record.ranks) != record.ranks:
            return
        self.rows.append(
            {
                "line": record.line,
                "offset": record.offset,
                "time": record.time,
                "dp_rank": rank,
                "running_req": record.running_req,
                "queue_req": record.queue_req,
                "tokens": record.tokens,
                "token_usage": record.token_usage,
                "accept_len": record.accept_len,
                "accept_rate_printed": record.accept_rate,
                "cuda_graph": record.cuda_graph,
                "gen_tok_per_s": record.gen_tok_per_s,
                "idle": self._was_idle.pop(rank, False),
                "truncated": record.truncated,
            }
        )

    def _vllm(self, record: VllmSpecRecord) -> None:
        # The engine line just before carries the speed and load of the same interval.
        engine, self._last_vllm = self._last_vllm, None
        self.rows.append(
            {
                "line": record.line,
                "offset": record.offset,
                "time": record.time,
                "dp_rank": 0,
                "running_req": engine.running_req if engine else None,
                "queue_req": engine.queue_req if engine else None,
                "token_usage": engine.kv_usage if engine else None,
                "accept_len": record.mean_acceptance_length,
                "accept_rate_printed": record.draft_acceptance_rate,
                "gen_tok_per_s": engine.gen_tok_per_s if engine else None,
                "idle": False,
                "truncated": record.truncated,
            }
        )

    def table(self, interval: int, *, campaign: str, server_id: str) -> pd.DataFrame:
        table = frame(WINDOWS, self.rows)
        table["campaign"], table["run_id"], table["server_id"] = campaign, "", server_id
        table["idle"] = table["idle"].fillna(False).astype(bool) | _far_below_level(table)
        # A plain decode line has no accept length: every step gives one token a request.
        table["window_tokens"] = interval * table["running_req"].astype(float) * table["accept_len"].fillna(1.0)
        table["window_s"] = (table["window_tokens"] / table["gen_tok_per_s"]).where(table["gen_tok_per_s"] > 0)
        return table.astype({"idle": "boolean"})


def _far_below_level(table: pd.DataFrame) -> pd.Series[bool]:
    """Lines far slower than others with as many requests running: they hold idle time that no other line shows."""
    median = table.groupby(["dp_rank", "running_req"])["gen_tok_per_s"].transform("median")
    return (table["gen_tok_per_s"] < IDLE_SHARE * median).fillna(False).astype(bool)


def dp_rank(ranks: frozenset[str]) -> int:
    """The data parallel rank among a line's tags, 0 when there is none."""
    return next((int(match[1]) for tag in ranks if (match := _DP.match(tag))), 0)


def _log_interval(facts: StartupFacts) -> int:
    stated = facts.server_args.get("decode_log_interval")
    return stated if isinstance(stated, int) and stated > 0 else DEFAULT_LOG_INTERVAL


def log_figures(windows: pd.DataFrame) -> Mapping[str, object]:
    """Figures of a run's decode windows, for the columns of ``runs`` that come from the log.

    ``accept_length_log`` weights lines by running requests (sglang.md: a line is a fixed number of steps). Speeds of
    data parallel ranks are added up.
    """
    if windows.empty:
        return {"num_windows": 0}
    busy = windows[~windows["idle"].fillna(False).astype(bool)]
    graph = windows["cuda_graph"].dropna()
    return {
        "num_windows": len(windows),
        "num_idle_windows": int(windows["idle"].sum()),
        "num_truncated": int(windows["truncated"].sum()),
        "cuda_graph_share": float(graph.mean()) if len(graph) else None,
        "cuda_graph": bool(graph.mean() >= 0.5) if len(graph) else None,
        "accept_length_log": _weighted_accept_length(windows),
        "accept_rate_printed": _plain(windows["accept_rate_printed"].mean()),
        "log_median_tok_per_s": _plain(busy.groupby("dp_rank")["gen_tok_per_s"].median().sum(min_count=1)),
        "log_client_tok_per_s": _client_speed(busy),
        "peak_running_req": _plain(windows["running_req"].max()),
        "peak_queue_req": _plain(windows["queue_req"].max()),
    }


def _weighted_accept_length(windows: pd.DataFrame) -> float | None:
    known = windows.dropna(subset=["accept_len"])
    weight = known["running_req"].astype(float).fillna(1.0).clip(lower=1.0)
    return float((known["accept_len"] * weight).sum() / weight.sum()) if len(known) else None


def _client_speed(busy: pd.DataFrame) -> float | None:
    known = busy.dropna(subset=["window_s"])
    total = known.groupby("dp_rank")[["window_tokens", "window_s"]].sum()
    speed = (total["window_tokens"] / total["window_s"]).where(total["window_s"] > 0).sum(min_count=1)
    return _plain(speed)


def _plain(value: object) -> float | None:
    return None if value is None or pd.isna(value) else float(value)  # type: ignore[arg-type, call-overload]
