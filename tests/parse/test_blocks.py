"""Lines read together are read as line by line."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_samples import N4_GRAPH, N5_NO_GRAPH, N16_GRAPH, decode_line

from workbench.parse.blocks import Skeletons, lines_of
from workbench.parse.records import DecodeRecord
from workbench.parse.server_log import CountsBuilder, _is_access, iter_records

ROOT = Path(__file__).parent.parent.parent
LOGS = sorted([*(ROOT / "data" / "recorded").rglob("*.log.gz"), *(ROOT / "tests" / "fixtures").rglob("*.log*")])

ACCESS = '[2026-01-05 10:00:00] INFO:     127.0.0.1:{port} - "POST /generate HTTP/1.1" {status}\n'
PREFILL = (
    "[2026-01-05 10:00:{second:02} TP{rank}] Prefill batch, #new-seq: {seq}, #new-token: 64, #cached-token: 0, "
    "token usage: 0.00, #running-req: {running}, #queue-req: 0\n"
)


def together(data: bytes) -> tuple[list[object], object]:
    counts = CountsBuilder()
    return list(iter_records([data], counts)), counts.counts()


def one_by_one(data: bytes) -> tuple[list[object], object]:
    """A line a chunk: too few to be read together."""
    counts = CountsBuilder()
    return list(iter_records(data.splitlines(keepends=True), counts)), counts.counts()


def content(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


@pytest.mark.parametrize("path", LOGS[:: max(1, len(LOGS) // 40)], ids=lambda path: path.parent.name)
def test_recorded_logs(path: Path) -> None:
    data = content(path)[:400_000]
    assert together(data) == one_by_one(data)


def test_most_of_a_recorded_log_is_read_together() -> None:
    path = ROOT / "data/recorded/h200_smollm2/_servers/eagle-flag/server.log.gz"
    batches, left = Skeletons(_is_access).split(lines_of(content(path)))
    decode = sum(len(batch.places) for batch in batches if batch.template.make is DecodeRecord)
    assert decode > 250
    assert len(left) < 300


def test_values_stand_where_the_line_has_them() -> None:
    lines = "".join(
        decode_line(accept_len=f"{k}.{k:02}", stamp=f"[2026-01-05 10:00:{k:02} DP1 TP0]") for k in range(1, 9)
    )
    found = [record for record in iter_records([lines.encode()]) if isinstance(record, DecodeRecord)]
    assert [record.accept_len for record in found] == [1.01, 2.02, 3.03, 4.04, 5.05, 6.06, 7.07, 8.08]
    assert [record.line for record in found] == list(range(1, 9))
    assert {record.time.second for record in found if record.time} == set(range(1, 9))
    assert {record.ranks for record in found} == {frozenset({"DP1", "TP0"})}


LINES = st.one_of(
    st.builds(
        ACCESS.format, port=st.integers(10_000, 10_003), status=st.sampled_from(["200 OK", "500 OK", "404 Not Found"])
    ),
    st.builds(
        PREFILL.format,
        second=st.integers(0, 61),
        rank=st.integers(0, 1),
        seq=st.integers(0, 3),
        running=st.integers(0, 1),
    ),
    st.builds(
        decode_line,
        accept_len=st.sampled_from(["2.40", "1.00", "nan", "12345678901234567.00", "2.4"]),
        accept_rate=st.sampled_from(["0.47", "0.11"]),
        stamp=st.sampled_from(
            ["[2026-01-05 10:00:00]", "[2026-13-45 10:00:00]", "[2026-01-05 10:00:00 TP0]", "[2026-01-05 10:00:00 TP1]"]
        ),
    ),
    st.sampled_from(
        [*(line.decode() for log in (N4_GRAPH, N5_NO_GRAPH, N16_GRAPH) for line in log.splitlines(keepends=True))]
    ),
    st.sampled_from(
        ["\n", "noise\r\n", "é" * 9 + "\n", "[2026-01-05 10:00:00] The server is fired up and ready to roll!\n"]
    ),
)


@settings(max_examples=60)
@given(st.lists(LINES, min_size=1, max_size=12), st.integers(1, 6))
def test_any_mixture(lines: list[str], times: int) -> None:
    data = ("".join(lines) * times).encode()
    assert together(data) == one_by_one(data)


def test_a_line_that_crosses_what_came_together_is_whole() -> None:
    data = (decode_line() * 20).encode()
    for at in (1, 100, len(data) // 2, len(data) - 1):
        assert [*iter_records([data[:at], data[at:]])] == [*iter_records([data])]
