"""The quick way through a large log: lines that differ in nothing but digits are read together.

Most of a busy server's log is decode lines and access lines. Of lines with one skeleton (the line with every digit
made 0) one is read the careful way. Where it is a plain batch line, its template says where the numbers stand in all of
them; where it is the access line of a request that went well, none of them says anything. Every other line goes the
careful way. Nothing is read differently for it: a test compares the two on every fixture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from workbench.parse.lines import make_head
from workbench.parse.records import DecodeRecord, PrefillRecord
from workbench.parse.templates import Template, template_of

_FEW_ALIKE = 4
_SHORTEST, _LONGEST = 8, 1024
_MOST_KNOWN = 4096
_MOST_DIGITS = 15  # whole numbers of more are not exact as a float
_MOST_TAGS = 16

_Bytes = npt.NDArray[np.uint8]
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


@dataclass(frozen=True, slots=True)
class Batch:
    """Lines of one template: their places in the block, and the values of each of them by field."""

    template: Template
    places: _Places
    stamps: _Bytes
    fields: dict[str, npt.NDArray[np.generic]]
    others: dict[str, _Bytes]
    tags: str

    def records(self, offset: int, number: int, starts: _Places) -> Iterator[tuple[int, DecodeRecord | PrefillRecord]]:
        """Each line's place and its record; ``offset`` and ``number`` are those of the block's first line."""
        names, columns = list(self.fields), [values.tolist() for values in self.fields.values()]
        keys, texts = list(self.others), [_texts(values) for values in self.others.values()]
        lines = zip(self.places.tolist(), starts[self.places].tolist(), _texts(self.stamps), strict=True)
        values = zip(*columns, strict=True) if columns else iter([()] * len(self.places))
        extras = zip(*texts, strict=True) if texts else iter([()] * len(self.places))
        make, layout, tags = self.template.make, self.template.layout, self.tags
        for (place, start, stamp), found, extra in zip(lines, values, extras, strict=True):
            head = make_head(stamp, tags)
            yield (
                place,
                make(
                    number + place,
                    offset + start,
                    head.time,
                    head.ranks,
                    extra=dict(zip(keys, extra, strict=True)),
                    layout=layout,
                    **dict(zip(names, found, strict=True)),
                ),
            )


def lines_of(data: bytes) -> Lines:
    """The lines of a block that ends with a newline."""
    ends = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == 10)
    starts = np.concatenate([[0], ends[:-1] + 1]).astype(np.intp)
    return Lines(data, starts, ends - starts)


@dataclass(frozen=True, slots=True)
class _Known:
    """What the lines of one skeleton are: silent, of a template, or neither; ``text`` is the first that was met."""

    is_silent: bool
    template: Template | None
    text: str


class Skeletons:
    """Knows the skeletons that it met: their template, or that they say nothing; others are read line by line."""

    def __init__(self, is_silent: Callable[[bytes], bool]) -> None:
        self._is_silent = is_silent
        self._known: dict[bytes, _Known] = {}

    def split(self, lines: Lines) -> tuple[list[Batch], _Places]:
        """The batches of a block, and the places of the lines that have to be read one by one."""
        padded = lines.data + bytes(_LONGEST)
        raw = np.frombuffer(padded, dtype=np.uint8)
        digits = raw - np.uint8(48)
        zeroed = (raw - digits * (digits < 10)).tobytes()
        left, batches = [np.arange(0)], []
        # Of 16 bits, because such are sorted by counting.
        sizes = np.minimum(lines.sizes, _LONGEST).astype(np.uint16)
        order = np.argsort(sizes, kind="stable")
        for same in np.split(order, np.flatnonzero(np.diff(sizes[order])) + 1):
            size = int(sizes[same[0]])
            if len(same) < _FEW_ALIKE or not _SHORTEST <= size < _LONGEST:
                left.append(same)
                continue
            rows = _rows(zeroed, lines.starts[same], size)
            hashes = (rows.view(np.uint64) * _WEIGHTS[: rows.shape[1] // 8]).sum(axis=1, dtype=np.uint64)
            by_hash = np.argsort(hashes, kind="stable")
            for alike in np.split(by_hash, np.flatnonzero(np.diff(hashes[by_hash])) + 1):
                held = rows[alike]
                sure = (held == held[0]).all(axis=1)
                found, rest = self._alike(lines, padded, same[alike[sure]], held[0, :size].tobytes())
                batches += found
                left += [rest, same[alike[~sure]]]
        return batches, np.sort(np.concatenate(left))

    def _alike(self, lines: Lines, padded: bytes, places: _Places, skeleton: bytes) -> tuple[list[Batch], _Places]:
        """Lines of one skeleton: what can be read of them together, and the rest."""
        if len(places) < _FEW_ALIKE:
            return [], places
        known = self._of(skeleton, lines.line(int(places[0])))
        if known.template is None and not known.is_silent:
            return [], places
        size = len(skeleton)
        raw = _rows(padded, lines.starts[places], size)
        if known.is_silent:
            # The digits of the status stand at the end.
            same = (raw[:, size - _SHORTEST : size] == np.frombuffer(known.text[-_SHORTEST:].encode(), np.uint8)).all(
                axis=1
            )
            return [], places[~same]
        batches: list[Batch] = []
        template = known.template
        assert template is not None
        begin, end = template.tag_span(known.text)
        for _ in range(_MOST_TAGS):
            if len(places) < _FEW_ALIKE:
                break
            same = (raw[:, begin:end] == raw[0, begin:end]).all(axis=1)
            batches.append(_batch(template, known.text, places[same], raw[same]))
            places, raw = places[~same], raw[~same]
        return batches, places

    def _of(self, skeleton: bytes, line: bytes) -> _Known:
        known = self._known.get(skeleton)
        if known is None:
            is_silent = self._is_silent(line)
            text = line.decode("ascii", "replace") + ("" if is_silent else "\n")
            template = None if is_silent else template_of(text)
            if template is not None and any(end - start > _MOST_DIGITS for start, end in template.spans(text)):
                template = None
            known = _Known(is_silent, template, text)
            if len(self._known) < _MOST_KNOWN:
                self._known[skeleton] = known
        return known


def _rows(padded: bytes, starts: _Places, size: int) -> _Bytes:
    """The lines as rows of a matrix, its width a multiple of 8, zeros behind the lines."""
    width = -(-size // 8) * 8
    # An item a byte on from the other: picking some of them copies each line at once.
    items = np.ndarray((len(padded) - width + 1,), dtype=f"V{width}", buffer=padded, strides=(1,))
    rows = items[starts].view(np.uint8).reshape(len(starts), width)
    rows[:, size:] = 0
    return rows


def _batch(template: Template, first: str, places: _Places, raw: _Bytes) -> Batch:
    fields: dict[str, npt.NDArray[np.generic]] = {}
    for name, kind, (begin, end) in template.field_spans(first):
        if kind == "flag":
            fields[name] = np.full(len(places), first[begin:end] == "True")
        elif kind == "whole":
            fields[name] = _whole(raw[:, begin:end]).astype(np.int64)
        else:
            # Two places, both numbers exact: the quotient is the double nearest to the decimal.
            hundredths = 100.0 * _whole(raw[:, begin : end - 3]) + _whole(raw[:, end - 2 : end])
            fields[name] = hundredths / 100.0
    (begin, end), (tags_begin, tags_end) = template.stamp_span(first), template.tag_span(first)
    # Tags are told by the lines, not by the text: their digits differ between lines of one skeleton.
    tags = raw[0, tags_begin:tags_end].tobytes().decode("ascii")
    others = {key: raw[:, start:stop] for key, (start, stop) in template.other_spans(first)}
    return Batch(template, places, raw[:, begin:end], fields, others, tags)


def _whole(digits: _Bytes) -> npt.NDArray[np.float64]:
    """Numbers of at most `_MOST_DIGITS` digits, which a float holds exactly."""
    powers = 10.0 ** np.arange(digits.shape[1] - 1, -1, -1)
    found: npt.NDArray[np.float64] = (digits - np.uint8(48)).astype(np.float64) @ powers
    return found


def _texts(columns: _Bytes) -> list[str]:
    width = columns.shape[1]
    held: list[bytes] = np.ascontiguousarray(columns).view(f"S{width}").reshape(-1).tolist()
    return [text.decode("ascii") for text in held]
