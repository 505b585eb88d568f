"""Samples, their masks and the steps that they make."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="the embedded engine needs torch (extra: reference)")

import torch
from specforge_files import EOS, SAMPLES, order, write_target
from training_files import sample

from workbench.errors import InputError, UsageError
from workbench.specforge.samples import choose, eos_ids, loss_mask, steps_of, write_ids
from workbench.training.packs import pack

CLOSED = sample([3, 4, 5, 6, 7, 8, EOS], 3)
CUT = sample([9, 10, 5, 6, 11], 2)
END = frozenset({EOS})


def test_a_shifted_mask_marks_the_slot_before_the_response_to_the_one_before_its_end() -> None:
    # Slot t takes x[t + 1]: the response is x[3..6], and x[6] closes it.
    assert loss_mask(CLOSED, END, "shifted").tolist() == [0, 0, 1, 1, 1, 0, 0]
    # Not closed: x[4] is the last that something could follow.
    assert loss_mask(CUT, END, "shifted").tolist() == [0, 1, 1, 1, 0]


def test_a_plain_mask_marks_the_response() -> None:
    assert loss_mask(CLOSED, END, "plain").tolist() == [0, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize("one", SAMPLES)
def test_shifted_masks_judge_what_a_training_of_ours_judges(one: object) -> None:
    slots = np.flatnonzero(loss_mask(one, END, "shifted"))  # type: ignore[arg-type]
    judged = pack([one], 1, END, torch.device("cpu")).judged  # type: ignore[list-item]
    assert (slots + 1).tolist() == judged.tolist()


@pytest.mark.parametrize(
    ("changes", "samples", "said"),
    [
        ({"epochs": 2}, 10, (2, 20)),
        ({"epochs": 2, "accumulation_steps": 3}, 10, (2, 6)),  # 20 batches, of which 18 make whole steps
        ({"epochs": 1, "batch_size": 4}, 10, (1, 2)),  # 2 samples are dropped
        ({"epochs": 1, "gpus": 4}, 10, (1, 3)),  # 10 samples are dealt as 3 each
        ({"epochs": None, "steps": 7, "accumulation_steps": 2}, 4, (4, 7)),  # 14 batches, 4 an epoch
    ],
)
def test_steps(tmp_path: Path, changes: dict[str, object], samples: int, said: tuple[int, int]) -> None:
    assert steps_of(order(tmp_path, **changes), samples) == said


def test_no_whole_step_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="make no step"):
        steps_of(order(tmp_path, batch_size=8), 7)
    with pytest.raises(UsageError, match="make no step"):
        steps_of(order(tmp_path, epochs=1, accumulation_steps=8), 7)


def test_choice_and_vocabulary(tmp_path: Path) -> None:
    data = choose(order(tmp_path, held_out=2, evaluate_steps=3), vocab_size=24, target=tmp_path / "target", eos=END)
    assert (len(data.samples), len(data.held_out)) == (4, 2)
    assert not {s.prompt for s in data.samples} & {s.prompt for s in data.held_out}
    assert len(data.vocabulary) == 20
    assert data.about["response_tokens"] == sum(s.response_tokens for s in data.samples)
    assert choose(order(tmp_path), vocab_size=24, target=tmp_path / "target", eos=END).held_out == []


def test_a_corpus_of_another_target_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="vocabulary 20"):
        choose(order(tmp_path), vocab_size=20, target=tmp_path / "target", eos=END)


def test_ids_are_written_as_specforge_reads_them(tmp_path: Path) -> None:
    write_ids([CUT], tmp_path / "s.jsonl", END, "plain", ["a"])
    assert json.loads((tmp_path / "s.jsonl").read_text()) == {
        "id": "a",
        "input_ids": [9, 10, 5, 6, 11],
        "loss_mask": [0, 0, 1, 1, 1],
    }


def test_eos() -> None:
    assert eos_ids({"eos_token_id": [1, 2]}) == {1, 2}
    assert eos_ids({"eos_token_id": 3}) == {3}
    assert eos_ids({}) == frozenset()


def test_bad_conversations(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    asked = order(
        tmp_path,
        **{"mode": "online", "corpus": None, "conversations": str(path), "chat_template": "qwen"},
        **{"epochs": None, "steps": 3, "draft_vocab_size": None, "vocab_from": str(tmp_path)},
    )
    with pytest.raises(InputError, match="no JSONL"):
        choose(asked, vocab_size=24, target=tmp_path, eos=END)


def test_the_vocabulary_of_conversations_is_what_the_assistant_says(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    words = {word: i for i, word in enumerate(["</s>", "you", "say", "I", "answer", "so"])}
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="so"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    target = write_target(tmp_path / "target")
    model.save(str(target / "tokenizer.json"))
    turns = [{"role": "user", "content": "you you you say"}, {"role": "assistant", "content": "I answer I"}]
    path = tmp_path / "c.jsonl"
    path.write_text(json.dumps({"id": "1", "conversations": turns}) + "\n")
    changes: dict[str, object] = {"mode": "online", "corpus": None, "conversations": str(path), "chat_template": "qwen"}
    asked = order(tmp_path, **changes, epochs=None, steps=3, draft_vocab_size=3)
    data = choose(asked, vocab_size=24, target=target, eos=END)
    # "I" twice, "answer" once, and the token that closes the answer.
    assert data.vocabulary.tolist() == [0, 3, 4]
    assert (data.samples, data.about["conversations"]) == ((), 1)
    path.write_text('{"text": 1}')
    with pytest.raises(InputError, match="no list of"):
        choose(asked, vocab_size=24, target=target, eos=END)
