"""Groups of lines, each of one skeleton, put together to columns in the order of the log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from workbench.parse.digits import Bytes, Places, Values, read_numbers, read_texts, read_times
from workbench.parse.records import DecodeRecord, PrefillRecord
from workbench.parse.stretches import BatchLines, Kind, Stretch, nothing_of
from workbench.parse.templates import Template


@dataclass(frozen=True, slots=True)
class Group:
    """Lines of one skeleton: their places in the block, and they themselves as rows."""

    template: Template
    at: Places
    places: npt.NDArray[np.intp]
    rows: Bytes


def stretch_of(groups: Sequence[Group], starts: npt.NDArray[np.intp], number: int, offset: int) -> Stretch:
    """The lines of a block whose first line has this number and offset."""
    decode, prefill = (
        _joined([group for group in groups if group.template.make is make], starts, number, offset)
        for make in (DecodeRecord, PrefillRecord)
    )
    return Stretch(decode, prefill)


def _joined(groups: Sequence[Group], starts: npt.NDArray[np.intp], number: int, offset: int) -> BatchLines:
    places = np.concatenate([np.zeros(0, np.intp), *(group.places for group in groups)])
    order = np.argsort(places, kind="stable")
    places = places[order]
    kinds: dict[Kind, int] = {}
    kind = [_kinds(group, kinds) for group in groups]
    rows = [(group.rows, group.at) for group in groups]
    values = {name: column[order] for name, column in read_numbers(rows).items()}
    flags = [{name: np.full(len(group.places), value, np.int8) for name, value in group.at.flags} for group in groups]
    others = [{key: read_texts(group.rows, span) for key, span in group.at.others} for group in groups]
    return BatchLines(
        kinds=tuple(kinds),
        kind=np.concatenate([np.zeros(0, np.intp), *kind])[order],
        line=places + number,
        offset=starts[places] + offset,
        time=read_times(rows, order),
        values=values | _columns(flags, groups, order, nothing_of),
        others=_columns(others, groups, order, lambda _, size: np.zeros(size, "S1")),
    )


def _columns(
    found: Sequence[Mapping[str, Values]],
    groups: Sequence[Group],
    order: npt.NDArray[np.intp],
    missing: Callable[[str, int], Values],
) -> dict[str, Values]:
    """The columns that any group has, of all groups."""
    columns = {}
    for name in dict.fromkeys(name for columns in found for name in columns):
        parts = [
            part[name] if name in part else missing(name, len(group.places))
            for part, group in zip(found, groups, strict=True)
        ]
        columns[name] = np.concatenate(parts)[order]
    return columns


def _kinds(group: Group, kinds: dict[Kind, int]) -> npt.NDArray[np.intp]:
    """The kind of each line of a group, whose tags differ in digits at most; kinds that are new join the others."""

    def place(tags: str) -> int:
        ranks, others = frozenset(tags.split()), tuple(key for key, _ in group.at.others)
        return kinds.setdefault(Kind(group.template.layout, ranks, others), len(kinds))

    begin, end = group.at.tags
    tags = group.rows[:, begin:end]
    if begin == end or (tags == tags[0]).all():
        return np.full(len(tags), place(tags[0].tobytes().decode("ascii")), np.intp)
    texts, which = np.unique(read_texts(group.rows, group.at.tags), return_inverse=True)
    found: npt.NDArray[np.intp] = np.array([place(text.decode("ascii")) for text in texts.tolist()], np.intp)[which]
    return found
