"""The quick reader gives what the careful one gives, or nothing."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_samples import PLAIN_DECODE, PLAIN_PREFILL, recorded

from workbench.parse.batch import read_plain_line
from workbench.parse.templates import PlainReader, _template

LINES = [
    PLAIN_DECODE,
    PLAIN_PREFILL,
    PLAIN_DECODE.replace("\n", ", \n"),
    PLAIN_DECODE.replace(" TP0", " DP1 TP0").replace("cuda graph", "accept len: 2.31, accept rate: 0.44, npu graph"),
    PLAIN_DECODE.replace("\n", ", fwd occupancy: 93.10%\n"),
]


def trained() -> PlainReader:
    reader = PlainReader()
    for line in LINES:
        reader.read(line, 1, 0)
    return reader


@pytest.mark.parametrize("server", ["base", "eagle-flag", "sim25-s3"])
def test_same_as_the_careful_reader_on_recorded_logs(server: str) -> None:
    reader = PlainReader()
    seen: Counter[str] = Counter()
    for number, raw in enumerate(recorded(server).decode().splitlines(keepends=True), 1):
        careful = read_plain_line(raw, number, 7)
        assert reader.read(raw, number, 7) == careful
        seen[type(careful).__name__] += 1
    assert seen["DecodeRecord"] > 100 and seen["PrefillRecord"] > 20


@pytest.mark.parametrize("line", LINES)
def test_layout_is_learned(line: str) -> None:
    record = read_plain_line(line, 3, 9)
    assert record is not None
    template = _template(record)
    assert template is not None
    assert template.read(line, 3, 9) == record


@given(st.sampled_from(LINES), st.data())
@settings(max_examples=150, deadline=None)
def test_same_as_the_careful_reader_on_damaged_lines(line: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(line)))
    end = data.draw(st.integers(start, min(len(line), start + 6)))
    damaged = line[:start] + data.draw(st.text(alphabet="0123456789.,: \n%-TrueFalsenan…[]", max_size=6)) + line[end:]
    assert trained().read(damaged, 1, 0) == read_plain_line(damaged, 1, 0)


@pytest.mark.parametrize("value", ["1234.5", "1234.", "1234", "1234.500", "1e3", "-1.50", "1_0.50", " 1.50", "nan"])
def test_odd_decimals_go_the_careful_way(value: str) -> None:
    for line in (PLAIN_PREFILL.replace("1234.50", value), PLAIN_DECODE.replace("640.25", value)):
        assert trained().read(line, 1, 0) == read_plain_line(line, 1, 0)


def test_number_of_templates_is_bounded() -> None:
    reader = PlainReader()
    for i in range(50):
        reader.read(PLAIN_DECODE.replace("cuda graph", f"key {i}: 1, cuda graph"), 1, 0)
    assert len(reader._templates) == 8
