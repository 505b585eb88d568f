"""Text of a log as it may be shown: in a sentence, in a terminal, in a command to copy."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from workbench.analysis.wording import one_of

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
EVIDENCE_CHARACTERS = 200


def load(level: int, ranks: int = 1) -> str:
    """``8``, and ``4 ranks x 8`` where each of several data parallel ranks runs as many."""
    return f"{level:,}" if ranks <= 1 else f"{ranks:,} ranks x {level:,}"


def at_loads(levels: Sequence[int], ranks: Sequence[int] = ()) -> str:
    """``at 1 running request``, ``at 1, 8 and 32 running requests``; ``ranks`` are those of each level."""
    shown = one_of(load(level, many) for level, many in zip(levels, ranks or [1] * len(levels), strict=True))
    return f"at {shown} running request{'' if list(levels) == [1] else 's'}"


def quoted(text: str) -> str:
    """Text of a log on one line, without control characters, cut to a readable length."""
    line = " ".join(_CONTROL.sub(" ", text).split())
    return line if len(line) <= EVIDENCE_CHARACTERS else line[: EVIDENCE_CHARACTERS - 3] + "..."


def at_line(line: int | None, text: str) -> str:
    """Evidence with its line number, where there is one."""
    return quoted(text) if line is None else f"line {line}: {quoted(text)}"


def shell_word(value: object) -> str:
    """A value of the log as one word of a command to copy."""
    return shlex.quote(_CONTROL.sub("", str(value)))
