from __future__ import annotations

import io
import os
import shutil
import signal
import sys

import pytest

from workbench import terminal


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ntwo lines", "plain\ntwo lines"),
        ("\x1b[2Jgone", "\ufffd[2Jgone"),
        ("a\rb\x07\x9b", "a\ufffdb\ufffd\ufffd"),
        ("right\u202eleft", "right\ufffdleft"),
        ("lone \udcff half", "lone \ufffd half"),
        ("Grüße 京", "Grüße 京"),
    ],
)
def test_no_text_can_steer_the_terminal(text: str, shown: str) -> None:
    assert terminal.printable(text) == shown


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_only_a_terminal_gets_colour_and_only_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, shown in ((Terminal(), "\x1b[1mone\x1b[0m\ntwo \ufffd\n"), (io.StringIO(), "one\ntwo \ufffd\n")):
        monkeypatch.setattr(sys, "stdout", stream)
        terminal.say("one\ntwo \x1b", bold_first_line=True)
        assert stream.getvalue() == shown


def test_a_terminal_without_the_characters_gets_them_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    terminal.prepare()
    terminal.say("Zürich")
    terminal.flush()
    assert raw.getvalue() == b"Z\\xfcrich\n"


def test_closed_streams_are_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    terminal.prepare()
    terminal.say("x")
    terminal.complain("x")
    terminal.flush()
    for stream in (sys.stdout, sys.stderr):
        assert stream.name == os.devnull
        stream.close()


def test_on_a_terminal_one_line_stands_until_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: os.terminal_size((9, 3)))
    lines = terminal.Lines()
    lines.overwrite("1 of 10 requests")
    lines.overwrite("2 \x1b")
    lines.say("done")
    lines.say("all")
    lines.clear()
    clear = "\r\x1b[K"
    assert stream.getvalue() == f"{clear}1 of 10 {clear}2 \ufffd{clear}done\nall\n"


def test_on_a_terminal_each_place_has_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: os.terminal_size((40, 4)))
    lines = terminal.Lines()
    one, all_of_two = "\r\x1b[K", "\x1b[1A\r\x1b[J"
    lines.overwrite("10:00:00~ 10| a: 1 of 4")
    lines.overwrite("10:00:01~ 2| b: 1 of 4")
    assert stream.getvalue() == f"{one}10:00:00~ 10| a: 1 of 4{one}10:00:01~ 2| b: 1 of 4\n10:00:00~ 10| a: 1 of 4"
    stream.truncate(0)
    # What stays goes above; of its own place nothing stands any more.
    lines.say("10:00:02  2| b: ok")
    assert stream.getvalue().lstrip("\0") == f"{all_of_two}10:00:02  2| b: ok\n10:00:00~ 10| a: 1 of 4"
    lines.clear()
    assert stream.getvalue().endswith(f"a: 1 of 4{one}")
    # No more lines than the terminal can take back: one is for the cursor.
    for place in range(1, 9):
        lines.overwrite(f"{place}| x")
    assert stream.getvalue().endswith("\x1b[2A\r\x1b[J1| x\n2| x\n3| x")


def test_elsewhere_each_place_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, now = io.StringIO(), [0.0]
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(terminal.time, "monotonic", lambda: now[0])
    lines = terminal.Lines()
    for now[0], text in ((9.0, "1| early"), (11.0, "1| a"), (12.0, "2| b"), (13.0, "1| c"), (22.0, "2| d")):
        lines.overwrite(text)
    assert stream.getvalue() == "1| a\n2| b\n2| d\n"


def test_elsewhere_what_only_stands_comes_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, clock = io.StringIO(), iter((0.0, 9.9, 10.0, 10.0, 19.9, 20.0, 20.0))
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(terminal.time, "monotonic", lambda: next(clock))
    lines = terminal.Lines()
    lines.say("started")
    for text in ("at 9.9", "at 10", "at 19.9", "at 20"):
        lines.overwrite(text)
    assert stream.getvalue() == "started\nat 10\nat 20\n"


def test_quiet_lines_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    lines = terminal.Lines(quiet=True)
    lines.say("one")
    lines.overwrite("two")
    lines.clear()
    assert stream.getvalue() == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_end_of_the_terminal_is_a_ctrl_c(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), terminal.terminated_like_interrupted():
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


def test_whom_the_terminal_s_end_shall_not_reach() -> None:
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with terminal.terminated_like_interrupted():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
