"""Tables and logs that are read when somebody asks for them: most pages need few of those that a campaign has."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Self

import pandas as pd

from workbench.table.logs import LogSummary

ServerKey = tuple[str, str]
"""Campaign and server_id."""

_LOGS_HELD = 32


Readers = Mapping[str, Callable[[], pd.DataFrame]]


class Lazy:
    """Base of a dataclass of which fields may be read at their first use."""

    def put_off(self, readers: Readers) -> Self:
        """Itself, with these fields to be read when they are asked for; what they held is forgotten."""
        for name in readers:
            del self.__dict__[name]
        self.__dict__["_readers"] = readers
        return self

    def but(self, **changes: object) -> Self:
        """Itself with other values in some fields; what was put off and is not among them stays so."""
        other = copy.copy(self)
        readers = self.__dict__.get("_readers", {})
        other.__dict__.update(changes, _readers={name: readers[name] for name in readers if name not in changes})
        return other

    def reads(self, name: str) -> bool:
        """Whether a field is what its reader gives, read already or not: no other value was put in its place."""
        return name in self.__dict__.get("_readers", {})

    if not TYPE_CHECKING:  # any name would do for the type checker

        def __getattr__(self, name: str) -> pd.DataFrame:
            """Called for what is not there (yet)."""
            read = self.__dict__.get("_readers", {}).get(name)
            if read is None:
                raise AttributeError(name)
            self.__dict__[name] = held = read()
            return held


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A log that can be read: how many decode lines it has, whether any tells an accept length.

    ``made_from`` identifies its text and how it was read, ``None`` where that is not known; what follows from the
    log alone is the same where it is.
    """

    read: Callable[[], LogSummary]
    num_windows: int
    has_accept_length: bool
    made_from: str | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """The windows of the runs of one log, read when asked for. ``made_from`` as in `LogEntry`."""

    campaign: str
    read: Callable[[], pd.DataFrame]
    made_from: str | None


@dataclass(frozen=True, slots=True)
class OfRuns:
    """The requests of the runs of one campaign: ``read`` gives those of some runs, of some columns, in order.

    Its last argument names a column that they must have a value in, or is ``None``.

    ``made_from`` identifies by run_id what its requests were read from and how; runs of which that is not known are
    left out.
    """

    read: Callable[[Collection[str], Sequence[str], str | None], pd.DataFrame]
    made_from: Mapping[str, str]


class Logs(Mapping[ServerKey, LogSummary]):
    """Summaries by server, of which only the last few are held in memory."""

    def __init__(self, entries: Mapping[ServerKey, LogEntry]) -> None:
        self.entries = dict(entries)
        self._read = lru_cache(maxsize=_LOGS_HELD)(lambda key: self.entries[key].read())

    def __getitem__(self, key: ServerKey) -> LogSummary:
        if key not in self.entries:
            raise KeyError(key)
        return self._read(key)

    def __contains__(self, key: object) -> bool:
        return key in self.entries  # the mixin's would read the log

    def __iter__(self) -> Iterator[ServerKey]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


def made_from(logs: Mapping[ServerKey, LogSummary], key: ServerKey) -> str | None:
    """What identifies the text of a log and how it was read, where that is known."""
    return logs.entries[key].made_from if isinstance(logs, Logs) else None


def longest(logs: Mapping[ServerKey, LogSummary]) -> LogSummary | None:
    """The log with the most decode lines, of those with an accept length where there are any."""
    if isinstance(logs, Logs):
        sizes = {key: (entry.has_accept_length, entry.num_windows) for key, entry in logs.entries.items()}
    else:
        sizes = {key: (bool(log.windows["accept_len"].notna().any()), len(log.windows)) for key, log in logs.items()}
    best = max(sizes, key=sizes.__getitem__, default=None)
    return None if best is None else logs[best]
