"""The parts of a corpus on disk: prompts and a target's answers to them as token ids, a numpy archive each.

========================  ======================  =========================================================
``tokens``                uint16 or uint32        prompts with their answers, one after the other
``offsets``               int64 [n + 1]           where each of the n samples begins in ``tokens``
``prompt_tokens``         int32 [n]               how many tokens of a sample are its prompt's
``prompt``                int32 [n]               index of the prompt in its set
``answer``                int16 [n]               0, 1, ... where a prompt was answered several times
``task``                  int16 [n]               index in the "tasks" of corpus.json
``distinct_4``            float32 [n]             of the answer, see `distinct_4`
``failed``                int32 [m]               prompts that got no answer
``run``                   text                    the "run" of corpus.json: parts of another run do not belong here
========================  ======================  =========================================================
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.errors import InputError
from workbench.files import replacing

_DTYPES = {
    "offsets": np.int64,
    "prompt_tokens": np.int32,
    "prompt": np.int32,
    "answer": np.int16,
    "task": np.int16,
    "distinct_4": np.float32,
    "failed": np.int32,
}
AGAIN = "make the corpus again with `workbench answers`, in an empty folder"
_UINT16_VALUES = 1 << 16

Ids = npt.NDArray[np.unsignedinteger[Any]]
Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Sample:
    """A prompt and one answer. ``ids`` end with the token that closes the answer, unless it was cut at its limit."""

    ids: Ids
    prompt_tokens: int
    prompt: int
    answer: int
    task: str

    @property
    def response_tokens(self) -> int:
        return len(self.ids) - self.prompt_tokens


def read_part(path: Path, *, run: str, tasks: int) -> dict[str, npt.NDArray[Any]]:
    """The arrays of one part, checked.

    Raises
    ------
    InputError
        When the file is damaged or belongs to another run.
    """
    try:
        # numpy leaves a file open that it cannot read.
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {name: file[name] for name in ("tokens", "run", *_DTYPES)}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"no part of a corpus ({error})", where=path, next_step=AGAIN) from error
    found = str(arrays.pop("run"))
    if found != run:
        raise InputError(f"is of run {found}, the corpus is of {run}", where=path, next_step="move this file elsewhere")
    fault = _fault(arrays, tasks)
    if fault is not None:
        raise InputError(f"damaged: {fault}", where=path, next_step=AGAIN)
    return arrays


def _fault(arrays: Arrays, tasks: int) -> str | None:
    """What does not fit together, so that no wrong slice is ever read."""
    offsets, prompt_tokens, n = arrays["offsets"], arrays["prompt_tokens"], len(arrays["prompt"])
    if arrays["tokens"].dtype not in (np.dtype(np.uint16), np.dtype(np.uint32)):
        return f"tokens are {arrays['tokens'].dtype}"
    if wrong := [name for name, dtype in _DTYPES.items() if arrays[name].dtype != dtype or arrays[name].ndim != 1]:
        return f"{wrong[0]} is {arrays[wrong[0]].dtype} of shape {arrays[wrong[0]].shape}"
    if len(offsets) != n + 1 or any(len(arrays[name]) != n for name in _DTYPES if name not in ("offsets", "failed")):
        return "its arrays differ in length"
    if offsets[0] != 0 or offsets[-1] != len(arrays["tokens"]):
        return "offsets do not cover the tokens"
    if np.any(prompt_tokens < 1) or np.any(np.diff(offsets) < prompt_tokens):
        return "a sample is shorter than its prompt"
    if np.any(arrays["task"] < 0) or np.any(arrays["task"] >= tasks):
        return "a task is not in the list"
    return None


def removed_by(
    arrays: Arrays, min_response_tokens: int, min_distinct_4: float
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Which samples of a part are too short, and which of the others too repetitive."""
    short = np.diff(arrays["offsets"]) - arrays["prompt_tokens"] < min_response_tokens
    return short, ~short & (arrays["distinct_4"] < np.float32(min_distinct_4))


def write_part(
    path: Path,
    samples: Sequence[Sample],
    *,
    tasks: Mapping[str, int],
    run: str,
    vocab_size: int,
    failed: Sequence[int] = (),
) -> None:
    """Write a part, whole or not at all. ``tasks`` are the places of the names in corpus.json."""
    dtype = np.uint16 if vocab_size <= _UINT16_VALUES else np.uint32
    lengths = [len(sample.ids) for sample in samples]
    tokens = np.concatenate([sample.ids for sample in samples]) if samples else np.zeros(0)
    arrays: dict[str, Any] = {
        "offsets": np.concatenate([[0], np.cumsum(lengths)]),
        "prompt_tokens": [sample.prompt_tokens for sample in samples],
        "prompt": [sample.prompt for sample in samples],
        "answer": [sample.answer for sample in samples],
        "task": [tasks[sample.task] for sample in samples],
        "distinct_4": [distinct_4(sample.ids[sample.prompt_tokens :]) for sample in samples],
        "failed": failed,
    }
    typed = {name: np.asarray(values, _DTYPES[name]) for name, values in arrays.items()}
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, tokens=tokens.astype(dtype), run=np.asarray(run), **typed)


def distinct_4(ids: npt.NDArray[Any]) -> float:
    """Different runs of four tokens over all of them: 1 when none comes twice, near 0 in a loop."""
    if len(ids) < 4:
        return 1.0
    runs = np.lib.stride_tricks.sliding_window_view(np.ascontiguousarray(ids, dtype="<u4"), 4)
    whole = np.ascontiguousarray(runs).view("V16").ravel()
    return len({run.tobytes() for run in whole}) / len(whole)
