"""A corpus while it is made: begun or taken up again, parts that are missing, counts when all are there.

Parts are numbered answer by answer, so that more answers to each prompt only add parts.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from workbench.errors import InputError
from workbench.hashes import hash_file
from workbench.paths import LOCK
from workbench.prompts import Prompt
from workbench.training.asking import Part
from workbench.training.corpus import ABOUT, read_about, write_about, write_tasks
from workbench.training.parts import Sample, read_part, removed_by, write_part

_IN_RUN = ("vocab_size", "prompts_sha256", "temperature", "top_p", "max_new_tokens", "seed")
"""What every answer of a corpus has in common."""
_ELSEWHERE = "choose another folder with --out"


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold a corpus for the time of the block.

    Raises
    ------
    InputError
        When another command makes it now.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK, thread_local=False)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise InputError("another command makes this corpus now", where=folder, next_step="wait for it") from error
    try:
        yield
    finally:
        lock.release()


def run_of(about: Mapping[str, Any]) -> str:
    """What tells a run from others."""
    settings = json.dumps([about[name] for name in _IN_RUN])
    return hashlib.sha256(settings.encode()).hexdigest()[:16]


def prompts_sha256(prompts: Sequence[Prompt]) -> str:
    """Of tasks and token ids: another set, template or tokenizer makes another corpus."""
    found = hashlib.sha256()
    for prompt in prompts:
        found.update(f"{prompt.index} {prompt.task} {prompt.input_ids}\n".encode("utf-8", "backslashreplace"))
    return found.hexdigest()


def begin(folder: Path, about: Mapping[str, Any], set_tasks: Sequence[str]) -> dict[str, Any]:
    """corpus.json of a new corpus, or of the one in the folder when it is of the same run.

    ``set_tasks`` are those of all prompts of the set.

    Raises
    ------
    InputError
        When the folder holds another corpus, or parts of one.
    """
    path = folder / ABOUT
    has_parts = any(folder.glob("part-*.npz"))
    if has_parts and not path.is_file():
        raise InputError(f"holds parts without {ABOUT}", where=folder, next_step=_ELSEWHERE)
    if not has_parts:
        fresh = {**about, "run": run_of(about), "finished": False, "engines": []}
        write_tasks(folder, [about["tasks"].index(task) for task in set_tasks])
        write_about(folder, fresh)
        return fresh
    found = read_about(folder)
    other = [name for name in _IN_RUN if found.get(name) != about[name]]
    if other:
        stated = ", ".join(f"{name} {str(found.get(name))[:20]}, not {str(about[name])[:20]}" for name in other)
        raise InputError(f"holds a corpus of another run ({stated})", where=folder, next_step=_ELSEWHERE)
    more = max(int(found["answers_per_prompt"]), int(about["answers_per_prompt"]))
    return {**found, "answers_per_prompt": more, "filters": about["filters"]}


def parts_of(about: Mapping[str, Any], prompts: Sequence[Prompt]) -> list[Part]:
    size = int(about["part_size"])
    pieces = [prompts[start : start + size] for start in range(0, len(prompts), size)]
    return [
        Part(answer * len(pieces) + number, answer, piece)
        for answer in range(int(about["answers_per_prompt"]))
        for number, piece in enumerate(pieces)
    ]


def missing(folder: Path, parts: Sequence[Part]) -> list[Part]:
    return [part for part in parts if not part_path(folder, part.number).is_file()]


def part_path(folder: Path, number: int) -> Path:
    return folder / f"part-{number:05}.npz"


def keep(folder: Path, about: Mapping[str, Any], part: Part, samples: Sequence[Sample], failed: Sequence[int]) -> None:
    write_part(
        part_path(folder, part.number),
        samples,
        tasks={task: number for number, task in enumerate(about["tasks"])},
        run=str(about["run"]),
        vocab_size=int(about["vocab_size"]),
        failed=failed,
    )


def finish(folder: Path, about: Mapping[str, Any], parts: Sequence[Part]) -> dict[str, Any]:
    """Count what is there and write corpus.json for good.

    Raises
    ------
    InputError
        When a part is damaged or of another run.
    """
    paths = [part_path(folder, part.number) for part in parts]
    counts: Counter[str] = Counter()
    for path in paths:
        counts.update(_counted(path, about))
    hashes = {path.name: hash_file(path) for path in paths}
    done = {**about, "finished": True, "counts": dict(counts), "parts": hashes}
    write_about(folder, done)
    return done


def _counted(path: Path, about: Mapping[str, Any]) -> dict[str, int]:
    arrays = read_part(path, run=str(about["run"]), tasks=len(about["tasks"]))
    lengths = np.diff(arrays["offsets"]) - arrays["prompt_tokens"]
    filters = about["filters"]
    short, repetitive = removed_by(arrays, filters["min_response_tokens"], filters["min_distinct_4"])
    kept = ~(short | repetitive)
    closed = np.isin(arrays["tokens"][arrays["offsets"][1:] - 1], about["eos_token_ids"])
    return {
        "samples": len(lengths),
        "response_tokens": int(lengths.sum()),
        "closed": int(closed.sum()),
        "failed": len(arrays["failed"]),
        "short": int(short.sum()),
        "repetitive": int(repetitive.sum()),
        "kept_samples": int(kept.sum()),
        "kept_response_tokens": int(lengths[kept].sum()),
    }
