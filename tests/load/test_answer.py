from __future__ import annotations

import json

import pytest

from workbench.load.answer import Answer, AnswerFault, EventReader, read_answer

TEXT = "Hello there, world"
TEXT_HASH = "e438e5197c60900d"
MOST = 10
END = {"type": "length", "length": 5}


def meta(tokens: int, **more: object) -> dict[str, object]:
    return {"id": "x", "finish_reason": None, "prompt_tokens": 7, "completion_tokens": tokens, **more}


def body(**more: object) -> bytes:
    return json.dumps(
        {"text": TEXT, "output_ids": [1, 2, 3, 4, 5], "meta_info": meta(5, finish_reason=END, **more)}
    ).encode()


def sse(*events: object) -> bytes:
    return b"".join(
        b"data: " + (e.encode() if isinstance(e, str) else json.dumps(e).encode()) + b"\n\n" for e in events
    )


def read(data: bytes, *, piece: int = 1 << 20) -> Answer:
    reader = EventReader(MOST)
    for start in range(0, len(data), piece):
        reader.feed(data[start : start + piece], float(start))
    return reader.finish()


# --- whole answers -----------------------------------------------------------------------------------------------


def test_a_plain_answer() -> None:
    answer = read_answer(body(cached_tokens=3, e2e_latency=0.25), MOST)
    assert answer.text_hash == TEXT_HASH
    assert answer.output_ids == [1, 2, 3, 4, 5]
    assert (answer.count("prompt_tokens"), answer.count("completion_tokens"), answer.count("cached_tokens")) == (
        7,
        5,
        3,
    )
    assert answer.e2e_latency_s == 0.25
    assert answer.finish_reason == "length"
    assert answer.histogram is None
    assert answer.count("spec_verify_ct") is None
    assert answer.arrivals == []


@pytest.mark.parametrize("name", ["spec_correct_drafts_histogram", "spec_accept_histogram"])
def test_the_histogram_under_every_name(name: str) -> None:
    answer = read_answer(body(spec_verify_ct=3, **{name: [1, 0, 2]}), MOST)
    assert answer.histogram == (1, 0, 2)
    assert answer.count("spec_verify_ct") == 3


def test_versions_with_both_names_mean_the_same() -> None:
    both = {"spec_accept_histogram": [9], "spec_correct_drafts_histogram": [1, 2]}
    assert read_answer(body(**both), MOST).histogram == (1, 2)


@pytest.mark.parametrize("value", [[1, -1], [1, "2"], [True], {"0": 1}, "12", 3])
def test_a_histogram_of_something_else_is_none(value: object) -> None:
    assert read_answer(body(spec_accept_histogram=value), MOST).histogram is None


def test_figures_of_the_wrong_type_are_unknown() -> None:
    answer = read_answer(body(spec_verify_ct="3", cached_tokens=True, e2e_latency="1"), MOST)
    assert answer.count("spec_verify_ct") is None
    assert answer.count("cached_tokens") is None
    assert answer.e2e_latency_s is None


def test_ids_that_are_no_numbers_are_unknown() -> None:
    content = json.loads(body())
    content["output_ids"] = [1, None]
    assert read_answer(json.dumps(content).encode(), MOST).output_ids is None


def test_a_lone_surrogate_has_a_hash() -> None:
    assert read_answer(b'{"text": "\\ud800", "meta_info": {"completion_tokens": 1}}', MOST).text_hash is not None


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", "not JSON"),
        (b'{"text": "Hel', "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[1]", "not an answer"),
        (b"{}", "not an answer"),
        (b'{"text": "x", "meta_info": null}', "not an answer"),
        (b'{"text": "x", "meta_info": {"completion_tokens": true}}', "not an answer"),
        (b'{"error": {"message": "too long", "code": 400}}', "error in the answer: too long"),
        (b'{"error": "no"}', "error in the answer: no"),
        (
            b'{"meta_info": {"completion_tokens": 0, "finish_reason": {"type": "abort", "message": "gone"}}}',
            "aborted: gone",
        ),
        (b'{"meta_info": {"completion_tokens": -1}}', "not an answer"),
        (b'{"meta_info": {"completion_tokens": 10000000000000000000000000}}', "not an answer"),
    ],
)
def test_what_is_no_answer_is_a_fault(data: bytes, kind: str) -> None:
    with pytest.raises(AnswerFault, match=f"^{kind}") as raised:
        read_answer(data, MOST)
    assert len(str(raised.value)) < 300


