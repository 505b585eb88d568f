"""Decode and prefill lines as columns: what thousands of lines say, without an object a line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from workbench.parse.batch import DECODE_FIELDS, PREFILL_FIELDS, to_decimal, to_flag, to_whole
from workbench.parse.digits import MISSING, Times, Values
from workbench.parse.records import DecodeRecord, PrefillRecord

_Whole = npt.NDArray[np.int64]
_Nothing = tuple[type[np.generic], float | int]
_NOTHING_OF: Mapping[object, _Nothing] = {
    to_whole: (np.int64, MISSING),
    to_decimal: (np.float64, np.nan),
    to_flag: (np.int8, -1),
}
_NOTHING = {name: _NOTHING_OF[convert] for name, convert in (*DECODE_FIELDS.values(), *PREFILL_FIELDS.values())}
_MOST_PAIRS = 1 << 18
_FLAGS = (False, True, None)


@dataclass(frozen=True, slots=True)
class Kind:
    """What lines have in common: their layout and their rank tags. ``others`` are the keys without a field."""

    layout: tuple[str, ...]
    ranks: frozenset[str]
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BatchLines:
    """Decode lines, or prefill lines, in the order of the log; columns are those of the record.

    ``kind`` is a place in ``kinds``; ``values`` and ``others`` (keys without a field, as printed) have an item a line.
    """

    kinds: tuple[Kind, ...]
    kind: npt.NDArray[np.intp]
    line: _Whole
    offset: _Whole
    time: Times
    values: dict[str, Values]
    others: dict[str, Values]

    def __len__(self) -> int:
        return len(self.line)

    def column(self, name: str) -> Values:
        """A field of all lines; `MISSING`, NaN or -1 where a line does not have it."""
        return self.values[name] if name in self.values else nothing_of(name, len(self))

    def objects(self, name: str) -> list[object]:
        """The same as Python values."""
        if name not in self.values:
            return [None] * len(self)
        values = self.values[name]
        if values.dtype == np.int8:
            return [_FLAGS[value] for value in values.tolist()]
        found: list[object] = values.tolist()
        missing = np.isnan(values) if values.dtype == np.float64 else values == MISSING
        for place in np.flatnonzero(missing).tolist():
            found[place] = None
        return found

    def by_kind(self, of_kind: Sequence[object]) -> list[object]:
        """The item of each line's kind."""
        return [of_kind[kind] for kind in self.kind.tolist()]

    def extras(self) -> list[dict[str, str]]:
        if not self.others:
            return [{} for _ in range(len(self))]
        texts = {key: values.tolist() for key, values in self.others.items()}
        keys = [kind.others for kind in self.kinds]
        return [
            {key: texts[key][place].decode("ascii") for key in keys[kind]}
            for place, kind in enumerate(self.kind.tolist())
        ]

    def pairs(self, first: str, second: str) -> Mapping[tuple[float, float], int]:
        """How many lines have these two decimals of two places, in the order of the first of them."""
        left, right = self.column(first), self.column(second)
        known = np.isfinite(left) & np.isfinite(right)
        left, right = left[known], right[known]
        lefts, rights = (np.rint(values.astype(np.float64) * 100.0) for values in (left, right))
        width = rights.max(initial=0.0) + 1
        if (lefts.max(initial=0.0) + 1) * width > _MOST_PAIRS:
            return Counter(zip(left.tolist(), right.tolist(), strict=True))
        keys = (lefts * width + rights).astype(np.intp)
        counts = np.bincount(keys)
        # The last assignment stays.
        places = np.zeros(len(counts), np.intp)
        places[keys[::-1]] = np.arange(len(keys))[::-1]
        met = np.flatnonzero(counts)
        met = met[np.argsort(places[met])]
        pairs = zip(left[places[met]].tolist(), right[places[met]].tolist(), strict=True)
        return dict(zip(pairs, counts[met].tolist(), strict=True))

    def part(self, begin: int, end: int) -> BatchLines:
        some = slice(begin, end)
        return BatchLines(
            self.kinds,
            self.kind[some],
            self.line[some],
            self.offset[some],
            self.time[some],
            {name: values[some] for name, values in self.values.items()},
            {key: texts[some] for key, texts in self.others.items()},
        )

    def kinds_met(self) -> list[tuple[int, Kind]]:
        """Places in ``kinds`` of those that lines have, in the order of their first lines."""
        if len(self.kinds) == 1 and len(self):
            return [(0, self.kinds[0])]
        met, first = np.unique(self.kind, return_index=True)
        return [(place, self.kinds[place]) for place in met[np.argsort(first)].tolist()]

    def first_line(self, kind: int) -> int:
        return int(self.line[np.argmax(self.kind == kind)])


