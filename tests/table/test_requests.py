from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.table.columns import REQUESTS, frame
from workbench.table.requests import (
    add_histograms,
    decode_speed,
    distinct_4,
    output_speed,
    pooled_accept_length,
    request_rows,
)


def one(text: str) -> tuple[dict[str, object], list[str]]:
    """The row of one record, as JSON, and what could not be used of it."""
    (row,), faults = request_rows("c", "r", "p", [json.loads(text)])
    return row, faults


def test_a_record_of_the_first_trial() -> None:
    row, faults = one(
        '{"prompt_index": 7, "repeat": 1, "latency_s": 0.3, "e2e_latency_s": 0.29, "prompt_tokens": 40, '
        '"completion_tokens": 11, "spec_verify_ct": 6, "spec_correct_drafts_histogram": [3, 2, 1], "text_sha": "ab12"}'
    )
    assert faults == []
    assert row == {
        "campaign": "c",
        "run_id": "r",
        "prompt_set": "p",
        "prompt_index": 7,
        "repeat": 1,
        "ok": True,
        "error": None,
        "prompt_tokens": 40,
        "completion_tokens": 11,
        "spec_verify_ct": 6,
        "latency_s": 0.3,
        "ttft_s": None,
        "e2e_latency_s": 0.29,
        "text_hash": "ab12",
        "output_ids": None,
        "distinct_4": None,
        "steps_histogram": [3, 2, 1],
    }


def test_nothing_stated_nothing_known() -> None:
    row, faults = one("{}")
    assert faults == []
    assert (row["repeat"], row["ok"]) == (0, True)
    assert {name for name, value in row.items() if value is not None} == {
        "campaign",
        "run_id",
        "prompt_set",
        "repeat",
        "ok",
    }


@pytest.mark.parametrize(
    "names",
    [
        ("spec_accept_histogram",),
        ("spec_correct_drafts_histogram",),
        ("steps_histogram",),
        ("spec_accept_histogram", "spec_correct_drafts_histogram"),
    ],
)
def test_the_histogram_has_had_several_names(names: tuple[str, ...]) -> None:
    row, faults = one(json.dumps({**{name: [2, 1] for name in names}, "spec_verify_ct": 3}))
    assert (row["steps_histogram"], faults) == ([2, 1], [])


@pytest.mark.parametrize(
    ("text", "ok", "error"),
    [
        ('{"error": "timed out"}', False, "timed out"),
        ('{"error": ""}', True, None),
        ('{"error": null}', True, None),
        ('{"error": false}', True, None),
        ('{"error": {"code": 400}}', False, "{'code': 400}"),
        ('{"ok": false}', False, None),
        ('{"ok": true, "error": "retried"}', True, "retried"),
        ('{"ok": null}', True, None),
    ],
)
def test_whether_a_request_finished(text: str, ok: bool, error: str | None) -> None:
    row, faults = one(text)
    assert (row["ok"], row["error"], faults) == (ok, error, [])


@pytest.mark.parametrize("value", ['"no"', "0", "1", "[]"])
def test_an_odd_flag_is_said_and_the_error_decides(value: str) -> None:
    row, faults = one(f'{{"ok": {value}, "error": "died"}}')
    assert (row["ok"], faults) == (False, ["ok is left out, neither true nor false, in request 1"])


@pytest.mark.parametrize("value", ["true", "-1", "1.0", '"5"', "1e400", "NaN", "9223372036854775808", "1" + "0" * 400])
def test_no_count_is_guessed(value: str) -> None:
    row, faults = one(f'{{"completion_tokens": {value}}}')
    assert row["completion_tokens"] is None
    assert faults == ["completion_tokens is left out, not a whole number from 0, in request 1"]


@pytest.mark.parametrize("value", ["true", "-0.1", '"0.5"', "1e400", "NaN", "-Infinity", "1" + "0" * 400])
def test_no_time_is_guessed(value: str) -> None:
    row, faults = one(f'{{"latency_s": {value}}}')
    assert row["latency_s"] is None
    assert faults == ["latency_s is left out, not a number of seconds from 0, in request 1"]


@pytest.mark.parametrize(
    "value", ["[1, true]", "[1, -1]", "[1.5]", '"1,2"', "{}", "7", "[9223372036854775808]", "[[1]]"]
)
def test_no_histogram_is_guessed(value: str) -> None:
    row, faults = one(f'{{"steps_histogram": {value}}}')
    assert row["steps_histogram"] is None
    assert faults == ["steps_histogram is left out, not a list of whole numbers from 0, in request 1"]


def test_a_histogram_that_disagrees_with_the_steps_is_said() -> None:
    row, faults = one('{"spec_verify_ct": 4, "steps_histogram": [2, 1]}')
    assert row["steps_histogram"] == [2, 1]
    assert faults == ["steps_histogram does not add up to spec_verify_ct and is used as it is in request 1"]


def test_text_that_no_table_can_hold_is_mended() -> None:
    row, _ = one('{"error": "half \\ud83d emoji", "text_hash": "\\udc00"}')
    assert (row["error"], row["text_hash"]) == ("half ? emoji", "?")
    assert one('{"text_hash": 5, "text_sha": "ab"}')[0]["text_hash"] == "ab"


