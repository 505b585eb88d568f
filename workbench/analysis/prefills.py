"""What prefills take of the time between decode lines, and how long a step lasts between them.

The speed of a decode line covers the time since the line before, prefills of newly admitted requests included. A line
without a prefill in between tells the time of a step alone. Where requests end one by one, as they do under speculation
with acceptance that differs between them, every one that ends lets another be prefilled, and the rest wait: break-even
over all time then says what this load costs, break-even between prefills what a verify cycle costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

import numpy as np
import pandas as pd

from workbench.analysis.frames import Row, most, positions, records, typed
from workbench.analysis.pairing import pairs
from workbench.analysis.remembered import Part, remembered
from workbench.analysis.wording import span
from workbench.table import Tables
from workbench.table.lazy import Piece
from workbench.table.lines import Flags, Floats, Lines, lines_of

MIN_LINES = 5
"""Lines without a prefill that a median needs."""
NOTABLE = 0.3
"""Share of the time from which prefills are worth a sentence."""
FEWER = 0.75
"""Forced acceptance hides prefills where they take less than this of the baseline's share."""

_BY_LOAD = {
    "running_req": "Int64",
    "num_windows": "Int64",
    "num_clean": "Int64",
    "prefills": "Int64",
    "step_ms": "float64",
    "clean_step_ms": "float64",
    "prefill_share": "float64",
    "prefill_ms": "float64",
}
_OF_RUNS = {
    "campaign": "str",
    "run_id": "str",
    "label": "str",
    "max_concurrency": "Int64",
    "simulated_accept_length": "float64",
    "prefill_share": "float64",
    "base_prefill_share": "float64",
    "prefill_ms": "float64",
    "clean_step_ms": "float64",
    "base_clean_step_ms": "float64",
    "break_even": "float64",
    "clean_break_even": "float64",
}


def prefills_df(windows: pd.DataFrame, by: Sequence[str] = (), *, always_busy: bool = False) -> pd.DataFrame:
    """Time of a step over all lines and between prefills, by running requests.

    A step is a verify cycle under speculation and gives one token a request without. Lines that waited are left out.

    Parameters
    ----------
    by
        Columns that tell apart what is measured together. Nothing for the windows of one log.
    always_busy
        The client sent the next request as soon as one had ended: the first line of a phase then holds a prefill and
        hardly any waiting, except after a flush of the cache. Otherwise first lines are left out.

    Returns
    -------
    DataFrame
        ``by``, running_req, num_windows, num_clean (lines without a prefill), prefills, step_ms (all time over all
        steps), clean_step_ms (the same of lines without a prefill, missing for fewer than `MIN_LINES`), prefill_share
        (of the time, what steps of that length leave), prefill_ms (of one prefill batch).
    """
    columns = {**{name: str(windows[name].dtype) for name in by}, **_BY_LOAD}
    if not by:
        return typed(prefills_by_load(lines_of(windows), always_busy=always_busy), columns)
    rows = [
        {**dict(zip(by, key, strict=True)), **row}
        for key, own in windows.groupby([*by], dropna=False)
        for row in prefills_by_load(lines_of(own), always_busy=always_busy)
    ]
    return typed(rows, columns)


def prefills_by_load(lines: Lines, *, always_busy: bool = False) -> list[Row]:
    """The rows of `prefills_df` of what was measured together, ``None`` for whatever is missing."""
    used = lines.only(_told(lines, "fresh" if always_busy else "opening"))
    running = used["running_req"]
    steps = used["window_tokens"] / (running * np.nan_to_num(used["accept_len"], nan=1.0))
    loads, load = np.unique(running, return_inverse=True)
    told = used["prefills"], used["window_s"], steps
    found = (_at_one_load(*(column[chosen] for column in told)) for chosen in positions(load, len(loads)))
    return [row | {"running_req": int(running)} for running, row in zip(loads, found, strict=True)]


def _told(lines: Lines, without: str) -> Flags:
    """The lines that tell both steps and seconds."""
    length = lines["accept_len"]
    told = (lines["running_req"] > 0) & (lines["window_tokens"] > 0) & (lines["window_s"] > 0)
    told &= ~np.isnan(lines["prefills"]) & ~lines.flag("idle") & ~lines.flag(without)
    # Of a speculative line without its accept length, or with one of 0, the steps are not known.
    is_speculative = not np.isnan(length).all()
    return told & (length > 0 if is_speculative else True)


def _at_one_load(prefills: Floats, seconds: Floats, steps: Floats) -> Row:
    clean, met, all_s, all_steps = prefills == 0, int(prefills.sum()), float(seconds.sum()), float(steps.sum())
    num_clean = int(clean.sum())
    row: Row = dict.fromkeys(_BY_LOAD) | {"num_windows": len(steps), "num_clean": num_clean, "prefills": met}
    row["step_ms"] = 1e3 * all_s / all_steps
    if num_clean < MIN_LINES:
        return row
    step = float(seconds[clean].sum() / steps[clean].sum())
    taken = max(0.0, all_s - step * all_steps)
    row |= {"clean_step_ms": 1e3 * step, "prefill_share": taken / all_s}
    return row | ({"prefill_ms": 1e3 * taken / met} if met else {})


