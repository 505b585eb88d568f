"""Lines read together are read as line by line."""

from __future__ import annotations

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
