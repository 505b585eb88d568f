"""The prompts to train on: what is kept, in which order, and the file that comes out."""

from __future__ import annotations

import gzip
import hashlib
import json
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from workbench.cli import main
from workbench.errors import InputError, MissingToolError, UsageError
from workbench.paths import prompts_dir
from workbench.prompts import prompt_set
from workbench.training import mix
from workbench.training.mix import build, is_english
from workbench.training.sources import Candidate, Source
from workbench.wheels import Wheel

QUESTION = "What should I do with the {} that I have in the garden of my house?"


@pytest.fixture(autouse=True)
def no_ifbench(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one held-out set that is not shipped would be downloaded."""
    monkeypatch.setattr(mix, "HELD_OUT", ("mt_bench", "humaneval", "written"))


def source(folder: Path, name: str, candidates: Sequence[tuple[str, str]], per_task: int | None = None) -> Source:
    """A package of (task, text), and the source that reads it."""
    wheel = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as made:
        made.writestr(zipfile.ZipInfo("data.json"), json.dumps(candidates))

    def read(archive: zipfile.ZipFile) -> Iterator[Candidate]:
        for task, text in json.loads(archive.read("data.json")):
            yield Candidate(name, f"{name}/{task}", text)

    return Source(name, Wheel(f"{name}==1.0", hashlib.sha256(wheel.read_bytes()).hexdigest()), "MIT", per_task, read)


def things(count: int, start: int = 0) -> list[str]:
    return [QUESTION.format(f"number {n}") for n in range(start, start + count)]


def made(out: Path) -> list[dict[str, str]]:
    data = out.read_bytes()
    text = gzip.decompress(data) if out.suffix == ".gz" else data
    return [json.loads(line) for line in text.decode().splitlines()]


def user_file(path: Path, *texts: str) -> Path:
    path.write_text("\n".join(json.dumps({"text": text, "task": "mine"}) for text in texts))
    return path


# --- what is kept ------------------------------------------------------------------------------------------------


def test_the_mix_is_tagged_limited_and_counted(tmp_path: Path) -> None:
    sources = (
        source(tmp_path, "one", [("a", text) for text in things(30)] + [("b", text) for text in things(3, 50)], 10),
        source(tmp_path, "two", [("c", text) for text in things(20, 100)]),
    )
    out = tmp_path / "mix.jsonl.gz"
    counts = build(out, wheels=tmp_path, sources=sources)
    head, *rows = made(out)
    assert head == {"name": "mix", "source": "PyPI one 1.0, two 1.0", "licence": "one: MIT; two: MIT"}
    assert Counter((row["source"], row["task"]) for row in rows) == {
        ("one", "one/a"): 10,
        ("one", "one/b"): 3,
        ("two", "two/c"): 20,
    }
    assert counts.lines() == [
        "33 prompts of 3 tasks (one 13, two 20)",
        "left out of 53: beyond its task's limit 20",
    ]
    assert [prompt.task for prompt in prompt_set(out).prompts] == [row["task"] for row in rows]


def test_the_same_bytes_come_out_each_time_and_any_first_part_is_mixed(tmp_path: Path) -> None:
    candidates = [("large", text) for text in things(300)] + [("small", text) for text in things(60, 1000)]
    one = source(tmp_path, "one", candidates, 60)
    first, second = tmp_path / "mix.jsonl.gz", tmp_path / "again" / "mix.jsonl.gz"
    build(first, wheels=tmp_path, sources=(one,))
    build(second, wheels=tmp_path, sources=(one,))
    assert first.read_bytes() == second.read_bytes()
    tasks = [row["task"] for row in made(first)[1:]]
    # 60 of each task: of the first 40, 20 are expected of each, and 10 are three deviations away.
    assert 10 <= Counter(tasks[:40])["one/large"] <= 30


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Why is it so?", "too short"),
        ("What is that? " * 100, "too long"),
        (things(1)[0].upper() + "  ", "said before"),
        ("Wie komme ich am besten von hier zum Bahnhof, bitte?", "not English"),
        ("\u8bf7\u95ee\u5317\u4eac\u7684\u5f53\u524d\u5929\u6c14\u72b6\u51b5\u5982\u4f55" * 2, "not English"),
        ("What is it that you see \x1b[31m in the picture?", "control characters"),
        (prompt_set("mt_bench").prompts[0].text, "near a held-out prompt"),
        (prompt_set("humaneval").prompts[0].text, "near a held-out prompt"),
        (prompt_set("written").prompts[0].text, "near a held-out prompt"),
    ],
)
def test_what_is_left_out(tmp_path: Path, text: str, reason: str) -> None:
    counts = build(tmp_path / "out.jsonl", files=[user_file(tmp_path / "in.jsonl", things(1)[0], text)])
    assert dict(counts.removed) == {reason: 1}
    assert [row["text"] for row in made(tmp_path / "out.jsonl")[1:]] == things(1)


@pytest.mark.parametrize(
    "text", ["write to ann.lee@mail.org when you have it", "call me on 801 555 0199 when it is there"]
)
def test_addresses_in_dialogues_are_left_out(tmp_path: Path, text: str) -> None:
    chitchat = source(tmp_path, "chitchat", [("x", text), ("x", things(1)[0])])
    assert build(tmp_path / "a.jsonl", wheels=tmp_path, sources=(chitchat,)).removed == {
        "address or telephone number": 1
    }
    other = source(tmp_path, "other", [("x", text)])
    assert not build(tmp_path / "b.jsonl", wheels=tmp_path, sources=(other,)).removed


@pytest.mark.parametrize(
    ("text", "english"),
    [
        ("How can I get to the station from here?", True),
        ("Caf\u00e9s that I like are in the old part of the town, and you?", True),
        ("Quelle est la capitale de la France ?", False),
        ("Nf3 Nc6 Bb5 Ba4 Nf6 O-O Re1 b5 Bb3", False),
        ("12345 + 67890 = ?", False),  # no word at all
        ("", False),
    ],
)
def test_is_english(text: str, english: bool) -> None:
    assert is_english(text) is english


# --- files of the user -------------------------------------------------------------------------------------------


def test_files_of_the_user_go_the_same_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = user_file(tmp_path / "first.jsonl", *things(4), "short")
    second = user_file(tmp_path / "second.jsonl", *things(4, 2))
    out = tmp_path / "out.jsonl"
    assert main(["prompts", "build", "--out", str(out), "--file", str(first), "--file", str(second)]) == 0
    said = capsys.readouterr().out
    assert "6 prompts of 2 tasks (first 4, second 2)" in said
    assert "left out of 9: too short 1, said before 2" in said
    head, *rows = made(out)
    assert head == {"name": "out", "source": "first.jsonl, second.jsonl", "licence": "not stated"}
    assert {row["task"] for row in rows} == {"first/mine", "second/mine"}


def test_other_languages_and_limits_on_request(tmp_path: Path) -> None:
    german = [f"Wie komme ich am besten zum Bahnhof Nummer {n}?" for n in range(5)]
    path = user_file(tmp_path / "in.jsonl", *german)
    counts = build(tmp_path / "out.jsonl", files=[path], per_task=3, any_language=True)
    assert sum(counts.taken.values()) == 3


def test_nothing_left_is_said_with_the_reasons(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no prompt is left") as raised:
        build(tmp_path / "out.jsonl", files=[user_file(tmp_path / "in.jsonl", "short")])
    assert raised.value.next_step is not None
    assert "too short 1" in raised.value.next_step
    assert not (tmp_path / "out.jsonl").exists()


def test_a_name_that_no_prompt_set_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is a \.jsonl or \.jsonl\.gz file"):
        build(tmp_path / "out.txt", files=[])


def test_a_package_that_is_not_there(tmp_path: Path) -> None:
    one = source(tmp_path, "one", [])
    with pytest.raises(MissingToolError, match="no wheel of one"):
        build(tmp_path / "out.jsonl", wheels=tmp_path / "elsewhere", sources=(one,))


# --- the shipped mix ---------------------------------------------------------------------------------------------


def test_the_shipped_mix() -> None:
    found = prompt_set(mix.NAME)
    assert len(found.prompts) == len({prompt.text for prompt in found.prompts}) == 30_924
    assert Counter(prompt.task.partition("/")[0] for prompt in found.prompts) == {
        "evals": 19_275,
        "chitchat": 8_000,
        "bfcl": 3_649,
    }
    sizes = Counter(prompt.task for prompt in found.prompts)
    assert len(sizes) == 249
    assert max(size for task, size in sizes.items() if task.startswith("evals/")) == 300
    assert all(20 <= len(prompt.text) <= 1200 for prompt in found.prompts)
    assert (prompts_dir() / f"{mix.NAME}.jsonl.gz").stat().st_size < 4 << 20
