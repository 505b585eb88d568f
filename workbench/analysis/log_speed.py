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
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from workbench.analysis.frames import Row, typed
from workbench.table.lines import Lines, lines_of
from workbench.table.speeds import Level, client_like

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
    return typed(log_speeds(LogSpeeds(lines_of(spec_windows)), LogSpeeds(lines_of(base_windows))), LOG_SPEED)


@dataclass(frozen=True)
class LogSpeeds:
    """The speeds of one log by load, worked out once however many logs it is compared with."""

    lines: Lines

    @cached_property
    def is_by_the_clock(self) -> bool:
        """Lines of vLLM come every so many seconds and do not tell their tokens."""
        lines = self.lines
        return bool((lines["gen_tok_per_s"] > 0).any()) and bool(np.isnan(lines["window_tokens"]).all())

    @cached_property
    def told(self) -> dict[int, Level]:
        return client_like(self.lines)

    @cached_property
    def by_the_clock(self) -> dict[int, Level]:
        return client_like(self.lines, by_the_clock=True)


def log_speeds(spec: LogSpeeds, base: LogSpeeds) -> list[Row]:
    """The rows of `log_speed_df`, ``None`` for whatever is missing."""
    by_the_clock = spec.is_by_the_clock and base.is_by_the_clock
    here, there = (log.by_the_clock if by_the_clock else log.told for log in (spec, base))
    return [_compared(load, here[load], there[load]) for load in here if load in there]


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


def _compared(load: int, spec: Level, base: Level) -> Row:
    client, median = _ratio(spec.client, base.client), _ratio(spec.median, base.median)
    verdict, reason = agreed_verdict(client, median, said=both_speedups(client, median))
    if math.isnan(client):
        reason = "the lines of one log do not tell their time"
    few = min(spec.num_windows, base.num_windows)
    if few < MIN_WINDOWS:
        verdict, reason = "not decidable", f"only {few} decode lines in one arm; {reason}"
    return {
        "running_req": load,
        "client_speedup": None if math.isnan(client) else client,
        "median_speedup": None if math.isnan(median) else median,
        "spec_client_tok_per_s": spec.client,
        "base_client_tok_per_s": base.client,
        "spec_median_tok_per_s": spec.median,
        "base_median_tok_per_s": base.median,
        "spec_opening_share": spec.opening_share,
        "base_opening_share": base.opening_share,
        "num_windows_spec": spec.num_windows,
        "num_windows_base": base.num_windows,
        "decidable": verdict != "not decidable",
        "verdict": verdict,
        "reason": reason + _openings(spec, base),
    }


def _ratio(spec: float | None, base: float | None) -> float:
    return spec / base if spec is not None and base else math.nan


def _openings(spec: Level, base: Level) -> str:
    """Where the time went that only a client sees."""
    shares = {"speculative": spec.opening_share, "plain": base.opening_share}
    known = {arm: share for arm, share in shares.items() if share is not None and math.isfinite(share)}
    said = ""
    if any(share >= 0.1 for share in known.values()):
        parts = ", ".join(f"{share:.0%} of the {arm} arm's time" for arm, share in known.items())
        said += f"; the first lines of phases (prefill, cold start, ramp) take {parts}"
    left_out = spec.left_out_s + base.left_out_s
    if left_out > 0:
        said += f"; {left_out:.1f} s of waiting or start-up left out"
    return said
