"""A corpus: prompts and a target's answers to them as token ids, in parts on disk.

A folder holds ``corpus.json`` (how the answers were made, and what was counted), ``tasks.npy`` (the task of every
prompt of the set) and ``part-00000.npz``, ..., see `workbench.training.parts`. Parts hold every answer; the filters
that corpus.json states are applied on reading.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from workbench.errors import InputError, UsageError
from workbench.files import read_small, replacing
from workbench.hashes import hash_file
from workbench.plain import from_json
from workbench.training.parts import AGAIN, Arrays, Sample, read_part, removed_by

__all__ = ["Corpus", "Sample", "read_corpus", "split", "subset", "token_counts"]

FORMAT = 1
ABOUT = "corpus.json"
TASKS = "tasks.npy"
# Of the held-out prompts so many belong to tasks that are held out whole, and no task takes more than a part of those.
_WHOLE_TASKS_SHARE = 0.5
_ONE_TASK_SHARE = 0.25

T = TypeVar("T", int, str)


@dataclass(frozen=True)
class Corpus:
    """Samples in the order of answers, then prompts. ``about`` is corpus.json, and what was done to them since.

    ``set_tasks`` are the tasks of all prompts of the set, also of those that have no sample; empty where not known.
    """

    samples: Sequence[Sample]
    about: Mapping[str, Any]
    set_tasks: Mapping[int, str] = field(default_factory=dict)

    @cached_property
    def response_tokens(self) -> int:
        return sum(sample.response_tokens for sample in self.samples)

    @cached_property
    def prompts(self) -> tuple[int, ...]:
        """The prompts that have an answer, in order."""
        return tuple(sorted({sample.prompt for sample in self.samples}))

    @cached_property
    def digest(self) -> str:
        """First 16 hex digits of the SHA-256 of the samples; the same however they are cut into parts."""
        found = hashlib.sha256()
        for sample in self.samples:
            head = f"{sample.prompt} {sample.answer} {sample.prompt_tokens} {len(sample.ids)} {sample.task}\n"
            found.update(head.encode("utf-8", "backslashreplace"))
            found.update(sample.ids.astype("<u4").tobytes())
        return found.hexdigest()[:16]


# --- reading -----------------------------------------------------------------------------------------------------


def read_corpus(folder: Path, *, filtered: bool = True, unfinished: bool = False) -> Corpus:
    """All samples of a corpus.

    Parameters
    ----------
    filtered
        Leave out the answers that the filters of corpus.json remove; "filtered" of ``about`` counts them.
    unfinished
        Take also a corpus whose answers are still being made, as far as it is.

    Raises
    ------
    InputError
        When a file is missing, damaged or of another run, or the corpus is not finished.
    """
    about = read_about(folder)
    if not (about.get("finished") or unfinished):
        raise InputError(
            "the corpus is not finished",
            where=folder / ABOUT,
            next_step="run the same `workbench answers` command again: it goes on where it was stopped",
        )
    tasks = about.get("tasks")
    if not isinstance(tasks, list):
        raise InputError('has no list of "tasks"', where=folder / ABOUT, next_step=AGAIN)
    keep = _filter(about) if filtered else lambda arrays: ({}, np.ones(len(arrays["prompt"]), bool))
    samples: list[Sample] = []
    removed: Counter[str] = Counter()
    for path in _part_paths(folder, about):
        arrays = read_part(path, run=str(about.get("run", "")), tasks=len(tasks))
        counts, kept = keep(arrays)
        removed.update(counts)
        samples += _samples(arrays, kept, tasks)
    if not samples:
        raise InputError("holds no sample", where=folder, next_step=AGAIN)
    return Corpus(samples, {**about, "filtered": dict(removed)}, _read_tasks(folder, tasks))


def read_about(folder: Path) -> dict[str, Any]:
    """corpus.json.

    Raises
    ------
    InputError
        When it is missing or of another format.
    """
    path = folder / ABOUT
    try:
        about = from_json(read_small(path))
    except OSError as error:
        raise InputError(f"no corpus ({error.strerror})", where=path, next_step=AGAIN) from error
    except ValueError as error:
        raise InputError(f"not valid JSON ({str(error)[:100]})", where=path, next_step=AGAIN) from error
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        stated = about.get("format") if isinstance(about, dict) else None
        raise InputError(f"its format is {stated!r}, not {FORMAT}", where=path, next_step=AGAIN)
    return about


def _read_tasks(folder: Path, tasks: Sequence[str]) -> dict[int, str]:
    path = folder / TASKS
    if not path.is_file():
        return {}
    try:
        return {prompt: tasks[number] for prompt, number in enumerate(np.load(path, allow_pickle=False).tolist())}
    except (OSError, ValueError, EOFError, IndexError, TypeError) as error:
        raise InputError(f"no list of tasks ({error})", where=path, next_step=AGAIN) from error


def _part_paths(folder: Path, about: Mapping[str, Any]) -> list[Path]:
    """The parts that corpus.json lists with their hashes; of an unfinished corpus those that are there."""
    listed = about.get("parts")
    if not about.get("finished"):
        return sorted(folder.glob("part-*.npz"))
    if not isinstance(listed, dict):
        raise InputError('has no list of "parts"', where=folder / ABOUT, next_step=AGAIN)
    for name, sha256 in listed.items():
        if Path(name).name != name or not (folder / name).is_file():
            raise InputError("missing", where=folder / name, next_step=f"copy it again, or {AGAIN}")
        if hash_file(folder / name) != sha256:
            raise InputError(
                f"is not the file that {ABOUT} lists", where=folder / name, next_step=f"copy it again, or {AGAIN}"
            )
    return [folder / name for name in sorted(listed)]


def _samples(arrays: Arrays, kept: npt.NDArray[np.bool_], tasks: Sequence[str]) -> Iterator[Sample]:
    tokens, offsets = arrays["tokens"], arrays["offsets"].tolist()
    columns = (arrays[name].tolist() for name in ("prompt_tokens", "prompt", "answer", "task"))
    for i, (prompt_tokens, prompt, answer, task) in enumerate(zip(*columns, strict=True)):
        if kept[i]:
            yield Sample(tokens[offsets[i] : offsets[i + 1]], prompt_tokens, prompt, answer, str(tasks[task]))


def _filter(about: Mapping[str, Any]) -> Callable[[Arrays], tuple[dict[str, int], npt.NDArray[np.bool_]]]:
    filters = about.get("filters") or {}
    shortest, least = int(filters.get("min_response_tokens", 0)), float(filters.get("min_distinct_4", 0.0))

    def keep(arrays: Arrays) -> tuple[dict[str, int], npt.NDArray[np.bool_]]:
        short, repetitive = removed_by(arrays, shortest, least)
        return {"short": int(short.sum()), "repetitive": int(repetitive.sum())}, ~(short | repetitive)

    return keep


# --- writing -----------------------------------------------------------------------------------------------------


def write_about(folder: Path, about: Mapping[str, Any]) -> None:
    with replacing(folder / ABOUT) as temporary:
        temporary.write_text(json.dumps({"format": FORMAT, **about}, indent=1) + "\n", encoding="utf-8")


def write_tasks(folder: Path, numbers: Sequence[int]) -> None:
    """The task of every prompt of the set, as places in the "tasks" of corpus.json."""
    with replacing(folder / TASKS) as temporary, temporary.open("wb") as file:
        np.save(file, np.asarray(numbers, np.int16), allow_pickle=False)


# --- parts of a corpus -------------------------------------------------------------------------------------------


def subset(corpus: Corpus, prompts: int, *, seed: int) -> Corpus:
    """All answers to the first ``prompts`` prompts of one shuffle: a smaller subset lies within every larger one.

    Raises
    ------
    UsageError
        When the corpus has fewer prompts.
    """
    if not 1 <= prompts <= len(corpus.prompts):
        raise UsageError(
            f"{prompts} prompts are asked for, the corpus has {len(corpus.prompts)}", next_step="ask for fewer, or all"
        )
    chosen = frozenset(_shuffled(corpus.prompts, seed)[:prompts])
    return _those(corpus, chosen, {"subset": {"prompts": prompts, "seed": seed}})


def split(corpus: Corpus, *, held_out: int, seed: int) -> tuple[Corpus, Corpus]:
    """What to train on, and the answers to ``held_out`` prompts of the set to judge by.

    Which prompts these are depends on the set alone, not on which were answered or pass the filters: what one corpus of
    a set trains on is never held out of another one, sampled or greedy. Half of them come from tasks that are held out
    whole, as far as there are tasks small enough; the rest are drawn from all other tasks. "held_out_tasks" of both
    tells the former.

    Raises
    ------
    UsageError
        When nothing would be left to train on, or to judge by.
    """
    tasks = dict(corpus.set_tasks) or {sample.prompt: sample.task for sample in corpus.samples}
    whole = _whole_tasks(tasks, held_out, seed)
    out = {prompt for prompt, task in tasks.items() if task in whole}
    rest = [prompt for prompt in _shuffled(sorted(tasks), seed) if prompt not in out]
    out.update(rest[: held_out - len(out)])
    about = {"split": {"held_out": held_out, "seed": seed}, "held_out_tasks": sorted(whole)}
    training = _those(corpus, set(corpus.prompts) - out, {**about, "side": "training"})
    judging = _those(corpus, out, {**about, "side": "held out"})
    if not training.samples or (held_out and not judging.samples):
        raise UsageError(
            f"with {held_out} of {len(tasks)} prompts held out, answers are left for {len(training.prompts)} to train "
            f"on and {len(judging.prompts)} to judge by",
            next_step="hold out another number of prompts, or make more answers",
        )
    return training, judging


def _whole_tasks(tasks: Mapping[int, str], held_out: int, seed: int) -> frozenset[str]:
    sizes = Counter(tasks.values())
    room = int(held_out * _WHOLE_TASKS_SHARE)
    largest = int(room * _ONE_TASK_SHARE)
    chosen: list[str] = []
    for task in _shuffled(sorted(sizes), seed):
        if sizes[task] <= min(room, largest):
            chosen.append(task)
            room -= sizes[task]
    return frozenset(chosen)


def _shuffled(items: Sequence[T], seed: int) -> list[T]:
    """In an order by hash: an item's place among others does not depend on which others there are."""
    return sorted(items, key=lambda item: hashlib.sha256(f"{seed} {item}".encode("utf-8", "backslashreplace")).digest())


def _those(corpus: Corpus, prompts: Set[int], about: Mapping[str, Any]) -> Corpus:
    kept = [sample for sample in corpus.samples if sample.prompt in prompts]
    return Corpus(kept, {**corpus.about, **about}, corpus.set_tasks)


def token_counts(corpus: Corpus, *, response_only: bool = True) -> npt.NDArray[np.int64]:
    """How often each id of the target's vocabulary occurs, shape [vocab_size]."""
    size = int(corpus.about.get("vocab_size") or 1 + max(int(sample.ids.max()) for sample in corpus.samples))
    counts = np.zeros(size, np.int64)
    # In batches: one bincount a sample would write the whole vocabulary every time.
    for start in range(0, len(corpus.samples), 4096):
        batch = corpus.samples[start : start + 4096]
        ids = np.concatenate([s.ids[s.prompt_tokens if response_only else 0 :] for s in batch])
        counts += np.bincount(ids, minlength=size)
    return counts
