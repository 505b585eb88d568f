from __future__ import annotations

import json
from datetime import datetime

import pytest
from log_samples import PLAIN_DECODE, decode_line

from workbench.parse.counts import CountsBuilder
from workbench.parse.lines import MAX_LINE_BYTES, parse_time, physical_lines, split_pieces, undecodable
from workbench.parse.records import DecodeRecord
from workbench.parse.server_log import iter_records, parse_log


def one(text: str | bytes) -> DecodeRecord:
    [record] = parse_log(text).decode
    return record


MESSAGE = PLAIN_DECODE.partition("] ")[2]
JSON_LINE = json.dumps({"log": PLAIN_DECODE, "stream": "stderr", "time": "2026-01-05T10:00:01.5Z"}) + "\n"


@pytest.mark.parametrize(
    ("text", "time", "ranks"),
    [
        (PLAIN_DECODE, datetime(2026, 1, 5, 10), {"TP0"}),
        (PLAIN_DECODE.replace("\n", "\r\n"), datetime(2026, 1, 5, 10), {"TP0"}),
        ("\ufeff" + PLAIN_DECODE, datetime(2026, 1, 5, 10), {"TP0"}),
        (f"\x1b[32m{PLAIN_DECODE.strip()}\x1b[0m\n", datetime(2026, 1, 5, 10), {"TP0"}),
        (PLAIN_DECODE.replace("Decode batch", "\x1b[1mDecode\x1b[0m batch"), datetime(2026, 1, 5, 10), {"TP0"}),
        ("svc-1  | " + PLAIN_DECODE, datetime(2026, 1, 5, 10), {"TP0"}),
        ("2026-01-05T09:59:59.123456789Z stderr F " + PLAIN_DECODE, datetime(2026, 1, 5, 10), {"TP0"}),
        ("(Scheduler pid=123, ip=1.2.3.4) " + PLAIN_DECODE, datetime(2026, 1, 5, 10), {"TP0"}),
        (JSON_LINE, datetime(2026, 1, 5, 10), {"TP0"}),
        (json.dumps({"message": PLAIN_DECODE.strip()}) + "\n", datetime(2026, 1, 5, 10), {"TP0"}),
        (json.dumps({"msg": MESSAGE, "time": "2026-01-05T10:00:01Z"}), datetime(2026, 1, 5, 10, 0, 1), set()),
        (f"[2026-01-05 10:00:00.123 DP1 PP0 ATTN_CP2 TP3 EP4] {MESSAGE}", datetime(2026, 1, 5, 10, 0, 0, 123000),
         {"DP1", "PP0", "ATTN_CP2", "TP3", "EP4"}),
        (f"2025-12-04 20:35:53 INFO 151972 [scheduler_metrics_mixin.py:287] {MESSAGE}",
         datetime(2025, 12, 4, 20, 35, 53), set()),
        (f"2025-12-04 20:35:53,250 {MESSAGE}", datetime(2025, 12, 4, 20, 35, 53, 250000), set()),
        (f"2026-01-05T10:00:00Z {MESSAGE}", datetime(2026, 1, 5, 10), set()),
        (MESSAGE, None, set()),
        (f"[2026-99-05 10:00:00 TP0] {MESSAGE}", None, {"TP0"}),
        (f"Capturing batches:  50%|##  | 4/8{PLAIN_DECODE}", datetime(2026, 1, 5, 10), {"TP0"}),
        (f"Capturing batches:  50%|##  | 4/8\r{PLAIN_DECODE}", datetime(2026, 1, 5, 10), {"TP0"}),
    ],
)  # fmt: skip
def test_prefixes(text: str, time: datetime | None, ranks: set[str]) -> None:
    record = one(text)
    assert (record.time, record.ranks) == (time, ranks)
    assert (record.running_req, record.queue_req, record.gen_tok_per_s) == (7, 2, 640.25)
    assert not record.truncated


def test_records_on_one_line() -> None:
    line = decode_line(stamp="[2026-01-05 10:00:01 TP0]").strip() + " " + decode_line(stamp="[2026-01-05 10:00:02 TP1]")
    first, second = parse_log(line).decode
    assert (first.time, first.ranks) == (datetime(2026, 1, 5, 10, 0, 1), {"TP0"})
    assert (second.time, second.ranks) == (datetime(2026, 1, 5, 10, 0, 2), {"TP1"})
    assert first.accept_len == second.accept_len == 2.4
    assert first.line == second.line == 1


