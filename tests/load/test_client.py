from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from load_servers import answering, prompts, scripted, send, workload

from workbench.errors import UsageError
from workbench.load import RequestRecord, drive
from workbench.prompts import Prompt

TESTS = Path(__file__).parents[1]
# A prefill token, then verify steps of 3, 1, 2 and 3 tokens make 10 tokens: with these drafts correct in turn.
ACCEPTS = ("--speculative-algorithm", "EAGLE3", "--speculative-num-steps", "3", "--accepts", "2,0,1")
ANSWER = {"text": " ok", "output_ids": [5], "meta_info": {"prompt_tokens": 2, "completion_tokens": 1}}


def kinds(records: tuple[RequestRecord, ...]) -> list[str]:
    return ["" if record.error is None else record.error.partition(":")[0] for record in records]


@pytest.fixture(scope="module")
def speculative() -> Iterator[str]:
    with scripted(*ACCEPTS) as url:
        yield url


# --- what is measured --------------------------------------------------------------------------------------------


def test_every_request_leaves_a_record(speculative: str) -> None:
    seen: list[RequestRecord] = []
    result = drive(
        speculative, prompts(3), workload(num_prompts=5), return_token_ids=True, repeat=2, on_record=seen.append
    )
    assert [record.prompt_index for record in result.records] == [0, 1, 2, 0, 1]
    assert seen == list(result.records)
    for record in result.records:
        assert (record.repeat, record.prompt_tokens, record.completion_tokens) == (2, 2, 10)
        assert (record.spec_verify_ct, record.spec_correct_drafts_histogram) == (4, (1, 1, 2, 0))
        assert record.finish_reason == "length"
        assert record.output_ids is not None
        assert len(record.output_ids) == 10
        assert record.arrivals == ()
        assert 0 < record.latency_s <= result.wall_s
    assert result.records[0].text_hash == result.records[3].text_hash != result.records[1].text_hash
    assert result.output_tok_per_s == pytest.approx(50 / result.wall_s)
    assert result.decode_tok_per_s == pytest.approx(50 / result.wall_s, rel=0.01)
    assert 0 < result.client_cpu_share < 1.1


def test_both_kinds_of_stream_give_what_the_plain_answer_gives(speculative: str) -> None:
    # One, four, five, seven and ten tokens are there after each step; a slow step keeps the events apart.
    plain = drive(speculative, prompts(2), workload(), return_token_ids=True)
    for option in ((), ("--incremental-streaming-output",)):
        with scripted(*ACCEPTS, *option, "--step-ms", "20") as url:
            streamed = drive(url, prompts(2), workload(), stream=True, return_token_ids=True)
        for one, other in zip(plain.records, streamed.records, strict=True):
            assert (one.text_hash, one.output_ids) == (other.text_hash, other.output_ids)
            assert other.spec_correct_drafts_histogram == (1, 1, 2, 0)
            assert [tokens for _, tokens in other.arrivals] == [1, 4, 5, 7, 10]
            assert other.ttft_s is not None
            assert 0 < other.ttft_s < other.latency_s
            assert len(other.itl_s) == 9
            assert sum(other.itl_s) == pytest.approx(other.arrivals[-1][0] - other.arrivals[0][0])


def test_the_old_name_of_the_histogram_and_no_speculation() -> None:
    with scripted(*ACCEPTS, "--old-fields") as url:
        assert drive(url, prompts(1), workload()).records[0].spec_correct_drafts_histogram == (1, 1, 2, 0)
    with scripted() as url:
        record = drive(url, prompts(1), workload()).records[0]
        assert (record.spec_verify_ct, record.spec_correct_drafts_histogram, record.completion_tokens) == (
            None,
            None,
            10,
        )


