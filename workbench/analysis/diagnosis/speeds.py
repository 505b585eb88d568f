"""The speeds of two logs at one load."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from workbench.analysis.speedup import log_speed_df
from workbench.analysis.wording import span


@dataclass(frozen=True, slots=True)
class LevelSpeed:
    """Both logs at one load: speedups as a client sees them and by median line, and what the two allow to say."""

    level: int
    client: float
    median: float
    verdict: str
    reason: str

    @property
    def span(self) -> str:
        return f"{span(*sorted((self.client, self.median)))}x"

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
        """Accept length at which both servers are equally fast: accept length / speedup."""
        return span(*sorted((accept_length / self.client, accept_length / self.median)))


def level_speeds(windows: pd.DataFrame, base_windows: pd.DataFrame) -> Iterator[LevelSpeed]:
    """Every load that both logs hold, ascending."""
    table = log_speed_df(windows, base_windows).dropna(subset=["client_speedup", "median_speedup"])
    for row in table.to_dict("records"):
        yield LevelSpeed(
            int(row["running_req"]),
            float(row["client_speedup"]),
            float(row["median_speedup"]),
            str(row["verdict"]),
            str(row["reason"]),
        )
