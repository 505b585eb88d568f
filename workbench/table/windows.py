"""Decode lines to the table of windows: a line tells what happened since the line before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench.parse.arguments import literal
from workbench.parse.digits import Times
from workbench.parse.records import (
    DecodeRecord,
    EventKind,
    LogEvent,
    PrefillRecord,
    Record,
    StartupFacts,
    VllmEngineRecord,
    VllmSpecRecord,
)
from workbench.parse.stretches import Stretch, lines_of_records
from workbench.table.phases import Ordered, Phases, dp_rank
from workbench.table.pieces import Array, Pieces, Row, array_of

DEFAULT_LOG_INTERVAL = 40  # --decode-log-interval's default in every version
# A line that took longer than both waited for requests, or for the server to start.
WAITING_S = 2.0
WAITING_WINDOWS = 10  # times a typical line at that load
_FEW = 3  # lines of which the median says what is typical
_MOST_STEPS = 10**6
# Servers whose verify step gives at most a token a draft step and the bonus; adaptive ones change their steps.
_ONE_TOKEN_A_STEP = frozenset({"EAGLE", "EAGLE3", "NEXTN", "STANDALONE"})
_LONGEST_ACCEPT = 1000.0
_ROUNDING = 0.01
_YEARS = range(1990, 2101)  # of any other year a stamp is no time
_AS_PRINTED = ("running_req", "queue_req", "tokens", "token_usage", "cuda_graph", "gen_tok_per_s")

_PIECE = 1 << 14  # records that wait to become columns


class WindowsBuilder:
    """Feed every record and stretch of a log in order, then ask once for the table. Keeps one row a decode line.

    Until the arguments of the server are known, ``window_tokens`` holds the intervals a line stands for. Accept lengths
    that no server can have become missing; `num_impossible` counts their lines, repetitions of other ranks too.
    """

    def __init__(self) -> None:
        self._rows = Pieces()
        self._waiting: list[DecodeRecord | PrefillRecord] = []
        self._phases = Phases()
        self._heads: dict[tuple[int, int, frozenset[str]], int] = {}
        self._head_of: list[npt.NDArray[np.uint32]] = []
        self._starts = 0
        self._most_accepted = _LONGEST_ACCEPT
        self.num_impossible = 0
        self._engine: VllmEngineRecord | None = None
        self._plain_rows = Pieces()

    def feed(self, found: Record | Stretch) -> None:
        if isinstance(found, Stretch):
            self._settle()
            self._take(Ordered(found.decode, found.decode.line), Ordered(found.prefill, found.prefill.line))
        elif isinstance(found, DecodeRecord | PrefillRecord):
            self._waiting.append(found)
            if len(self._waiting) == _PIECE:
                self._settle()
        elif isinstance(found, LogEvent):
            self._event(found)
        elif isinstance(found, VllmEngineRecord):
            self._engine = found
            self._plain_rows.append(_engine_row(found))
        else:
            self._settle()
            self._vllm(found)

    def _event(self, event: LogEvent) -> None:
        if event.kind is EventKind.SERVER_ARGS:
            self._settle()
            self._starts += 1
            self._most_accepted = _most_accepted(event)
            self._phases.another_server()
        if event.kind in (EventKind.READY, EventKind.FLUSH):
            self._settle()
            self._phases.nothing_runs()

    def _settle(self) -> None:
        """Make columns of the records that came one by one."""
        records, self._waiting = self._waiting, []
        if records:
            decode = [(place, record) for place, record in enumerate(records) if isinstance(record, DecodeRecord)]
            prefill = [(place, record) for place, record in enumerate(records) if isinstance(record, PrefillRecord)]
            # "nan" is no plain line's missing value but one that cannot be read.
            cut = [record.truncated or "accept len" in record.extra for _, record in decode]
            self._take(_ordered(decode), _ordered(prefill), np.array(cut, np.int8))

    def _take(self, decode: Ordered, prefill: Ordered, truncated: Array | None = None) -> None:
        phases = self._phases.feed(decode, prefill)
        lines, size = decode.lines, len(decode.lines)
        if not size:
            return
        self._told_by(decode)
        accept_len, impossible = self._possible(lines.column("accept_len"))
        columns: dict[str, Array] = {
            **phases,
            "line": lines.line,
            "offset": lines.offset,
            "time": _possible_times(lines.time),
            "accept_len": accept_len,
            "accept_rate_printed": lines.column("accept_rate"),
            # Of a line with an impossible accept length the tokens are not known either.
            "window_tokens": np.where(impossible, np.nan, 1.0),
            "truncated": np.zeros(size, np.int8) if truncated is None else truncated,
        }
        self._rows.add(size, columns | {name: lines.column(name) for name in _AS_PRINTED})

    def _told_by(self, decode: Ordered) -> None:
        """Who told the next rows."""
        heads = np.zeros(len(decode.lines.kinds), np.uint32)
        for place, kind in decode.lines.kinds_met():
            head = (self._starts, dp_rank(kind.ranks), kind.ranks)
            heads[place] = self._heads.setdefault(head, len(self._heads))
        self._head_of.append(heads[decode.lines.kind])

    def _vllm(self, record: VllmSpecRecord) -> None:
        # The engine line just before carries the speed and load of the same interval.
        engine, self._engine = self._engine, None
        head = (self._starts, 0, frozenset[str]())
        self._head_of.append(np.full(1, self._heads.setdefault(head, len(self._heads)), np.uint32))
        # Where there is speculation, an engine line without such a line is an interval without drafts.
        self._plain_rows = Pieces()
        accept_len, _ = self._possible(array_of("accept_len", [record.mean_acceptance_length]))
        self._rows.append(
            {
                "line": record.line,
                "offset": record.offset,
                "time": possible_time(record.time),
                "dp_rank": 0,
                "running_req": engine.running_req if engine else None,
                "queue_req": engine.queue_req if engine else None,
                "token_usage": engine.kv_usage if engine else None,
                "accept_len": accept_len.item(),
                "accept_rate_printed": record.draft_acceptance_rate,
                "gen_tok_per_s": engine.gen_tok_per_s if engine else None,
                "opening": False,
                "fresh": False,
                "truncated": record.truncated,
            }
        )

    def _possible(self, accept_len: Array) -> tuple[Array, npt.NDArray[np.bool_]]:
        """The accept lengths, missing where they cannot be, and where that is."""
        impossible = (accept_len < 1 - _ROUNDING) | (accept_len > self._most_accepted + _ROUNDING)
        count = int(np.count_nonzero(impossible))
        self.num_impossible += count
        return (np.where(impossible, np.nan, accept_len) if count else accept_len), impossible

    def table(self, facts: StartupFacts, *, campaign: str, server_id: str) -> pd.DataFrame:
        """The table of windows, of one reporter a data parallel rank."""
        self._settle()
        # Without any other line the engine lines of vLLM are those of a plain server.
        table = self._spoken_once(campaign=campaign, server_id=server_id)
        if table.empty:
            table = self._plain_rows.table(campaign=campaign, server_id=server_id)
        if facts.server_args.get("device") == "cpu":
            # There are no CUDA graphs to be on or off, though the lines have a word for it.
            table["cuda_graph"] = pd.Series(pd.NA, index=table.index, dtype="boolean")
        # vLLM prints by the clock, so its lines do not tell how many tokens they stand for: those stay missing.
        interval = log_interval(facts) * table["window_tokens"]
        # A whole line without an accept length is a plain one: every step gives one token a request.
        plain = table["accept_len"].isna() & ~table["truncated"].astype(bool)
        table["window_tokens"] = interval * table["running_req"].astype(float) * table["accept_len"].mask(plain, 1.0)
        table["window_s"] = (table["window_tokens"] / table["gen_tok_per_s"]).where(table["gen_tok_per_s"] > 0)
        if not self._phases.has_prefill:
            table["prefills"] = pd.Series(pd.NA, index=table.index, dtype=table["prefills"].dtype)
        table["idle"] = _waited(table, tells_openings=self._phases.has_prefill).astype("boolean")
        return table

    def _spoken_once(self, **texts: str) -> pd.DataFrame:
        """Every TP and PP rank of a DP rank prints the same tokens: the rank with most lines speaks for all.

        A line that lost its tags is kept where only one rank prints, and is a repetition where several do.
        """
        heads = list(self._heads)
        told = np.concatenate([np.zeros(0, np.uint32), *self._head_of])
        spoken = Counter({heads[i]: int(count) for i, count in enumerate(np.bincount(told)) if heads[i][2]})
        speaker: dict[tuple[int, int], frozenset[str]] = {}
        several: set[tuple[int, int]] = set()
        for (start, rank, tags), _ in spoken.most_common():
            if speaker.setdefault((start, rank), tags) != tags:
                several.add((start, rank))
        kept = [
            tags == speaker.get((start, rank), tags) or (not tags and (start, rank) not in several)
            for start, rank, tags in heads
        ]
        table = self._rows.table(**texts)
        return table if all(kept) else table[np.asarray(kept, bool)[told]].reset_index(drop=True)


def _ordered(records: Sequence[tuple[int, DecodeRecord | PrefillRecord]]) -> Ordered:
    return Ordered(
        lines_of_records([record for _, record in records]), np.array([place for place, _ in records], np.int64)
    )


def _waited(table: pd.DataFrame, *, tells_openings: bool) -> pd.Series[bool]:
    """Lines that hold idle or start-up time: the first of a phase, far slower than others at that load.

    A log without prefill lines (a copied piece, a decode server) does not tell where a phase begins: there any line may
    be one. What takes long in the middle of a phase is the server's own doing and counts.
    """
    speed, opening = table["gen_tok_per_s"], table["opening"].fillna(False).astype(bool)
    load = table["running_req"]
    typical = speed.mask(opening).groupby(load, dropna=False).transform("median")
    if typical.isna().any():
        all_lines = speed.groupby(load, dropna=False)
        typical = typical.fillna(
            all_lines.transform("median").where(all_lines.transform("count") >= _FEW, float("inf"))
        )
    # Where the number of tokens is not known, neither is the time, and the low speed has to do.
    long = (WAITING_WINDOWS * speed < typical) & ~(table["window_s"] <= WAITING_S)
    return (long & (opening | (not tells_openings))) | (speed == 0)


def _engine_row(record: VllmEngineRecord) -> Row:
    """The line of a vLLM server without speculation."""
    return {
        "line": record.line,
        "offset": record.offset,
        "time": possible_time(record.time),
        "dp_rank": 0,
        "running_req": record.running_req,
        "queue_req": record.queue_req,
        "token_usage": record.kv_usage,
        "gen_tok_per_s": record.gen_tok_per_s,
        "opening": False,
        "fresh": False,
        "truncated": record.truncated,
    }


def _most_accepted(server_args: LogEvent) -> float:
    """Most tokens a verify step of this server can give, as far as its arguments tell."""
    stated = {name: literal(text) for name, text in server_args.fields.items()}
    steps = stated.get("speculative_num_steps")
    fixed = (
        str(stated.get("speculative_algorithm")).upper() in _ONE_TOKEN_A_STEP
        and stated.get("speculative_adaptive") is not True
    )
    return steps + 1.0 if fixed and type(steps) is int and 0 < steps < _LONGEST_ACCEPT else _LONGEST_ACCEPT


def possible_time(time: datetime | None) -> datetime | None:
    """The time stamp, ``None`` where it can only be a slip: no axis of time holds the year 1 or 9999."""
    return time if time is not None and time.year in _YEARS else None


def _possible_times(times: Times) -> Times:
    first, last = (np.datetime64(f"{year}-01-01", "us") for year in (_YEARS.start, _YEARS.stop))
    return np.where((times >= first) & (times < last), times, np.datetime64("NaT", "us"))


def log_interval(facts: StartupFacts) -> int:
    """Decode steps a line stands for, as the server arguments state it, else the default."""
    stated = facts.server_args.get("decode_log_interval")
    if isinstance(stated, bool) or not isinstance(stated, int):
        return DEFAULT_LOG_INTERVAL
    return stated if 0 < stated <= _MOST_STEPS else DEFAULT_LOG_INTERVAL
