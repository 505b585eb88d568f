"""What a check says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How bad it is.

    ``ERROR``: the server refuses to start, or starts and accepts nothing or far less than the draft could.
    ``WARNING``: depends on something the files do not show (a version, how the draft was trained), or costs little.
    ``NOTE``: nothing wrong; something worth knowing before a number is believed.
    """

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One finding. ``rule`` is a stable name, ``where`` a file with the key or tensor, ``why`` the consequence."""

    rule: str
    severity: Severity
    what: str
    where: str
    next_step: str
    why: str = ""
