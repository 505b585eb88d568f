"""What is measured now, and about how much longer a campaign takes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from workbench.spec import RunSpec
from workbench.sweep import Start

EVERY_S = 2.0
OVERWRITE = "\r"
"""What a line begins with that only stands until the next one comes."""

Say = Callable[[str], None]
_clock = time.monotonic


class Progress:
    """Tells of runs and requests. What is left is counted in rounds: a request in every slot, warm-up included."""

    def __init__(self, starts: Sequence[Start], repeats: int, say: Say) -> None:
        self._say = say
        self._repeats = repeats
        self._starts_left = len(starts)
        self._rounds_left = sum(self._rounds(run) for start in starts for run in start.runs)
        self._start_s: list[float] = []
        self._round_s, self._rounds_done = 0.0, 0.0
        self._run: RunSpec | None = None
        self._answered, self._began, self._told = 0, 0.0, 0.0

    @contextmanager
    def starting(self) -> Iterator[Callable[[], None]]:
        """Around one server; the yielded function is called when it is ready."""
        began = _clock()
        self._starts_left = max(0, self._starts_left - 1)
        yield lambda: self._start_s.append(_clock() - began)

    @contextmanager
    def measuring(self, run: RunSpec) -> Iterator[None]:
        """Around one run, however it ends."""
        self._run, self._answered, self._began = run, 0, _clock()
        self._say(f"{OVERWRITE}    {run.run_id}: warming up{self._left()}")
        try:
            yield
        finally:
            self._rounds_left -= self._rounds(run)
            self._round_s += _clock() - self._began
            self._rounds_done += self._rounds_so_far()
            self._run = None

    def given_up(self, runs: Sequence[RunSpec]) -> None:
        """These will not be measured."""
        self._rounds_left -= sum(map(self._rounds, runs))

    def answered(self) -> None:
        """One more request of the run has ended; tells so now and then."""
        self._answered += 1
        if self._run is not None and _clock() - self._told >= EVERY_S:
            self._told = _clock()
            total = (self._run.workload.num_prompts or 0) * self._repeats
            told = f"{self._answered} of {total} requests, {_clock() - self._began:.0f} s"
            self._say(f"{OVERWRITE}    {self._run.run_id}: {told}{self._left()}")

    def seconds_left(self) -> float | None:
        """By the mean time of a round and of a start so far; ``None`` before there is any."""
        done, seconds, left = self._rounds_done, self._round_s, float(self._rounds_left)
        if self._run is not None and self._answered:
            done, seconds = done + self._rounds_so_far(), seconds + _clock() - self._began
            left -= self._rounds_so_far()
        if not done or seconds <= 0:
            return None
        start_s = sum(self._start_s) / len(self._start_s) if self._start_s else 0.0
        return max(0.0, left) * seconds / done + self._starts_left * start_s

    def _left(self) -> str:
        seconds = self.seconds_left()
        return "" if seconds is None else f", about {duration(seconds)} left"

    def _rounds(self, run: RunSpec) -> int:
        slots = run.workload.max_concurrency or 1
        return math.ceil((run.workload.num_prompts or 1) / slots) * self._repeats + 1

    def _rounds_so_far(self) -> float:
        assert self._run is not None
        return self._answered / (self._run.workload.max_concurrency or 1) + 1


def duration(seconds: float) -> str:
    """``40 s``, ``12 min``, ``3.2 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def titled(starts: Sequence[Start]) -> list[tuple[str, Start]]:
    """Starts with their number and name."""
    return [(f"[{number}/{len(starts)}] {start.server_id}", start) for number, start in enumerate(starts, 1)]


def announcement(title: str, start: Start) -> tuple[str, ...]:
    runs = f"{len(start.runs)} run{'s' if len(start.runs) > 1 else ''}"
    notes = dict.fromkeys(run.notes for run in start.runs if run.notes)
    return (f"{title}: {runs}", *(f"    {note}" for note in notes))