def test_faults_are_counted_by_kind() -> None:
    records = [{"latency_s": -1}, {"latency_s": 1.0}, {"latency_s": True, "repeat": "x"}]
    rows, faults = request_rows("c", "r", "p", records)
    assert [row["latency_s"] for row in rows] == [None, 1.0, None]
    assert sorted(faults) == [
        "latency_s is left out, not a number of seconds from 0, in 2 requests, the first is 1",
        "repeat is left out, not a whole number from 0, in request 3",
    ]


NAMES = [column.name for column in REQUESTS] + ["spec_accept_histogram", "text_sha"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(st.text(max_size=3), inside, max_size=3),
    max_leaves=5,
)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(NAMES), JSON), max_size=4))
def test_whatever_records_hold_they_make_a_table(records: list[dict[str, object]]) -> None:
    rows, faults = request_rows("c", "r", "p", records)
    table = frame(REQUESTS, rows)
    assert len(table) == len(records)
    assert table["campaign"].tolist() == ["c"] * len(records)
    for name in ("completion_tokens", "latency_s"):
        given_wrong = sum(record.get(name) is not None for record in records) - int(table[name].notna().sum())
        assert given_wrong == 0 or any(fault.startswith(name) for fault in faults)
    pooled_accept_length(rows)
    assert output_speed(rows, 1) is None or output_speed(rows, 1) >= 0


# --- figures of many requests ------------------------------------------------------------------------------------


def rows(*records: dict[str, object]) -> list[dict[str, object]]:
    return request_rows("c", "r", "p", records)[0]


def test_histograms_of_different_lengths_add_up() -> None:
    assert add_histograms([[1, 2], [3], [0, 1, 4]]) == [4, 3, 4]
    assert add_histograms([]) == []


def test_accept_length_is_pooled_from_histograms() -> None:
    # (1*3 + 2*1) + (1*1 + 2*1 + 3*2) = 14 tokens in 8 steps; the mean of the means would be (1.25 + 2.25) / 2.
    both = rows(
        {"spec_verify_ct": 4, "completion_tokens": 6, "steps_histogram": [3, 1]},
        {"spec_verify_ct": 4, "completion_tokens": 10, "steps_histogram": [1, 1, 2]},
    )
    assert pooled_accept_length(both) == 14 / 8


def test_without_every_histogram_the_tokens_behind_the_first_count() -> None:
    mixed = rows(
        {"spec_verify_ct": 4, "completion_tokens": 6, "steps_histogram": [3, 1]},
        {"spec_verify_ct": 2, "completion_tokens": 6},
        {"spec_verify_ct": 0, "completion_tokens": 1},
        {"completion_tokens": 50},
        {"spec_verify_ct": 9},
        {"spec_verify_ct": 9, "completion_tokens": 0},
    )
    assert pooled_accept_length(mixed) == (5 + 5) / (4 + 2)


def test_without_verify_steps_there_is_no_accept_length() -> None:
    assert pooled_accept_length([]) is None
    assert pooled_accept_length(rows({"completion_tokens": 5}, {"spec_verify_ct": 0, "steps_histogram": []})) is None


def test_speeds_of_one_request_at_a_time() -> None:
    two = rows(
        {"completion_tokens": 101, "latency_s": 1.0, "ttft_s": 0.2},
        {"completion_tokens": 51, "latency_s": 3.0, "ttft_s": 0.8},
    )
    assert output_speed(two, 1) == 152 / 4.0
    assert decode_speed(two, 1) == pytest.approx(150 / 3.0)


def test_above_one_request_at_a_time_the_records_hold_no_speed() -> None:
    one_row = rows({"completion_tokens": 101, "latency_s": 1.0, "ttft_s": 0.2})
    for concurrency in (8, None):
        assert output_speed(one_row, concurrency) is None
        assert decode_speed(one_row, concurrency) is None


def test_speeds_need_their_times() -> None:
    partly = rows({"completion_tokens": 101, "latency_s": 1.0}, {"completion_tokens": 7}, {"latency_s": 0})
    assert output_speed(partly, 1) == 101.0
    assert decode_speed(partly, 1) is None
    assert output_speed([], 1) is None
    assert decode_speed([], 1) is None
    # The first token came last.
    assert decode_speed(rows({"completion_tokens": 1, "latency_s": 1.0, "ttft_s": 1.0}), 1) is None


def test_tokens_of_an_answer_are_kept_where_they_are_whole_numbers() -> None:
    assert one('{"output_ids": [5, 0, 7]}')[0]["output_ids"] == [5, 0, 7]
    assert one('{"output_ids": [1, 2, 1, 2, 1, 2, 1, 2]}')[0]["distinct_4"] == pytest.approx(0.4)
    row, faults = one('{"output_ids": [5, "x"], "completion_tokens": 2}')
    assert row["output_ids"] is None
    assert row["completion_tokens"] == 2
    assert faults == ["output_ids is left out, not a list of whole numbers from 0, in request 1"]


def test_distinct_4_by_hand() -> None:
    assert distinct_4([1, 2, 3]) == 1.0
    assert distinct_4([1, 2, 3, 4, 5]) == 1.0
    # 1212, 2121, 1212, 2121, 1212: two of five.
    assert distinct_4([1, 2, 1, 2, 1, 2, 1, 2]) == pytest.approx(0.4)