def test_the_request_is_what_was_asked_for() -> None:
    bodies: list[dict[str, object]] = []

    def handle(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        assert handler.path == "/generate"
        bodies.append(json.loads(body))
        send(handler, ANSWER)

    with answering(handle) as url:
        drive(url + "/", [Prompt(0, "a text"), Prompt(1, "a text", input_ids=(3, 4))], workload(max_new_tokens=7))
        drive(url, prompts(1), workload().model_copy(update={"temperature": None, "ignore_eos": None}))
    sampling = {"temperature": 0.0, "max_new_tokens": 7, "ignore_eos": True}
    assert bodies[0] == {"text": "a text", "sampling_params": sampling, "stream": False}
    assert bodies[1] == {"input_ids": [3, 4], "sampling_params": sampling, "stream": False}
    assert bodies[2]["sampling_params"] == {"max_new_tokens": 10}


def test_the_concurrency_is_kept_all_the_time() -> None:
    lock, running, most = threading.Lock(), 0, []

    def handle(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        nonlocal running
        with lock:
            running += 1
            most.append(running)
        time.sleep(0.03)
        with lock:
            running -= 1
        send(handler, ANSWER)

    with answering(handle) as url:
        result = drive(url, prompts(40), workload(concurrency=8))
    assert max(most) == 8
    assert len(result.records) == 40
    assert [record.prompt_index for record in result.records] == list(range(40))
    # Eight requests of 30 ms at once, five rounds; the window ends with the first slot that has nothing left.
    assert result.busy_window_s is not None
    assert result.decode_tok_per_s is not None
    assert 0.12 < result.busy_window_s <= result.wall_s
    assert result.decode_tok_per_s < 8 / 0.03


def test_fewer_requests_than_slots_give_no_decode_speed(speculative: str) -> None:
    result = drive(speculative, prompts(2), workload(concurrency=4))
    assert len(result.records) == 2
    assert (result.decode_tok_per_s, result.busy_window_s) == (None, None)
    assert result.output_tok_per_s is not None


def test_many_at_once() -> None:
    with scripted("--step-ms", "1") as url:
        result = drive(url, prompts(16), workload(concurrency=300, num_prompts=600, max_new_tokens=3))
    assert len(result.records) == 600
    assert not result.failures


# --- what goes wrong ---------------------------------------------------------------------------------------------

FAULTS = {
    "http500": "HTTP 500",
    "http503": "HTTP 503",
    "half-json": "not JSON",
    "not-json": "not JSON",
    "no-meta": "not an answer",
    "empty": "not JSON",
    "error": "HTTP 400",
    "abort": "aborted",
    "close": "connection closed",
    "stall": "timeout",
}
# An empty body and an error have other names in a stream; without meta_info only every event is a fault.
STREAM_FAULTS = {**FAULTS, "empty": "cut off", "error": "error in the answer"}


@pytest.mark.parametrize(("stream", "named"), [(False, FAULTS), (True, STREAM_FAULTS)], ids=["plain", "stream"])
def test_each_fault_is_one_record(stream: bool, named: dict[str, str]) -> None:
    # Every second request goes wrong, in its own way.
    options = [part for n, kind in enumerate(named, 1) for part in ("--fault", f"{kind}@{2 * n}")]
    with scripted(*options, "--step-ms", "5") as url:
        result = drive(url, prompts(2 * len(named)), workload(), stream=stream, timeout_s=1)
    assert kinds(result.records)[1::2] == list(named.values())
    assert kinds(result.records)[::2] == [""] * len(named)
    assert sum(result.failures.values()) == len(named)
    # The failed ones took no part in any speed.
    assert all(record.completion_tokens is None for record in result.records[1::2])
    assert result.output_tok_per_s == pytest.approx(10 * len(named) / result.wall_s)
    assert "the scripted" in str([record.error for record in result.records])


def test_a_server_that_dies_is_given_up_and_nothing_is_lost() -> None:
    with scripted("--fault", "die@3") as url:
        result = drive(url, prompts(12), workload())
    said = kinds(result.records)
    assert said[:3] == ["", "", "connection closed"]
    # The kernel may still accept a connection for a process that is going.
    assert set(said[3:7]) <= {"no connection", "connection closed"}
    assert said[6] == "no connection"
    assert said[7:] == ["not sent"] * 5
    assert result.gave_up


def test_a_server_that_hangs_costs_one_limit_a_slot() -> None:
    with scripted("--fault", "hang@7") as url:
        started = time.monotonic()
        result = drive(url, prompts(40), workload(concurrency=6), timeout_s=0.5)
    assert time.monotonic() - started < 4
    assert len(result.records) == 40
    assert result.failures["timeout"] >= 6
    assert result.failures["timeout"] + result.failures["not sent"] + 6 >= 40
    assert result.gave_up


def test_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        result = drive(f"http://127.0.0.1:{free.getsockname()[1]}", prompts(7), workload())
    assert kinds(result.records) == ["no connection"] * 5 + ["not sent"] * 2
    assert (result.decode_tok_per_s, result.output_tok_per_s) == (None, None)


def test_what_is_no_http_and_what_is_no_url() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def talk() -> None:
            for _ in range(2):
                connection, _ = server.accept()
                connection.recv(65536)
                connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")
                connection.close()

        thread = threading.Thread(target=talk)
        thread.start()
        result = drive(f"http://127.0.0.1:{server.getsockname()[1]}", prompts(2), workload())
        thread.join()
    assert all(record.error for record in result.records)
    assert kinds(drive("localhost", prompts(1), workload()).records) == ["not HTTP"]


def test_a_stream_that_the_server_ends_too_early() -> None:
    def handle(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        event = {"text": " a", "output_ids": [1], "meta_info": {"completion_tokens": 1, "finish_reason": None}}
        handler.close_connection = True
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")

    with answering(handle) as url:
        record = drive(url, prompts(1), workload(), stream=True).records[0]
    assert record.error == "cut off: the stream ended after 1 tokens"


def test_no_prompts_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(UsageError, match="no prompts"):
        drive("http://127.0.0.1:9", [], workload())


INTERRUPTED = """
import sys
sys.path.insert(0, {tests!r})
from load_servers import prompts, workload
from workbench.load import drive
try:
    drive({url!r}, prompts(4), workload(concurrency=2), stream={stream})
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("stream", [False, True])
def test_ctrl_c_closes_the_connections(stream: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        code = INTERRUPTED.format(tests=str(TESTS), url=url, stream=stream)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen([sys.executable, "-c", code], **pipes) as process:
            connections = [server.accept()[0] for _ in range(2)]
            for connection in connections:
                connection.settimeout(30)
                assert connection.recv(65536).startswith(b"POST /generate")
            process.send_signal(signal.SIGINT)
            try:
                out, err = process.communicate(timeout=30)
            finally:
                process.kill()
        assert (out, err, process.returncode) == (b"interrupted\n", b"", 0)
        for connection in connections:
            with connection:
                while connection.recv(65536):
                    pass


# --- servers that are not what they seem -------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_a_redirect_is_not_followed(stream: bool) -> None:
    """Whoever answers there was not asked for, and must not get the prompts."""
    reached = []

    def elsewhere(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        reached.append(body)
        send(handler, ANSWER)

    with answering(elsewhere) as other:
        for where in (f"{other}/generate", "http://a..b/x", "file:///etc/passwd"):

            def moved(handler: BaseHTTPRequestHandler, body: bytes, where: str = where) -> None:
                handler.send_response(307)
                handler.send_header("Location", where)
                handler.send_header("Content-Length", "0")
                handler.end_headers()

            with answering(moved) as url:
                (record,) = drive(url, prompts(1), workload(), stream=stream).records
            assert record.error is not None and record.error.startswith("HTTP 307")
    assert reached == []


def test_what_is_no_http_is_quoted_without_secrets() -> None:
    def broken(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nBad Header hf_abcdefghijklmnopqrstuvwxyz012345: 1\r\n\r\n")
        handler.close_connection = True

    with answering(broken) as url:
        (record,) = drive(url, prompts(1), workload()).records
    assert record.error is not None and record.error.startswith("not HTTP")
    assert "abcdef" not in record.error


def test_a_claim_of_millions_of_tokens_fails_its_request_alone() -> None:
    count = 0

    def claims(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        nonlocal count
        count += 1
        tokens = 10**30 if count == 1 else 5
        events = [{"text": "a", "meta_info": {"completion_tokens": n}} for n in (1, tokens)]
        send(
            handler,
            b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events) + b"data: [DONE]\n\n",
        )

    with answering(claims) as url:
        result = drive(url, prompts(2), workload(), stream=True)
    assert kinds(result.records) == ["not an answer", ""]
    assert result.records[1].completion_tokens == 5
