"""What prefills take of the time between decode lines, and how long a step lasts between them.

The speed of a decode line covers the time since the line before, prefills of newly admitted requests included. A line
without a prefill in between tells the time of a step alone. Where requests end one by one, as they do under speculation
with acceptance that differs between them, every one that ends lets another be prefilled, and the rest wait: break-even
over all time then says what this load costs, break-even between prefills what a verify cycle costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import pandas as pd

from workbench.analysis.frames import Row, most, records, typed
from workbench.analysis.pairing import pairs
from workbench.analysis.remembered import Part, remembered
from workbench.analysis.wording import span
from workbench.table import Tables

MIN_LINES = 5
"""Lines without a prefill that a median needs."""
NOTABLE = 0.3
"""Share of the time from which prefills are worth a sentence."""

_BY_LOAD = {
    "running_req": "Int64",
    "num_windows": "Int64",
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
    "step_ms": "float64",
    "clean_step_ms": "float64",
    "base_step_ms": "float64",
    "base_clean_step_ms": "float64",
    "break_even": "float64",
    "clean_break_even": "float64",
}


def prefills_df(windows: pd.DataFrame, by: Sequence[str] = ()) -> pd.DataFrame:
    """Time of a step over all lines and between prefills, by running requests.

    First lines of phases and lines that waited are left out: they hold time without any work. A step is a verify cycle
    under speculation and gives one token a request without.

    Parameters
    ----------
    by
        Columns that tell apart what is measured together, as in `workbench.table.speeds.client_like_df`.

    Returns
    -------
    DataFrame
        ``by``, running_req, num_windows, prefills, step_ms (all time over all steps), clean_step_ms (median of lines
        without a prefill, missing for fewer than `MIN_LINES`), prefill_share (of the time, what steps of that length
        leave), prefill_ms (of one prefill batch).
    """
    lines = _steps(windows, by)
    if lines.empty:
        return typed([], {**{name: str(windows[name].dtype) for name in by}, **_BY_LOAD})
    rows = []
    keys = [*by, "running_req"]
    for key, same in lines.groupby(keys, dropna=False):
        rows.append({**dict(zip(keys, key, strict=True)), **_at_one_load(same)})
    return typed(rows, {**{name: str(windows[name].dtype) for name in by}, **_BY_LOAD})


def _steps(windows: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Steps and seconds of the lines that tell both."""
    told = (windows["running_req"] > 0) & (windows["window_tokens"] > 0) & (windows["window_s"] > 0)
    told &= windows["prefills"].notna()
    used = windows[told.fillna(False) & ~windows["idle"].fillna(False) & ~windows["opening"].fillna(False)]
    running, speed, tokens, seconds = (
        used[name].to_numpy(dtype=np.float64, na_value=np.nan)
        for name in ("running_req", "gen_tok_per_s", "window_tokens", "window_s")
    )
    length = np.nan_to_num(used["accept_len"].to_numpy(dtype=np.float64, na_value=np.nan), nan=1.0)
    return pd.DataFrame(
        {
            **{name: used[name] for name in (*by, "running_req", "prefills")},
            "steps": tokens / (running * length),
            "seconds": seconds,
            "step_s": running * length / speed,
        },
        index=used.index,
    )


def _at_one_load(lines: pd.DataFrame) -> Row:
    prefills, seconds, steps = int(lines["prefills"].sum()), lines["seconds"].sum(), lines["steps"].sum()
    clean = lines.loc[lines["prefills"] == 0, "step_s"]
    row: Row = {"num_windows": len(lines), "prefills": prefills, "step_ms": 1e3 * seconds / steps}
    if len(clean) < MIN_LINES:
        return row
    step = float(clean.median())
    hit = lines[lines["prefills"] > 0]
    taken = max(0.0, float(hit["seconds"].sum() - step * hit["steps"].sum()))
    row |= {"clean_step_ms": 1e3 * step, "prefill_share": taken / seconds}
    return row | ({"prefill_ms": 1e3 * taken / prefills} if prefills else {})


def prefills_of_runs_df(tables: Tables) -> pd.DataFrame:
    """Every speculative run with its baseline: what prefills take of both, and break-even with and without them.

    Loads are those of all slots busy. Runs whose log, or whose baseline's, does not tell are left out. ``break_even``
    is that of the log's whole time, ``clean_break_even`` the ratio of the steps between prefills.
    """
    told = {(row["campaign"], row["run_id"], row["running_req"]): row for row in _by_run(tables)}
    rows = []
    for pair in pairs(tables.runs):
        run, load = pair.run, pair.run["max_concurrency"]
        here = told.get((run["campaign"], run["run_id"], load))
        there = told.get((run["campaign"], pair.baseline_run_id, load))
        if here is not None and there is not None and here["clean_step_ms"] and there["clean_step_ms"]:
            rows.append(_beside(run, here, there))
    return typed(rows, _OF_RUNS)


def _by_run(tables: Tables) -> list[Row]:
    """`prefills_df` of every run, log by log where the tables allow it: all windows together may be too many."""
    by = ("campaign", "run_id")
    if not tables.pieces:
        return records(prefills_df(tables.windows, by))
    rows: list[Row] = []
    for campaign in tables.campaigns:
        parts: list[Part] = [
            (piece.made_from, lambda piece=piece: records(prefills_df(piece.read(), by)))  # type: ignore[misc]
            for piece in tables.pieces
            if piece.campaign == campaign
        ]
        rows += [row for found in remembered("prefills", campaign, parts) for row in cast(list[Row], found)]
    return rows


def _beside(run: Row, here: Row, there: Row) -> Row:
    return {
        **{name: run[name] for name in ("campaign", "run_id", "label", "max_concurrency", "simulated_accept_length")},
        **{name: here[name] for name in ("prefill_share", "prefill_ms", "step_ms", "clean_step_ms")},
        **{f"base_{name}": there[name] for name in ("prefill_share", "step_ms", "clean_step_ms")},
        "break_even": here["step_ms"] / there["step_ms"],
        "clean_break_even": here["clean_step_ms"] / there["clean_step_ms"],
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
        f"break-even there is {row['clean_break_even']:.2f}, over all time {row['break_even']:.2f}."
    )


def _hidden_by_forcing(found: pd.DataFrame) -> str:
    """Requests that accept alike end together, and are prefilled together."""
    forced = found[found["simulated_accept_length"].notna() & (found["base_prefill_share"] >= NOTABLE)]
    hidden = forced[forced["prefill_share"] < forced["base_prefill_share"] / 2]
    if hidden.empty:
        return ""
    load = int(hidden["max_concurrency"].max())
    there = hidden[hidden["max_concurrency"] == load]
    by_speed, between = (
        span(float(there[name].min()), float(there[name].max())) for name in ("break_even", "clean_break_even")
    )
    return (
        "Forced acceptance ends requests together, so that prefills hardly interrupt them, as they do the baseline "
        f"({there['base_prefill_share'].max():.0%} of its time at {load} at once): break-even over all time reads "
        f"{by_speed} there, between prefills {between}."
    )
