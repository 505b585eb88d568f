"""The prompts that training holds out, as a set that can be served: `workbench.training.corpus.split` decides which.

Which prompts these are depends on the set and two numbers alone, so neither a corpus nor a target is needed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from workbench.errors import UsageError
from workbench.files import replacing
from workbench.prompts import PLAIN, Prompt, PromptSet, prompt_set
from workbench.training.corpus import Corpus, split
from workbench.training.parts import Sample


def held_out_prompts(found: PromptSet, *, held_out: int, seed: int) -> list[Prompt]:
    """What a training run with these ``held_out`` and ``split_seed`` never sees, in the order of the set.

    Raises
    ------
    UsageError
        When nothing would be left to train on.
    """
    stand_in = np.zeros(1, np.uint16)
    samples = [Sample(stand_in, 1, prompt.index, 0, prompt.task) for prompt in found.prompts]
    judging = split(Corpus(samples, {}), held_out=held_out, seed=seed)[1].prompts
    return [found.prompts[index] for index in judging]


def write_held_out(name: str, out: Path, *, held_out: int, seed: int) -> str:
    """Write them as a prompt set called like the file, and say what it holds.

    Raises
    ------
    UsageError
        When ``out`` is no .jsonl file, or nothing would be left to train on.
    """
    if not out.name.endswith(PLAIN):
        raise UsageError("a prompt set is a .jsonl file", where=out, next_step="give such a name to --out")
    found = prompt_set(name)
    prompts = held_out_prompts(found, held_out=held_out, seed=seed)
    source = f"{found.source}; prompts of {found.name} held out from training (held_out {held_out}, split_seed {seed})"
    _write(out, {"name": out.name.removesuffix(PLAIN), "source": source, "licence": found.licence}, prompts)
    tasks = len({prompt.task for prompt in prompts})
    return f"{out}: {len(prompts)} prompts of {tasks} tasks, held out of {found.name}"


def _write(out: Path, head: dict[str, str], prompts: Sequence[Prompt]) -> None:
    rows = [head, *({"task": prompt.task, "text": prompt.text} for prompt in prompts)]
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    with replacing(out) as temporary:
        temporary.write_bytes(text.encode("utf-8", "backslashreplace"))
