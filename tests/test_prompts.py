from __future__ import annotations

import gzip
import importlib.util
import json
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from workbench.errors import InputError
from workbench.paths import project_root, prompts_dir
from workbench.prompts import FETCHED, Prompt, prompt_set, prompt_set_names, run_name, with_token_ids

MT_BENCH_TASKS = ("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities")


def write(path: Path, *lines: object) -> Path:
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines), encoding="utf-8")
    return path


# --- shipped sets ------------------------------------------------------------------------------------------------


def test_the_sets_that_are_shipped() -> None:
    assert set(prompt_set_names()) - set(FETCHED) == {
        *("humaneval", "mix_held_out", "mixed", "mt_bench", "training_mix", "written")
    }


@pytest.mark.parametrize(
    ("name", "count", "licence"),
    [
        ("mt_bench", 80, "Apache-2.0"),
        ("humaneval", 164, "MIT"),
        ("written", 24, "Apache-2.0"),
        ("mixed", 64, "Apache-2.0"),
    ],
)
def test_a_shipped_set(name: str, count: int, licence: str) -> None:
    found = prompt_set(name)
    assert found.name == name
    assert found.licence.startswith(licence)
    assert len(found.prompts) == len({prompt.text for prompt in found.prompts}) == count
    assert [prompt.index for prompt in found.prompts] == list(range(count))
    assert all(prompt.text.strip() and prompt.task and prompt.input_ids is None for prompt in found.prompts)


def test_the_sets_hold_what_they_are_named_after() -> None:
    bench = prompt_set("mt_bench").prompts
    assert Counter(prompt.task for prompt in bench) == dict.fromkeys(MT_BENCH_TASKS, 10)
    assert bench[0].text.startswith("Compose an engaging travel blog post about a recent trip to Hawaii")
    code = prompt_set("humaneval").prompts
    assert all("def " in prompt.text for prompt in code)
    assert "has_close_elements" in code[0].text
    assert "generate_integers" in code[163].text


def test_runs_name_a_file_by_its_content(tmp_path: Path) -> None:
    path = write(tmp_path / "my chat.jsonl", {"text": "a"})
    first = run_name(str(path))
    write(path, {"text": "b"})
    assert run_name(str(path)) != first
    assert first.startswith("my-chat-")
    assert run_name("mt_bench") == "mt_bench"
    with pytest.raises(InputError, match="no prompts"):
        run_name(str(tmp_path / "absent.jsonl"))


def test_the_mix_is_mixed_from_its_start() -> None:
    mixed = prompt_set("mixed").prompts
    origin = {prompt.text: name for name in ("mt_bench", "humaneval", "written") for prompt in prompt_set(name).prompts}
    assert Counter(origin[prompt.text] for prompt in mixed) == {"mt_bench": 24, "humaneval": 16, "written": 24}
    for part in (8, 16, 32):
        counts = Counter(origin[prompt.text] for prompt in mixed[:part])
        assert counts["mt_bench"] == counts["written"] == 3 * part // 8


def test_every_set_stands_in_the_readme_with_its_licence() -> None:
    readme = (prompts_dir() / "README.md").read_text(encoding="utf-8")
    for name in (*prompt_set_names(), *FETCHED):
        assert f"| `{name}` |" in readme
    assert "Permission is hereby granted, free of charge" in readme


# --- files -------------------------------------------------------------------------------------------------------


def test_a_file_of_the_user(tmp_path: Path) -> None:
    path = write(
        tmp_path / "mine.jsonl",
        {"text": "one", "task": "a"},
        "",
        {"prompt": "two", "category": "b"},
        {"turns": ["three", "and then"]},
    )
    found = prompt_set(path)
    assert (found.name, found.source, found.licence) == ("mine", str(path), "not stated")
    assert found.prompts == (Prompt(0, "one", "a"), Prompt(1, "two", "b"), Prompt(2, "three", "not stated"))


