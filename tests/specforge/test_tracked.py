"""Files of trackers."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch", reason="the embedded engine needs torch (extra: reference)")

from specforge_files import FIXTURES

from workbench.errors import Problem
from workbench.specforge.log import ordered, parse
from workbench.specforge.tracked import mlflow, read_tracked, tensorboard

EVENTS = FIXTURES / "events.out.tfevents.1.host.1.0"


def test_tensorboard_says_what_the_console_said(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / EVENTS.name).write_bytes(EVENTS.read_bytes())
    problems: list[Problem] = []
    steps, evaluations = ordered(read_tracked(tmp_path, problems))
    printed = parse((FIXTURES / "train.log").read_text())
    for read, said in ((steps, printed.steps), (evaluations, printed.evaluations)):
        assert [point.step for point in read] == [point.step for point in said]
        for one, other in zip(read, said, strict=True):
            assert one.values == pytest.approx(dict(other.values), rel=1e-6)
    clocks = [point.seconds for point in steps]
    assert clocks == sorted(clocks) and None not in clocks
    assert problems == []


def test_a_file_cut_off_anywhere_gives_what_is_whole() -> None:
    data = EVENTS.read_bytes()
    whole = list(tensorboard(data))
    assert len(whole) > 100
    for end in range(0, len(data), 97):
        part = list(tensorboard(data[:end]))
        assert part == whole[: len(part)]


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    framed = struct.pack("<Q", len(data)) + bytes(4) + data + bytes(4)
    for text in (data, framed):
        for step, name, value, _ in tensorboard(text):
            assert isinstance(step, int) and isinstance(name, str) and isinstance(value, float)


def test_an_event_by_hand() -> None:
    value = b"\x0a\x04loss\x15" + struct.pack("<f", 2.5)  # tag (1) and simple_value (2)
    summary = b"\x0a" + bytes([len(value)]) + value
    event = b"\x09" + struct.pack("<d", 100.0) + b"\x10\xac\x02" + b"\x2a" + bytes([len(summary)]) + summary
    assert list(tensorboard(struct.pack("<Q", len(event)) + bytes(4) + event + bytes(4))) == [(300, "loss", 2.5, 100.0)]


def test_mlflow(tmp_path: Path) -> None:
    metrics = tmp_path / "mlruns" / "0" / "run" / "metrics"
    (metrics / "train").mkdir(parents=True)
    (metrics / "eval").mkdir()
    (metrics / "train" / "loss").write_text("1000 3.5 10\n3000 2.5 20\nbroken\n4000 x 30\n")
    (metrics / "eval" / "avg_loss").write_text("3500 2.0 20\n")
    steps, evaluations = ordered(read_tracked(tmp_path, []))
    assert [(p.step, dict(p.values), p.seconds) for p in steps] == [(10, {"loss": 3.5}, 1.0), (20, {"loss": 2.5}, 3.0)]
    assert [(p.step, dict(p.values)) for p in evaluations] == [(20, {"eval/avg_loss": 2.0})]


@given(st.text(max_size=60))
def test_any_text_of_mlflow(text: str) -> None:
    assert all(step >= 0 for step, *_ in mlflow(text, "loss"))
