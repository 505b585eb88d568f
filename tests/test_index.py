from __future__ import annotations

import json
import time
from pathlib import Path
from urllib.parse import unquote

import pytest
from bs4 import BeautifulSoup
from notebook_files import HOSTILE

from workbench.index import SHOWN_PER_GROUP, build_index


def add(root: Path, name: str, **fields: object) -> None:
    summary = {"kind": "report", "title": name, "status": "ok", "finished_at": "2026-11-03T10:00:00+00:00"} | fields
    page = root / f"{name}.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("page")
    (root / f"{name}.summary.json").write_text(json.dumps(summary))


def index(root: Path) -> BeautifulSoup:
    path = build_index(root)
    assert path == root / "index.html"
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


def texts(soup: BeautifulSoup, selector: str) -> list[str]:
    return [" ".join(tag.get_text().split()) for tag in soup.select(selector)]


def test_groups_and_order(tmp_path: Path) -> None:
    add(tmp_path, "old", campaign="beta", finished_at="2026-11-01T10:00:00+00:00")
    add(tmp_path, "b-later", campaign="beta", finished_at="2026-11-03T11:00:00+00:00", notebook="23_report")
    add(tmp_path, "b-first", campaign="beta", finished_at="2026-11-03T11:00:09+00:00", notebook="20_report")
    add(tmp_path, "a", campaign="alpha", finished_at="2026-11-02T23:59:00+00:00")
    add(tmp_path, "compare", notebook="30_compare")
    add(tmp_path, "log", kind="diagnosis")
    add(tmp_path, "undated", campaign="gamma", finished_at="no time")
    soup = index(tmp_path)
    assert texts(soup, "main .group h2") == ["Server logs", "beta", "alpha", "gamma", "Across campaigns"]
    assert texts(soup, ".group:nth-of-type(2) .entry a") == ["b-first", "b-later", "old"]
    assert texts(soup, "header .meta") == ["7 pages, 3 campaigns"]
    links = [str(a["href"])[1:] for a in soup.select("nav a")]
    assert links and all(soup.find(id=link) for link in links)


def test_entry_shows_answer_numbers_and_state(tmp_path: Path) -> None:
    add(tmp_path, "p", answer="It pays.", headline={"speedup": 1.25, "runs": 3}, status="partial", reason="x")
    add(tmp_path, "f", status="failed", reason="KeyError: 'a'\nmore", campaign="c")
    soup = index(tmp_path)
    failed, across = soup.select(".pages > li")
    assert [" ".join(p.get_text().split()) for p in across.select("p")] == [
        "p Partial",
        "It pays.",
        "speedup 1.25runs 3",
        "3 November 2026, 10:00 UTC",
    ]
    assert [" ".join(p.get_text().split()) for p in failed.select("p")][:2] == ["f Failed", "KeyError: 'a'"]
    assert texts(soup, "header .meta") == ["2 pages, 1 campaign, 1 failed, 1 partial"]


def test_a_campaign_says_its_answer_once(tmp_path: Path) -> None:
    lead: dict[str, object] = {
        "answer": "Wrong flag. It does not pay.",
        "headline": {"best": "0.9x"},
        "notebook": "20_report_campaign.ipynb",
    }
    pages: dict[str, dict[str, object]] = {
        "Campaign report": lead,
        "Earlier report": {**lead, "answer": "Older.", "finished_at": "2026-11-02T10:00:00+00:00"},
        "Training": {"answer": "More data helps.", "headline": {"best": "0.9x"}, "notebook": "22.ipynb"},
        "Throughput": {"answer": "It does not pay.", "headline": {"best": "0.9x"}, "notebook": "23.ipynb"},
        "Broken": {"status": "failed", "reason": "KeyError: 'a'\nmore", "notebook": "24.ipynb"},
    }
    for name, more in pages.items():
        add(tmp_path, name, campaign="kimi", campaign_title="Kimi on <8> GPUs", **more)
    soup = index(tmp_path)
    assert texts(soup, "main .group h2") == ["kimi Kimi on <8> GPUs"]
    assert texts(soup, "nav a") == ["kimi"]
    assert texts(soup, ".leading p") == [
        *("Campaign report", "Wrong flag. It does not pay.", "best 0.9x", "3 November 2026, 10:00 UTC"),
    ]
    assert texts(soup, ".pages > li") == [
        *("Training More data helps.", "Throughput", "Broken Failed KeyError: 'a'"),
        "Earlier report Older.2 November 2026, 10:00 UTC",  # two paragraphs
    ]


def test_badges_only_for_what_a_reader_must_know(tmp_path: Path) -> None:
    add(tmp_path, "whole", campaign="c")
    for name, fault in (("a", "found"), ("b", "none"), ("c", "suspected"), ("d", None)):
        add(tmp_path, name, kind="diagnosis", fault=fault)
    soup = index(tmp_path)
    assert texts(soup, ".group .badge") == ["Fault found", "No fault", "Fault suspected"]
    assert texts(soup, ".entry") == ["a Fault found", "b No fault", "c Fault suspected", "d", "whole"]


def test_flags_stay_whole(tmp_path: Path) -> None:
    add(tmp_path, "p", answer="Use --speculative-algorithm EAGLE3, not <--draft> -- or a--b, " + "--" + "x" * 300)
    soup = index(tmp_path)
    assert texts(soup, ".flag") == ["--speculative-algorithm", "--draft"]
    assert "Use --speculative-algorithm EAGLE3, not <--draft> -- or a--b, --xxx" in texts(soup, ".pages p")[1]


