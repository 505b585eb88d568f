"""Speeds from decode lines: the one rule behind the tables, the speedups and the diagnosis.

A decode line tells the tokens and the time since the line before. The **median** line is the speed of steady decoding:
it hardly sees prefills, cold starts and the beginning of each phase. The **client-like** speed takes all tokens over
all time of a load, as a client does. Both leave out the lines that waited (`idle` in the table of windows).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd


def client_like_df(windows: pd.DataFrame, by: Sequence[str] = ()) -> pd.DataFrame:
    """Client-like and median speed by running requests, of one data parallel rank.

    The step counter runs on between phases, so on average half of the first window of a phase (``opening``) belongs to
    the load before it: its tokens are taken at the mean of both loads.

    Parameters
    ----------
    by
        Columns that tell apart what is measured together: runs, ranks. Nothing for the windows of one log.

    Returns
    -------
    DataFrame
        ``by``, running_req, tokens, seconds, opening_s (time of first lines), left_out_s (time of lines that waited),
        median, num_windows (lines counted), client, opening_share. Client-like figures are NaN where the log does not
        tell the tokens of a line (vLLM).
    """
    levels = (
        _parts(windows, by)
        .groupby([*by, "running_req"], as_index=False)
        .agg(
            tokens=("tokens", "sum"),
            seconds=("seconds", "sum"),
            opening_s=("opening_s", "sum"),
            left_out_s=("left_out_s", "sum"),
            median=("speed", "median"),
            num_windows=("counted", "sum"),
        )
    )
    levels["client"] = (levels["tokens"] / levels["seconds"]).where(levels["seconds"] > 0)
    levels["opening_share"] = (levels["opening_s"] / levels["seconds"]).where(levels["seconds"] > 0)
    return levels


def _parts(windows: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """What each line that tells a load and a speed adds to its load."""
    told = (windows["running_req"] > 0).fillna(False) & (windows["gen_tok_per_s"] > 0)
    lines = windows[told.to_numpy(dtype=bool)]
    running, before, speed, window_tokens, window_s = (
        lines[name].to_numpy(dtype=np.float64, na_value=np.nan)
        for name in ("running_req", "before_req", "gen_tok_per_s", "window_tokens", "window_s")
    )
    opening, waited = (lines[name].to_numpy(dtype=bool, na_value=False) for name in ("opening", "idle"))
    share = np.where(opening, (np.nan_to_num(before) + running) / (2 * running), 1.0)
    tokens = np.where(waited, 0.0, window_tokens * share)
    return pd.DataFrame(
        {
            **{name: lines[name] for name in (*by, "running_req")},
            "tokens": tokens,
            "seconds": tokens / speed,
            "opening_s": np.where(opening, tokens / speed, 0.0),
            "left_out_s": np.where(waited, window_s, 0.0),
            "speed": np.where(waited, np.nan, speed),
            "counted": (~waited).astype(np.int64),
        },
        index=lines.index,
    )


def main_speeds_df(windows: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Median and client-like speed at the load that holds most lines, added up over data parallel ranks.

    Of two loads with as many lines the higher one. Columns median and client, indexed by ``by``; groups without any
    speed are left out.
    """
    levels = client_like_df(windows, [*by, "dp_rank"])
    levels = levels[levels["num_windows"] > 0].sort_values(["num_windows", "running_req"])
    chosen = levels.groupby([*by, "dp_rank"]).tail(1)
    return chosen.groupby([*by])[["median", "client"]].sum(min_count=1)
