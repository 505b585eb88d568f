"""Documents that agree with the program: commands parse, links resolve, tables that are made are current."""

from __future__ import annotations

import re
import runpy
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from workbench.analysis.diagnosis import RULES
from workbench.cli import _parser, main
from workbench.words import WORDS

ROOT = Path(__file__).parents[1]
BUILDER = runpy.run_path(str(ROOT / "tools" / "build_docs.py"), run_name="build_docs")
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
CHEAP = ("workbench doctor", "workbench report --list", "workbench run quickstart --dry-run")
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
HEADING = re.compile(r"^#+ +(.+?)\s*$", re.MULTILINE)
LINK = re.compile(r"(!?)\[[^]]*\]\(([^)\s]+)\)")


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(text: str) -> Iterator[str]:
    """Lines of the fenced blocks, those that end in a backslash with their next."""
    for block in re.findall(r"^```[a-z]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield from block.replace("\\\n", " ").splitlines()


def commands(text: str) -> list[list[str]]:
    """The words of each `workbench` command of the fenced blocks, without what stands before it in the line."""
    found = []
    for line in blocks(text):
        started = re.match(r"(?:\$ |[A-Z_]+=\S+ |taskset -c \S+ |-- )*(?:python3 -m )?(workbench .*)", line.strip())
        if started:
            found.append(shlex.split(started[1].replace("write|read", "read"), comments=True))
    return found


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives the headings of a page."""
    headings = HEADING.findall(page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_commands_of_the_documents_are_found() -> None:
    found = commands(
        "text\n```console\n$ workbench diagnose 'a b'  # why\nVERDICT x\nCUDA=0 taskset -c 0-1 workbench run x\n```\n"
    )
    assert found == [["workbench", "diagnose", "a b"], ["workbench", "run", "x"]]
    assert len(commands((ROOT / "README.md").read_text(encoding="utf-8"))) > 15


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_command_is_one(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = []
    for words in commands(page.read_text(encoding="utf-8")):
        try:
            arguments = words[1:]
            _parser().parse_args([*arguments, "DIR"] if arguments == ["specforge", "read"] else arguments)
        except SystemExit:
            wrong.append((" ".join(words), capsys.readouterr().err.splitlines()[-1]))
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_what_make_is_asked_for_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    asked = {word for line in blocks(text) for word in re.findall(r"^make ([a-z-]+)", line)}
    asked |= set(re.findall(r"`make ([a-z-]+)", text))
    assert asked - TARGETS == set()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    missing = []
    for _, target in LINK.findall(page.read_text(encoding="utf-8")):
        file, _, part = target.partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        found = page if not file else (page.parent / file).resolve()
        if not found.exists() or (part and part not in anchors(found)):
            missing.append(target)
    assert missing == []


def test_every_page_of_the_documents_can_be_found_from_the_readme() -> None:
    seen: set[Path] = set()
    todo = [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page in seen or not page.exists():
            continue
        seen.add(page)
        if page.is_dir():
            todo += page.glob("*.md")
        elif page.suffix == ".md":
            text = page.read_text(encoding="utf-8")
            todo += [(page.parent / target.partition("#")[0]).resolve() for _, target in LINK.findall(text)]
    assert [name(page) for page in PAGES if page not in seen] == []


def test_pictures_are_described_and_small() -> None:
    pictures = sorted((ROOT / "docs" / "pictures").glob("*.png"))
    assert pictures
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    for picture in pictures:
        assert re.search(rf"\[[^]]{{8,}}\]\((docs/)?pictures/{picture.name}\)", text), picture.name
        assert picture.stat().st_size < 150_000, picture.name


@pytest.mark.parametrize("command", CHEAP)
def test_cheap_commands_of_the_readme_run(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command in (ROOT / "README.md").read_text(encoding="utf-8")
    assert main(command.split()[1:]) == 0
    assert capsys.readouterr().out.strip()


def test_the_readme_shows_what_diagnose_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.search(r"```console\n\$ (workbench diagnose .*?)\n(.*?)```", text, re.DOTALL)
    assert shown is not None
    assert main(shown[1].split()[1:]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.startswith(" ".join(shown[2].split()))


@pytest.mark.parametrize("made", ["columns", "glossary"])
def test_the_pages_that_are_made_are_current(made: str) -> None:
    assert (ROOT / "docs" / f"{made}.md").read_text(encoding="utf-8") == BUILDER[f"{made}_page"](), "run `make docs`"


def test_the_page_has_every_table_and_every_column() -> None:
    page = (ROOT / "docs" / "columns.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\w+)$", page, re.MULTILINE) == [
        *("runs", "requests", "decode_windows", "drafters", "offline", "settings", "parsed")
    ]
    for column in ("log_median_tok_per_s", "steps_histogram", "opening", "cuda_graph_share", "extra"):
        assert f"| `{column}` |" in page, column
    # A row a column, and every row whole.
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert len(rows) > 100
    assert {row.count(" |") for row in rows} == {5}


def test_messages_that_troubleshooting_quotes_are_said() -> None:
    text = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8").partition("## The workbench itself")[2]
    firsts = [row.split("|")[1] for row in text.splitlines() if row.startswith("| `")]
    quoted = {message for first in firsts for message in re.findall(r"`([^`]+)`", first)}
    code = (ROOT / "Makefile").read_text() + "".join(p.read_text() for p in sorted((ROOT / "workbench").rglob("*.py")))
    assert {message for message in quoted if message not in code} == {"command not found: workbench"}  # the shell's


def test_every_word_of_the_glossary_that_names_a_column_names_one() -> None:
    columns = (ROOT / "docs" / "columns.md").read_text(encoding="utf-8")
    assert [word.name for word in WORDS if word.column and f"| `{word.column}` |" not in columns] == []


def test_every_rule_of_the_diagnosis_has_a_symptom() -> None:
    """Troubleshooting leads to the rules: each one in the code stands there, and each one there is in the code."""
    text = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    code = "".join(path.read_text() for path in sorted((ROOT / "workbench/analysis/diagnosis").glob("rules_*.py")))
    rules = set(re.findall(r'Finding\(\s*"(\w+)"', code)) | set(re.findall(r'rule="(\w+)"', code))
    assert len(rules) >= len(RULES) * 0.8
    told = {word for word in re.findall(r"`([a-z_]+)`", text) if "_" in word.strip("_") or word in rules}
    assert rules - told == set()
    assert told - rules == set()
