"""Speeds from decode lines: the one rule behind the tables, the speedups and the diagnosis.

A decode line tells the tokens and the time since the line before. The **median** line is the speed of steady decoding:
it hardly sees prefills, cold starts and the beginning of each phase. The **client-like** speed takes all tokens over
all time of a load, as a client does. Both leave out the lines that waited (`idle` in the table of windows).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

Floats = npt.NDArray[np.float64]


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
    lines = _lines(windows)
    level, place = np.unique(lines["running_req"].to_numpy(dtype=np.int64), return_inverse=True)
    running, before, speed, window_tokens, window_s = (
        lines[name].to_numpy(dtype=np.float64, na_value=np.nan)
        for name in ("running_req", "before_req", "gen_tok_per_s", "window_tokens", "window_s")
    )
    opening, waited = (lines[name].to_numpy(dtype=bool, na_value=False) for name in ("opening", "idle"))
    share = np.where(opening, (np.nan_to_num(before) + running) / (2 * running), 1.0)
    tokens = np.where(waited, 0.0, window_tokens * share)
    seconds = tokens / speed

    def total(values: Floats) -> Floats:
        """Sum by level of what is known: a line whose tokens are not known adds nothing."""
        return np.bincount(place, weights=np.nan_to_num(values), minlength=len(level)).astype(np.float64)

    sums = {
        "running_req": pd.Series(level, dtype="Int64"),
        "tokens": total(tokens),
        "seconds": total(seconds),
        "opening_s": total(np.where(opening, seconds, 0.0)),
        "left_out_s": total(np.where(waited, window_s, 0.0)),
        "median": _medians(speed, place, len(level), ~waited),
        "num_windows": np.bincount(place, weights=~waited, minlength=len(level)).astype(np.int64),
    }
    levels = pd.DataFrame(sums)
    levels["client"] = (levels["tokens"] / levels["seconds"]).where(levels["seconds"] > 0)
    levels["opening_share"] = (levels["opening_s"] / levels["seconds"]).where(levels["seconds"] > 0)
    return levels


def _lines(windows: pd.DataFrame) -> pd.DataFrame:
    """The lines that tell a load and a speed."""
    running, speed = windows["running_req"], windows["gen_tok_per_s"]
    return windows[((running > 0).fillna(False) & (speed > 0)).to_numpy(dtype=bool)]


def _medians(speed: Floats, place: npt.NDArray[np.intp], levels: int, counted: npt.NDArray[np.bool_]) -> list[float]:
    """Median of the counted lines of each level, NaN where none is."""
    chosen = [speed[counted & (place == number)] for number in range(levels)]
    return [float(np.median(own)) if len(own) else float("nan") for own in chosen]


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
