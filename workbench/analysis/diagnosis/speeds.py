"""The speeds of two logs at one load."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from workbench.analysis.diagnosis.words import load
from workbench.analysis.log_speed import LogSpeeds, both_speedups, log_speeds


@dataclass(frozen=True, slots=True)
class LevelSpeed:
    """Both logs at one load: two estimates of the speedup, and what the two allow to say.

    ``level`` requests run on each of ``ranks`` data parallel ranks. ``whole_log`` counts all the time at that load,
    which comes near what a client sees (within about 20 %).
    """

    level: int
    whole_log: float
    median: float
    verdict: str
    reason: str
    ranks: int = 1

    @property
    def load(self) -> str:
        return load(self.level, self.ranks)

    @property
    def both(self) -> str:
        """Both estimates with their names."""
        return both_speedups(self.whole_log, self.median)

    @property
    def pair(self) -> str:
        """Both estimates where the sentence has named them, the whole log's first."""
        first, second = f"{self.whole_log:.2f}x", f"{self.median:.2f}x"
        return first if first == second else f"{first}, {second}"

    @property
    def wins(self) -> bool:
        return self.verdict == "win"

    @property
    def loses(self) -> bool:
        return self.verdict == "loss"

    @property
    def is_decidable(self) -> bool:
        return self.wins or self.loses

    def break_even(self, accept_length: float) -> str:
        """Accept length at which both servers are equally fast, accept length / speedup, by each estimate."""
        first, second = (f"{accept_length / speedup:.2f}" for speedup in (self.whole_log, self.median))
        return first if first == second else f"{first} over the whole log, {second} by the median line"


def level_speeds(log: LogSpeeds, base: LogSpeeds, *, ranks: int) -> Iterator[LevelSpeed]:
    """Every load that both logs hold, ascending; both have as many data parallel ranks."""
    for row in log_speeds(log, base):
        if row["client_speedup"] is not None and row["median_speedup"] is not None:
            yield LevelSpeed(
                row["running_req"],
                row["client_speedup"],
                row["median_speedup"],
                row["verdict"],
                row["reason"],
                ranks,
            )