def test_names_with_markup_spaces_and_quotes(tmp_path: Path) -> None:
    name = "a \"b\" 'c' <i>#?%&é"
    add(tmp_path, f"sub dir/{name}", title=HOSTILE, campaign=HOSTILE, answer=HOSTILE, headline={HOSTILE: HOSTILE})
    soup = index(tmp_path)
    assert soup.select("script, body style, [onerror], meta[http-equiv=refresh], i") == []
    assert texts(soup, "main .group h2") == [HOSTILE]
    href = str(soup.select_one(".entry a")["href"])  # type: ignore[index]
    assert not set(href) & set("\"'<># ?")
    assert unquote(href) == f"sub dir/{name}.html"


def test_what_cannot_be_listed_is_named(tmp_path: Path) -> None:
    add(tmp_path, "good")
    for name, text in {
        "cut": '{"kind": "rep',
        "list": "[]",
        "odd": '{"kind": "report", "title": "x", "status": "great", "finished_at": "x"}',
        "binary": "\x00",
        "nan": '{"kind": "report", "title": "x", "status": "ok", "finished_at": "x", "headline": {"a": NaN}}',
    }.items():
        (tmp_path / f"{name}.html").write_text("x")
        (tmp_path / f"{name}.summary.json").write_text(text)
    (tmp_path / "lonely.summary.json").write_text("{}")
    (tmp_path / "unknown.html").write_text("x")
    (tmp_path / "dir.html").mkdir()
    (tmp_path / "dir.summary.json").mkdir()
    soup = index(tmp_path)
    assert texts(soup, ".entry a") == ["good"]
    assert texts(soup, "section.banner li code") == [
        *("binary.summary.json", "cut.summary.json", "list.summary.json", "lonely.summary.json", "nan.summary.json"),
        *("odd.summary.json", "unknown.html"),
    ]


def test_pages_can_be_chosen_by_kind_and_by_whether_they_need_attention(tmp_path: Path) -> None:
    add(tmp_path, "Speed", campaign="a", finished_at="2026-11-03T10:00:00+00:00")
    (tmp_path / "sub").mkdir()
    add(tmp_path, "sub/Speed", title="Speed", campaign="b", status="failed", finished_at="2026-11-01T10:00:00+00:00")
    add(tmp_path, "Diagnosis of x", kind="diagnosis", fault="found", finished_at="2026-11-02T10:00:00+00:00")
    worse = {"run": "r", "label": "r", "figure": "decode speed", "unit": "tok/s", "verdict": "worse"}
    add(tmp_path, "Data", campaign="b", since_last_good=[worse], finished_at="2026-11-04T10:00:00+00:00")
    add(tmp_path, "odd", kind="diagnosis", fault="suspected", finished_at="2026-10-01T10:00:00+00:00")
    soup = index(tmp_path)
    assert texts(soup, "fieldset label") == [
        *("by campaign", "newest first", "by title"),
        *("all", "needs attention (3)"),
        *("all", "Data", "Diagnosis", "Speed"),
    ]
    chosen = [str(choice["id"]) for choice in soup.select("input[checked]")]
    assert chosen == ["order-campaign", "state-all", "kind-all"]
    newest = [(str(row.a["href"]), " ".join(row["class"])) for row in soup.select(".by-newest tbody tr") if row.a]
    assert newest == [
        ("Data.html", "one kind-1 attention"),
        ("Speed.html", "one kind-3"),
        ("Diagnosis%20of%20x.html", "one kind-2 attention"),
        ("sub/Speed.html", "one kind-3 attention"),
        ("odd.html", "one kind-2"),
    ]
    titles = [str(a["href"]) for a in soup.select(".by-title tbody a")]
    assert titles == ["Data.html", "Diagnosis%20of%20x.html", "odd.html", "Speed.html", "sub/Speed.html"]
    grouped = [" ".join(entry["class"]) for entry in soup.select(".group .one")]
    assert sorted(grouped) == sorted(marks for _, marks in newest)


def test_one_page_alone_has_nothing_to_choose(tmp_path: Path) -> None:
    add(tmp_path, "p")
    assert index(tmp_path).select(".controls, .flat") == []


def test_an_empty_or_missing_folder(tmp_path: Path) -> None:
    soup = index(tmp_path / "reports")
    assert "No pages yet." in soup.get_text()
    # The index does not list itself the second time either.
    assert texts(index(tmp_path / "reports"), "section") == []


@pytest.mark.slow
def test_thousands_of_pages(tmp_path: Path) -> None:
    for number in range(2000):
        add(tmp_path, f"p{number:04}", campaign="big" if number % 2 else "other", answer="a" * 100)
    began = time.process_time()
    soup = index(tmp_path)
    assert time.process_time() - began < 10
    assert len(soup.select(".entry a")) == 2000
    assert [len(s.select(":scope > .pages > li")) for s in soup.select("main .group")] == [SHOWN_PER_GROUP] * 2
    assert texts(soup, "details > summary") == [f"{1000 - SHOWN_PER_GROUP} older pages"] * 2
    assert (tmp_path / "index.html").stat().st_size < 3_000_000


@pytest.mark.parametrize("hidden", [".cache/x.html", ".p.html.ab.tmp", ".p.html"])
def test_hidden_files_are_left_alone(tmp_path: Path, hidden: str) -> None:
    (tmp_path / hidden).parent.mkdir(exist_ok=True)
    (tmp_path / hidden).write_text("x")
    assert index(tmp_path).select("section") == []
