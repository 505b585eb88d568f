"""Text for a terminal: names and log lines come from others and must not be able to steer it."""

from __future__ import annotations

import io
import os
import shutil
import sys
import time
from pathlib import Path


def printable(text: str) -> str:
    """Text in which every control character but the newline is replaced."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)


def say(text: str, *, bold_first_line: bool = False) -> None:
    """The answer of a command, to standard output. Colour is only for terminals."""
    text = printable(text)
    if bold_first_line and sys.stdout.isatty():
        first, newline, rest = text.partition("\n")
        text = f"\x1b[1m{first}\x1b[0m{newline}{rest}"
    sys.stdout.write(text + "\n")


def complain(text: str) -> None:
    """What is said beside the answer, to standard error."""
    sys.stderr.write(printable(text) + "\n")


class Lines:
    """Progress on standard error: lines that stay, and one that only stands until the next.

    Where standard error is no terminal the latter is an ordinary line, at most one in `PLAIN_EVERY_S`.
    """

    PLAIN_EVERY_S = 10.0

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._live = sys.stderr.isatty()
        self._standing = False
        self._last = time.monotonic()

    def say(self, text: str) -> None:
        if not self._quiet:
            self.clear()
            complain(text)

    def overwrite(self, text: str) -> None:
        """A line that the next one replaces."""
        if self._quiet:
            return
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            sys.stderr.write(f"\r\x1b[K{printable(text)[:width]}")
            sys.stderr.flush()
            self._standing = True
        elif time.monotonic() - self._last >= self.PLAIN_EVERY_S:
            self._last = time.monotonic()
            complain(text)

    def clear(self) -> None:
        """Take away the line that stands, so that something else may be written."""
        if self._standing:
            sys.stderr.write("\r\x1b[K")
            self._standing = False


def prepare() -> None:
    """Make both streams write whatever comes: what their encoding lacks is escaped, a closed one swallows all."""
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def flush() -> None:
    """Write what is buffered now, while a reader that has gone can still be noticed."""
    sys.stdout.flush()


def settle() -> None:
    """Write what is buffered, or drop it where nobody takes it any more, so that the exit stays silent."""
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
