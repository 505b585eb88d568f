"""Prompts to train on, out of three packages under permissive licences."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from workbench.errors import InputError
from workbench.wheels import Wheel


@dataclass(frozen=True, slots=True)
class Candidate:
    """A prompt before it is judged. ``task`` begins with its source: ``evals/2d_movement``."""

    source: str
    task: str
    text: str


@dataclass(frozen=True, slots=True)
class Source:
    """Where prompts come from, and at most how many of each task are taken."""

    name: str
    wheel: Wheel
    licence: str
    per_task: int | None
    read: Callable[[zipfile.ZipFile], Iterator[Candidate]]


_EVALS = "evals/registry/data/"
_EVALS_LICENCE = "evals-3.0.1.post1.dist-info/LICENSE.md"
_OTHER_LICENCES = frozenset(
    {
        *("already_said_that", "ballots", "sandbagging", "schelling_point", "steganography", "text_compression"),
        "theory_of_mind",
    }
)
"""Folders of evals whose data is under other licences than MIT, as its LICENSE.md lists them."""


def read_evals(archive: zipfile.ZipFile) -> Iterator[Candidate]:
    """Samples of the registry, each as the last message of its user.

    Raises
    ------
    InputError
        When the licence names another folder than those that are left out.
    """
    licence = archive.read(_EVALS_LICENCE).decode()
    named = {line.rpartition(_EVALS)[2].strip() for line in licence.splitlines() if _EVALS in line}
    if named != _OTHER_LICENCES:
        raise InputError(f"names other folders: {sorted(named ^ _OTHER_LICENCES)}", where=_EVALS_LICENCE)
    for name in sorted(archive.namelist()):
        task = name.removeprefix(_EVALS).partition("/")[0]
        if name.startswith(_EVALS) and name.endswith(".jsonl") and task not in _OTHER_LICENCES:
            for record in _records(archive, name):
                text = _asked(record.get("input"))
                if text is not None:
                    yield Candidate("evals", f"evals/{task}", text)


def read_chitchat(archive: zipfile.ZipFile) -> Iterator[Candidate]:
    """Turns of dialogues between two people: what one says before the other answers."""
    for dialogue in json.loads(archive.read("chitchat_dataset/dataset.json")).values():
        for turn in dialogue["messages"]:
            text = " ".join(str(message["text"]).strip() for message in turn)
            if len(text) >= _LONG_ENOUGH_TO_ANSWER:
                yield Candidate("chitchat", "chitchat", text)


_LONG_ENOUGH_TO_ANSWER = 40
"""Shorter turns ("lol", "me too") ask for nothing."""
_BFCL = "bfcl_eval/data/BFCL_v4_"


def read_bfcl(archive: zipfile.ZipFile) -> Iterator[Candidate]:
    """First turns of requests for function calls, without the functions."""
    for name in sorted(archive.namelist()):
        if name.startswith(_BFCL) and name.endswith(".json") and "format_sensitivity" not in name:
            task = PurePosixPath(name).stem.removeprefix("BFCL_v4_")
            for record in _records(archive, name):
                turns = record.get("question")
                text = _asked(turns[0]) if isinstance(turns, list) and turns else None
                if text is not None:
                    yield Candidate("bfcl", f"bfcl/{task}", text)


def _records(archive: zipfile.ZipFile, name: str) -> Iterator[dict[str, object]]:
    """Objects of a file with one a line; other lines are none of its samples."""
    for line in archive.read(name).decode("utf-8", "replace").split("\n"):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            yield record


def _asked(messages: object) -> str | None:
    """The user's last message alone: what stands before it mostly asks for an answer of one word."""
    if isinstance(messages, str):
        return messages
    for message in reversed(messages if isinstance(messages, list) else []):
        if isinstance(message, dict) and message.get("role") == "user":
            text = message.get("content")
            return text if isinstance(text, str) else None
    return None


SOURCES = (
    Source(
        name="evals",
        wheel=Wheel("evals==3.0.1.post1", "0abcb2051303500784b1641a6e4f6b813ed43ad64f879a37d344a6774eb8eb78"),
        licence="MIT, Copyright (c) 2023 OpenAI",
        per_task=300,
        read=read_evals,
    ),
    Source(
        name="chitchat",
        wheel=Wheel("chitchat-dataset==0.9.0", "7bf89f36645e2d5ec87d53370c8e851b5a688479c7beb7079cb4c87fc5acea3e"),
        licence="MIT, Copyright (c) 2019 Perception, Control and Cognition Lab",
        per_task=8000,
        read=read_chitchat,
    ),
    Source(
        name="bfcl",
        wheel=Wheel("bfcl-eval==2026.3.23", "3bb6dfa5f0c68ad403c9ec50b00db2bb3b4cc9b38ab1ff33f48fe30d853d3a0a"),
        licence="Apache-2.0",
        per_task=None,
        read=read_bfcl,
    ),
)
