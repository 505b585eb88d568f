#!/usr/bin/env python3
"""Write prompt sets into data/prompts from the packages that hold them.

    python tools/build_prompts.py [NAME ...] [--out DIR] [--wheels DIR]

Without a name all sets are written. Each package is downloaded by pip without its dependencies and opened, never
installed; its SHA-256 must be the one that stands here, so the same bytes come out. ``mixed`` is made of the sets
mt_bench, humaneval and written, which must be in the folder.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from workbench.errors import WorkbenchError
from workbench.packaged import PACKAGED, Line, Packaged, packaged_lines
from workbench.paths import prompts_dir
from workbench.prompts import PromptSet, prompt_set

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
    try:
        for name in arguments.names or names:
            if name == MIXED:
                write_mixed(arguments.out)
            else:
                write_packaged(name, PACKAGED[name], arguments.out, arguments.wheels)
    except WorkbenchError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


def write_packaged(name: str, packaged: Packaged, out: Path, wheels: Path | None) -> None:
    write(out / f"{name}.jsonl", name, packaged.source, packaged.licence, packaged_lines(packaged, wheels))


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
