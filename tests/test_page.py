from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from bs4 import BeautifulSoup
from notebook_files import HOSTILE

from workbench.analysis.diagnosis import Certainty, Diagnosis, Finding
from workbench.errors import UsageError
from workbench.page import figure_text, when, write_diagnosis_page

FIGURES = pd.DataFrame(
    {
        "name": ["accept length", "SGLang"],
        "value": [1.0, float("nan")],
        "text": [None, "0.5.9-0.5.10"],
        "unit": ["tokens/step", None],
        "source": ["212 lines", "inferred"],
    }
)


def diagnosis(text: str) -> Diagnosis:
    finding = Finding("flag", text, Certainty.CERTAIN, (text, "line 2"), text, text)
    note = Finding("note", "A note", Certainty.LIKELY, (), "", None, is_fault=False)
    return Diagnosis(text, (finding, note), FIGURES, (text,))


def test_diagnosis_page(tmp_path: Path) -> None:
    page = write_diagnosis_page(
        diagnosis("Nothing is accepted."),
        tmp_path / "new" / "d.html",
        log_name="server.log",
        figures=[(b"png", "accept length stays at 1", "Timeline")],
        command=["workbench", "diagnose", "server.log"],
    )
    soup = BeautifulSoup(page.path.read_text(), "html.parser")
    assert [t.get_text() for t in soup.select("h1, p.answer")] == ["Diagnosis of server.log", "Nothing is accepted."]
    assert [b.get_text() for b in soup.select(".finding .badge")] == ["Certain", "Good to know"]
    assert [li.get_text() for li in soup.select(".evidence li")] == ["Nothing is accepted.", "line 2"]
    assert [c.get_text() for c in soup.select("tbody tr > *")] == [
        *("accept length", "1.00", "tokens/step", "212 lines"),
        *("SGLang", "0.5.9-0.5.10", "", "inferred"),
    ]
    image = soup.select_one("figure img")
    assert image is not None and (image["alt"], image["src"]) == (
        "accept length stays at 1",
        "data:image/png;base64,cG5n",
    )
    links = [str(a["href"])[1:] for a in soup.select("nav a")]
    assert links == ["findings", "finding-1", "finding-2", "pictures", "numbers", "not-known", "words", "provenance"]
    assert all(soup.find(id=link) for link in links)
    # Short titles: the names of the rules. What to do: about the faults, and the note's next step is empty anyway.
    assert [a.get_text() for a in soup.select("nav a")][1:3] == ["Flag", "Note"]
    assert [p.get_text() for p in soup.select(".actions .label")] == ["What to do next"]
    assert [li.get_text() for li in soup.select(".actions li")] == ["Nothing is accepted."]
    summary = json.loads((tmp_path / "new" / "d.summary.json").read_text())
    assert (summary["kind"], summary["answer"], summary["fault"]) == ("diagnosis", "Nothing is accepted.", "found")
    assert summary["figures"] == [
        {"name": "accept length", "value": 1.0, "unit": "tokens/step", "source": "212 lines"},
        {"name": "SGLang", "text": "0.5.9-0.5.10", "unit": "", "source": "inferred"},
    ]
    assert summary["not_verified"] and summary["provenance"]["command"] == "workbench diagnose server.log"


def test_empty_diagnosis(tmp_path: Path) -> None:
    page = write_diagnosis_page(Diagnosis("Fine.", (), FIGURES.iloc[:0], ()), tmp_path / "d.html", log_name="a.log")
    soup = BeautifulSoup(page.path.read_text(), "html.parser")
    assert "No rule found anything to act on." in soup.get_text()
    assert [str(a["href"]) for a in soup.select("nav a")] == ["#findings", "#provenance"]
    assert not soup.select(".actions")


@pytest.mark.parametrize(
    ("findings", "fault"),
    [
        ([("a", Certainty.SUSPECTED, True), ("b", Certainty.LIKELY, True)], "suspected"),
        ([("a", Certainty.SUSPECTED, True), ("b", Certainty.CERTAIN, True)], "found"),
        ([("a", Certainty.SUSPECTED, True), ("b", Certainty.CERTAIN, False)], "suspected"),
        ([("a", Certainty.CERTAIN, False)], "none"),
        ([], "none"),
        ([("no_decode_lines", Certainty.CERTAIN, True)], None),
        ([("no_decode_lines", Certainty.CERTAIN, True), ("crash", Certainty.CERTAIN, True)], "found"),
    ],
)
def test_what_the_index_says_of_a_diagnosis(
    tmp_path: Path, findings: list[tuple[str, Certainty, bool]], fault: str | None
) -> None:
    found = tuple(Finding(rule, "t", certainty, (), "", is_fault=is_fault) for rule, certainty, is_fault in findings)
    page = write_diagnosis_page(Diagnosis("v", found, FIGURES, ()), tmp_path / "d.html", log_name="a.log")
    assert page.summary.fault == fault


def test_hostile_diagnosis(tmp_path: Path) -> None:
    page = write_diagnosis_page(
        diagnosis(HOSTILE), tmp_path / "d.html", log_name=HOSTILE, figures=[(b"x", HOSTILE, HOSTILE)]
    )
    soup = BeautifulSoup(page.path.read_text(), "html.parser")
    assert soup.select("script, body style, [onerror], meta[http-equiv=refresh]") == []
    for place in ("title", "h1", "p.answer", ".finding h3", ".evidence li", ".next", ".source", "figcaption"):
        found = soup.select_one(place)
        assert found is not None and HOSTILE in found.get_text(), place


def test_a_figure_needs_alt_text(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="alt text"):
        write_diagnosis_page(diagnosis("x"), tmp_path / "d.html", log_name="a", figures=[(b"x", " ", "c")])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2.35123, "2.35"),
        (12.0, "12"),
        (0.0, "0.00"),
        (0.000123456, "0.00012"),
        (12345.6, "12,346"),
        (1234567, "1,234,567"),
        (None, "not measured"),
        (float("nan"), "not measured"),
        (True, "yes"),
        ("1.6 to 1.7", "1.6 to 1.7"),
    ],
)
def test_figures_in_words(value: object, text: str) -> None:
    assert figure_text(value) == text


def test_times_are_shown_in_utc() -> None:
    assert when("2026-11-03T23:30:00-02:00") == "4 November 2026, 01:30 UTC"
    assert when("2026-11-03T23:30:05", seconds=True) == "3 November 2026, 23:30:05 UTC"
    assert when("yesterday") == "yesterday"
