"""The error tree. Every message says what failed, where, and what to do next.

WorkbenchError
├── UsageError          the command or its arguments are wrong               exit 2
├── InputError          a file that was given cannot be used                 exit 3
│   ├── LogError        a log holds nothing that can be analysed
│   ├── RunFolderError  a run folder is missing, half-written or inconsistent
│   ├── SpecError       a campaign, spec or parameter is invalid
│   └── CheckpointError a checkpoint folder cannot be read
├── NotebookError       a notebook did not finish                            exit 4
├── MissingToolError    something that has to be installed is absent         exit 5
└── LaunchError         a server did not start, or died                      exit 6

Exit 0 is success, exit 1 is "the command worked and its answer is bad news"
(a diagnosis with a certain fault, a failed check). `report --fail-on-regression` also ends with 3,
for a run that got worse since it was last good.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


class WorkbenchError(Exception):
    """Base of every error that the workbench raises on purpose.

    Parameters
    ----------
    what
        What failed, as one sentence.
    where
        The file, line, field or value concerned.
    next_step
        What the user can do about it.
    """

    exit_code = 1

    def __init__(self, what: str, *, where: str | Path | None = None, next_step: str | None = None) -> None:
        self.what = what
        self.where = None if where is None else str(where)
        self.next_step = next_step
        super().__init__(self.render())

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: the message alone, for the path through our code tells a user nothing."""
        return [f"{type(self).__name__}: {self.render()}"]

    def render(self) -> str:
        lines = [self.what if self.where is None else f"{self.where}: {self.what}"]
        if self.next_step:
            lines.append(f"  -> {self.next_step}")
        return "\n".join(lines)


class UsageError(WorkbenchError):
    """The command line or a function argument is wrong."""

    exit_code = 2


class InputError(WorkbenchError):
    """Input was found but cannot be used."""

    exit_code = 3


class LogError(InputError):
    """A log holds nothing that can be analysed."""


class RunFolderError(InputError):
    """A run folder is missing, half-written or inconsistent."""


class SpecError(InputError):
    """A campaign, run spec or notebook parameter is invalid."""


class CheckpointError(InputError):
    """A checkpoint folder cannot be read."""


class NotebookError(WorkbenchError):
    """A notebook did not run to its end."""

    exit_code = 4


class MissingToolError(WorkbenchError):
    """Something that has to be installed first is absent."""

    exit_code = 5


class LaunchError(WorkbenchError):
    """A server did not start, died, or could not be ended.

    ``kind`` names the cause in one word, ``tail`` holds the lines of its log that show it.
    """

    exit_code = 6

    def __init__(
        self,
        what: str,
        *,
        where: str | Path | None = None,
        next_step: str | None = None,
        kind: str = "unknown",
        tail: tuple[str, ...] = (),
    ) -> None:
        self.kind = kind
        self.tail = tail
        super().__init__(what, where=where, next_step=next_step)

    def render(self) -> str:
        return "\n".join([super().render(), *(f"  | {line}" for line in self.tail)])


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that could not be used, while the rest is: collected and shown, never raised."""

    where: str
    what: str
