"""Speeds from decode lines: the one rule behind the tables, the speedups and the diagnosis.

A decode line tells the tokens and the time since the line before. The **median** line is the speed of steady decoding:
it hardly sees prefills, cold starts and the beginning of each phase. The **client-like** speed takes all tokens over
all time of a load, as a client does. Both leave out the lines that waited (`idle` in the table of windows).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench.table.lines import Flags, Floats, Lines, lines_of

_SPEEDS = ["median", "client"]


@dataclass(frozen=True, slots=True)
class Level:
    """One load of one data parallel rank: what its lines add up to.

    ``opening_s`` is the time of first lines, ``left_out_s`` that of lines that waited, ``num_windows`` counts the
    others. Tokens and seconds are 0 where the log does not tell the tokens of a line (vLLM).
    """

    tokens: float
    seconds: float
    opening_s: float
    left_out_s: float
    median: float | None
    num_windows: int

    @property
    def client(self) -> float | None:
        """Client-like speed."""
        return self.tokens / self.seconds if self.seconds > 0 else None

    @property
    def opening_share(self) -> float | None:
        return self.opening_s / self.seconds if self.seconds > 0 else None


def client_like(lines: Lines, *, by_the_clock: bool = False) -> dict[int, Level]:
    """Client-like and median speed of the lines of one log by running requests, ascending.

    The step counter runs on between phases, so on average half of the first window of a phase (``opening``) belongs to
    the load before it: its tokens are taken at the mean of both loads.

    Parameters
    ----------
    by_the_clock
        Lines all stand for the same time, here 1, as those of vLLM do: their tokens are as their speeds.
    """
    told = _told(lines)
    parts = _parts(lines.only(told), by_the_clock=by_the_clock)
    loads, level = np.unique(parts["running_req"].astype(np.int64), return_inverse=True)
    tokens, seconds, opening_s, left_out_s = (
        np.bincount(level, weights=np.nan_to_num(parts[name]), minlength=len(loads)).tolist()
        for name in ("tokens", "seconds", "opening_s", "left_out_s")
    )
    counted = ~np.isnan(parts["speed"])
    medians = _medians(parts["speed"][counted], level[counted], len(loads))
    counts = np.bincount(level[counted], minlength=len(loads)).tolist()
    levels = map(Level, tokens, seconds, opening_s, left_out_s, medians, counts)
    return dict(zip(loads.tolist(), levels, strict=True))


def _medians(values: Floats, group: npt.NDArray[np.intp], num_groups: int) -> list[float | None]:
    """The median of each group; all at once, because one call a load takes longer than all the sorting."""
    ordered = values[np.lexsort((values, group))]
    sizes = np.bincount(group, minlength=num_groups)
    begins = np.cumsum(sizes) - sizes
    filled = sizes > 0
    low, high = ((begins + (sizes - up) // 2)[filled] for up in (1, 0))
    middle = iter(((ordered[low] + ordered[high]) / 2).tolist())
    return [next(middle) if is_filled else None for is_filled in filled]


def _told(lines: Lines) -> Flags:
    """Lines that tell a load and a speed."""
    return (lines["running_req"] > 0) & (lines["gen_tok_per_s"] > 0)


def _parts(lines: Lines, *, by_the_clock: bool = False) -> dict[str, Floats]:
    """What each of these lines adds to its load; the speed of those that waited is NaN."""
    running, speed = lines["running_req"], lines["gen_tok_per_s"]
    opening, waited = lines.flag("opening"), lines.flag("idle")
    share = np.where(opening, (np.nan_to_num(lines["before_req"]) + running) / (2 * running), 1.0)
    tokens = np.where(waited, 0.0, (speed if by_the_clock else lines["window_tokens"]) * share)
    return {
        "running_req": running,
        "tokens": tokens,
        "seconds": tokens / speed,
        "opening_s": np.where(opening, tokens / speed, 0.0),
        "left_out_s": np.where(waited, lines["window_s"], 0.0),
        "speed": np.where(waited, np.nan, speed),
    }


def main_speeds_df(windows: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Median and client-like speed at the load that holds most lines, added up over data parallel ranks.

    Of two loads with as many lines the higher one. Columns median and client, indexed by ``by``; groups without any
    speed are left out.
    """
    keys = [*by, "dp_rank"]
    rows = [(*key, *main_speed(lines_of(own))) for key, own in windows.groupby(keys)]
    speeds = pd.DataFrame(rows, columns=[*keys, *_SPEEDS]).astype(dict.fromkeys(_SPEEDS, "float64"))
    return speeds.dropna(subset=["median"]).groupby([*by])[_SPEEDS].sum(min_count=1)


def main_speed(lines: Lines) -> tuple[float | None, float | None]:
    """The same of one data parallel rank of one log: median and client-like speed, ``None`` without any."""
    levels = client_like(lines)
    main = max(levels, key=lambda load: (levels[load].num_windows, load), default=None)
    if main is None or not levels[main].num_windows:
        return None, None
    return levels[main].median, levels[main].client
