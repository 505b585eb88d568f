"""Figures in the files of trackers that SpecForge can report to, read without them: TensorBoard's and MLflow's.

Weights & Biases and SwanLab keep theirs in formats of their own, which are not read; the console's lines, which the
former keeps as ``files/output.log``, hold the same figures.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from workbench.errors import Problem
from workbench.specforge.log import Point, Value

# Field numbers of TensorFlow's event.proto and summary.proto.
_WALL_TIME, _STEP, _SUMMARY = 1, 2, 5
_VALUE, _TAG, _SIMPLE_VALUE = 1, 1, 2
_MOST_BYTES = 1 << 20
_MOST_STEP = 1 << 40

Found = tuple[int, str, float, float | None]
"""Step, name, value, clock."""


def tensorboard(data: bytes) -> Iterator[Found]:
    """Scalars of an event file: records of a length, its checksum, an Event and its checksum.

    Ends quietly where the file does, in the middle of a record or not: the writer may be at work. Checksums are not
    looked at; what is no Event has no scalars.
    """
    place = 0
    while place + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, place)
        end = place + 12 + length
        if length > _MOST_BYTES or end + 4 > len(data):
            return
        yield from _event(data[place + 12 : end])
        place = end + 4


def _event(data: bytes) -> Iterator[Found]:
    step, clock, summaries = 0, None, []
    for number, value in _fields(data):
        if number == _STEP and isinstance(value, int):
            step = value
        elif number == _WALL_TIME and isinstance(value, bytes) and len(value) == 8:
            (clock,) = struct.unpack("<d", value)
        elif number == _SUMMARY and isinstance(value, bytes):
            summaries.append(value)
    if step > _MOST_STEP:
        return
    for summary in summaries:
        for number, value in _fields(summary):
            if number == _VALUE and isinstance(value, bytes):
                yield from ((step, name, scalar, clock) for name, scalar in _scalar(value))


def _scalar(data: bytes) -> Iterator[tuple[str, float]]:
    name, scalar = None, None
    for number, value in _fields(data):
        if number == _TAG and isinstance(value, bytes):
            name = value.decode("utf-8", "replace")
        elif number == _SIMPLE_VALUE and isinstance(value, bytes) and len(value) == 4:
            (scalar,) = struct.unpack("<f", value)
    if name is not None and scalar is not None:
        yield name, scalar


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Fields of a protocol buffer: whole numbers as they are, everything else as its bytes; ends where it is none."""
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        kind = key & 7
        if kind == 0:
            value, place = _varint(data, place)
            yield key >> 3, value
            continue
        if kind == 2:
            length, place = _varint(data, place)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            return
        if place + length > len(data):
            return
        yield key >> 3, data[place : place + length]
        place += length


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while place < len(data) and shift < 64:
        byte = data[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if not byte & 128:
            return value, place
    # Cut off: nothing can follow.
    return 0, len(data) + 1


def mlflow(text: str, name: str) -> Iterator[Found]:
    """A metric's file of MLflow's file store: a line of clock in ms, value and step each."""
    for line in text.splitlines():
        parts = line.split()
        try:
            clock, value, step = float(parts[0]), float(parts[1]), int(parts[2])
        except (IndexError, ValueError):
            continue
        if 0 <= step <= _MOST_STEP:
            yield step, name, value, clock / 1000


def read_tracked(folder: Path, problems: list[Problem]) -> list[Point]:
    """Points of every tracker's file in a folder that can be read, in order of their writing."""
    found: list[Found] = []
    for path in sorted(folder.glob("runs/**/events.out.tfevents.*")):
        found += tensorboard(_bytes(path, problems))
    for path in sorted(folder.glob("mlruns/*/*/metrics/**/*")):
        if path.is_file():
            name = path.relative_to(next(p for p in path.parents if p.name == "metrics")).as_posix()
            found += mlflow(_bytes(path, problems).decode("utf-8", "replace"), name)
    return _points(found)


def _bytes(path: Path, problems: list[Problem]) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        problems.append(Problem(str(path), f"cannot be read ({error.strerror})"))
        return b""


def _points(found: list[Found]) -> list[Point]:
    """Figures of one step together, those of evaluations apart from the others, as the console prints them."""
    values: dict[tuple[int, bool], dict[str, Value]] = defaultdict(dict)
    clocks: dict[tuple[int, bool], float | None] = {}
    for step, name, value, clock in found:
        place = (step, name.startswith("eval/"))
        values[place][name.removeprefix("train/")] = value
        clocks[place] = clock
    return [Point(step, values[step, apart], clocks[step, apart]) for step, apart in sorted(values)]
