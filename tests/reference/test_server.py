"""The embedded engine as a process, over real HTTP, read by the workbench's own parsers."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the engine needs torch (extra: reference)")

import httpx
from engine_process import Running, body, engine, stream
from tiny_models import draft_config, draft_tensors, target_config, target_tensors, write_model

from workbench.parse.metrics import counters_between
from workbench.parse.records import EventKind
from workbench.parse.server_log import parse_log
from workbench.reference import run
from workbench.reference.arguments import parse_arguments

VOCAB = 8
ENV = {**os.environ, "OMP_NUM_THREADS": "1"}
CHAIN = ("--speculative-num-steps", "3", "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "16")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    target, draft = target_config(vocab=VOCAB), draft_config(vocab=VOCAB, draft_vocab=VOCAB - 2)
    write_model(folder / "target", target, target_tensors(target, 3))
    write_model(folder / "draft", draft, draft_tensors(draft, 4))
    return folder


def plain(models: Path) -> list[str]:
    return ["--model-path", str(models / "target"), "--skip-tokenizer-init", "--decode-log-interval", "10"]


def with_draft(models: Path, algorithm: str = "EAGLE3") -> list[str]:
    draft = ["--speculative-algorithm", algorithm, "--speculative-draft-model-path", str(models / "draft")]
    return [*plain(models), *draft, *CHAIN, "--enable-metrics", "--max-running-requests", "8"]


@pytest.fixture(scope="module")
def server(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with engine(tmp_path_factory.mktemp("server"), with_draft(models), ENV) as running:
        yield running


def get(server: Running, path: str) -> httpx.Response:
    return httpx.get(f"{server.url}{path}", timeout=60)


def test_no_shape_is_changed_where_that_was_not_allowed_at_the_start(server: Running, tmp_path: Path) -> None:
    asked = {"argv": ["--model-path", "x"], "log": str(tmp_path / "new.log")}
    assert httpx.post(f"{server.url}/reshape", json=asked, timeout=60).status_code == 404
    assert not (tmp_path / "new.log").exists()


def test_a_reply_has_the_fields_of_the_release(server: Running) -> None:
    reply = server.generate(rid="mine")
    info = reply["meta_info"]
    assert reply["text"] is None
    assert len(reply["output_ids"]) == info["completion_tokens"] == 24
    assert info["id"] == "mine"
    assert info["finish_reason"] == {"type": "length", "length": 24}
    assert (info["prompt_tokens"], info["cached_tokens"]) == (5, 0)
    histogram = info["spec_correct_drafts_histogram"]
    steps = info["spec_verify_ct"]
    assert sum(histogram) == steps
    correct = sum(i * n for i, n in enumerate(histogram))
    assert info["spec_num_correct_drafts"] == correct > 0
    assert info["spec_num_proposed_drafts"] == 3 * steps
    assert info["spec_accept_rate"] == pytest.approx(correct / (3 * steps))
    assert info["spec_accept_length"] == pytest.approx(24 / steps)
    # The last step may go beyond the limit: it counts whole.
    assert 24 <= 1 + steps + correct <= 24 + 3


def test_a_stream_ends_in_the_same_reply(server: Running) -> None:
    whole = server.generate()
    chunks = stream(server.url, body())
    assert chunks[-1]["output_ids"] == whole["output_ids"]
    same = ("completion_tokens", "spec_verify_ct", "spec_correct_drafts_histogram", "finish_reason")
    assert all(chunks[-1]["meta_info"][key] == whole["meta_info"][key] for key in same)
    lengths = [len(chunk["output_ids"]) for chunk in chunks]
    assert lengths == sorted(lengths) and len(lengths) > 1
    assert all(chunk["meta_info"]["finish_reason"] is None for chunk in chunks[:-1])


def test_a_stop_token_ends_an_answer(server: Running) -> None:
    ids = server.generate()["output_ids"]
    params = {"temperature": 0, "max_new_tokens": 24, "ignore_eos": True, "stop_token_ids": [ids[5]]}
    reply = server.generate(sampling_params=params)
    assert reply["output_ids"] == ids[: ids.index(ids[5]) + 1]
    assert reply["meta_info"]["finish_reason"] == {"type": "stop", "matched": ids[5]}


def test_an_answer_of_one_token_has_no_speculative_figures(server: Running) -> None:
    reply = server.generate(sampling_params={"temperature": 0, "max_new_tokens": 1})
    assert not any(key.startswith("spec_") for key in reply["meta_info"])


def test_three_sources_agree_on_the_accept_length(server: Running) -> None:
    assert httpx.post(f"{server.url}/flush_cache").status_code == 200
    before, mark = get(server, "/metrics").text, len(server.text())
    infos = [server.generate(count=count)["meta_info"] for count in (31, 40, 17)]
    after = get(server, "/metrics").text
    histograms = [info["spec_correct_drafts_histogram"] for info in infos]
    steps = sum(map(sum, histograms))
    from_requests = sum((i + 1) * n for histogram in histograms for i, n in enumerate(histogram)) / steps
    window = counters_between(before, after)
    assert (window.requests, window.verify_calls) == (3, steps)
    # Counters miss what the last steps made beyond the limit: fewer than three tokens a request.
    assert window.accept_length is not None
    assert 0 <= from_requests - window.accept_length <= 9 / steps
    log = parse_log(server.text()[mark:])
    lines = [record.accept_len for record in log.decode]
    assert len(lines) == steps // 10
    average = get(server, "/server_info").json()["internal_states"][0]["avg_spec_accept_length"]
    assert sum(x for x in lines if x is not None) / len(lines) == pytest.approx(average, abs=0.01)
    assert average == pytest.approx(from_requests, abs=3 * 10 / steps)


def test_requests_wait_their_turn_and_the_log_says_so(server: Running) -> None:
    mark = len(server.text())
    with ThreadPoolExecutor(5) as pool:
        replies = list(pool.map(lambda _: server.generate(count=40), range(5)))
    assert len({tuple(reply["output_ids"]) for reply in replies}) == 1
    log = parse_log(server.text()[mark:])
    assert {record.running_req for record in log.decode} == {1}
    assert max(record.queue_req or 0 for record in log.decode) >= 3
    assert len(log.prefill) == 5


def test_a_client_that_leaves_is_not_served_further(server: Running) -> None:
    aborted = 'sglang:num_aborted_requests_total{engine_type="unified"'
    for streaming in (False, True):
        with pytest.raises(httpx.ReadTimeout):
            big = {**body(120), "stream": streaming, "input_ids": [1] * 3}
            with httpx.Client(timeout=httpx.Timeout(30, read=0.02)) as client:
                for _ in range(40):
                    client.post(f"{server.url}/generate", json=big)
    deadline = time.monotonic() + 20
    while get(server, "/flush_cache").status_code != 200 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert aborted in get(server, "/metrics").text


def test_the_log_reads_as_sglang_s(server: Running) -> None:
    log = parse_log(server.text())
    facts = log.facts
    assert [block.type for block in facts.weights] == ["LlamaForCausalLM", "LlamaForCausalLMEagle3"]
    assert facts.server_args["speculative_algorithm"] == "EAGLE3"
    assert (facts.num_steps, facts.eagle_topk, facts.draft_tokens_effective) == (3, 1, 4)
    assert facts.max_running_requests == 1
    assert facts.context_len == 128
    assert facts.ready_line is not None
    assert any("speculative_num_steps + 1" in event.text for event in facts.adjustments)
    assert log.counts.unparsed_batch_lines == 0
    assert facts.is_embedded
    assert {event.kind for event in log.events} <= {
        EventKind.EMBEDDED,
        EventKind.SERVER_ARGS,
        EventKind.WEIGHTS,
        EventKind.KV_CACHE,
        EventKind.CAPACITY,
        EventKind.READY,
        EventKind.ADJUSTMENT,
        EventKind.FLUSH,
        EventKind.REQUEST_ERROR,
    }


def test_server_info_tells_what_is_used(server: Running) -> None:
    info = get(server, "/server_info").json()
    assert info["speculative_num_draft_tokens"] == 4
    assert info["max_running_requests"] == 1
    assert info["max_total_num_tokens"] == 128
    assert info["engine"] == "reference"
    assert "version" not in info
    assert str(info["port"]) == server.url.rpartition(":")[2]
    assert get(server, "/get_server_info").json()["engine"] == "reference"
    assert get(server, "/v1/models").json()["data"][0]["max_model_len"] == 128


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"{", 400),
        (b"[" * 100_000, 400),
        (b'{"text": "x", "sampling_params": {"temperature": 0}}', 400),
        (b'{"input_ids": [1], "sampling_params": {}}', 400),
    ],
)
def test_bad_bodies_are_refused_and_the_server_lives(server: Running, content: bytes, status: int) -> None:
    reply = httpx.post(f"{server.url}/generate", content=content, timeout=30)
    assert reply.status_code == status
    assert reply.json()["error"]["message"]
    assert get(server, "/health").status_code == 200


def raw(server: Running, head: str) -> str:
    """What comes back until the server closes."""
    port = int(server.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(head.encode())
        return b"".join(iter(lambda: connection.recv(4096), b"")).decode()


def test_other_paths_methods_and_lengths(server: Running) -> None:
    assert get(server, "/nothing").status_code == 404
    assert get(server, "/generate").status_code == 405
    assert raw(server, f"POST /generate HTTP/1.1\r\nContent-Length: {1 << 40}\r\n\r\n").startswith("HTTP/1.1 413 ")
    assert raw(server, "POST /generate HTTP/1.1\r\nContent-Length: -1\r\n\r\n").startswith("HTTP/1.1 411 ")
    chunked = httpx.post(f"{server.url}/generate", content=iter([b"{}"]), timeout=30)
    assert chunked.status_code == 411


def test_without_the_flag_there_are_no_metrics_and_the_text_is_the_same(
    server: Running, models: Path, tmp_path: Path
) -> None:
    with engine(tmp_path, plain(models), ENV) as base:
        assert get(base, "/metrics").status_code == 404
        reply = base.generate(count=60)
        assert reply["output_ids"] == server.generate(count=60)["output_ids"]
        assert not any(key.startswith("spec_") for key in reply["meta_info"])
        (first, *_) = parse_log(base.text()).decode
        assert first.accept_len is None
        # Told to stop in the middle of an answer, it ends at once and cleanly.
        threading.Timer(0.2, base.process.terminate).start()
        with pytest.raises(httpx.HTTPError):
            for _ in range(1000):
                base.generate(count=100)
        assert base.process.wait(20) == 0
        assert "Traceback" not in base.text()


def test_the_wrong_algorithm_and_simulated_acceptance(models: Path, tmp_path: Path) -> None:
    env = {**ENV, "SGLANG_SIMULATE_ACC_LEN": "2.5"}
    with engine(tmp_path, with_draft(models, "EAGLE"), env) as running:
        reply = running.generate(count=100)
        assert set(reply["output_ids"][1:]) == {100 % VOCAB}
        histogram = reply["meta_info"]["spec_correct_drafts_histogram"]
        assert histogram[0] == 0 and len(histogram) == 3
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(20) == 130


def test_a_taken_port_ends_the_start(
    models: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(run, "_stop_on_signals", lambda: None)
    monkeypatch.setattr(run, "_set_up_logging", lambda level: None)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        arguments, _ = parse_arguments([*plain(models), "--port", str(taken.getsockname()[1])])
        assert run.serve(arguments, []) == 1
    assert "[Errno 98] error while attempting to bind on address" in caplog.text
