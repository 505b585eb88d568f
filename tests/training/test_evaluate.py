from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="training needs torch (extra: reference)")

import torch
from tiny_models import draft_config, draft_tensors, write_model
from training_files import CAPTURE, CPU, VOCAB, greedy_samples, tiny_target, write_corpus

from workbench.drafter.checkpoint import load_draft
from workbench.drafter.model import Eagle3Draft
from workbench.errors import UsageError
from workbench.reference.decode import Decoder, Speculation
from workbench.reference.target import Target
from workbench.training import offline
from workbench.training.evaluate import summary, table, walks
from workbench.training.parts import Sample
from workbench.training.walk import Walk

STEPS = 4
DRAFT = draft_config(vocab=VOCAB, draft_vocab=VOCAB - 4)


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return tiny_target(tmp_path / "target")


@pytest.fixture
def draft(tmp_path: Path) -> Eagle3Draft:
    return load_draft(write_model(tmp_path / "draft", DRAFT, draft_tensors(DRAFT)), dtype=torch.float32, device=CPU)


def engine_rounds(target: Target, draft: Eagle3Draft, sample: Sample, steps: int) -> tuple[int, list[int]]:
    """Verify steps of the engine for the sample's answer, and how many drafts each accepted."""
    decoder = Decoder(target, 64, draft=draft, speculation=Speculation(steps, 1, steps + 1, CAPTURE))
    ids = sample.ids.tolist()
    answer = [decoder.prefill(ids[: sample.prompt_tokens])]
    correct = []
    while len(answer) < sample.response_tokens:
        step = decoder.step()
        answer += step.tokens
        correct.append(step.correct_drafts)
    assert answer[: sample.response_tokens] == ids[sample.prompt_tokens :]
    return len(correct), correct


def test_the_walk_takes_the_rounds_that_the_engine_takes(target: Target, draft: Eagle3Draft) -> None:
    samples = [sample for sample in greedy_samples(target, 12) if sample.response_tokens > 1]
    found = walks(target, draft, samples, capture=CAPTURE, steps=STEPS)
    assert [walk.tokens for walk in found] == [sample.response_tokens - 1 for sample in samples]
    for steps in range(1, STEPS + 1):
        expected = [engine_rounds(target, draft, sample, steps)[0] for sample in samples]
        assert [int(walk.rounds[steps - 1]) for walk in found] == expected
        assert sum(expected) < sum(walk.tokens for walk in found), "some drafts must be accepted"


def test_the_histogram_is_the_engine_s_but_for_what_lies_behind_the_answer(target: Target, draft: Eagle3Draft) -> None:
    samples = [sample for sample in greedy_samples(target, 12) if sample.response_tokens > 1]
    for sample, walk in zip(samples, walks(target, draft, samples, capture=CAPTURE, steps=STEPS), strict=True):
        correct = engine_rounds(target, draft, sample, STEPS)[1]
        done = sum(count + 1 for count in correct[:-1])
        correct[-1] = min(correct[-1], walk.tokens - done)
        # The walk's last draft is the answer's last token at the furthest.
        assert walk.accepted.tolist() == [correct.count(k) for k in range(STEPS + 1)]


def test_batches_do_not_change_the_outcome(target: Target, draft: Eagle3Draft, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = greedy_samples(target, 6)
    together = walks(target, draft, samples, capture=CAPTURE, steps=STEPS)
    monkeypatch.setattr("workbench.training.evaluate._BATCH_TOKENS", {"cpu": 1})
    alone = walks(target, draft, samples, capture=CAPTURE, steps=STEPS)
    assert [walk.rounds.tolist() for walk in together] == [walk.rounds.tolist() for walk in alone]


def test_figures_and_table(target: Target, draft: Eagle3Draft) -> None:
    found = walks(target, draft, greedy_samples(target, 6), capture=CAPTURE, steps=STEPS)
    figures = summary(found, seed=0)
    rounds = sum(int(walk.rounds[2]) for walk in found)
    assert figures["accept_length"]["3"] == pytest.approx(figures["tokens"] / rounds)
    assert figures["survival"][0] == 1.0
    assert set(figures["by_task"]) == {"even", "odd"}
    assert json.loads(json.dumps(figures)) == figures
    assert f"{figures['accept_length']['3']:.3f}" in table(figures).splitlines()[3]


def test_repetitive_answers_are_counted_and_left_out(target: Target, draft: Eagle3Draft) -> None:
    found = walks(target, draft, greedy_samples(target, 6), capture=CAPTURE, steps=STEPS)
    looped = [Walk(w.prompt, w.task, w.tokens, w.rounds, w.accepted, w.right, w.known, 0.1) for w in found]
    assert summary(looped, seed=0)["without_repetitive"]["answers"] == 0
    mixed = summary([*looped[:2], *found[2:]], seed=0)
    assert mixed["repetitive_answers"] >= 2
    assert mixed["without_repetitive"]["answers"] == len(found) - mixed["repetitive_answers"]


def test_a_draft_folder_on_a_corpus(tmp_path: Path, target: Target, draft: Eagle3Draft) -> None:
    samples = greedy_samples(target, 6)
    corpus = write_corpus(tmp_path / "corpus", samples)
    request = offline.Request(
        tmp_path / "draft", str(tmp_path / "target"), corpus=corpus, steps=STEPS, device="cpu", dtype="float32"
    )
    figures = offline.evaluate_draft(request, lambda _: None)
    assert figures["tokens"] == sum(sample.response_tokens - 1 for sample in samples)
    assert figures["answers_from"]["temperature"] == 0.0
    assert "sampled" not in offline.text(figures)
    figures["answers_from"]["temperature"] = 0.7
    assert "sampled at temperature 0.7" in offline.text(figures)


@pytest.mark.parametrize("both", [True, False])
def test_answers_come_from_one_place(tmp_path: Path, both: bool) -> None:
    where = {"corpus": tmp_path, "prompts": "mt_bench"} if both else {}
    with pytest.raises(UsageError, match="from a corpus, from prompts"):
        offline.evaluate_draft(offline.Request(tmp_path, "x", **where), lambda _: None)  # type: ignore[arg-type]
