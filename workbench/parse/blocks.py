"""The quick way through a large log: lines that differ in nothing but digits are read together.

Most of a busy server's log is decode lines and access lines. Of lines with one skeleton (the line with every digit
made 0) one is read the careful way. Where it is a plain batch line, its template says where the numbers stand in all of
them; where it is the access line of a request that went well, or anything else that says nothing, none of them does.
Every other line goes the careful way. Nothing is read differently for it: a test compares the two on every fixture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from workbench.parse.digits import Bytes, Places, places_of
from workbench.parse.events import TRIGGER_DIGITS
from workbench.parse.groups import Group
from workbench.parse.lines import PADDING, LineBlock
from workbench.parse.templates import Template, template_of

_FEW_ALIKE = 4
_SHORTEST, _LONGEST = 8, len(PADDING)
_PIECE_BYTES = 1 << 16  # what the processor has at hand
_MOST_KNOWN = 4096
_MOST_TRIED = 24  # skeletons of a length that lines are compared with before they are sorted

_Places = npt.NDArray[np.intp]
_WEIGHTS = np.random.default_rng(0).integers(1, 1 << 62, size=_LONGEST // 8, dtype=np.uint64) | np.uint64(1)


@dataclass(frozen=True, slots=True)
class Lines:
    """Whole lines of a block: where each begins, and how long it is without its newline."""

    data: bytes
    starts: _Places
    sizes: _Places

    def line(self, place: int) -> bytes:
        return self.data[self.starts[place] : self.starts[place] + self.sizes[place]]


def lines_of(block: LineBlock) -> Lines:
    raw = np.frombuffer(block.data, dtype=np.uint8)
    pieces = [np.zeros(0, np.intp)]
    for begin in range(block.begin, block.end, _PIECE_BYTES):
        piece = raw[begin : min(begin + _PIECE_BYTES, block.end)]
        pieces.append((piece == 10).nonzero()[0] + begin)
    ends = np.concatenate(pieces)
    starts = np.concatenate([[block.begin], ends[:-1] + 1]).astype(np.intp)
    return Lines(block.data, starts, ends - starts)


@dataclass(slots=True)
class _Skeleton:
    """What its lines are: silent, of a template, or neither. A byte of theirs is at most ``room`` above ``least``."""

    least: Bytes
    room: Bytes
    is_silent: bool = False
    template: Template | None = None
    at: Places | None = None
    met: int = 0

    def holds(self, rows: Bytes) -> npt.NDArray[np.bool_] | None:
        """Which of the rows are its lines, None for all of them."""
        # In pieces, so that what is compared need not be fetched again.
        step = max(1, 2 * _PIECE_BYTES // rows.shape[1])
        begins = range(0, len(rows), step)
        pieces = [self._whole(rows[begin : begin + step]) for begin in begins]
        if all(piece is None for piece in pieces):
            return None
        found = np.ones(len(rows), np.bool_)
        for begin, piece in zip(begins, pieces, strict=True):
            if piece is not None:
                found[begin : begin + step] = piece
        return found

    def _whole(self, rows: Bytes) -> npt.NDArray[np.bool_] | None:
        fits = rows - self.least <= self.room
        if fits.all():
            return None
        whole: npt.NDArray[np.bool_] = np.logical_and.reduce(fits, axis=1)
        return whole


@dataclass(slots=True)
class _Found:
    groups: list[Group]
    left: list[_Places]


class Skeletons:
    """Knows the skeletons that it met: their template, or that they say nothing; others are read line by line."""

    def __init__(self, is_silent: Callable[[bytes], bool]) -> None:
        self._is_silent = is_silent
        self._known: dict[bytes, _Skeleton] = {}
        self._by_size: dict[int, list[_Skeleton]] = {}

    def split(self, lines: Lines) -> tuple[list[Group], _Places]:
        """The groups of a block, and the places of the lines that have to be read one by one."""
        found = _Found([], [np.zeros(0, np.intp)])
        # Of 16 bits, because such are sorted by counting.
        sizes = np.minimum(lines.sizes, _LONGEST).astype(np.uint16)
        order = np.argsort(sizes, kind="stable")
        for same in np.split(order, np.flatnonzero(np.diff(sizes[order])) + 1):
            size = int(sizes[same[0]])
            if len(same) < _FEW_ALIKE or not _SHORTEST <= size < _LONGEST:
                found.left.append(same)
            else:
                self._of_one_size(lines, same, _rows(lines.data, lines.starts[same], size), size, found)
        return found.groups, np.sort(np.concatenate(found.left))

    def _of_one_size(self, lines: Lines, places: _Places, rows: Bytes, size: int, found: _Found) -> None:
        known = self._by_size.setdefault(size, [])
        for skeleton in known[:_MOST_TRIED]:
            if len(places) < _FEW_ALIKE:
                break
            places, rows = _take(skeleton, places, rows, found)
        known.sort(key=lambda skeleton: -skeleton.met)
        if len(places) >= _FEW_ALIKE:
            taken = np.zeros(len(places), bool)
            for alike, text in _by_skeleton(rows, size):
                rest, _ = _take(self._of(text, lines.line(int(places[alike[0]]))), places[alike], rows[alike], found)
                taken[alike] = True
                found.left.append(rest)
            places = places[~taken]
        found.left.append(places)

    def _of(self, text: bytes, line: bytes) -> _Skeleton:
        skeleton = self._known.get(text)
        if skeleton is None:
            skeleton = _learn(line, self._is_silent(line))
            if len(self._known) < _MOST_KNOWN:
                self._known[text] = skeleton
                self._by_size[len(text)].append(skeleton)
        return skeleton


def _take(skeleton: _Skeleton, places: _Places, rows: Bytes, found: _Found) -> tuple[_Places, Bytes]:
    """Put the skeleton's lines where they belong; the others are returned."""
    holds = skeleton.holds(rows)
    mine = slice(None) if holds is None else holds
    taken = len(places) if holds is None else int(holds.sum())
    skeleton.met += taken
    if taken and skeleton.template is not None and skeleton.at is not None:
        found.groups.append(Group(skeleton.template, skeleton.at, places[mine], rows[mine]))
    elif taken and not skeleton.is_silent:
        found.left.append(places[mine])
    return (places[:0], rows[:0]) if holds is None else (places[~holds], rows[~holds])