def test_record_without_a_stamp_does_not_borrow_its_neighbours() -> None:
    first, second = parse_log(PLAIN_DECODE.strip() + " " + MESSAGE).decode
    assert first.time is not None and second.time is None and second.ranks == set()


def test_docker_json_cut_at_its_limit() -> None:
    # Docker splits messages at 16 KB: without the inner newline the last value is not certain.
    record = one(json.dumps({"log": PLAIN_DECODE.strip(), "stream": "stderr"}) + "\n")
    assert record.queue_req is None and record.truncated and record.gen_tok_per_s == 640.25
    cut = JSON_LINE[: JSON_LINE.index("\\n")]
    assert one(cut).queue_req is None


def test_invalid_utf8_is_replaced_and_counted() -> None:
    log = parse_log(b"\xff\xfe noise \x80\n" + "ok ä\n".encode() + PLAIN_DECODE.encode() + b"tail \xe2\x82")
    assert log.counts.undecodable_bytes == 3 + 2
    assert one(b"\xff" + PLAIN_DECODE.encode()).running_req == 7
    assert undecodable("é€😀".encode()) == 0


def test_line_and_offset_point_to_the_physical_line() -> None:
    text = "first\r\nünicode\n\n" + PLAIN_DECODE
    record = one(text)
    assert record.line == 4
    assert record.offset == len("first\r\nünicode\n\n".encode())
    assert text.encode()[record.offset :].startswith(b"[2026-01-05 10:00:00 TP0] Decode")


def test_overlong_line_is_cut_and_counted() -> None:
    filler = b"x" * (MAX_LINE_BYTES + 10)
    data = PLAIN_DECODE.encode().rstrip(b"\n") + b" " + filler + PLAIN_DECODE.encode() + PLAIN_DECODE.encode()
    log = parse_log(data)
    assert log.counts.overlong_lines == 1
    assert [record.line for record in log.decode] == [1, 2]
    assert log.counts.lines == 2 and log.counts.bytes == len(data)


def test_number_at_the_cap_of_a_line_is_not_trusted() -> None:
    line = PLAIN_DECODE.encode().rstrip(b"\n")
    record = one(b" " * (MAX_LINE_BYTES - len(line)) + line + b"99\n")
    assert record.queue_req is None and record.truncated and record.gen_tok_per_s == 640.25


def test_character_at_the_cap_is_no_fault_of_the_log() -> None:
    data = b"x" * (MAX_LINE_BYTES - 1) + "€".encode() + b"\n"
    assert parse_log(data).counts.undecodable_bytes == 0


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50, 1000])
def test_lines_do_not_depend_on_chunks(size: int) -> None:
    data = b"\n\nab\r\ncd\n" + b"e" * 120 + b"\nlast"
    chunks = [data[i : i + size] for i in range(0, len(data), size)]
    counts = CountsBuilder()
    assert list(physical_lines(chunks, counts)) == [
        (1, 0, b"", True),
        (2, 1, b"", True),
        (3, 2, b"ab\r", True),
        (4, 6, b"cd", True),
        (5, 9, b"e" * 120, True),
        (6, 130, b"last", False),
    ]
    assert (counts.lines, counts.bytes) == (6, len(data))


def test_empty_input() -> None:
    assert list(iter_records([])) == []
    assert list(iter_records([b"", b""])) == []
    assert parse_log(b"\n").counts.lines == 1


def test_split_pieces_loses_nothing() -> None:
    text = "a\rb\r\n(Worker pid=3) [2026-01-05 10:00:00] Decode batch. Prefill batch. INFO 05-18 11:19:54 Engine 0: x\n"
    assert "".join(split_pieces(text)) == text


@pytest.mark.parametrize(
    ("stamp", "expected"),
    [
        ("2026-02-23 00:14:33", datetime(2026, 2, 23, 0, 14, 33)),
        ("2026-02-23T00:14:33.5", datetime(2026, 2, 23, 0, 14, 33, 500000)),
        ("2026-02-30 00:14:33", None),
        ("", None),
        ("nonsense", None),
    ],
)
def test_parse_time(stamp: str, expected: datetime | None) -> None:
    assert parse_time(stamp) == expected
