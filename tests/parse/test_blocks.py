"""Lines read together are read as line by line."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from log_samples import decode_line, recorded

from workbench.parse.blocks import Skeletons, lines_of
from workbench.parse.lines import LineBlock, line_blocks
from workbench.parse.records import DecodeRecord
from workbench.parse.server_log import CountsBuilder, iter_records
from workbench.parse.stream import _is_silent


def test_most_of_a_recorded_log_is_read_together() -> None:
    [block] = line_blocks([recorded("eagle-flag")], CountsBuilder())
    assert isinstance(block, LineBlock)
    groups, left = Skeletons(_is_silent).split(lines_of(block))
    decode = sum(len(group.places) for group in groups if group.template.make is DecodeRecord)
    assert decode > 250
    assert len(left) < 300


def test_a_line_that_crosses_what_came_together_is_whole() -> None:
    data = (decode_line() * 20).encode()
    for at in (1, 100, len(data) // 2, len(data) - 1):
        assert [*iter_records([data[:at], data[at:]])] == [*iter_records([data])]


@pytest.mark.parametrize("odd", [[], [0], [899], [900, 2500], [2999], range(3000)])
def test_odd_lines_among_many_of_one_length_are_told_apart(odd: Sequence[int]) -> None:
    # 3,000 lines are compared in several pieces; "Decade" is as long as "Decode" and no batch line.
    line = decode_line().encode()
    lines = [line.replace(b"Decode", b"Decade") if place in odd else line for place in range(3000)]
    counts = CountsBuilder()
    # What is compared is what was met in a chunk before.
    found = [record.line for record in iter_records([line * 100, b"".join(lines)], counts)]
    assert found == [*range(1, 101), *(place + 101 for place in range(3000) if place not in odd)]
    assert counts.counts().decode == len(found)
