"""What SpecForge prints while it trains. Pure: text in, figures out, whatever the text.

Its console line is ``step 50: {'loss': 9.1, 'acc_0': 0.04, ...}`` (``training/assembly.py``), printed by every process;
with a tracker the names of a step's figures begin with ``train/``, those of an evaluation with ``eval/``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

Value = float | tuple[float, ...]

_STEP = re.compile(r"(?<![A-Za-z_])step (\d{1,12}): \{([^{}]*)\}")
_BEGUN = re.compile(r"(?<![A-Za-z_])step \d+: \{")
_PAIR = re.compile(r"'([^']{1,100})': (\[[^\]]*\]|[^,\[\]]+)")
_REWOUND = re.compile(r"rewinding checkpoint timeline at step (\d{1,12})")
_ERROR = re.compile(r"(?:\[rank\d+\]: ?)?((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit)\b.*)")
_TRACEBACK = "Traceback (most recent call last):"
_TRAIN, _EVAL = "train/", "eval/"
_LONGEST = 300


@dataclass(frozen=True, slots=True)
class Point:
    """Figures of one step, as printed, without the tracker's prefix. ``seconds`` is a clock, where one was kept."""

    step: int
    values: Mapping[str, Value]
    seconds: float | None = None


@dataclass(slots=True)
class Log:
    """``steps`` and ``evaluations`` rise in step. ``unread`` counts lines of figures that could not be read."""

    steps: list[Point] = field(default_factory=list)
    evaluations: list[Point] = field(default_factory=list)
    unread: int = 0
    error: str | None = None


def parse(text: str) -> Log:
    """A console log, of one process or several, of one start or several.

    A step printed again replaces the one before; a run that goes on from an earlier step takes back what came after it.
    """
    log = Log()
    points: list[Point] = []
    traced = False
    # A progress bar redraws its line with a carriage return, and figures may follow it on that line.
    for line in re.split(r"[\r\n]+", text):
        found = _STEP.search(line)
        if found is not None:
            point = _point(int(found[1]), found[2])
            points += [point] if point.values else []
            log.unread += not point.values
            log.error, traced = None, False
        elif _BEGUN.search(line):
            log.unread += 1
        elif rewound := _REWOUND.search(line):
            points = [point for point in points if point.step < int(rewound[1])]
        elif _TRACEBACK in line:
            traced = True
        elif traced and (error := _ERROR.match(line)) is not None:
            log.error = error[1][:_LONGEST]
    log.steps, log.evaluations = ordered(points)
    return log


def _point(step: int, body: str) -> Point:
    values = {}
    for name, text in _PAIR.findall(body):
        value = _value(text)
        if value is not None:
            values[name.removeprefix(_TRAIN)] = value
    return Point(step, values)


def _value(text: str) -> Value | None:
    try:
        if text.startswith("["):
            return tuple(float(item) for item in text[1:-1].split(",") if item.strip())
        return float(text)
    except ValueError:
        return None


def ordered(points: Iterable[Point]) -> tuple[list[Point], list[Point]]:
    """Points of steps and of evaluations, each rising in step: a lower step than the last one begins anew there."""
    steps: dict[int, Point] = {}
    evaluations: dict[int, Point] = {}
    for point in points:
        evaluation = any(name.startswith(_EVAL) for name in point.values)
        kept = evaluations if evaluation else steps
        while kept and next(reversed(kept)) > point.step:
            kept.popitem()
        kept[point.step] = point
    return list(steps.values()), list(evaluations.values())


def number(point: Point, name: str) -> float | None:
    """One figure of a point; ``None`` where it is not there or no finite number."""
    value = point.values.get(name)
    return value if isinstance(value, float) and math.isfinite(value) else None


def numbered(point: Point, prefix: str) -> tuple[float, ...]:
    """The figures ``prefix0``, ``prefix1``, ... as far as they go."""
    return tuple(_rising(point, prefix))


def _rising(point: Point, prefix: str) -> Iterator[float]:
    place = 0
    while (value := number(point, f"{prefix}{place}")) is not None:
        yield value
        place += 1


def listed(point: Point, name: str) -> Sequence[float]:
    """A list of figures, or what a tracker made of it: ``name/0``, ``name/1``, ..."""
    value = point.values.get(name)
    return value if isinstance(value, tuple) else numbered(point, f"{name}/")
