"""Logs, windows and requests that are read when somebody asks for them: most pages need few of a campaign's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import pandas as pd

from workbench.table.lines import Lines
from workbench.table.logs import LogSummary

ServerKey = tuple[str, str]
"""Campaign and server_id."""

_LOGS_HELD = 32


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
    """The decode lines of the runs of one log by run_id, read when asked for. ``made_from`` as in `LogEntry`."""

    campaign: str
    read: Callable[[], Mapping[str, Lines]]
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
