"""Lines read together say what the careful reader says of each: field by field, whatever the lines and the chunks."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_samples import N4_GRAPH, N16_GRAPH, PLAIN_DECODE, PLAIN_PREFILL, VLLM_SPEC, decode_line, recorded

from workbench.parse.batch import read_plain_line
from workbench.parse.digits import MISSING
from workbench.parse.facts import FactsBuilder
from workbench.parse.lines import physical_lines
from workbench.parse.records import DecodeRecord, ParseCounts, Record, StartupFacts
from workbench.parse.server_log import CountsBuilder, iter_stretches
from workbench.parse.stream import _read_line
from workbench.parse.stretches import Stretch, lines_of_records

ROOT = Path(__file__).parent.parent.parent
LOGS = sorted([*(ROOT / "data" / "recorded").rglob("*.log.gz"), *(ROOT / "tests" / "fixtures").rglob("*.log*")])
ACCESS = '[2026-01-05 10:00:00] INFO:     127.0.0.1:40001 - "POST /generate HTTP/1.1" 200 OK\n'
ERROR = '[2026-01-05 10:00:00] INFO:     127.0.0.1:40001 - "POST /generate HTTP/1.1" 500 Internal Server Error\n'
READY = "[2026-01-05 10:00:01] The server is fired up and ready to roll!\n"
TWO_POOLS = (
    "[2026-01-05 10:00:00 DP1 TP0] Decode batch. #running-req: 3, #full token: 77, full token usage: 0.12, "
    "#swa token: 9, swa token usage: 0.03, accept len: 1.50, accept rate: 0.50, npu graph: False, "
    "gen throughput (token/s): 12345.67, #queue-req: 0, \n"
)

Read = tuple[list[Record], ParseCounts, StartupFacts]


class _Careful:
    """In the place of the reader that remembers layouts."""

    read = staticmethod(read_plain_line)


def carefully(data: bytes) -> Read:
    """Line by line, each as if it were the first."""
    counts, facts, found = CountsBuilder(), FactsBuilder(), []
    for line in physical_lines([data], counts):
        found += _read_line(*line, _Careful(), counts)  # type: ignore[arg-type]
    for record in found:
        facts.feed(record)
    return found, counts.counts(), facts.facts()


def in_stretches(*chunks: bytes) -> Read:
    counts, facts, found = CountsBuilder(), FactsBuilder(), []
    for part in iter_stretches(chunks, counts):
        facts.feed(part)
        found += part.records() if isinstance(part, Stretch) else [part]
    return found, counts.counts(), facts.facts()


def content(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def stretches(*lines: str) -> list[Stretch]:
    return [part for part in iter_stretches(["".join(lines).encode()]) if isinstance(part, Stretch)]


@pytest.mark.parametrize("path", LOGS, ids=lambda path: f"{path.parent.parent.parent.name}-{path.parent.name}")
def test_recorded_logs(path: Path) -> None:
    data = content(path)
    assert in_stretches(data) == carefully(data)


def test_a_long_log_comes_in_few_stretches() -> None:
    log = recorded("eagle-flag")
    served = log[log.index(b"ready to roll!\n") + 15 :]
    served = served[: served.rindex(b"\n", 0, served.rindex(b"Decode batch")) + 1]
    found = list(iter_stretches([served * 20]))
    together = sum(len(part) for part in found if isinstance(part, Stretch))
    assert together > 5_000
    assert len(found) < together / 50


# ---- values -------------------------------------------------------------------------------------------------------


def test_columns_hold_what_the_lines_have() -> None:
    lines = [decode_line(accept_len=f"{k}.{k:02}", stamp=f"[2026-01-05 10:00:{k:02} DP1 TP0]") for k in range(1, 9)]
    [stretch] = stretches(*lines, *[PLAIN_DECODE] * 4)
    decode = stretch.decode
    assert decode.column("accept_len").tolist()[:8] == [1.01, 2.02, 3.03, 4.04, 5.05, 6.06, 7.07, 8.08]
    assert np.isnan(decode.column("accept_len")[8:]).all()
    assert decode.line.tolist() == list(range(1, 13))
    assert decode.offset.tolist()[:3] == [0, len(lines[0]), 2 * len(lines[0])]
    assert decode.time.tolist()[0] == datetime(2026, 1, 5, 10, 0, 1)
    assert [kind.ranks for _, kind in decode.kinds_met()] == [frozenset({"DP1", "TP0"}), frozenset({"TP0"})]
    assert decode.objects("running_req") == [1] * 8 + [7] * 4


@pytest.mark.parametrize(
    ("printed", "value"),
    [("0.00", 0.0), ("9.99", 9.99), ("12345678.99", 12345678.99), ("123456789.01", 123456789.01), ("007.10", 7.1)],
)
def test_decimals_of_any_length(printed: str, value: float) -> None:
    [stretch] = stretches(*[PLAIN_DECODE.replace("640.25", printed)] * 4)
    assert stretch.decode.column("gen_tok_per_s").tolist() == [value] * 4


@pytest.mark.parametrize("printed", ["0", "12345678", "123456789", "999999999999999"])
def test_whole_numbers_of_any_length(printed: str) -> None:
    [stretch] = stretches(*[PLAIN_DECODE.replace("#token: 900", f"#token: {printed}")] * 4)
    assert stretch.decode.column("tokens").tolist() == [int(printed)] * 4


def test_numbers_too_long_for_a_float_are_read_one_by_one() -> None:
    line = PLAIN_DECODE.replace("#token: 900", "#token: 1234567890123456")
    assert stretches(*[line] * 4) == []
    assert in_stretches((line * 4).encode()) == carefully((line * 4).encode())


@pytest.mark.parametrize(
    ("stamp", "time"),
    [
        ("2026-12-31 23:59:59", datetime(2026, 12, 31, 23, 59, 59)),
        ("2024-02-29T00:00:00.5", datetime(2024, 2, 29, 0, 0, 0, 500_000)),
        ("0001-01-01 00:00:00,123456789", datetime(1, 1, 1, 0, 0, 0, 123_456)),
        ("9999-12-31 23:59:59.000001", datetime(9999, 12, 31, 23, 59, 59, 1)),
        ("0000-01-01 00:00:00", None),
        ("2026-02-29 00:00:00", None),
        ("2026-13-01 00:00:00", None),
        ("2026-01-05 25:00:00", None),
        ("2026-01-05 10:60:00", None),
        ("2026-01-05 10:00:60", None),
    ],
)
def test_stamps(stamp: str, time: datetime | None) -> None:
    other = "2026-01-06" + stamp[10:]
    lines = [PLAIN_DECODE.replace("2026-01-05 10:00:00", text) for text in (stamp, other, stamp, stamp)]
    [stretch] = stretches(*lines)
    found = stretch.decode.time.tolist()
    assert [found[0], found[2], found[3]] == [time] * 3


def test_what_a_line_does_not_have_is_missing() -> None:
    [stretch] = stretches(*[PLAIN_DECODE.replace("#token: 900, ", "")] * 4, *[PLAIN_DECODE] * 4, *[PLAIN_PREFILL] * 4)
    assert stretch.decode.column("tokens").tolist() == [MISSING] * 4 + [900] * 4
    assert stretch.decode.objects("tokens") == [None] * 4 + [900] * 4
    assert stretch.decode.objects("accept_len") == [None] * 8
    assert stretch.prefill.objects("cuda_graph") == [False] * 4


def test_a_digit_in_a_key_belongs_to_the_key() -> None:
    lines = [PLAIN_DECODE.replace("cuda graph", f"key {k}: {k}, cuda graph") for k in (1, 1, 2, 1, 1, 1, 2)]
    data = "".join(lines).encode()
    assert in_stretches(data) == carefully(data)
    extras = [record.extra for record in in_stretches(data)[0] if isinstance(record, DecodeRecord)]
    assert extras[1:3] == [{"key 1": "1"}, {"key 2": "2"}]


@pytest.mark.parametrize(
    ("line", "other"),
    [
        (ACCESS, ACCESS.replace("200 OK", "500 OK")),
        (ACCESS.replace("200 OK", "304 Not Modified"), ACCESS.replace("200 OK", "404 Not Modified")),
        ("[2026-01-05 10:00:00] Spec v3 is enabled\n", "[2026-01-05 10:00:00] Spec v1 is enabled\n"),
        ("Decode 1 batches 2\n", "Decode 3 batches 4\n"),
    ],
)
def test_digits_may_say_something_where_others_say_nothing(line: str, other: str) -> None:
    for lines in ([line] * 8 + [other] * 8, [other, *[line] * 8, other, *[line] * 8]):
        data = "".join(lines).encode()
        assert in_stretches(data) == carefully(data)


@pytest.mark.parametrize("large", [2.5, 123456.0])
def test_pairs_are_counted_in_the_order_of_the_first(large: float) -> None:
    printed = [("2.00", "0.50"), (f"{large:.2f}", "0.25"), ("2.00", "0.50"), ("1.00", "0.25"), ("2.00", "0.25")]
    [stretch] = stretches(*(decode_line(accept_len=a, accept_rate=b) for a, b in printed * 4), *[PLAIN_DECODE] * 4)
    pairs = stretch.decode.pairs("accept_len", "accept_rate")
    assert list(pairs.items()) == [((2.0, 0.5), 8), ((large, 0.25), 4), ((1.0, 0.25), 4), ((2.0, 0.25), 4)]
    assert stretches(*[PLAIN_DECODE] * 4)[0].decode.pairs("accept_len", "accept_rate") == {}


def test_bytes_that_are_no_text_are_counted_in_access_lines_too() -> None:
    data = ACCESS.encode().replace(b"generate", b"g\xffn") * 6
    assert in_stretches(data)[1].undecodable_bytes == 6


def test_other_characters_in_a_key_stay() -> None:
    data = (PLAIN_DECODE.replace("cuda graph", "größe: 5, cuda graph") * 6).encode()
    assert in_stretches(data) == carefully(data)


# ---- order --------------------------------------------------------------------------------------------------------


def test_a_record_between_lines_splits_them() -> None:
    found = list(iter_stretches([(decode_line() * 20 + READY + decode_line() * 20).encode()]))
    assert [len(part) if isinstance(part, Stretch) else part.line for part in found] == [20, 21, 20]


def test_counts_are_those_up_to_the_record() -> None:
    counts = CountsBuilder()
    seen = [
        (counts.decode, counts.prefill)
        for part in iter_stretches(
            [((decode_line() * 20 + PLAIN_PREFILL * 5) + READY + decode_line() * 20).encode()], counts
        )
        if not isinstance(part, Stretch)
    ]
    assert seen == [(20, 5)]


def test_lines_of_records_are_those_of_the_stretch() -> None:
    [stretch] = stretches(*[TWO_POOLS] * 3, *[PLAIN_DECODE] * 5, *[TWO_POOLS] * 3)
    again = lines_of_records(stretch.records())
    for name in ("running_req", "tokens", "accept_len", "cuda_graph", "gen_tok_per_s"):
        np.testing.assert_array_equal(again.column(name), stretch.decode.column(name))
    assert again.time.tolist() == stretch.decode.time.tolist()


# ---- any lines ----------------------------------------------------------------------------------------------------

SAMPLES = [
    decode_line(),
    decode_line(stamp="[2026-01-05 10:00:00.250 TP1]"),
    PLAIN_DECODE,
    PLAIN_DECODE.replace("\n", "\r\n"),
    PLAIN_PREFILL,
    TWO_POOLS,
    TWO_POOLS.replace("DP1", "DP0"),
    PLAIN_DECODE.replace("cuda graph", "pool 2 usage: 93.1%, cuda graph"),
    *N4_GRAPH.decode().splitlines(keepends=True),
    *N16_GRAPH.decode().splitlines(keepends=True),
    *VLLM_SPEC.decode().splitlines(keepends=True),
    ACCESS,
    ACCESS.replace("\n", "\r\n"),
    ERROR,
    READY,
    "noise 12\n",
    "\n",
]


@st.composite
def changed(draw: st.DrawFn, line: str) -> str:
    """The line with something else in it."""
    digits = [place for place, char in enumerate(line) if char.isdigit()]
    place = draw(st.sampled_from(digits)) if digits else 0
    match draw(st.integers(0, 9)):
        case 0 | 1 | 2:
            return line[:place] + draw(st.sampled_from("0123456789")) + line[place + 1 :]
        case 3:
            return line[:place] + draw(st.text("0123456789", max_size=17)) + line[place:]
        case 4:
            return line[: draw(st.integers(0, len(line)))] + draw(st.sampled_from(["\n", "...\n", ""]))
        case 5:
            return "\x1b[32m" + line.replace("batch", "\x1b[0mbatch", 1)
        case 6:
            return line.replace("] ", draw(st.sampled_from([" DP0] ", " TP3] ", " DP1 TP2] ", " PP0 TP12] "])), 1)
        case 7:
            return line.replace("\n", ", x: " + "y" * draw(st.integers(700, 1100)) + "\n")
        case 8:
            return line.replace("2026-01", draw(st.sampled_from(["2026-02", "2026-00", "0000-01", "1989-12"])), 1)
    return line[:place] + draw(st.text(" ,.:%-[]TFaé\x00", max_size=3)) + line[place + 1 :]


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Runs of like lines, changed lines among them."""
    lines: list[str] = []
    for sample in draw(st.lists(st.sampled_from(SAMPLES), min_size=1, max_size=6)):
        like = [sample] * draw(st.sampled_from([1, 3, 5, 40]))
        for place in draw(st.lists(st.integers(0, len(like) - 1), max_size=4)):
            like[place] = draw(changed(sample))
        lines += like
    if draw(st.booleans()):
        lines = draw(st.permutations(lines))
    return "".join(lines).encode()


def cut(data: bytes, places: list[int]) -> Iterator[bytes]:
    borders = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return (data[begin:end] for begin, end in pairwise(borders))


@settings(max_examples=150, deadline=None)
@given(logs(), st.lists(st.integers(0, 1 << 20), max_size=3))
def test_any_mixture_cut_anywhere(data: bytes, places: list[int]) -> None:
    whole = carefully(data)
    assert in_stretches(data) == whole
    assert in_stretches(*cut(data, places)) == whole
