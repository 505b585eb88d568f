from __future__ import annotations

import json
import time
from http.server import BaseHTTPRequestHandler

import pytest
from load_servers import answering, prompts, scripted, send, workload

from workbench.load import RequestRecord, measure_window, server_info
from workbench.parse.metrics import counters_between

ACCEPTS = ("--speculative-algorithm", "EAGLE3", "--speculative-num-steps", "3", "--accepts", "2,0,1")
METRICS = "sglang:generation_tokens_total {}\nsglang:num_requests_total {}\n"
ANSWER = {"text": " ok", "meta_info": {"completion_tokens": 1}}


class Account:
    """A server that answers everything and writes down what it was asked."""

    def __init__(self, **status: int) -> None:
        self.status = status
        self.asked: list[str] = []
        self.late = 0  # /metrics counts a finished request after so many readings

    def __call__(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        name = handler.path[1:]
        self.asked.append(name)
        status = self.status.get(name, 200)
        content: object = ANSWER
        if name == "flush_cache":
            content = b"Cache flushed.\n" if status == 200 else b"pending requests\nare there"
        elif name == "server_info":
            content = {"version": "0.5.14"}
        elif name == "metrics":
            self.late -= 1
            done = self.asked.count("generate")
            content = METRICS.format(done, max(0, done - 1) if self.late >= 0 else done).encode()
        send(handler, content, status=status)


def test_the_order_of_a_measurement() -> None:
    account, sizes, seen = Account(), iter([10, 25, 25, 60]), list[RequestRecord]()
    before = time.monotonic()
    with answering(account) as url:
        found = measure_window(
            url, prompts(3), workload(), repeats=2, on_record=seen.append, log_size=lambda: next(sizes)
        )
    window = ["flush_cache", *["generate"] * 3]
    warm_up = ["flush_cache", *["generate"] * 3, "generate"]  # short ones, and a round
    assert account.asked == [*warm_up, "metrics", *window, *window, "metrics", "server_info"]
    assert found.warmup is not None
    assert len(found.warmup.records) == 1
    assert [[r.repeat for r in result.records] for result in found.windows] == [[0, 0, 0], [1, 1, 1]]
    assert [r.prompt_index for r in seen] == [0, 1, 2, 0, 1, 2]
    assert found.log_spans == ((10, 25), (25, 60))
    assert before <= found.started_at[0] < found.started_at[1] <= time.monotonic()
    assert found.server_info == {"version": "0.5.14"}
    assert [problem for problem in found.problems if "client was busy" not in problem] == []


def test_a_round_is_one_request_in_every_slot() -> None:
    account = Account()
    with answering(account) as url:
        found = measure_window(url, prompts(3), workload(concurrency=4, num_prompts=6), warmup=2)
        none = measure_window(url, prompts(1), workload(), warmup=0)
    assert found.warmup is not None
    assert len(found.warmup.records) == 8
    assert (none.warmup, none.log_spans) == (None, ())


@pytest.mark.parametrize(
    ("concurrency", "num_prompts", "tokens", "requests", "limit"),
    [(1, 40, 256, 12, 8), (8, 40, 256, 24, 8), (8, 10, 256, 10, 8), (1, 40, 4, 12, 4)],
)
def test_short_requests_come_before_the_round(
    concurrency: int, num_prompts: int, tokens: int, requests: int, limit: int
) -> None:
    limits: list[int] = []

    def answer(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        if handler.path == "/generate":
            limits.append(json.loads(body)["sampling_params"]["max_new_tokens"])
        send(handler, ANSWER)

    asked = workload(concurrency=concurrency, num_prompts=num_prompts, max_new_tokens=tokens)
    with answering(answer) as url:
        measure_window(url, prompts(num_prompts), asked)
    assert limits == [limit] * requests + [tokens] * (concurrency + num_prompts)


def test_counters_that_lag_are_read_again() -> None:
    account = Account()
    account.late = 3
    with answering(account) as url:
        found = measure_window(url, prompts(2), workload(), warmup=0)
    assert account.asked.count("metrics") == 4
    assert found.metrics_before is not None
    assert found.metrics_after is not None
    assert counters_between(found.metrics_before, found.metrics_after).requests == 2


def test_what_the_server_cannot_do_is_said() -> None:
    account = Account(flush_cache=404, metrics=404, server_info=404, get_server_info=500)
    with answering(account) as url:
        found = measure_window(url, prompts(2), workload(), repeats=2)
    assert (found.metrics_before, found.metrics_after, found.server_info) == (None, None, None)
    said = "the cache was not emptied before the window (/flush_cache answered 404: pending requests are there)"
    assert found.problems == (said,)


def test_the_cache_is_tried_again_while_requests_are_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.load.window._SETTLE_S", 0.15)
    account = Account(flush_cache=400)
    with answering(account) as url:
        found = measure_window(url, prompts(1), workload(), warmup=0)
    assert account.asked.count("flush_cache") >= 2
    assert "answered 400" in found.problems[0]


def test_an_older_server_has_its_settings_elsewhere() -> None:
    def handle(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        known = {"/get_server_info": b'{"tp_size": 2}', "/list/server_info": b"[]", "/cut/server_info": b'{"tp'}
        send(handler, known.get(handler.path, b"no"), status=200 if handler.path in known else 404)

    with answering(handle) as url:
        assert server_info(url) == {"tp_size": 2}
        assert server_info(url + "/list") is None
        assert server_info(url + "/cut") is None


def test_weak_figures_are_named() -> None:
    calls = iter(range(100))

    def handle(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        failing = handler.path == "/generate" and next(calls) == 1
        send(handler, b"no" if failing else json.dumps(ANSWER).encode(), status=500 if failing else 200)

    with answering(handle) as url:
        found = measure_window(url, prompts(3), workload(concurrency=4), warmup=0)
    assert "1 of 3 requests failed: HTTP 500 (1)" in found.problems
    assert "3 requests never filled 4 slots: no decode speed" in found.problems


def test_a_server_that_dies_ends_the_measurement() -> None:
    with scripted("--fault", "die@3") as url:
        found = measure_window(url, prompts(4), workload(), repeats=5, warmup=0)
    assert len(found.windows) == 2
    assert found.windows[1].gave_up
    assert "the server no longer answers: 2 of 5 windows were tried" in found.problems
    assert (found.metrics_after, found.server_info) == (None, None)


def test_three_sources_of_accept_length_agree_on_the_scripted_server() -> None:
    with scripted(*ACCEPTS, "--enable-metrics") as url:
        found = measure_window(url, prompts(4), workload(concurrency=2), repeats=2)
    # A server that answers at once may well leave the client busy.
    assert [problem for problem in found.problems if "client was busy" not in problem] == []
    assert found.metrics_before is not None
    assert found.metrics_after is not None
    # 9 tokens after the first in 4 verify steps.
    assert counters_between(found.metrics_before, found.metrics_after).accept_length == pytest.approx(9 / 4)
    records = [record for result in found.windows for record in result.records]
    assert len(records) == 8
    histogram = [record.spec_correct_drafts_histogram for record in records]
    assert histogram == [(1, 1, 2, 0)] * 8
    assert found.server_info is not None
    assert found.server_info["version"] == "0.5.14"


def test_what_a_server_says_of_itself_can_be_written_down() -> None:
    """Without secrets, half characters, and numbers that JSON has no word for."""
    said = b'{"version": "0.5.14 hf_abcdefghijklmnopqrstuvwxyz", "a\\ud800": ["\\ud800x", 1e999, NaN, 2.5, true]}'

    def handle(handler: BaseHTTPRequestHandler, _: bytes) -> None:
        send(handler, said)

    with answering(handle) as url:
        assert server_info(url) == {"version": "0.5.14 hf_***", "a\\ud800": ["\\ud800x", None, None, 2.5, True]}
