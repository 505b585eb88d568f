"""Numbers and stamps of lines of one skeleton, which stand in the rows of a matrix: eight digits at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from workbench.parse.lines import parse_time
from workbench.parse.templates import Span, Template

MISSING = -(2**63)
"""What a column of whole numbers holds for a line without the key; decimals hold NaN, flags -1."""

Bytes = npt.NDArray[np.uint8]
Values = npt.NDArray[np.generic]
Times = npt.NDArray[np.datetime64]
_Words = npt.NDArray[np.uint64]
_Whole = npt.NDArray[np.int64]

_MOST_DIGITS = 15  # whole numbers of more are not exact as a float
_WORD = 8
_SECONDS = 19  # length of a stamp without a fraction
_DAY_US = 86_400_000_000
_NO_TIME = np.iinfo(np.int64).min  # as an integer, NaT


@dataclass(frozen=True, slots=True)
class _Digits:
    """At most eight bytes and the digits among them; those of ``before_point`` stand a byte further to the left."""

    end: int
    mask: np.uint64
    before_point: np.uint64 | None = None


@dataclass(frozen=True, slots=True)
class Number:
    """A field and where its digits stand, the last ones first. The first ones of a decimal count hundredths."""

    name: str
    is_decimal: bool
    digits: tuple[_Digits, ...]


@dataclass(frozen=True, slots=True)
class Places:
    """Where the values stand in every line of a skeleton; the lines differ in nothing but digits that are ``free``."""

    stamp: Span
    tags: Span
    numbers: tuple[Number, ...]
    flags: tuple[tuple[str, bool], ...]
    others: tuple[tuple[str, Span], ...]
    free: tuple[Span, ...]


Rows = Sequence[tuple[Bytes, Places]]
"""Lines of several skeletons, each a row, with the places of each skeleton."""


def places_of(template: Template, text: str) -> Places | None:
    """The places in lines like this one; None where a number is too long."""
    fields = tuple(template.field_spans(text))
    numbers = [(name, kind == "decimal", span) for name, kind, span in fields if kind != "flag"]
    if any(end - begin > _MOST_DIGITS for _, _, (begin, end) in numbers):
        return None
    stamp, tags, others = template.stamp_span(text), template.tag_span(text), tuple(template.other_spans(text))
    return Places(
        stamp=stamp,
        tags=tags,
        numbers=tuple(Number(name, is_decimal, _digits(*span, is_decimal)) for name, is_decimal, span in numbers),
        flags=tuple((name, text[begin:end] == "True") for name, kind, (begin, end) in fields if kind == "flag"),
        others=others,
        free=(stamp, tags, *(span for _, _, span in numbers), *(span for _, span in others)),
    )


def _digits(begin: int, end: int, is_decimal: bool) -> tuple[_Digits, ...]:
    found = []
    if is_decimal and end - begin <= _WORD:
        return (_Digits(end, _mask(2), _mask(end - begin - 3, 3)),)
    if is_decimal:
        found.append(_Digits(end, _mask(2)))
        end -= 3
    while end > begin:
        found.append(_Digits(end, _mask(min(end - begin, _WORD))))
        end -= _WORD
    return tuple(found)


def _mask(digits: int, behind: int = 0) -> np.uint64:
    """Of eight bytes the value bits of the last digits, but for so many bytes behind them."""
    return np.uint64(int.from_bytes(bytes(_WORD - behind - digits) + b"\x0f" * digits + bytes(behind), "little"))


def _word(rows: Bytes, begin: int) -> _Words:
    """Eight bytes of each row."""
    return np.ndarray((len(rows),), "<u8", rows, begin, (rows.shape[1],))


def read_numbers(lines: Rows) -> dict[str, Values]:
    """The numbers of all lines by field. Whole ones are int64, decimals float64."""
    size = sum(len(rows) for rows, _ in lines)
    shapes: dict[str, tuple[bool, int]] = {}
    for _, places in lines:
        for number in places.numbers:
            _, most = shapes.get(number.name, (False, 0))
            shapes[number.name] = (number.is_decimal, max(most, len(number.digits)))
    words = {name: np.zeros((num_groups, size), "<u8") for name, (_, num_groups) in shapes.items()}
    # Skeleton by skeleton, so that the processor has its rows at hand.
    for rows, places, some in _with_slices(lines):
        for number in places.numbers:
            for place, digits in enumerate(number.digits):
                word, found = _word(rows, digits.end - _WORD), words[number.name][place, some]
                np.bitwise_and(word, digits.mask, out=found)
                if digits.before_point is not None:
                    found |= (word & digits.before_point) << np.uint64(8)
    values = {name: _values(words[name], is_decimal) for name, (is_decimal, _) in shapes.items()}
    for _, places, some in _with_slices(lines):
        for name in shapes.keys() - {number.name for number in places.numbers}:
            values[name][some] = np.nan if shapes[name][0] else MISSING
    return values


def _with_slices(lines: Rows) -> Iterator[tuple[Bytes, Places, slice]]:
    """Each skeleton's rows with their places among all lines."""
    begin = 0
    for rows, places in lines:
        yield rows, places, slice(begin, begin + len(rows))
        begin += len(rows)