@dataclass(frozen=True, slots=True)
class Stretch:
    """Batch lines of a log with no other record between them."""

    decode: BatchLines
    prefill: BatchLines

    def __len__(self) -> int:
        return len(self.decode) + len(self.prefill)

    def num_parts(self, lines: Sequence[int]) -> int:
        """Into how many parts, some of which may be empty, it falls at these lines."""
        mine = np.sort(np.concatenate([self.decode.line, self.prefill.line]))
        return len(set(np.searchsorted(mine, lines).tolist()))

    def split(self, line: int) -> tuple[Stretch, Stretch]:
        """The lines before this one, and the others."""
        decode, prefill = (int(np.searchsorted(lines.line, line)) for lines in (self.decode, self.prefill))
        return (
            Stretch(self.decode.part(0, decode), self.prefill.part(0, prefill)),
            Stretch(self.decode.part(decode, len(self.decode)), self.prefill.part(prefill, len(self.prefill))),
        )

    def records(self) -> list[DecodeRecord | PrefillRecord]:
        """A record a line, in the order of the lines."""
        found = [
            *_records(self.decode, DecodeRecord, DecodeRecord.__match_args__),
            *_records(self.prefill, PrefillRecord, PrefillRecord.__match_args__),
        ]
        found.sort(key=attrgetter("line"))
        return found


def _records(
    lines: BatchLines, make: Callable[..., DecodeRecord | PrefillRecord], names: Sequence[str]
) -> Iterator[DecodeRecord | PrefillRecord]:
    given: dict[str, Iterable[object]] = {
        "line": lines.line.tolist(),
        "offset": lines.offset.tolist(),
        "time": lines.time.tolist(),
        "ranks": lines.by_kind([kind.ranks for kind in lines.kinds]),
        "truncated": repeat(False),
        "extra": lines.extras(),
        "layout": lines.by_kind([kind.layout for kind in lines.kinds]),
    }
    return map(make, *(given[name] if name in given else lines.objects(name) for name in names))


def nothing_of(name: str, size: int) -> Values:
    """The column of a field that no line has."""
    dtype, nothing = _NOTHING[name]
    return np.full(size, nothing, dtype)


# ---- from records -------------------------------------------------------------------------------------------------


def lines_of_records(records: Sequence[DecodeRecord | PrefillRecord]) -> BatchLines:
    """Records of one class as columns, without the keys that have no field."""
    kinds: dict[Kind, int] = {}
    kind = [kinds.setdefault(Kind(record.layout, record.ranks, ()), len(kinds)) for record in records]
    names = [name for name in _NOTHING if records and hasattr(records[0], name)]
    return BatchLines(
        kinds=tuple(kinds),
        kind=np.array(kind, np.intp),
        line=np.array([record.line for record in records], np.int64),
        offset=np.array([record.offset for record in records], np.int64),
        time=np.array([record.time for record in records], "datetime64[us]"),
        values={name: _array(name, [getattr(record, name) for record in records]) for name in names},
        others={},
    )


def _array(name: str, values: Sequence[object]) -> Values:
    dtype, nothing = _NOTHING[name]
    return np.array([nothing if value is None else value for value in values], dtype)
