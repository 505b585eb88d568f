"""The scripted server is an instrument: what it says in its log, its answers and its counters must agree."""

from __future__ import annotations

import json
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from scripted_http import read_fault
from scripted_server import running

from workbench.parse.metrics import counters_between
from workbench.parse.server_log import parse_log


def fetch(url: str, path: str, **body: object) -> str:
    connection = HTTPConnection(urlsplit(url).netloc, timeout=20)
    connection.request("POST" if body else "GET", path, json.dumps(body) if body else None)
    text = connection.getresponse().read().decode()
    connection.close()
    return text


def test_answers_log_and_counters_tell_the_same_acceptance(tmp_path: Path) -> None:
    options = ["--speculative-algorithm", "EAGLE3", "--speculative-num-steps", "3", "--accepts", "2,0,1"]
    sampling = {"max_new_tokens": 31}
    with running(*options, "--decode-log-interval", "5", "--enable-metrics", log=tmp_path / "log") as url:
        before = fetch(url, "/metrics")
        answers = [json.loads(fetch(url, "/generate", text=f"a b {i}", sampling_params=sampling)) for i in range(4)]
        streamed = fetch(url, "/generate", text="a b 0", sampling_params=sampling, stream=True)
        after = fetch(url, "/metrics")
    # 2, 0 and 1 correct drafts in turn: 3 + 1 + 2 tokens in three steps, so 30 tokens behind the first in 15 steps.
    for answer in answers:
        meta = answer["meta_info"]
        assert (meta["completion_tokens"], meta["spec_verify_ct"]) == (31, 15)
        assert meta["spec_correct_drafts_histogram"] == [5, 5, 5, 0]
        assert len(answer["output_ids"]) == 31
    assert counters_between(before, after).accept_length == 2.0
    log = parse_log((tmp_path / "log").read_bytes())
    # Five steps at a time: 2+0+1+2+0, 1+2+0+1+2 and 0+1+2+0+1 correct drafts, so 10, 11 and 9 tokens.
    assert [line.accept_len for line in log.decode] == [2.0, 2.2, 1.8] * 5
    assert log.facts.version_bracket is not None and log.facts.num_steps == 3

    events = [event.removeprefix("data: ") for event in streamed.split("\n\n") if event]
    assert events[-1] == "[DONE]"
    last = json.loads(events[-2])
    assert last["output_ids"] == answers[0]["output_ids"]
    assert [json.loads(event)["meta_info"]["completion_tokens"] for event in events[:5]] == [1, 4, 5, 7, 10]


def test_the_same_prompt_gives_the_same_tokens_without_speculation(tmp_path: Path) -> None:
    question = {"text": "a b 0", "sampling_params": {"max_new_tokens": 9}}
    with running("--speculative-algorithm", "EAGLE3") as url:
        with_speculation = json.loads(fetch(url, "/generate", **question))
    with running() as url:
        without = json.loads(fetch(url, "/generate", **question))
    assert with_speculation["output_ids"] == without["output_ids"]
    assert "spec_verify_ct" in with_speculation["meta_info"]
    assert "spec_verify_ct" not in without["meta_info"]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("stall", [1, 2, 3, 4, 5, 6]), ("stall@3", [3]), ("stall@3+", [3, 4, 5, 6]), ("http500%2", [2, 4, 6])],
)
def test_a_fault_fits_the_requests_that_it_names(text: str, numbers: list[int]) -> None:
    fault = read_fault(text)
    assert [number for number in range(1, 7) if fault.fits(number)] == numbers
