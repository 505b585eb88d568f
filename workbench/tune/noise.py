"""How far visits to one configuration lie apart: passes of one start, and starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from workbench.analysis.frames import Floats
from workbench.tune.state import State, Visit

PRIOR_PASS, PRIOR_START = 0.02, 0.01
"""Relative standard deviations before anything was repeated: steady GPU servers repeat a pass within 2 %."""
PRIOR_DEGREES = 3
START_DEGREES = 2
"""Starts are expected to differ as passes do, at least by `PRIOR_START`, and few that say otherwise outweigh that.

On the nodes of ``h200_tune``, ``h200_shapes`` and ``h200_grid`` starts lie one to two times as far off the line of
cycles as their passes lie apart. Against 1 % with 3 degrees, in 40 and 20 simulated worlds at a quarter of the price:
where starts vary by 3 to 10 %, 95 % intervals hold the truth in 88 to 95 % instead of 75 to 81 %; what is lost at 10 %
falls from 3.6 to 2.5 %, at 3 % it rises from 0.3 to 0.5 %; on quiet machines a decision costs 49 % of the grid instead
of 46 %.
"""
STARTS = np.geomspace(0.002, 0.5, 25)
"""Relative standard deviations of starts that are weighed where more is known of them than from repeats."""
_MEDIAN = {1: 1.0, 2: 1.0, 3: np.pi / 2}
"""Variance of a median of so many values, or more, over that of their mean."""


@dataclass(frozen=True, slots=True)
class Noise:
    """Relative standard deviations of passes by load and of starts, and the degrees of freedom of the latter.

    ``weights`` are those of `STARTS`, where they are known: then ``start`` is their root mean square.
    """

    by_pass: dict[int, float]
    start: float
    degrees: int
    weights: tuple[float, ...] = ()

    def deviation(self, visits: Sequence[Visit]) -> float:
        """Of the mean log speed of these visits, which are of one load."""
        return float(np.sqrt(self._of_passes(visits) + self.start**2) / np.sqrt(len(visits)))

    def draws(self, visits: Sequence[Visit], rng: np.random.Generator, count: int) -> Floats:
        """By how much the mean log speed of these visits may be off, where the weights are known."""
        starts = rng.choice(STARTS, count, p=self.weights)
        return rng.standard_normal(count) * np.sqrt((self._of_passes(visits) + starts**2) / len(visits))

    def _of_passes(self, visits: Sequence[Visit]) -> float:
        """Variance of the median pass of a visit, the mean over visits."""
        counts = [len(visit.speeds) for visit in visits]
        return self.by_pass[visits[0].load] ** 2 * float(np.mean([_MEDIAN[min(n, 3)] / n for n in counts]))


def noise_of(state: State) -> Noise:
    """Pooled over all configurations: passes at each load, starts over all loads."""
    by_pass = {load: _pass_deviation(state, load) for load in state.loads}
    passes_alone = Noise(by_pass, 0.0, 0)
    expected = max(PRIOR_START, sum(by_pass.values()) / max(1, len(by_pass)))
    squares, degrees = START_DEGREES * expected**2, START_DEGREES
    for config in state.configs:
        for load in state.loads:
            visits = state.of(config.name, load)
            if len(visits) > 1:
                means = np.array([visit.log_speed for visit in visits])
                explained = (len(visits) - 1) * len(visits) * passes_alone.deviation(visits) ** 2
                squares += max(0.0, float(((means - means.mean()) ** 2).sum()) - explained)
                degrees += len(visits) - 1
    return Noise(by_pass, float(np.sqrt(squares / degrees)), degrees)


def _pass_deviation(state: State, load: int) -> float:
    """By the median absolute deviation, which one cold pass does not move."""
    apart: list[float] = []
    lost = 0
    for visit in state.visits:
        if visit.load == load and len(visit.speeds) > 1:
            apart += list(np.abs(np.log(visit.speeds) - visit.log_speed))
            lost += 1
    if not apart:
        return PRIOR_PASS
    degrees = len(apart) - lost
    seen = (1.4826 * float(np.median(apart))) ** 2 * len(apart) / degrees
    return float(np.sqrt((PRIOR_DEGREES * PRIOR_PASS**2 + degrees * seen) / (PRIOR_DEGREES + degrees)))
