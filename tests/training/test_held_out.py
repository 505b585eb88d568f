from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from workbench.errors import UsageError
from workbench.paths import prompts_dir
from workbench.prompts import Prompt, PromptSet, prompt_set
from workbench.training.corpus import Corpus, split
from workbench.training.held_out import held_out_prompts, write_held_out
from workbench.training.parts import Sample


def some(count: int) -> PromptSet:
    tasks = ("a", "b", "c", "d")
    return PromptSet("some", "here", "MIT", tuple(Prompt(i, f"prompt {i}", tasks[i % 4]) for i in range(count)))


def test_they_are_what_the_split_of_any_corpus_of_the_set_holds_out() -> None:
    found = some(40)
    answered = [
        Sample(np.array([5, 6, 7], np.uint16), 1, prompt.index, 0, prompt.task)
        for prompt in found.prompts
        if prompt.index % 3
    ]
    tasks = {prompt.index: prompt.task for prompt in found.prompts}
    training, judging = split(Corpus(answered, {}, tasks), held_out=12, seed=5)
    held = {prompt.index for prompt in held_out_prompts(found, held_out=12, seed=5)}
    assert len(held) == 12
    assert set(judging.prompts) == {index for index in held if index % 3}
    assert not held & set(training.prompts)


def test_the_shipped_set_is_the_one_of_the_training_files(tmp_path: Path) -> None:
    out = tmp_path / "mix_held_out.jsonl"
    said = write_held_out("training_mix", out, held_out=128, seed=0)
    assert out.read_bytes() == (prompts_dir() / "mix_held_out.jsonl").read_bytes()
    assert "128 prompts" in said
    found = prompt_set("mix_held_out")
    assert (found.name, len(found.prompts)) == ("mix_held_out", 128)
    texts = {prompt.text for prompt in prompt_set("training_mix").prompts}
    assert all(prompt.text in texts for prompt in found.prompts)


def test_only_a_prompt_file_is_written(tmp_path: Path) -> None:
    (tmp_path / "set.jsonl").write_text("".join(json.dumps({"text": f"t{i}"}) + "\n" for i in range(4)))
    with pytest.raises(UsageError, match=r"\.jsonl file"):
        write_held_out(str(tmp_path / "set.jsonl"), tmp_path / "out.json", held_out=2, seed=0)
    with pytest.raises(UsageError, match="4 of 4 prompts held out"):
        write_held_out(str(tmp_path / "set.jsonl"), tmp_path / "out.jsonl", held_out=4, seed=0)
    assert not (tmp_path / "out.jsonl").exists()
