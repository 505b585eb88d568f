from __future__ import annotations

import pytest

from workbench.reference.requests import ModelLimits, RefusedRequest, read_request

LIMITS = ModelLimits(vocab_size=12, context_len=140, eos_token_ids=frozenset({2}))
GREEDY = {"temperature": 0}


def body(**changes: object) -> dict[str, object]:
    return {"input_ids": [1, 3, 5], "sampling_params": GREEDY, **changes}


def test_a_plain_request() -> None:
    request = read_request(body(sampling_params={**GREEDY, "max_new_tokens": 7}, rid="r"), LIMITS, None)
    assert request.input_ids == (1, 3, 5)
    assert (request.max_new_tokens, request.stop_ids, request.stream, request.rid) == (7, {2}, False, "r")


def test_ignore_eos_leaves_the_stops_that_were_asked_for() -> None:
    params = {**GREEDY, "max_new_tokens": 1, "ignore_eos": True, "stop_token_ids": [4]}
    assert read_request(body(sampling_params=params), LIMITS, None).stop_ids == {4}
    assert read_request(body(sampling_params={**params, "ignore_eos": False}), LIMITS, None).stop_ids == {2, 4}


def test_settings_that_change_nothing_pass() -> None:
    params = {
        "temperature": 0.7,
        "top_k": 1,
        "top_p": 0.9,
        "n": 1,
        "repetition_penalty": 1.0,
        "stop": [],
        "regex": None,
    }
    found = read_request(body(sampling_params={**params, "max_new_tokens": 2}, return_logprob=False), LIMITS, None)
    assert found.max_new_tokens == 2


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"sampling_params": None}, "temperature 1"),
        ({"sampling_params": {"temperature": 0.5}}, "sampling"),
        ({"sampling_params": {"temperature": "0"}}, "no number"),
        ({"sampling_params": {"temperature": -1}}, "at least 0"),
        ({"sampling_params": [GREEDY]}, "batches"),
        ({"sampling_params": {**GREEDY, "n": 2}}, "n='2'"),
        ({"sampling_params": {**GREEDY, "stop": ["x"]}}, "stop="),
        ({"sampling_params": {**GREEDY, "frequency_penalty": 0.1}}, "frequency_penalty"),
        ({"sampling_params": {**GREEDY, "json_schema": "{}"}}, "json_schema"),
        ({"sampling_params": {**GREEDY, "max_new_tokens": 0}}, "max_new_tokens 0"),
        ({"sampling_params": {**GREEDY, "max_new_tokens": 2.0}}, "max_new_tokens 2.0"),
        ({"sampling_params": {**GREEDY, "max_new_tokens": 138}}, "Requested token count exceeds"),
        ({"sampling_params": {**GREEDY, "ignore_eos": 1}}, "ignore_eos"),
        ({"sampling_params": {**GREEDY, "max_new_tokens": 1, "stop_token_ids": [99]}}, "stop_token_ids"),
        ({"input_ids": list(range(12)) * 12}, "longer than the model's context length"),
        ({"input_ids": []}, "no list of token ids"),
        ({"input_ids": [[1], [2]]}, "batches"),
        ({"input_ids": [12]}, "0 to 11"),
        ({"input_ids": [True]}, "0 to 11"),
        ({"input_ids": None}, "either text or input_ids"),
        ({"text": "x"}, "either text or input_ids"),
        ({"input_ids": None, "text": ["a", "b"]}, "batches"),
        ({"input_ids": None, "text": "x"}, "skip-tokenizer-init"),
        ({"return_logprob": True}, "return_logprob"),
        ({"return_hidden_states": True}, "return_hidden_states"),
        ({"image_data": "x.png"}, "image_data"),
        ({"stream": "yes"}, "stream"),
        ({"rid": ["a"]}, "rid"),
    ],
)
def test_what_is_not_done_here_is_refused_by_name(changes: dict[str, object], named: str) -> None:
    with pytest.raises(RefusedRequest, match=named):
        read_request(body(**changes), LIMITS, None)


@pytest.mark.parametrize("whole", [None, [], "text", 3])
def test_a_body_that_is_no_object(whole: object) -> None:
    with pytest.raises(RefusedRequest, match="is not a JSON object"):
        read_request(whole, LIMITS, None)
