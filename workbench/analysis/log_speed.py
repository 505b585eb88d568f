"""Speedup from two server logs alone: two ways to read a speed, and whether they tell the same.

The median line and the client-like speed come from `workbench.table.speeds`. Where they fall on
different sides of 1, or one of them near it, neither is the answer.

The client-like speed was chosen for how well it repeats what clients measured. Against nine recorded pairs (three
servers of SGLang 0.5.14 at concurrency 1, 8 and 32, phases of 0.7 to 6 s) it is within 2 % at concurrency 1; at 8 and
32 it is 3 to 4 % high for the plain server, 10 % low for one whose phases began with a cold start, and 14 to 20 % high
for one that spent part of its phases at other loads. The second one's speedup at 8 reads 0.48 where its clients saw
0.55. Longer phases come out closer: only their ends are uncertain.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd

from workbench.analysis.frames import Row, records, typed
from workbench.table.speeds import client_like_df

MIN_WINDOWS = 5  # lines an arm needs at a load
MARGIN = 1 / 0.9  # one pass of one log: nearer to 1 than this (0.90 to 1.11) says nothing

LOG_SPEED = {
    "running_req": "Int64",
    "client_speedup": "float64",
    "median_speedup": "float64",
    "spec_client_tok_per_s": "float64",
    "base_client_tok_per_s": "float64",
    "spec_median_tok_per_s": "float64",
    "base_median_tok_per_s": "float64",
    "spec_opening_share": "float64",
    "base_opening_share": "float64",
    "num_windows_spec": "Int64",
    "num_windows_base": "Int64",
    "decidable": "boolean",
    "verdict": "str",
    "reason": "str",
}


def log_speed_df(spec_windows: pd.DataFrame, base_windows: pd.DataFrame) -> pd.DataFrame:
    """Both speedups at every number of running requests that both logs hold.

    ``*_opening_share`` is the share of the time at that load that the first lines of phases take: prefill, cold starts
    and the ramp. Speeds are those of one data parallel rank. ``verdict`` is win, loss or not decidable.
    """
    if _by_the_clock(spec_windows) and _by_the_clock(base_windows):
        spec_windows, base_windows = _equal_times(spec_windows), _equal_times(base_windows)
    spec, base = client_like_df(spec_windows), client_like_df(base_windows)
    both = spec.merge(base, on="running_req", suffixes=("_spec", "_base")).sort_values("running_req")
    return typed(_compared(both), LOG_SPEED)


def agreed_verdict(client: float, median: float, *, said: str | None = None) -> tuple[str, str]:
    """Verdict of two speedups of one pass, and the reason: win or loss only where they agree on the side.

    They agree when both lie on the same side of 1, each further from it than `MARGIN`; how far they lie from each other
    then says only that the size of the win or loss is open. ``said`` names the two in the reason.
    """
    said = said or f"client {client:.2f}, median window {median:.2f}"
    if not (client > 0 and median > 0 and math.isfinite(client) and math.isfinite(median)):
        return "not decidable", "one of the two speeds is not known"
    logs = math.log(client), math.log(median)
    clear = [abs(value) > math.log(MARGIN) for value in logs]
    if not any(clear):
        return "not decidable", f"{said}: too near to 1 for one pass"
    if all(clear) and logs[0] * logs[1] > 0:
        return ("win" if logs[0] > 0 else "loss"), f"{said}: one pass, both on one side{_size(*logs)}"
    return "not decidable", f"{said}: they disagree{_why_apart(clear)}"


def _size(first: float, second: float) -> str:
    return ", though not how much" if abs(first - second) >= min(abs(first), abs(second)) else ""


def _why_apart(clear: list[bool]) -> str:
    """Cold starts and short phases weigh on all the time of a load and hardly on its median line."""
    if clear == [True, False]:
        return " and the median line alone is near even, as it does not see cold starts and short phases"
    return ", as the median line does not see cold starts and short phases"


def both_speedups(whole_log: float, median: float) -> str:
    """``0.48x over the whole log, 0.97x by the median line``; one figure where both read alike.

    Two estimates of one ratio, not the ends of an interval.
    """
    first, second = f"{whole_log:.2f}x", f"{median:.2f}x"
    return first if first == second else f"{first} over the whole log, {second} by the median line"


def _compared(both: pd.DataFrame) -> Iterator[Row]:
    for level in records(both):
        client = _ratio(level["client_spec"], level["client_base"])
        median = _ratio(level["median_spec"], level["median_base"])
        verdict, reason = agreed_verdict(client, median, said=both_speedups(client, median))
        if math.isnan(client):
            reason = "the lines of one log do not tell their time"
        few = min(level["num_windows_spec"], level["num_windows_base"])
        if few < MIN_WINDOWS:
            verdict, reason = "not decidable", f"only {few} decode lines in one arm; {reason}"
        yield {
            "running_req": level["running_req"],
            "client_speedup": client,
            "median_speedup": median,
            "spec_client_tok_per_s": level["client_spec"],
            "base_client_tok_per_s": level["client_base"],
            "spec_median_tok_per_s": level["median_spec"],
            "base_median_tok_per_s": level["median_base"],
            "spec_opening_share": level["opening_share_spec"],
            "base_opening_share": level["opening_share_base"],
            "num_windows_spec": level["num_windows_spec"],
            "num_windows_base": level["num_windows_base"],
            "decidable": verdict != "not decidable",
            "verdict": verdict,
            "reason": reason + _openings(level),
        }


def _by_the_clock(windows: pd.DataFrame) -> bool:
    """Lines of vLLM come every so many seconds and do not tell their tokens."""
    return bool((windows["gen_tok_per_s"] > 0).any()) and bool(windows["window_tokens"].isna().all())


def _equal_times(windows: pd.DataFrame) -> pd.DataFrame:
    """Lines by the clock all stand for the same time, here 1: their tokens are as their speeds."""
    return windows.assign(window_tokens=windows["gen_tok_per_s"])


def _ratio(spec: float | None, base: float | None) -> float:
    return spec / base if spec is not None and base else math.nan


def _openings(level: Row) -> str:
    """Where the time went that only a client sees."""
    shares = {arm: level[f"opening_share_{arm}"] for arm in ("spec", "base")}
    known = {arm: share for arm, share in shares.items() if isinstance(share, float) and np.isfinite(share)}
    said = ""
    if any(share >= 0.1 for share in known.values()):
        names = {"spec": "speculative", "base": "plain"}
        parts = ", ".join(f"{share:.0%} of the {names[arm]} arm's time" for arm, share in known.items())
        said += f"; the first lines of phases (prefill, cold start, ramp) take {parts}"
    left_out = sum(level[f"left_out_s_{arm}"] for arm in ("spec", "base"))
    if left_out > 0:
        said += f"; {left_out:.1f} s of waiting or start-up left out"
    return said
