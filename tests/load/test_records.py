from __future__ import annotations

import json
from dataclasses import replace

import pytest

from workbench.load.answer import Answer
from workbench.load.records import RequestRecord, busy_window, decode_speed, summarise
from workbench.table.requests import request_rows


def record(started: float, finished: float, tokens: int | None = None, **more: object) -> RequestRecord:
    return replace(RequestRecord(0, 0, started, finished, completion_tokens=tokens), **more)


# Two slots: 0-4 s then 4-6 s in one, 1-3 s then 3-7 s in the other. Both are busy from 1 s to 6 s.
TWO_SLOTS = [record(0, 4, 40), record(1, 3, 20), record(3, 7, 40), record(4, 6, 20)]


def test_the_window_in_which_all_slots_are_busy() -> None:
    assert busy_window(TWO_SLOTS, 2) == (1, 6)
    assert busy_window(TWO_SLOTS, 1) == (0, 7)
    assert busy_window(TWO_SLOTS, 4) is None  # the fourth starts when the second has ended
    assert busy_window(TWO_SLOTS, 5) is None
    assert busy_window([], 1) is None


def test_tokens_of_the_busy_window_without_streaming() -> None:
    # 3 of 4 s of 40 tokens, all 20, 3 of 4 s of 40, all 20: 100 tokens in 5 s.
    assert decode_speed(TWO_SLOTS, 2) == pytest.approx(20.0)


def test_tokens_of_the_busy_window_by_their_arrivals() -> None:
    late = record(0, 4, 40, arrivals=((0.5, 10), (3.5, 40)))  # 30 of them from 1 s to 6 s
    after = record(3, 7, 40, arrivals=((2.0, 30), (3.5, 40)))  # 30 by 5 s, the rest at 6.5 s
    assert decode_speed([late, TWO_SLOTS[1], after, TWO_SLOTS[3]], 2) == pytest.approx((30 + 20 + 30 + 20) / 5)


def test_one_streamed_request_at_a_time_leaves_out_the_first_event() -> None:
    first = record(0, 3, 21, arrivals=((1.0, 1), (3.0, 21)))  # 20 tokens in 2 s
    second = record(10, 12, 12, arrivals=((1.0, 2), (2.0, 12)))  # 10 tokens in 1 s
    assert decode_speed([first, second], 1) == pytest.approx(30 / 3)
    # Without the arrivals of one of them: 33 tokens in the 12 s of the window, the pause included.
    assert decode_speed([first, replace(second, arrivals=())], 1) == pytest.approx(33 / 12)


def test_failed_requests_give_no_tokens_but_hold_their_slot() -> None:
    failed = record(3, 7, error="timeout: no whole answer within 4 s")
    result = summarise([*TWO_SLOTS[:2], failed, TWO_SLOTS[3]], 2, client_cpu_s=0.7)
    assert result.decode_tok_per_s == pytest.approx((30 + 20 + 20) / 5)
    assert result.output_tok_per_s == pytest.approx(80 / 7)
    assert result.failures == {"timeout": 1}
    assert not result.gave_up
    assert (result.wall_s, result.busy_window_s) == (7, 5)
    assert result.client_cpu_share == pytest.approx(0.1)


def test_nothing_finished_means_no_speed() -> None:
    result = summarise([record(0, 1, error="HTTP 500: no"), record(1, 2, error="HTTP 500: no")], 1, 0.0)
    assert (result.decode_tok_per_s, result.output_tok_per_s) == (None, None)
    assert result.failures == {"HTTP 500": 2}
    assert result.gave_up


def test_an_answer_in_no_time_gives_no_speed() -> None:
    result = summarise([record(0, 0, 5)], 1, 0.0)
    assert (result.wall_s, result.decode_tok_per_s, result.output_tok_per_s) == (0, None, None)


def test_time_between_tokens_is_shared_by_the_tokens_of_an_event() -> None:
    streamed = record(0, 3, 6, arrivals=((0.5, 1), (0.9, 3), (1.2, 6)))
    assert streamed.ttft_s == 0.5
    assert streamed.itl_s == pytest.approx([0.2, 0.2, 0.1, 0.1, 0.1])
    assert record(0, 3, 6).ttft_s is None
    assert record(0, 3, 6).itl_s == ()


ANSWER = Answer(
    text="Hello there, world",
    output_ids=[4, 5, 6],
    meta={
        "prompt_tokens": 7,
        "completion_tokens": 3,
        "spec_verify_ct": 2,
        "spec_accept_histogram": [1, 1],
        "e2e_latency": 0.5,
        "finish_reason": {"type": "stop", "matched": 2},
    },
    arrivals=[(0.25, 1), (0.75, 3)],
)


def test_a_line_of_requests_jsonl() -> None:
    line = RequestRecord(3, 1, 2.0, 3.00000049).with_answer(ANSWER, token_ids=True).as_json()
    assert json.loads(json.dumps(line)) == {
        "prompt_index": 3,
        "repeat": 1,
        "started_s": 2.0,
        "finished_s": 3.0,
        "latency_s": 1.0,
        "ttft_s": 0.25,
        "itl_s": [0.25, 0.25],
        "prompt_tokens": 7,
        "completion_tokens": 3,
        "spec_verify_ct": 2,
        "spec_correct_drafts_histogram": [1, 1],
        "e2e_latency_s": 0.5,
        "finish_reason": "stop",
        "text_hash": "e438e5197c60900d",
        "output_ids": [4, 5, 6],
    }


def test_the_tables_read_what_is_written() -> None:
    line = RequestRecord(3, 1, 2.0, 3.0).with_answer(ANSWER, token_ids=False).as_json()
    assert "output_ids" not in line
    failed = record(1.0, 2.5, error="HTTP 500: no").as_json()
    (row, other), faults = request_rows("c", "r", "made", [line, failed])
    assert faults == []
    assert (row["ok"], other["ok"], other["error"]) == (True, False, "HTTP 500: no")
    assert (row["prompt_index"], row["repeat"], row["completion_tokens"], row["spec_verify_ct"]) == (3, 1, 3, 2)
    assert (row["latency_s"], row["ttft_s"], row["e2e_latency_s"]) == (1.0, 0.25, 0.5)
    assert (row["steps_histogram"], row["text_hash"]) == ([1, 1], "e438e5197c60900d")


def test_a_failed_request_has_its_times_and_its_error() -> None:
    line = record(1.0, 2.5, error="HTTP 500: no").as_json()
    assert line == {
        "prompt_index": 0,
        "repeat": 0,
        "started_s": 1.0,
        "finished_s": 2.5,
        "latency_s": 1.5,
        "error": "HTTP 500: no",
    }
