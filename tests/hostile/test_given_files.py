"""What one bad file among many may do: nothing to the others. Results of other tools, and summaries beside pages."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench_files import AIPERF, GRID, REPORT, SERVING, guidellm
from bs4 import BeautifulSoup
from readers import write_campaign_files

from workbench import reports, reuse
from workbench.importing import Outcome, Request, Stated, import_files
from workbench.index import build_index
from workbench.paths import ROOT_ENV, slug
from workbench.store import read_campaign
from workbench.table import load_tables

HALF = "\ud800"
TEXTS = (HALF, "..", "../../x", "a\0b", "<script>alert(1)</script>", "a" * 10_000, "\n\x1b[31m", "\u202ea", "")
NUMBERS = ("1e400", "-1e400", "NaN", "-1", "0", "1e308", "9" * 400, "9" * 5000, "true", '"12"', "[]", "{}", "null")
MARK = "@@"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setenv(ROOT_ENV, str(tmp_path))
    monkeypatch.setattr(os, "fsync", lambda _: None)  # hundreds of small files
    return tmp_path


# --- results of other tools --------------------------------------------------------------------------------------


def all_texts(value: Any, text: str) -> Any:
    """The same with ``text`` behind every text that is no word of the tool's own."""
    if isinstance(value, dict):
        return {key: all_texts(each, text) for key, each in value.items()}
    if isinstance(value, list):
        return [all_texts(each, text) for each in value]
    return value + text if isinstance(value, str) and value not in ("sglang", "inf", "concurrent") else value


def one_number_each(value: Any) -> Iterator[Any]:
    """Copies in which one number is the mark."""
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            for changed in one_number_each(each):
                copy: Any = dict(value) if isinstance(value, dict) else list(value)
                copy[key] = changed
                yield copy
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield MARK


def bring(project: Path, texts: list[str]) -> Outcome:
    files = []
    for number, text in enumerate(texts):
        files.append(project / "given" / f"{number}.json")
        files[-1].parent.mkdir(exist_ok=True)
        files[-1].write_text(text)
    return import_files(Request(tuple(files), "pile", Stated(speculative=True)))


def check_whole(project: Path) -> int:
    """All that was imported can be read, and nothing lies elsewhere; how many runs that is."""
    folder = project / "data" / "runs" / "pile"
    assert {path.name for path in project.iterdir()} <= {"data", "notebooks", "given", "reports"}
    assert [path.name for path in folder.parent.iterdir()] == ["pile"]
    assert all(slug(path.name, max_length=200) == path.name for path in folder.iterdir() if path.name != "_servers")
    found = read_campaign(folder)
    assert found.problems == ()
    assert len(load_tables(folder).runs) == len(found.runs)
    return len(found.runs)


TOOLS: tuple[Any, ...] = (SERVING, GRID, REPORT, AIPERF, guidellm({"type_": "concurrent", "streams": 8}))


def test_hostile_texts_in_results(project: Path) -> None:
    bring(project, [json.dumps(all_texts(tool, text)) for tool in TOOLS for text in TEXTS])
    assert check_whole(project) > 20


def test_hostile_numbers_in_results(project: Path) -> None:
    """Of every tool each number in turn, by one impossible value after the other."""
    changed = [json.dumps(copy) for tool in TOOLS for copy in one_number_each(tool)]
    bring(
        project,
        [text.replace(json.dumps(MARK), NUMBERS[number % len(NUMBERS)]) for number, text in enumerate(changed)],
    )
    assert check_whole(project) > 20


def test_half_a_character_in_a_run_of_others_costs_no_table(project: Path) -> None:
    resolved = json.dumps({"tp_size": 1, "attention_backend": HALF, f"x{HALF}": "y"}).encode()
    campaign = write_campaign_files(project / "data" / "runs" / "theirs", **{"run/resolved.json": resolved})
    used = load_tables(campaign).settings.set_index("setting")["used"]
    assert "\\ud800" in set(used["attention_backend"])


# --- summaries beside pages --------------------------------------------------------------------------------------

SUMMARY = {"kind": "report", "title": "Good", "status": "ok", "finished_at": "2026-11-03T10:00:00+00:00"}


def put(folder: Path, name: bytes, **changes: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for ending, content in (
        (b".html", b"<p>page</p>"),
        (b".summary.json", json.dumps({**SUMMARY, **changes}).encode()),
    ):
        (folder / os.fsdecode(name + ending)).write_bytes(content)


def links(index: Path) -> dict[str, str]:
    soup = BeautifulSoup(index.read_text(), "html.parser")
    assert soup.script is None and soup.img is None
    return {str(link["href"]): link.get_text() for link in soup.select("main .group a")}


@pytest.mark.parametrize(
    "changes",
    [
        *({"finished_at": time} for time in ("9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "<b>", "")),
        *({"duration_s": seconds} for seconds in (1e308, -1.0)),
        {"headline": {"n": int("9" * 4000), "x": 1e308, "": None}},
        {"campaign": "../<script>alert(1)</script>", "campaign_title": "<img src=x>", "answer": "<script>"},
        {
            "since_last_good": [
                {"run": "r", "label": "l", "figure": "f", "unit": "u", "verdict": "worse", "ratio": 1e308}
            ]
        },
        {"title": HALF},
    ],
)
def test_a_hostile_summary_leaves_the_other_pages_listed(project: Path, changes: dict[str, object]) -> None:
    put(project / "reports", b"good")
    put(project / "reports", b"bad", **changes)
    index = build_index(project / "reports")
    assert links(index)["good.html"] == "Good"
    assert "bad" in index.read_text()  # listed, or said
    # The time that all pages take is told from what each took before.
    outline = reports.Outline(project, None, (), 0, frozenset())  # type: ignore[arg-type]
    job = reports.Job("n", "bad", {}, (outline,), ())
    bad = [reports.Planned(job, project / "reports" / "bad.ipynb", None)] * 20
    assert reports._outlook(bad, 0, 2).startswith("20 pages to build")
    assert not reuse.is_unchanged(project / "reports" / "bad.html", None)


@pytest.mark.parametrize("name", [b"\xff", "‮a".encode(), b"a\nb", b"javascript:alert(1)", b"<img src=x>", b"a?b#c%2e"])
def test_any_name_of_a_page_is_a_link_to_it(project: Path, name: bytes) -> None:
    from urllib.parse import unquote_to_bytes

    put(project / "reports", name)
    put(project / "reports", b"good")
    found = set(links(build_index(project / "reports")))
    assert {unquote_to_bytes(link) for link in found} == {name + b".html", b"good.html"}
    assert not any(":" in link for link in found)