def _values(words: _Words, is_decimal: bool) -> Values:
    """The numbers that groups of digits make, the last group first."""
    for group in words:
        _to_numbers(group)
    total = words[0].view(np.int64)
    for place in range(1, len(words)):
        total += words[place].view(np.int64) * 10 ** (_WORD * (place - is_decimal) + 2 * is_decimal)
    # Two places, both numbers exact: the quotient is the double nearest to the decimal.
    values: Values = total / 100.0 if is_decimal else total
    return values


def _to_numbers(words: _Words) -> None:
    """Eight digits to a number: neighbours are put together to tens, hundreds, ten thousands."""
    words *= np.uint64(10 << 8 | 1)
    words >>= np.uint64(8)
    words &= np.uint64(0x00FF00FF00FF00FF)
    words *= np.uint64(100 << 16 | 1)
    words >>= np.uint64(16)
    words &= np.uint64(0x0000FFFF0000FFFF)
    words *= np.uint64(10_000 << 32 | 1)
    words >>= np.uint64(32)


def read_texts(rows: Bytes, span: Span) -> npt.NDArray[np.bytes_]:
    begin, end = span
    return np.ascontiguousarray(rows[:, begin:end]).view(f"S{end - begin}").reshape(-1)


# ---- stamps -------------------------------------------------------------------------------------------------------


def read_times(lines: Rows, order: npt.NDArray[np.intp]) -> Times:
    """The stamps of all lines in this order, NaT where one is no date."""
    words = np.empty((3, len(order)), "<u8")
    fraction = np.zeros(len(order), np.int64)
    for rows, places, some in _with_slices(lines):
        begin = places.stamp[0]
        # With what stands before and between them: [2026-01, 26-01-05, 10:00:00.
        for word, start in zip(words, (begin - 1, begin + 2, begin + 11), strict=True):
            word[some] = _word(rows, start)
        fraction[some] = _fraction(rows, places.stamp)
    words, fraction = words[:, order], fraction[order]
    # Three pairs of digits with a byte between them.
    clock = words[2] & np.uint64(0x0F0F000F0F000F0F)
    clock = clock * np.uint64(10) + (clock >> np.uint64(8))
    hours, minutes, seconds = (((clock >> np.uint64(bits)) & np.uint64(0xFF)).view(np.int64) for bits in (0, 24, 48))
    days = _days(words[0], words[1])
    found = days + (((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + fraction)
    odd = (days == _NO_TIME) | (hours > 23) | (minutes > 59) | (seconds > 59)
    times: Times = found.view("datetime64[us]")
    for place in np.flatnonzero(odd).tolist():
        clock_text = f"{hours[place]:02}:{minutes[place]:02}:{seconds[place]:02}.{fraction[place]:06}"
        times[place] = parse_time(f"{_date_text(words[0, place], words[1, place])} {clock_text}")
    return times


def _fraction(rows: Bytes, stamp: Span) -> _Whole | int:
    """Microseconds behind the seconds; further digits mean nothing to Python either."""
    begin = stamp[0] + _SECONDS + 1
    digits = min(stamp[1] - begin, 6)
    if digits <= 0:
        return 0
    words = _word(rows, begin + digits - _WORD) & _mask(digits)
    _to_numbers(words)
    found: _Whole = words.view(np.int64) * 10 ** (6 - digits)
    return found


def _days(year_month: _Words, month_day: _Words) -> _Whole:
    """Microseconds to the beginning of each line's day; days change seldom."""
    changes = (year_month[1:] != year_month[:-1]) | (month_day[1:] != month_day[:-1])
    starts = [0, *(np.flatnonzero(changes) + 1).tolist()] if len(year_month) else []
    found = np.array([_day(_date_text(year_month[start], month_day[start])) for start in starts], np.int64)
    return np.repeat(found, np.diff([*starts, len(year_month)]))


def _date_text(year_month: np.uint64, month_day: np.uint64) -> str:
    return (int(year_month).to_bytes(_WORD, "little")[1:] + int(month_day).to_bytes(_WORD, "little")[5:]).decode(
        "ascii"
    )


@lru_cache(maxsize=256)
def _day(text: str) -> int:
    try:
        return (date.fromisoformat(text).toordinal() - date(1970, 1, 1).toordinal()) * _DAY_US
    except ValueError:
        return _NO_TIME
