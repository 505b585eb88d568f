"""Text for a terminal or a spreadsheet: names and log lines come from others and must not be able to steer it."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

_PLACE = re.compile(r"(?:\d\d:\d\d:\d\d[ ~] )?(\d+)\| ")
"""In front of a line of progress, behind the time that it may begin with."""


def printable(text: str) -> str:
    """Text in which every control character but the newline is replaced."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)


def no_formula(text: str) -> str:
    """Text that no spreadsheet runs: what it would take for a formula gets a leading apostrophe."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


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
    """Progress on standard error: lines that stay, and one of each place that only stands until its next.

    A line of a place has its number in front, ``2| text``; one place alone has none. Where standard error is no
    terminal a line that only stands is an ordinary one, at most one of a place in `PLAIN_EVERY_S`.
    """

    PLAIN_EVERY_S = 10.0

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._live = sys.stderr.isatty()
        self._standing: dict[str, str] = {}
        self._drawn = 0
        self._began = time.monotonic()
        self._last: dict[str, float] = {}

    def say(self, text: str) -> None:
        """A line that stays, above those that stand; what stood of its place is over."""
        if not self._quiet:
            self._standing.pop(_place(text), None)
            self._erase()
            complain(text)
            self._draw()

    def overwrite(self, text: str) -> None:
        """A line that the next one of its place replaces."""
        if self._quiet:
            return
        place = _place(text)
        if self._live:
            self._standing[place] = text
            self._drawn = self._drawn or 1  # what somebody else left in the line goes, too
            self._erase()
            self._draw()
        elif time.monotonic() - self._last.get(place, self._began) >= self.PLAIN_EVERY_S:
            self._last[place] = time.monotonic()
            complain(text)

    def clear(self) -> None:
        """Take away the lines that stand, so that something else may be written."""
        self._standing.clear()
        self._erase()

    def _erase(self) -> None:
        if self._drawn:
            up = f"\x1b[{self._drawn - 1}A" if self._drawn > 1 else ""
            sys.stderr.write(f"{up}\r\x1b[J" if up else "\r\x1b[K")
            self._drawn = 0

    def _draw(self) -> None:
        if self._standing:
            size = shutil.get_terminal_size()
            # More than fit could not be taken away again.
            shown = [self._standing[place] for place in sorted(self._standing, key=_in_order)][: size.lines - 1]
            sys.stderr.write("\n".join(printable(text).replace("\n", " ")[: size.columns - 1] for text in shown))
            self._drawn = len(shown)
        sys.stderr.flush()


def _place(text: str) -> str:
    found = _PLACE.match(text)
    return found[1] if found else ""


def _in_order(place: str) -> int:
    return int(place or 0)


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


@contextlib.contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """SIGTERM, and the end of the terminal unless that is ignored, stop the block as Ctrl-C does."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    wanted = [signal.SIGTERM, signal.SIGHUP]
    before = {number: signal.getsignal(number) for number in wanted}
    for number in wanted:
        if before[number] is not signal.SIG_IGN:
            signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