def test_line_ends_and_marks_of_other_systems(tmp_path: Path) -> None:
    path = tmp_path / "dos.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"text": "one"}\r\n{"text": "a\xe2\x80\xa8b"}\r\n')
    assert [prompt.text for prompt in prompt_set(str(path)).prompts] == ["one", "a\u2028b"]


def test_characters_that_are_written_as_two_escapes_are_whole_and_halves_of_other_texts_are_shown(
    tmp_path: Path,
) -> None:
    head = r'{"name": "\ud800", "source": "s", "licence": "l"}'
    (prompt,) = (
        found := prompt_set(write(tmp_path / "x.jsonl", head, r'{"text": "\ud83d\ude00", "task": "\udc00"}'))
    ).prompts
    assert (found.name, prompt.text, prompt.task) == ("\\ud800", "\N{GRINNING FACE}", "\\udc00")


def test_a_first_line_that_says_where_it_is_from(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", {"name": "n", "source": "s", "licence": "CC0"}, {"text": "one"})
    found = prompt_set(path)
    assert (found.name, found.source, found.licence, len(found.prompts)) == ("n", "s", "CC0", 1)


@pytest.mark.parametrize(
    "bad",
    [
        "{",
        "[1]",
        '{"text": 3}',
        '{"text": " "}',
        '{"turns": []}',
        '{"turns": "x"}',
        '"text"',
        "[" * 50_000,
        '{"text": "\\ud800 hi"}',
    ],
)
def test_a_line_that_is_no_prompt_is_refused_with_its_number(tmp_path: Path, bad: str) -> None:
    path = write(tmp_path / "x.jsonl", {"text": "one"}, "", bad, {"text": "two"}, bad)
    with pytest.raises(InputError, match="2 of 4 lines are no prompts, the first is line 3") as raised:
        prompt_set(path)
    assert raised.value.where == f"{path}:3"


@pytest.mark.parametrize("content", [b"", b"\n\n", b'{"name": "n", "source": "s", "licence": "l"}\n'])
def test_an_empty_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputError, match="holds no prompts"):
        prompt_set(path)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(b"\xff\xfe{}")
    with pytest.raises(InputError, match="cannot be read"):
        prompt_set(tmp_path / "x.jsonl")
    with pytest.raises(InputError, match="cannot be read"):
        prompt_set(tmp_path / "absent.jsonl")


def test_a_packed_file_reads_as_the_plain_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "x.jsonl", {"text": "one"}, {"text": "two"})
    packed = tmp_path / "y.jsonl.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert prompt_set(packed).prompts == prompt_set(path).prompts
    assert prompt_set(packed).name == "y"
    assert run_name(str(packed)).startswith("y-")
    monkeypatch.setattr("workbench.prompts.prompts_dir", lambda: tmp_path)
    assert prompt_set("y").prompts == prompt_set("x").prompts
    assert prompt_set_names() == ("x", "y")
    packed.write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(InputError, match="cannot be read"):
        prompt_set("y")


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'humaneval'"):
        prompt_set("human_eval")
    with pytest.raises(InputError, match="There are humaneval"):
        prompt_set("zzz")


def test_a_set_that_is_not_shipped_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("workbench.prompts.prompts_dir", lambda: tmp_path)
    with pytest.raises(InputError, match=r"tools/build_prompts\.py ifbench"):
        prompt_set("ifbench")


def test_token_ids_are_added() -> None:
    (prompt,) = with_token_ids([Prompt(4, "ab", "t")], lambda text: [ord(letter) for letter in text])
    assert prompt == Prompt(4, "ab", "t", (97, 98))


# --- tools/build_prompts.py --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_prompts", project_root() / "tools" / "build_prompts.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_mix_can_be_made_again(tool: ModuleType, tmp_path: Path) -> None:
    for name in ("mt_bench", "humaneval", "written"):
        (tmp_path / f"{name}.jsonl").write_bytes((prompts_dir() / f"{name}.jsonl").read_bytes())
    tool.write_mixed(tmp_path)
    assert (tmp_path / "mixed.jsonl").read_bytes() == (prompts_dir() / "mixed.jsonl").read_bytes()
