"""Speeds from decode lines: the one rule behind the tables, the speedups and the diagnosis.

A decode line tells the tokens and the time since the line before. The **median** line is the speed of steady decoding:
it hardly sees prefills, cold starts and the beginning of each phase. The **client-like** speed takes all tokens over
all time of a load, as a client does. Both leave out the lines that waited (`idle` in the table of windows).
"""

from __future__ import annotations

import pandas as pd


def client_like_df(windows: pd.DataFrame) -> pd.DataFrame:
    """Client-like and median speed of one log by running requests, of one data parallel rank.

    The step counter runs on between phases, so on average half of the first window of a phase (``opening``) belongs to
    the load before it: its tokens are taken at the mean of both loads.

    Returns
    -------
    DataFrame
        running_req, tokens, seconds, opening_s (time of first lines), left_out_s (time of lines that waited), median,
        num_windows (lines counted), client, opening_share. Client-like figures are NaN where the log does not tell the
        tokens of a line (vLLM).
    """
    levels = (
        _parts(windows)
        .groupby("running_req")
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
    return levels.reset_index()


def _parts(windows: pd.DataFrame) -> pd.DataFrame:
    """What each line adds to its load."""
    lines = windows.dropna(subset=["running_req", "gen_tok_per_s"])
    lines = lines[(lines["running_req"] > 0) & (lines["gen_tok_per_s"] > 0)]
    running = lines["running_req"].astype("float64")
    opening = lines["opening"].fillna(False).astype(bool)
    counted = ~lines["idle"].fillna(False).astype(bool)
    before = lines["before_req"].astype("float64").fillna(0.0)
    tokens = lines["window_tokens"].where(~opening, lines["window_tokens"] * (before + running) / (2 * running))
    seconds = tokens / lines["gen_tok_per_s"]
    return pd.DataFrame(
        {
            "running_req": lines["running_req"],
            "tokens": tokens.where(counted, 0.0),
            "seconds": seconds.where(counted, 0.0),
            "opening_s": seconds.where(counted & opening, 0.0),
            "left_out_s": lines["window_s"].where(~counted, 0.0),
            "speed": lines["gen_tok_per_s"].where(counted),
            "counted": counted.astype("int64"),
        }
    )


def main_level_speeds(windows: pd.DataFrame) -> tuple[float | None, float | None]:
    """Median and client-like speed at the load that holds most lines, added up over data parallel ranks.

    Of two loads with as many lines the higher one. ``None`` where no rank has a speed.
    """
    chosen = []
    for _, own in windows.groupby("dp_rank"):
        levels = client_like_df(own)
        levels = levels[levels["num_windows"] > 0].sort_values(["num_windows", "running_req"])
        chosen.append(levels.tail(1))
    speeds = pd.concat(chosen) if chosen else client_like_df(windows)
    return tuple(None if speeds[name].isna().all() else float(speeds[name].sum()) for name in ("median", "client"))  # type: ignore[return-value]