def test_more_tokens_than_were_asked_for_are_no_answer() -> None:
    """A few more may come with the last verify step; each is kept, so a claim of millions must not be believed."""
    data = json.dumps({"text": "", "meta_info": meta(MOST + 8, finish_reason=END)}).encode()
    assert read_answer(data, MOST).count("completion_tokens") == 18
    with pytest.raises(AnswerFault, match="meta_info says 5000 completion_tokens, asked for 10"):
        read_answer(json.dumps({"text": "", "meta_info": meta(5000)}).encode(), MOST)
    with pytest.raises(AnswerFault, match="meta_info says 9000000 "):
        read(sse(CUMULATIVE[0], {"text": "", "meta_info": meta(9_000_000)}, CUMULATIVE[2], "[DONE]"))


def test_what_the_model_said_is_not_quoted() -> None:
    with pytest.raises(AnswerFault) as raised:
        read_answer(b'{"meta_info": {"id": "x"}, "text": "private words', MOST)
    assert "meta_info" in str(raised.value) and "private" not in str(raised.value)
    with pytest.raises(AnswerFault, match="with 29 bytes of an event left"):
        read(b'data: {"text": "private words')


def test_a_reason_of_the_server_s_own_is_cut_and_holds_no_secret() -> None:
    reason = {"type": "hf_abcdefghijklmnopqrstuvwxyz012345 " + "x" * 100}
    found = read_answer(json.dumps({"meta_info": meta(1, finish_reason=reason)}).encode(), MOST)
    assert found.finish_reason is not None
    assert "abcdef" not in found.finish_reason and len(found.finish_reason) <= 40


# --- streams -----------------------------------------------------------------------------------------------------

# One, two and two tokens.
CUMULATIVE = [
    {"text": "Hello", "output_ids": [1], "meta_info": meta(1)},
    {"text": "Hello there,", "output_ids": [1, 2, 3], "meta_info": meta(3, spec_verify_ct=1)},
    {"text": TEXT, "output_ids": [1, 2, 3, 4, 5], "meta_info": meta(5, spec_verify_ct=2, finish_reason=END)},
]
INCREMENTAL = [
    {"text": "Hello", "output_ids": [1], "meta_info": meta(1)},
    {"text": " there,", "output_ids": [2, 3], "meta_info": meta(3, spec_verify_ct=1)},
    {"text": " world", "output_ids": [4, 5], "meta_info": meta(5, spec_verify_ct=2, finish_reason=END)},
]


def without_ids(events: list[dict[str, object]]) -> list[dict[str, object]]:
    return [{name: value for name, value in event.items() if name != "output_ids"} for event in events]


@pytest.mark.parametrize("events", [CUMULATIVE, INCREMENTAL], ids=["cumulative", "incremental"])
@pytest.mark.parametrize("piece", [1, 2, 3, 7, 50, 10_000])
def test_both_kinds_of_stream_in_pieces_of_any_size(events: list[dict[str, object]], piece: int) -> None:
    answer = read(sse(*events, "[DONE]"), piece=piece)
    assert answer.text == TEXT
    assert answer.output_ids == [1, 2, 3, 4, 5]
    assert [tokens for _, tokens in answer.arrivals] == [1, 3, 5]
    assert answer.count("spec_verify_ct") == 2
    assert answer.finish_reason == "length"


