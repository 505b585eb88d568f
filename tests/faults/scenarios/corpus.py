"""A corpus that grows by a part and is finished."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np

from workbench.errors import InputError
from workbench.hashes import hash_file
from workbench.training.corpus import read_corpus, write_about, write_tasks
from workbench.training.parts import Sample, write_part

SAMPLES = [Sample(np.arange(4 + n, dtype=np.uint16), 2, n, 0, "t") for n in range(4)]


def _about(root: Path, *, finished: bool) -> None:
    parts = {path.name: hash_file(path) for path in sorted(root.glob("part-*.npz"))} if finished else {}
    write_about(root, {"run": "r", "tasks": ["t"], "vocab_size": 100, "finished": finished, "parts": parts})


def prepare(root: Path) -> None:
    root.mkdir()
    _about(root, finished=False)
    write_part(root / "part-00000.npz", SAMPLES[:2], tasks={"t": 0}, run="r", vocab_size=100)


def meanwhile(_: Path) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


def act(root: Path) -> None:
    with contextlib.suppress(OSError):
        write_part(root / "part-00001.npz", SAMPLES[2:], tasks={"t": 0}, run="r", vocab_size=100)
        write_tasks(root, [0] * 4)
        _about(root, finished=True)


def read(root: Path) -> None:
    assert [sample.prompt for sample in read_corpus(root, unfinished=True).samples][:2] == [0, 1], "LOST"
    try:
        found = read_corpus(root)
    except InputError as error:
        assert "finished" in str(error), error
    else:
        assert [sample.ids.tolist() for sample in found.samples] == [sample.ids.tolist() for sample in SAMPLES]


def go_on(root: Path) -> None:
    act(root)
    assert len(read_corpus(root).samples) == len(SAMPLES)
