"""Prompts out of packages that are laid out like the real ones."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping

import pytest

from workbench.errors import InputError
from workbench.training.sources import SOURCES, Candidate, read_bfcl, read_chitchat, read_evals

FOLDERS = (
    *("already_said_that", "ballots", "sandbagging", "schelling_point", "steganography", "text_compression"),
    "theory_of_mind",
)
LICENCE = "evals-3.0.1.post1.dist-info/LICENSE.md"
DATA = "evals/registry/data"


def archive(files: Mapping[str, str]) -> zipfile.ZipFile:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as made:
        for name, text in files.items():
            made.writestr(name, text)
    return zipfile.ZipFile(content)


def evals(files: Mapping[str, str], folders: tuple[str, ...] = FOLDERS) -> zipfile.ZipFile:
    licence = "MIT License\n" + "".join(f"- **Location**: {DATA}/{name}\n" for name in folders)
    return archive({LICENCE: licence, **{f"{DATA}/{name}": text for name, text in files.items()}})


def lines(*records: object) -> str:
    return "\n".join(json.dumps(record) for record in records)


def chat(*messages: tuple[str, str]) -> dict[str, object]:
    return {"input": [{"role": role, "content": text} for role, text in messages]}


def test_evals_give_the_last_message_of_the_user() -> None:
    samples = lines(
        chat(("system", "Answer Y or N."), ("user", "Is water wet?")),
        chat(("system", "s"), ("user", "first"), ("assistant", "yes"), ("user", "second")),
        {"input": "a plain question"},
        chat(("system", "no user")),
        {"input": {"codeword": "at"}},
        {"question": "of another kind"},
        ["no object"],
    )
    found = list(read_evals(evals({"water/samples.jsonl": samples + "\nnot json", "water/notes.txt": "x"})))
    assert found == [
        Candidate("evals", "evals/water", text) for text in ("Is water wet?", "second", "a plain question")
    ]


def test_folders_of_evals_under_other_licences_are_left_out() -> None:
    files = {f"{name}/x.jsonl": lines({"input": name}) for name in (*FOLDERS, "free")}
    assert [candidate.text for candidate in read_evals(evals(files))] == ["free"]


@pytest.mark.parametrize("folders", [FOLDERS[1:], (*FOLDERS, "another")])
def test_a_licence_that_names_other_folders_stops_everything(folders: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match="names other folders"):
        list(read_evals(evals({}, folders)))


def test_chitchat_gives_turns_that_are_long_enough() -> None:
    long = ["I went to the lake with my sister", "and we swam until it was dark"]
    dialogue = {"messages": [[{"text": "Hello"}], [{"text": text} for text in long], [{"text": "wow"}]]}
    made = archive({"chitchat_dataset/dataset.json": json.dumps({"id": dialogue})})
    assert list(read_chitchat(made)) == [Candidate("chitchat", "chitchat", " ".join(long))]


def test_bfcl_gives_first_turns() -> None:
    turns = [[{"role": "system", "content": "s"}, {"role": "user", "content": "Book it"}], [{"role": "user"}]]
    made = archive(
        {
            "bfcl_eval/data/BFCL_v4_simple_java.json": lines({"id": "1", "question": turns}, {"question": []}),
            "bfcl_eval/data/possible_answer/BFCL_v4_simple_java.json": lines({"question": turns}),
            "bfcl_eval/data/BFCL_v4_format_sensitivity.json": "{\n}",
        }
    )
    assert list(read_bfcl(made)) == [Candidate("bfcl", "bfcl/simple_java", "Book it")]


def test_the_packages_are_pinned() -> None:
    for source in SOURCES:
        assert "==" in source.wheel.package
        assert len(bytes.fromhex(source.wheel.sha256)) == 32
        assert source.licence.startswith(("MIT", "Apache-2.0"))