@pytest.mark.parametrize("events", [CUMULATIVE, INCREMENTAL], ids=["cumulative", "incremental"])
def test_both_kinds_without_token_ids(events: list[dict[str, object]]) -> None:
    answer = read(sse(*without_ids(events), "[DONE]"))
    assert answer.text == TEXT
    assert answer.output_ids is None
    assert [tokens for _, tokens in answer.arrivals] == [1, 3, 5]


def test_equal_tokens_are_told_apart_by_their_count() -> None:
    """ "ha" twice: the second event could be the whole of one token or a new one; its ids say which."""
    new = [{"text": "ha", "output_ids": [9], "meta_info": meta(n)} for n in (1, 2)]
    assert read(sse(*new, "[DONE]")).text == "haha"
    whole = [{"text": "ha" * n, "output_ids": [9] * n, "meta_info": meta(n)} for n in (1, 2)]
    assert read(sse(*whole, "[DONE]")).text == "haha"


def test_an_incremental_stream_may_end_in_an_empty_event() -> None:
    last = {"text": "", "output_ids": [], "meta_info": meta(5, finish_reason=END)}
    answer = read(sse(*INCREMENTAL[:2], {**INCREMENTAL[2], "meta_info": meta(5)}, last, "[DONE]"))
    assert (answer.text, answer.output_ids, answer.finish_reason) == (TEXT, [1, 2, 3, 4, 5], "length")
    assert [tokens for _, tokens in answer.arrivals] == [1, 3, 5]


def test_an_event_without_new_tokens_is_no_arrival() -> None:
    answer = read(sse(CUMULATIVE[0], CUMULATIVE[0], *CUMULATIVE[1:], "[DONE]"))
    assert answer.text == TEXT
    assert [tokens for _, tokens in answer.arrivals] == [1, 3, 5]


def test_arrivals_hold_the_time_of_their_bytes() -> None:
    reader = EventReader(MOST)
    for at, event in zip((0.5, 0.75, 2.0), CUMULATIVE, strict=True):
        reader.feed(sse(event), at)
    assert reader.finish().arrivals == [(0.5, 1), (0.75, 3), (2.0, 5)]


def test_other_line_ends_and_fields_of_the_format() -> None:
    data = b": ping\r\n\r\nevent: message\r\nid: 1\r\n" + sse(*CUMULATIVE, "[DONE]").replace(b"\n", b"\r\n")
    assert read(data).text == TEXT


def test_a_stream_may_end_without_done_when_the_answer_is_whole() -> None:
    assert read(sse(*CUMULATIVE)).text == TEXT


def test_a_character_cut_in_two_by_the_network() -> None:
    event = {"text": "grün", "output_ids": [1], "meta_info": meta(1, finish_reason=END)}
    data = b"data: " + json.dumps(event, ensure_ascii=False).encode() + b"\n\n"
    assert read(data, piece=1).text == "grün"


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", "cut off: the stream ended before the first token"),
        (sse(CUMULATIVE[0]), "cut off: the stream ended after 1 tokens"),
        (sse(CUMULATIVE[0]) + b'data: {"text": "He', "cut off: .*left"),
        (
            sse(CUMULATIVE[0], {"error": {"message": "KV cache pool is full"}}),
            "error in the answer: KV cache pool is full",
        ),
        (sse(CUMULATIVE[0], '{"text": "Hel'), "not JSON"),
        (sse("[DONE]"), "not an answer"),
        (sse({"text": "", "meta_info": meta(0, finish_reason={"type": "abort", "message": "gone"})}), "aborted: gone"),
    ],
)
def test_a_broken_stream_is_a_fault(data: bytes, kind: str) -> None:
    with pytest.raises(AnswerFault, match=f"^{kind}"):
        read(data)


def test_a_latency_that_no_clock_shows_is_none() -> None:
    for value in (10**400, float("nan"), float("inf"), True, "1"):
        assert Answer(meta={"e2e_latency": value}).e2e_latency_s is None
    assert Answer(meta={"e2e_latency": 2}).e2e_latency_s == 2.0