def _learn(line: bytes, is_silent: bool) -> _Skeleton:
    width = -(-len(line) // 8) * 8
    least, room = np.frombuffer(line.ljust(width, b"\0"), np.uint8).copy(), np.zeros(width, np.uint8)
    free = (least >= 48) & (least < 58)
    skeleton = _Skeleton(least, room)
    if is_silent and line.isascii():
        skeleton.is_silent = True
        for match in TRIGGER_DIGITS.finditer(line):
            free[match.start() : match.end()] = False
    elif line.isascii():
        text = line.decode("ascii") + "\n"
        template = template_of(text)
        skeleton.at = places_of(template, text) if template is not None else None
        skeleton.template = template
        if skeleton.at is not None:
            # A digit in a key belongs to the key.
            between = np.ones(width, bool)
            for begin, end in skeleton.at.free:
                between[begin:end] = False
            free &= ~between
    least[free], room[free] = 48, 9
    return skeleton


def _by_skeleton(rows: Bytes, size: int) -> Iterator[tuple[_Places, bytes]]:
    """Rows that differ in digits only, as far as there are enough of them."""
    digits = rows - np.uint8(48)
    zeroed = rows - digits * (digits < 10)
    hashes = (zeroed.view(np.uint64) * _WEIGHTS[: rows.shape[1] // 8]).sum(axis=1, dtype=np.uint64)
    by_hash = np.argsort(hashes, kind="stable")
    for alike in np.split(by_hash, np.flatnonzero(np.diff(hashes[by_hash])) + 1):
        if len(alike) >= _FEW_ALIKE:
            yield alike, zeroed[alike[0], :size].tobytes()


def _rows(data: bytes, starts: _Places, size: int) -> Bytes:
    """The lines as rows of a matrix, its width a multiple of 8, zeros behind the lines."""
    width = -(-size // 8) * 8
    # An item a byte on from the other: picking some of them copies each line at once.
    items = np.ndarray((len(data) - width + 1,), dtype=f"V{width}", buffer=data, strides=(1,))
    rows = items[starts].view(np.uint8).reshape(len(starts), width)
    rows[:, size:] = 0
    return rows
