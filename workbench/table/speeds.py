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
    if not by:
        return _rates(_levels_of_one(_parts(windows, ())))
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
    return _rates(levels)


def _rates(levels: pd.DataFrame) -> pd.DataFrame:
    levels["client"] = (levels["tokens"] / levels["seconds"]).where(levels["seconds"] > 0)
    levels["opening_share"] = (levels["opening_s"] / levels["seconds"]).where(levels["seconds"] > 0)
    return levels


def _levels_of_one(parts: pd.DataFrame) -> pd.DataFrame:
    """The same sums for one log: grouping by pandas takes longer than the sums where there are thousands of logs."""
    running = parts["running_req"].to_numpy(dtype=np.int64)
    loads, level = np.unique(running, return_inverse=True)
    sums = {
        name: np.bincount(level, weights=np.nan_to_num(parts[name].to_numpy()), minlength=len(loads))
        for name in ("tokens", "seconds", "opening_s", "left_out_s")
    }
    speeds = parts["speed"].to_numpy()
    counted = [speeds[(level == place) & ~np.isnan(speeds)] for place in range(len(loads))]
    return pd.DataFrame(
        {
            "running_req": pd.array(loads, dtype="Int64"),
            **sums,
            "median": [float(np.median(values)) if len(values) else np.nan for values in counted],
            "num_windows": np.bincount(level, weights=parts["counted"].to_numpy(), minlength=len(loads)).astype(
                np.int64
            ),
        }
    )


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


def main_speed(windows: pd.DataFrame) -> tuple[float, float]:
    """The same of one data parallel rank of one log: median and client-like speed, NaN without any."""
    levels = client_like_df(windows)
    levels = levels[levels["num_windows"] > 0]
    if levels.empty:
        return float("nan"), float("nan")
    main = levels.sort_values(["num_windows", "running_req"]).tail(1)
    return float(main["median"].iloc[0]), float(main["client"].iloc[0])
