"""Who leads at each load, who may still beat it, and who is out: successive elimination on paired draws.

A configuration is out once the upper end of the 95 % interval of its speed over the leader's is at most
``1 + TOLERANCE``: whatever it is, no more than that is lost by taking the leader. The arms see the same prompts, and
their draws come from the same resamples of them; passes and starts add their own spread (`noise`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from workbench.analysis.frames import interval
from workbench.tune.predict import Speed
from workbench.tune.state import State

TOLERANCE = 0.02
MAX_VISITS = 4  # to one configuration at one load; more cost more than what they could decide is worth


@dataclass(frozen=True, slots=True)
class Rival:
    """A configuration against the leader of a load: speed over the leader's with its 95 % interval.

    ``gain`` is what measuring it may win, in expectation: the mean of how much faster it may be. ``is_open`` says that
    it may be faster by more than the tolerance, ``may_lead`` that it may be faster at all.
    """

    speed: Speed
    ratio: float | None
    low: float
    high: float
    gain: float

    @property
    def name(self) -> str:
        return self.speed.config.name

    @property
    def is_open(self) -> bool:
        return not self.high <= 1 + TOLERANCE

    @property
    def may_lead(self) -> bool:
        return not self.high <= 1


@dataclass(frozen=True, slots=True)
class Race:
    """One load: the fastest that was measured, and everybody else, the most promising first."""

    load: int
    leader: Speed
    rivals: tuple[Rival, ...]

    @property
    def open_unmeasured(self) -> list[Rival]:
        return [rival for rival in self.rivals if rival.is_open and not rival.speed.is_measured]

    @property
    def open_measured(self) -> list[Rival]:
        return [rival for rival in self.rivals if rival.is_open and rival.speed.is_measured]


def races(found: Sequence[Speed]) -> dict[int, Race]:
    """The race of every load at which something was measured."""
    loads = dict.fromkeys(speed.load for speed in found)
    return {load: race for load in loads if (race := _race(load, [each for each in found if each.load == load]))}


def is_confirmed(state: State, race: Race) -> bool:
    """Whether the leader was measured again after something else was (A-B-A), at whatever load that was."""
    visits = state.of(race.leader.config.name, race.load)
    if len(visits) < 2:
        return False
    first, last = visits[0].at, visits[-1].at
    return any(first <= visit.at <= last and visit.config != race.leader.config.name for visit in state.visits)


def _race(load: int, entered: Sequence[Speed]) -> Race | None:
    measured = [speed for speed in entered if speed.is_measured]
    if not measured:
        return None
    leader = max(measured, key=lambda speed: speed.value or 0.0)
    rivals = [_rival(speed, leader) for speed in entered if speed is not leader]
    return Race(load, leader, tuple(sorted(rivals, key=lambda rival: -rival.gain)))


def _rival(speed: Speed, leader: Speed) -> Rival:
    """One about which nothing is known may win anything."""
    ratios = speed.draws / leader.draws
    if not np.isfinite(ratios).all():
        return Rival(speed, None, np.nan, np.nan, np.inf)
    low, high = interval(ratios)
    ratio = None if speed.value is None or leader.value is None else speed.value / leader.value
    return Rival(speed, ratio, float(low), float(high), float(np.maximum(ratios - 1, 0).mean()))
