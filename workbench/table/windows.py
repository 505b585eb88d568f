"""Decode lines to the table of windows: a line tells what happened since the line before it."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from datetime import datetime

import numpy as np
import pandas as pd

from workbench.parse.arguments import literal
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
from workbench.table.columns import WINDOWS, frame

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
_DP = re.compile(r"DP([0-9]{1,6})")

_PIECE = 1 << 16  # rows

Row = dict[str, object]


class WindowsBuilder:
    """Feed every record of a log in order, then ask for the table. Keeps one row a decode line.

    Until the arguments of the server are known, ``window_tokens`` holds the intervals a line stands for. Accept lengths
    that no server can have become missing; `num_impossible` counts their lines, repetitions of other ranks too.
    """

    def __init__(self) -> None:
        self._rows = _Columns()
        self._heads: dict[tuple[int, int, frozenset[str]], int] = {}
        self._head_of = array("I")
        self._starts = 0
        self._most_accepted = _LONGEST_ACCEPT
        self.num_impossible = 0
        self._opening: dict[int, bool] = {}
        self._all_opening = False
        self._running: dict[int, int | None] = {}
        self._has_prefill = False
        self._prefills: dict[int, Counter[frozenset[str]]] = {}
        self._told: Counter[tuple[int, frozenset[str]]] = Counter()
        self._fresh: dict[int, bool] = {}
        self._engine: VllmEngineRecord | None = None
        self._plain_rows = _Columns()

    def feed(self, record: Record) -> None:
        if isinstance(record, DecodeRecord):
            self._decode(record)
        elif isinstance(record, PrefillRecord):
            self._has_prefill = True
            if record.new_seq is not None:
                self._prefills.setdefault(dp_rank(record.ranks), Counter())[record.ranks] += 1
            if record.running_req == 0:
                self._opening[dp_rank(record.ranks)] = True
        elif isinstance(record, LogEvent):
            self._event(record)
        elif isinstance(record, VllmEngineRecord):
            self._engine = record
            self._plain_rows.append(_engine_row(record))
        else:
            self._vllm(record)

    def _event(self, event: LogEvent) -> None:
        if event.kind is EventKind.SERVER_ARGS:
            self._starts += 1
            self._most_accepted = _most_accepted(event)
            self._running.clear()
            self._prefills.clear()
            self._told.clear()
        if event.kind in (EventKind.READY, EventKind.FLUSH):
            # Nothing runs on any rank, seen or unseen.
            self._opening.clear()
            self._fresh.clear()
            self._all_opening = True

    def _decode(self, record: DecodeRecord) -> None:
        rank = dp_rank(record.ranks)
        self._head(rank, record.ranks)
        accept_len, impossible = self._possible(record.accept_len)
        self._rows.append(
            {
                "line": record.line,
                "offset": record.offset,
                "time": possible_time(record.time),
                "dp_rank": rank,
                "running_req": record.running_req,
                "queue_req": record.queue_req,
                "tokens": record.tokens,
                "token_usage": record.token_usage,
                "accept_len": accept_len,
                "accept_rate_printed": record.accept_rate,
                "cuda_graph": record.cuda_graph,
                "gen_tok_per_s": record.gen_tok_per_s,
                "before_req": self._running.get(rank, 0),
                "opening": self._opening.get(rank, self._all_opening),
                "fresh": self._fresh.get(rank, self._all_opening),
                "prefills": self._since_told(rank, record.ranks),
                # Of a line with an impossible accept length the tokens are not known either.
                "window_tokens": None if impossible else 1.0,
                # "nan" is no plain line's missing value but one that cannot be read.
                "truncated": record.truncated or "accept len" in record.extra,
            }
        )
        self._opening[rank] = self._fresh[rank] = False
        self._running[rank] = record.running_req

    def _head(self, rank: int, ranks: frozenset[str]) -> None:
        """Who told the next row."""
        self._head_of.append(self._heads.setdefault((self._starts, rank, ranks), len(self._heads)))

    def _since_told(self, rank: int, ranks: frozenset[str]) -> int:
        """Prefills since the last line with these tags: those with the same ones, else of the rank that tells most."""
        seen = self._prefills.get(rank, Counter())
        total = seen[ranks] if ranks in seen else max(seen.values(), default=0)
        since = total - self._told[rank, ranks]
        self._told[rank, ranks] = total
        return since

    def _vllm(self, record: VllmSpecRecord) -> None:
        # The engine line just before carries the speed and load of the same interval.
        engine, self._engine = self._engine, None
        self._head(0, frozenset())
        # Where there is speculation, an engine line without such a line is an interval without drafts.
        self._plain_rows = _Columns()
        accept_len, _ = self._possible(record.mean_acceptance_length)
        self._rows.append(
            {
                "line": record.line,
                "offset": record.offset,
                "time": possible_time(record.time),
                "dp_rank": 0,
                "running_req": engine.running_req if engine else None,
                "queue_req": engine.queue_req if engine else None,
                "token_usage": engine.kv_usage if engine else None,
                "accept_len": accept_len,
                "accept_rate_printed": record.draft_acceptance_rate,
                "gen_tok_per_s": engine.gen_tok_per_s if engine else None,
                "opening": False,
                "fresh": False,
                "truncated": record.truncated,
            }
        )

    def _possible(self, accept_len: float | None) -> tuple[float | None, bool]:
        """The accept length, or nothing and that it cannot be."""
        if accept_len is None or 1 - _ROUNDING <= accept_len <= self._most_accepted + _ROUNDING:
            return accept_len, False
        self.num_impossible += 1
        return None, True

    def table(self, facts: StartupFacts, *, campaign: str, server_id: str) -> pd.DataFrame:
        """The table of windows, of one reporter a data parallel rank."""
        # Without any other line the engine lines of vLLM are those of a plain server.
        table = self._spoken_once()
        if table.empty:
            table = self._plain_rows.table()
        table["campaign"], table["run_id"], table["server_id"] = campaign, "", server_id
        if facts.server_args.get("device") == "cpu":
            # There are no CUDA graphs to be on or off, though the lines have a word for it.
            table["cuda_graph"] = pd.Series(pd.NA, index=table.index, dtype="boolean")
        # vLLM prints by the clock, so its lines do not tell how many tokens they stand for: those stay missing.
        interval = log_interval(facts) * table["window_tokens"]
        # A whole line without an accept length is a plain one: every step gives one token a request.
        plain = table["accept_len"].isna() & ~table["truncated"].astype(bool)
        table["window_tokens"] = interval * table["running_req"].astype(float) * table["accept_len"].mask(plain, 1.0)
        table["window_s"] = (table["window_tokens"] / table["gen_tok_per_s"]).where(table["gen_tok_per_s"] > 0)
        if not self._has_prefill:
            table["prefills"] = pd.Series(pd.NA, index=table.index, dtype=table["prefills"].dtype)
        table["idle"] = _waited(table, tells_openings=self._has_prefill).astype("boolean")
        return table

    def _spoken_once(self) -> pd.DataFrame:
        """Every TP and PP rank of a DP rank prints the same tokens: the rank with most lines speaks for all.

        A line that lost its tags is kept where only one rank prints, and is a repetition where several do.
        """
        heads = list(self._heads)
        told = np.asarray(self._head_of, np.intp)
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
        table = self._rows.table()
        return table if all(kept) else table[np.asarray(kept, bool)[told]].reset_index(drop=True)


class _Columns:
    """Rows that become columns as they come: a row is a kilobyte as a dict, and some 200 bytes in columns."""

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._pieces: list[pd.DataFrame] = []

    def append(self, row: Row) -> None:
        self._rows.append(row)
        if len(self._rows) == _PIECE:
            self._settle()

    def table(self) -> pd.DataFrame:
        self._settle()
        return self._pieces[0].copy() if len(self._pieces) == 1 else pd.concat(self._pieces, ignore_index=True)

    def _settle(self) -> None:
        if self._rows or not self._pieces:
            self._pieces.append(frame(WINDOWS, self._rows))
            self._rows = []


def _waited(table: pd.DataFrame, *, tells_openings: bool) -> pd.Series[bool]:
    """Lines that hold idle or start-up time: the first of a phase, far slower than others at that load.

    A log without prefill lines (a copied piece, a decode server) does not tell where a phase begins: there any line may
    be one. What takes long in the middle of a phase is the server's own doing and counts.
    """
    speed, opening = table["gen_tok_per_s"], table["opening"].fillna(False).astype(bool)
    load = table["running_req"]
    typical = speed.mask(opening).groupby(load, dropna=False).transform("median")
    all_lines = speed.groupby(load, dropna=False)
    typical = typical.fillna(all_lines.transform("median").where(all_lines.transform("count") >= _FEW, float("inf")))
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


def dp_rank(ranks: frozenset[str]) -> int:
    """The data parallel rank among a line's tags, 0 when there is none."""
    return next((int(match[1]) for tag in ranks if (match := _DP.fullmatch(tag))), 0)


def log_interval(facts: StartupFacts) -> int:
    """Decode steps a line stands for, as the server arguments state it, else the default."""
    stated = facts.server_args.get("decode_log_interval")
    if isinstance(stated, bool) or not isinstance(stated, int):
        return DEFAULT_LOG_INTERVAL
    return stated if 0 < stated <= _MOST_STEPS else DEFAULT_LOG_INTERVAL