def prefills_of_runs_df(tables: Tables, costs: pd.DataFrame) -> pd.DataFrame:
    """Every speculative run with its baselines: what prefills take of both, and break-even with and without them.

    Loads are those of all slots busy; several baselines count by their mean, as in the speedup. Runs whose log, or
    whose baselines', does not tell are left out. ``break_even`` is that of ``costs``, by the clients' speeds.
    """
    told = {
        (row["campaign"], row["run_id"], row["running_req"]): row
        for row in _by_run(tables)
        if row["clean_step_ms"] is not None
    }
    by_speed = {(row["campaign"], row["run_id"]): row["break_even"] for row in records(costs)}
    rows = []
    for pair in pairs(tables.runs):
        run, load = pair.run, pair.run["max_concurrency"]
        here = told.get((run["campaign"], run["run_id"], load))
        there = [
            row for base in pair.baselines if (row := told.get((base["campaign"], base["run_id"], load))) is not None
        ]
        if here is not None and there:
            rows.append(_beside(run, here, there, by_speed.get((run["campaign"], run["run_id"]))))
    return typed(rows, _OF_RUNS)


def _by_run(tables: Tables) -> list[Row]:
    """`prefills_df` of every run, log by log where the tables allow it: all windows together may be too many."""
    by = ("campaign", "run_id")
    if not tables.pieces:
        return records(prefills_df(tables.windows, by, always_busy=True))
    rows: list[Row] = []
    for campaign in tables.campaigns:
        parts: list[Part] = [
            (piece.made_from, partial(_of_piece, piece)) for piece in tables.pieces if piece.campaign == campaign
        ]
        rows += [row for found in remembered("prefills", campaign, parts) for row in cast(list[Row], found)]
    return rows


def _of_piece(piece: Piece) -> list[Row]:
    return [
        {"campaign": piece.campaign, "run_id": run_id, **row}
        for run_id, lines in sorted(piece.read().items())
        for row in prefills_by_load(lines, always_busy=True)
    ]


def _beside(run: Row, here: Row, there: Sequence[Row], break_even: float | None) -> Row:
    base = {f"base_{name}": sum(row[name] for row in there) / len(there) for name in ("prefill_share", "clean_step_ms")}
    return {
        **{name: run[name] for name in ("campaign", "run_id", "label", "max_concurrency", "simulated_accept_length")},
        **{name: here[name] for name in ("prefill_share", "prefill_ms", "clean_step_ms")},
        **base,
        "break_even": break_even,
        "clean_break_even": here["clean_step_ms"] / base["base_clean_step_ms"],
    }


def prefills_words(found: pd.DataFrame) -> str:
    """Where prefills take a large part of the time, and where forced acceptance hides that; empty below `NOTABLE`."""
    real = found[found["simulated_accept_length"].isna() & (found["prefill_share"] >= NOTABLE)]
    return " ".join(part for part in (_most_interrupted(real), _hidden_by_forcing(found)) if part)


def _most_interrupted(found: pd.DataFrame) -> str:
    if found.empty:
        return ""
    row = most(found, "prefill_share")
    return (
        f"At {row['max_concurrency']} at once prefills take {row['prefill_share']:.0%} of the time of {row['label']} "
        f"({row['prefill_ms']:.0f} ms each) and {row['base_prefill_share']:.0%} of its baseline's. Between them a "
        f"verify cycle takes {row['clean_step_ms']:.2f} ms and a plain step {row['base_clean_step_ms']:.2f}: "
        f"break-even there is {row['clean_break_even']:.2f}{_by_speeds(row['break_even'])}."
    )


def _by_speeds(break_even: float | None) -> str:
    return "" if break_even is None else f", by the clients' speeds {break_even:.2f}"


def _hidden_by_forcing(found: pd.DataFrame) -> str:
    """Requests that accept alike end together, and are prefilled together."""
    forced = found[found["simulated_accept_length"].notna() & (found["base_prefill_share"] >= NOTABLE)]
    hidden = forced[forced["prefill_share"] < FEWER * forced["base_prefill_share"]].dropna(subset=["break_even"])
    if hidden.empty:
        return ""
    load = int(hidden["max_concurrency"].max())
    there = hidden[hidden["max_concurrency"] == load]
    by_speed, between = (
        span(float(there[name].min()), float(there[name].max())) for name in ("break_even", "clean_break_even")
    )
    share = float(there["prefill_share"].max())
    return (
        f"Forced acceptance ends requests together, so that they are prefilled together: at {load} at once prefills "
        f"take at most {share:.0%} of the time of those runs and {there['base_prefill_share'].max():.0%} of the "
        f"baseline's. Break-even by the clients' speeds reads {by_speed} there, between prefills {between}."
    )
