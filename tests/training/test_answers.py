"""Corpora made over real HTTP: every prompt answered once, whatever fails and whoever is killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from answering_target import EOS, answer_to, prompt_ids, reply, target_server, write_prompts, write_target

from workbench.errors import CheckpointError, InputError, LaunchError, SpecError, UsageError
from workbench.paths import ROOT_ENV
from workbench.terminal import Lines
from workbench.training import asking
from workbench.training.answers import Order, make_answers
from workbench.training.corpus import Corpus, read_corpus
from workbench.training.serving import server_for

pytest.importorskip("tokenizers", reason="the tokenizers package is not installed (extra: reference)")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return write_target(tmp_path / "target")


@pytest.fixture(autouse=True)
def retry_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "RETRY_AFTER_S", 0.0)


def order(target: Path, *urls: str, prompts: int = 40, **changes: Any) -> Order:
    file = write_prompts(target.parent / f"prompts{prompts}.jsonl", prompts)
    settings: dict[str, Any] = {"concurrency": 8, "min_response_tokens": 0, "min_distinct_4": 0.0, "url": urls}
    return Order(str(target), str(file), target.parent / "corpus", **{**settings, **changes})


def make(target: Path, *urls: str, **changes: Any) -> str:
    return make_answers(order(target, *urls, **changes), Lines(quiet=True))


def about(target: Path) -> dict[str, Any]:
    return dict(json.loads((target.parent / "corpus" / "corpus.json").read_text()))


def check_whole(corpus: Corpus, prompts: int, answers: int = 1) -> None:
    """Each prompt so many times, each with the answer that follows from it."""
    places = Counter((sample.prompt, sample.answer) for sample in corpus.samples)
    assert places == {(n, a): 1 for n in range(prompts) for a in range(answers)}
    for sample in corpus.samples:
        asked = prompt_ids(sample.prompt)
        assert sample.ids.tolist() == asked + answer_to(asked)
        assert sample.prompt_tokens == len(asked)
        assert sample.task == f"ends in {'abcdefghij'[sample.prompt % 10]}"


# --- what is asked and kept --------------------------------------------------------------------------------------


def test_every_prompt_is_answered_as_often_as_asked_for(target: Path) -> None:
    with target_server() as server:
        said = make(target, server.url, answers_per_prompt=2)
    corpus = read_corpus(target.parent / "corpus")
    check_whole(corpus, 40, answers=2)
    assert corpus.response_tokens == 80 * 3
    assert "80 answers, 240 response tokens (100% ended by themselves), 0 failed" in said
    assert len(server.bodies) == 80
    sampling = [body["sampling_params"] for body in server.bodies]
    assert {(s["temperature"], s["top_p"], s["max_new_tokens"]) for s in sampling} == {(0.7, 0.95, 256)}
    assert len({s["sampling_seed"] for s in sampling}) == 80
    written = about(target)
    assert written["finished"]
    assert (written["vocab_size"], written["eos_token_ids"], written["target"]) == (12, [EOS], "target")
    assert written["counts"]["samples"] == 80
    engine = written["engines"][0]
    assert (engine["engine"], engine["version"], engine["model"], engine["random_seed"]) == (
        "sglang",
        "0.5.14",
        "tiny",
        7,
    )
    assert sorted(written["parts"]) == [f"part-{n:05}.npz" for n in range(6)]  # 40 prompts are 16 + 16 + 8


def test_greedy_answers_ask_for_no_seed_and_have_no_filters(target: Path) -> None:
    with target_server() as server:
        make(target, server.url, temperature=0.0, min_response_tokens=None, min_distinct_4=None)
    assert server.bodies[0]["sampling_params"] == {"temperature": 0.0, "max_new_tokens": 256}
    assert about(target)["filters"] == {"min_response_tokens": 0, "min_distinct_4": 0.0}
    assert (about(target)["seed"], about(target)["top_p"]) == (None, None)


def test_the_filters_of_sampled_answers_are_counted(target: Path) -> None:
    def answer(number: int, body: dict[str, Any]) -> dict[str, Any]:
        kind = sum(body["input_ids"]) % 3
        return reply([[5] * 30, [5, 6], [*range(2, 12), *range(11, 1, -1), *range(2, 12, 3), EOS]][kind])

    with target_server(answer) as server:
        said = make(target, server.url, prompts=30, min_response_tokens=None, min_distinct_4=None)
    kinds = Counter(sum(prompt_ids(n)) % 3 for n in range(30))
    corpus = read_corpus(target.parent / "corpus")
    assert corpus.about["filtered"] == {"short": kinds[1], "repetitive": kinds[0]}
    assert len(corpus.samples) == kinds[2]
    assert f"kept by the filters: {kinds[2]} answers, {kinds[2] * 25} tokens" in said
    assert f"below 24 tokens: {kinds[1]}; distinct-4 below 0.5: {kinds[0]}" in said


def test_only_the_first_prompts(target: Path) -> None:
    with target_server() as server:
        make(target, server.url, limit=5)
        check_whole(read_corpus(target.parent / "corpus"), 5)
        with pytest.raises(SpecError, match="41 prompts are asked for"):
            make(target, server.url, limit=41)


def test_a_closing_token_that_the_server_leaves_out_is_put_back(target: Path) -> None:
    def answer(number: int, body: dict[str, Any]) -> dict[str, Any]:
        return reply(answer_to(body["input_ids"])[:-1], finish_reason={"type": "stop", "matched": EOS})

    with target_server(answer) as server:
        make(target, server.url)
    check_whole(read_corpus(target.parent / "corpus"), 40)


def test_two_servers_share_the_prompts(target: Path) -> None:
    with target_server(delay_s=0.01) as one, target_server(delay_s=0.01) as other:
        make(target, one.url, other.url)
    check_whole(read_corpus(target.parent / "corpus"), 40)
    assert len(one.bodies) + len(other.bodies) == 40
    assert min(len(one.bodies), len(other.bodies)) >= 10
    assert len(about(target)["engines"]) == 2


# --- faults ------------------------------------------------------------------------------------------------------


def test_what_one_of_two_servers_fails_to_answer_the_other_does(target: Path) -> None:
    with target_server() as good, target_server(lambda n, body: 500) as bad:
        said = make(target, bad.url, good.url)
    check_whole(read_corpus(target.parent / "corpus"), 40)
    assert "0 failed" in said
    assert len(good.bodies) == 40


def test_servers_that_share_prompts_serve_one_model(target: Path) -> None:
    with (
        target_server() as one,
        target_server(engine="reference") as other,
        pytest.raises(UsageError, match="engine is reference here and sglang at"),
    ):
        make(target, one.url, other.url)


@pytest.mark.parametrize("fault", [500, None, {"text": "no ids", "meta_info": {"completion_tokens": 3}}])
def test_a_request_that_fails_is_asked_once_more(target: Path, fault: Any) -> None:
    with target_server(lambda n, body: fault if n % 10 == 3 else reply(answer_to(body["input_ids"]))) as server:
        said = make(target, server.url, concurrency=1, prompts=12)
    check_whole(read_corpus(target.parent / "corpus"), 12)
    assert "0 failed" in said
    assert len(server.bodies) == 12 + 2  # the 3rd and the 13th


@pytest.mark.parametrize(
    ("bad", "kind"),
    [
        (reply([3, EOS], completion_tokens=5), "not an answer"),
        (reply([]), "not an answer"),
        (reply([99, EOS]), "not an answer"),
        (reply([-1, EOS]), "not an answer"),
        (400, "HTTP 400"),
    ],
)
def test_a_prompt_that_fails_twice_is_counted_and_left_out(target: Path, bad: Any, kind: str) -> None:
    unlucky = prompt_ids(7)
    with target_server(
        lambda n, body: bad if body["input_ids"] == unlucky else reply(answer_to(body["input_ids"]))
    ) as server:
        said = make(target, server.url)
        assert "39 answers" in said
        assert "1 failed" in said
        assert server.asked().count(tuple(unlucky)) == 2
        make(target, server.url)
        assert len(server.bodies) == 41
    assert 7 not in read_corpus(target.parent / "corpus").prompts
    assert (about(target)["counts"]["failed"], about(target)["failures"]) == (1, {kind: 1})


def test_a_server_that_dies_ends_the_command_and_the_next_one_goes_on(target: Path) -> None:
    with (
        target_server(lambda n, body: reply(answer_to(body["input_ids"])) if n <= 20 else None) as server,
        pytest.raises(LaunchError, match="8 requests in a row failed"),
    ):
        make(target, server.url)
    corpus = target.parent / "corpus"
    assert [path.name for path in sorted(corpus.glob("part-*"))] == ["part-00000.npz"]
    with pytest.raises(InputError, match="not finished"):
        read_corpus(corpus)
    with target_server() as server:
        make(target, server.url)
        assert len(server.bodies) == 24
    check_whole(read_corpus(corpus), 40)
    assert len(about(target)["engines"]) == 2


@pytest.mark.parametrize(
    ("how", "said"), [("closes", "the last 4 requests failed"), ("is gone", "no server was there|the last 4 requests")]
)
def test_what_a_server_that_dies_near_the_end_left_is_asked_again(target: Path, how: str, said: str) -> None:
    """Fewer are left than it takes to give a server up."""
    dead = {"last": 36} if how == "is gone" else {}

    def closes(number: int, body: Any) -> Any:
        return reply(answer_to(body["input_ids"])) if number <= 36 else None

    with target_server(closes, **dead) as server, pytest.raises(LaunchError, match=said):
        make(target, server.url, concurrency=16)
    assert about(target)["finished"] is False
    with target_server() as server:
        make(target, server.url, concurrency=16)
    check_whole(read_corpus(target.parent / "corpus"), 40)


@pytest.mark.parametrize("bad", [None, {"text": ""}, 500])
def test_a_server_that_answers_nothing_makes_no_corpus(target: Path, bad: Any) -> None:
    with (
        target_server(lambda n, body: bad) as server,
        pytest.raises(LaunchError, match=r"last (1|2|3) request|3 prompts"),
    ):
        make(target, server.url, prompts=3)
    with target_server() as server:
        make(target, server.url, prompts=3)
    check_whole(read_corpus(target.parent / "corpus"), 3)


def test_no_server_at_all(target: Path) -> None:
    with target_server() as server:
        pass
    with pytest.raises(LaunchError, match="no server answers"):
        make(target, server.url)


# --- stopped and taken up again ----------------------------------------------------------------------------------


def test_a_command_that_is_killed_loses_and_doubles_nothing(target: Path) -> None:
    wanted = order(target, prompts=120)
    command = [sys.executable, "-m", "workbench", "answers", "--target", str(target), "--prompts", wanted.prompts]
    command += ["--out", str(wanted.out), "--concurrency", "8", "--min-response-tokens", "0", "--min-distinct-4", "0"]
    with target_server(delay_s=0.02) as server:
        process = subprocess.Popen([*command, "--url", server.url], stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while len(server.bodies) < 60 and time.monotonic() < deadline:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()
        kept = sorted(path.name for path in wanted.out.glob("part-*.npz"))
        assert 1 <= len(kept) < 8
        before = len(server.bodies)
        assert subprocess.run([*command, "--url", server.url], check=False, capture_output=True).returncode == 0
        again = server.asked()[before:]
        assert len(again) == len(set(again)) == 120 - sum(16 if name < "part-00007" else 8 for name in kept)
    check_whole(read_corpus(wanted.out), 120)
    assert not list(wanted.out.glob(".writing-*.npz"))


def test_more_answers_only_add_to_a_corpus(target: Path) -> None:
    with target_server() as server:
        make(target, server.url)
        first = read_corpus(target.parent / "corpus").digest
        make(target, server.url, answers_per_prompt=2)
        assert len(server.bodies) == 80
        corpus = read_corpus(target.parent / "corpus")
        make(target, server.url)
        assert len(server.bodies) == 80
    check_whole(corpus, 40, answers=2)
    assert Corpus([s for s in corpus.samples if s.answer == 0], {}).digest == first


def test_a_finished_corpus_needs_no_server_for_other_filters(target: Path) -> None:
    with target_server() as server:
        make(target, server.url)
    assert "kept by the filters: 0 answers" in make(target, server.url, min_response_tokens=4)
    assert "kept by the filters: 40 answers" in make(target, server.url, min_response_tokens=3)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"temperature": 0.5}, "temperature 0.7, not 0.5"),
        ({"seed": 1}, "seed 0, not 1"),
        ({"max_new_tokens": 9}, "max_new_tokens 256, not 9"),
        ({"prompts": 30}, "prompts_sha256"),
    ],
)
def test_another_run_does_not_go_into_the_same_folder(target: Path, changes: dict[str, Any], said: str) -> None:
    with target_server() as server:
        make(target, server.url)
        with pytest.raises(InputError, match=said):
            make(target, server.url, **changes)


def test_parts_without_a_description_are_not_taken_over(target: Path) -> None:
    with target_server() as server:
        make(target, server.url)
        (target.parent / "corpus" / "corpus.json").unlink()
        with pytest.raises(InputError, match="holds parts without"):
            make(target, server.url)


def test_two_commands_at_once_are_refused(target: Path) -> None:
    refused: list[str] = []

    def answer(number: int, body: dict[str, Any]) -> dict[str, Any]:
        if number == 1:
            try:
                make(target, server.url)
            except InputError as error:
                refused.append(error.what)
        return reply(answer_to(body["input_ids"]))

    with target_server(answer) as server:
        make(target, server.url)
        assert len(server.bodies) == 40
    assert refused == ["another command makes this corpus now"]


def test_a_folder_without_an_answer_is_free_for_another_run(target: Path) -> None:
    with target_server(lambda n, body: None) as server, pytest.raises(LaunchError):
        make(target, server.url)
    with target_server() as server:
        make(target, server.url, seed=3)
    assert about(target)["seed"] == 3


# --- orders that cannot be ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"temperature": -1.0}, "temperature must be"),
        ({"top_p": 0.0}, "top-p"),
        ({"temperature": 0.0, "answers_per_prompt": 2}, "the same one"),
        ({"engine": "reference", "url": None}, "decodes greedily"),
    ],
)
def test_orders_that_cannot_be_are_refused(target: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        make(target, **{"url": ["http://127.0.0.1:9"], **changes})


@pytest.mark.parametrize(
    "changes",
    [*({"vocab_size": size} for size in (float("inf"), 10**400, -5, 0, True, "64")), {"eos_token_id": ["x"]}],
)
def test_a_target_without_a_usable_vocabulary_is_refused(target: Path, changes: dict[str, Any]) -> None:
    path = target / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(CheckpointError, match="no usable config"):
        make(target, "http://127.0.0.1:9")


def test_an_embedded_engine_behind_a_url_is_not_asked_to_sample(target: Path) -> None:
    with target_server(engine="reference") as server:
        with pytest.raises(UsageError, match="decodes greedily"):
            make(target, server.url)
        make(target, server.url, temperature=0.0)
    assert about(target)["engines"][-1]["version"] == "0.1.0"


# --- the embedded engine -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_embedded_engine_answers(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed (extra: reference)")
    from tiny_models import target_config, target_tensors, write_model

    from workbench.reference.decode import Decoder
    from workbench.reference.target import load_target

    config = target_config(vocab=12)
    target = write_target(write_model(tmp_path / "target", config, target_tensors(config)))
    said = make(target, engine="reference", temperature=0.0, max_new_tokens=12, prompts=20)
    corpus = read_corpus(tmp_path / "corpus")
    assert "20 answers" in said
    assert (tmp_path / "corpus" / "server.log").stat().st_size
    import torch

    decoder = Decoder(load_target(target, dtype=torch.float32, device=torch.device("cpu")), 128)
    for sample in corpus.samples:
        expected = [decoder.prefill(tuple(prompt_ids(sample.prompt)))]
        while len(expected) < 12 and expected[-1] != EOS:
            expected += decoder.step().tokens
        assert sample.ids.tolist() == prompt_ids(sample.prompt) + expected


def test_a_server_like_that_of_a_campaign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROOT_ENV, str(Path(__file__).parents[2]))
    server = server_for("h200_scaling", 256, 7)
    assert (server.attention_backend, server.context_length, server.max_running_requests) == ("triton", 4096, 256)
    assert server.cuda_graph_max_bs_decode is None
    assert server.flags == {"sampling-backend": "pytorch", "disable-prefill-cuda-graph": True, "random_seed": 7}
    assert server_for(None, 1, 7).attention_backend is None
