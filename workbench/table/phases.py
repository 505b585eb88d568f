"""What decode lines can be told from the lines before them: the load, the beginning of a phase, prefills."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from workbench.parse.digits import MISSING
from workbench.parse.stretches import BatchLines
from workbench.table.pieces import Array

_DP = re.compile(r"DP([0-9]{1,6})")
_Places = npt.NDArray[np.intp]
_Orders = npt.NDArray[np.int64]
_COLUMNS = ("dp_rank", "before_req", "opening", "fresh", "prefills")


def dp_rank(ranks: frozenset[str]) -> int:
    """The data parallel rank among a line's tags, 0 when there is none."""
    return next((int(match[1]) for tag in sorted(ranks) if (match := _DP.fullmatch(tag))), 0)


@dataclass(frozen=True, slots=True)
class Ordered:
    """Lines with their order among decode and prefill lines together."""

    lines: BatchLines
    order: _Orders

    def by_tags(self) -> dict[frozenset[str], _Places]:
        """Where the lines with the same tags are."""
        codes = {tags: code for code, tags in enumerate(dict.fromkeys(kind.ranks for kind in self.lines.kinds))}
        code = np.array([codes[kind.ranks] for kind in self.lines.kinds], np.intp)[self.lines.kind]
        order = np.argsort(code, kind="stable")
        places = np.split(order, np.searchsorted(code[order], np.arange(1, len(codes))))
        return {tags: some for tags, some in zip(codes, places, strict=False) if len(some)}


class Phases:
    """Feed decode and prefill lines in the order of the log, and say when nothing runs."""

    def __init__(self) -> None:
        self.has_prefill = False
        self._opening: dict[int, bool] = {}
        self._fresh: dict[int, bool] = {}
        self._all_opening = False
        self._running: dict[int, int] = {}
        self._prefills: dict[int, Counter[frozenset[str]]] = {}
        self._told: Counter[tuple[int, frozenset[str]]] = Counter()

    def another_server(self) -> None:
        self._running.clear()
        self._prefills.clear()
        self._told.clear()

    def nothing_runs(self) -> None:
        """On any rank, seen or unseen."""
        self._opening.clear()
        self._fresh.clear()
        self._all_opening = True

    def feed(self, decode: Ordered, prefill: Ordered) -> dict[str, Array]:
        """Columns dp_rank, before_req, opening, fresh and prefills of the decode lines."""
        self.has_prefill = self.has_prefill or len(prefill.lines) > 0
        size = len(decode.lines)
        found: dict[str, Array] = {
            name: np.zeros(size, np.int8 if name in ("opening", "fresh") else np.int64) for name in _COLUMNS
        }
        told, asked = _by_rank(decode), _by_rank(prefill)
        begins = prefill.lines.column("running_req") == 0
        tells = prefill.lines.column("new_seq") != MISSING
        for rank in told | asked:
            mine, theirs = _merged(told.get(rank, {})), _merged(asked.get(rank, {}))
            found["dp_rank"][mine] = rank
            self._load(rank, mine, decode.lines.column("running_req"), found)
            self._openings(rank, mine, decode.order[mine], prefill.order[theirs[begins[theirs]]], found)
            new = {tags: prefill.order[places[tells[places]]] for tags, places in asked.get(rank, {}).items()}
            lines = {tags: (places, decode.order[places]) for tags, places in told.get(rank, {}).items()}
            self._since_told(rank, lines, new, found["prefills"])
        return found

    def _load(self, rank: int, mine: _Places, running: Array, found: dict[str, Array]) -> None:
        if len(mine):
            found["before_req"][mine[0]] = self._running.get(rank, 0)
            found["before_req"][mine[1:]] = running[mine[:-1]]
            self._running[rank] = int(running[mine[-1]])

    def _openings(self, rank: int, mine: _Places, order: _Orders, begins: _Orders, found: dict[str, Array]) -> None:
        """A phase begins with the prefills of requests while none runs."""
        met = np.searchsorted(begins, order)
        if len(mine):
            found["opening"][mine] = np.diff(met, prepend=0) > 0
            found["opening"][mine[0]] |= self._opening.get(rank, self._all_opening)
            found["fresh"][mine[0]] = self._fresh.get(rank, self._all_opening)
            self._opening[rank] = self._fresh[rank] = False
        if len(begins) > (met[-1] if len(mine) else 0):
            self._opening[rank] = True

    def _since_told(
        self,
        rank: int,
        lines: Mapping[frozenset[str], tuple[_Places, _Orders]],
        new: Mapping[frozenset[str], _Orders],
        found: Array,
    ) -> None:
        """Prefills since the last line with these tags: those with the same ones, else of the rank that tells most."""
        seen = self._prefills.setdefault(rank, Counter())
        events = np.concatenate([np.zeros(0, np.int64), *new.values()])
        counts = [seen[tags] + np.arange(1, len(orders) + 1) for tags, orders in new.items()]
        by_order = np.argsort(events)
        first = [max(seen.values(), default=0)]
        most = np.maximum.accumulate(np.concatenate([first, *counts])[np.concatenate([[0], by_order + 1])])
        for tags, (places, order) in lines.items():
            total = seen[tags] + np.searchsorted(new.get(tags, events[:0]), order)
            total = np.where(total > 0, total, most[np.searchsorted(events[by_order], order)])
            found[places] = np.diff(total, prepend=self._told[rank, tags])
            self._told[rank, tags] = int(total[-1])
        for tags, orders in new.items():
            if len(orders):
                seen[tags] += len(orders)


def _by_rank(ordered: Ordered) -> dict[int, dict[frozenset[str], _Places]]:
    found: dict[int, dict[frozenset[str], _Places]] = {}
    for tags, places in ordered.by_tags().items():
        found.setdefault(dp_rank(tags), {})[tags] = places
    return found


def _merged(places: Mapping[frozenset[str], _Places]) -> _Places:
    if len(places) == 1:
        return next(iter(places.values()))
    return np.sort(np.concatenate([np.zeros(0, np.intp), *places.values()]))
