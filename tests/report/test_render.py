from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from bs4 import BeautifulSoup
from notebook_files import HOSTILE, code, finished_run, markdown, raised, shown, stream, write_notebook

from workbench.errors import InputError
from workbench.page import CONTENT_SECURITY_POLICY, Page
from workbench.report import render_page
from workbench.spec import RunState
from workbench.summary import Change

PIXEL = base64.b64encode(b"\x89PNG not really").decode()


def rendered(
    folder: Path, *cells: dict[str, Any], status: RunState = RunState.OK, reason: str | None = None, **options: Any
) -> tuple[Page, BeautifulSoup]:
    executed = write_notebook(folder / "n.ipynb", *cells)
    run = finished_run(executed, status, reason, campaign="kimi", limit=None)
    page = render_page(executed, folder / "n.html", run=run, **options)
    return page, BeautifulSoup(page.path.read_text(encoding="utf-8"), "html.parser")


DESCRIBED = {"alt": 'It "rises"', "caption": "n = 3"}
GOOD = (
    markdown("# Report of <kimi>\n\nWhat was measured."),
    code("campaign: str = 'kimi'", "parameters"),
    code("answer", "answer", outputs=[stream("It pays.\nBy 1.25 x.\nNext: enable it.\n")]),
    code("numbers", "headline", outputs=[shown({"text/plain": "{'speedup': 1.2512345, 'runs': 1200, 'x': None}"})]),
    markdown("## Speed\n\nSee [the table](#Cost)."),
    code(
        "plot()",
        outputs=[
            shown(
                {"image/png": PIXEL, "text/plain": "<Figure>"}, {"image/png": {"alt": 'It "rises"', "caption": "n = 3"}}
            )
        ],
    ),
    markdown("### Cost"),
    code("df", outputs=[shown({"text/html": "<table><tr><td>1</td></tr></table>", "text/plain": "x"})]),
    code("print(1)", outputs=[stream("plain \x1b[31mred\x1b[0m <b>\n")]),
)


def test_a_good_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_ROOT", str(tmp_path))
    data = tmp_path / "data.csv"
    data.write_bytes(b"abc")
    page, soup = rendered(
        tmp_path,
        *GOOD,
        campaign="kimi_k25",
        campaign_title="Kimi <8>",
        made_from="0123",
        inputs=[data],
        command=["workbench", "report", "a b"],
    )

    assert soup.html is not None and soup.html["lang"] == "en"
    policy = soup.find("meta", attrs={"http-equiv": "Content-Security-Policy"})
    assert policy is not None and policy["content"] == CONTENT_SECURITY_POLICY
    assert soup.title is not None and soup.title.get_text() == "Report of <kimi>"
    assert [h.get_text() for h in soup.find_all("h1")] == ["Report of <kimi>"]
    assert [p.get_text() for p in soup.select("p.answer")] == ["It pays."]
    assert [li.get_text() for li in soup.select(".points li")] == ["By 1.25 x."]
    assert [li.get_text() for li in soup.select(".actions li")] == ["enable it."]
    assert [d.get_text() for d in soup.select(".headline dd")] == ["1.25", "1,200", "not measured"]
    assert [a["href"] for a in soup.select("nav a")] == ["#Speed", "#Cost", "#words", "#provenance"]
    assert all(soup.find(id=str(a["href"])[1:]) for a in soup.select("nav a, main a[href^='#']"))
    image = soup.select_one("main figure img")
    assert image is not None
    assert (image["alt"], image["src"]) == ('It "rises"', f"data:image/png;base64,{PIXEL}")
    assert soup.select_one("main figcaption").get_text() == "n = 3"  # type: ignore[union-attr]
    text = soup.select_one("pre.stdout")
    assert text is not None and text.get_text() == "plain red <b>\n"
    assert soup.select("script, link, iframe") == []
    assert [c.get_text() for c in soup.select("details.code code")][1:3] == ["answer", "numbers"]

    rows = dict(
        zip(
            [d.get_text() for d in soup.select(".provenance dt")],
            [d.get_text() for d in soup.select(".provenance dd")],
            strict=True,
        )
    )
    assert rows["Notebook"] == "20_report.ipynb, executed copy n.ipynb beside this page"
    assert rows["Parameters"] == 'campaign = "kimi", limit = null'
    assert rows["Run"] == "3 November 2026, 10:00:00 UTC to 3 November 2026, 10:00:12 UTC (12.5 s), ok"
    assert rows["Command"] == "workbench report 'a b'"
    assert rows["Input"] == "./data.csv (SHA-256 ba7816bf8f01cfea)"  # the published test vector of "abc"
    assert "papermill" in rows["Versions"]

    assert (page.summary.status, page.images_without_alt) == ("ok", 0)
    assert page.size_bytes == page.path.stat().st_size < 40_000
    written = json.loads((tmp_path / "n.summary.json").read_text())
    said = written.pop("provenance")
    assert (said["command"], said["inputs"]) == ("workbench report 'a b'", {"./data.csv": "ba7816bf8f01cfea"})
    assert said["parameters"] == {"campaign": "kimi", "limit": None}
    assert written == {
        "version": 1,
        "kind": "report",
        "title": "Report of <kimi>",
        "status": "ok",
        "finished_at": "2026-11-03T10:00:12+00:00",
        "answer": "It pays.",
        "headline": {"speedup": 1.2512345, "runs": 1200, "x": None},
        "campaign": "kimi_k25",
        "campaign_title": "Kimi <8>",
        "notebook": "20_report.ipynb",
        "duration_s": 12.5,
        "made_from": "0123",
        "page_sha256": hashlib.sha256(page.path.read_bytes()).hexdigest()[:16],
        "figures": [],
        "figures_left_out": 0,
        "not_verified": [],
    }
    assert soup.select(".badge") == []
    assert soup.select_one(".kicker").get_text() == "Campaign kimi_k25: Kimi <8>"  # type: ignore[union-attr]


def test_a_failed_page_shows_why(tmp_path: Path) -> None:
    page, soup = rendered(
        tmp_path,
        markdown("# T"),
        code("print(1)", outputs=[stream("before")]),
        code(
            "f()", outputs=[raised("ValueError", "no <b>", ["\x1b[31mTraceback\x1b[0m", "ValueError: no <b>"])], count=2
        ),
        markdown("## After"),
        status=RunState.FAILED,
        reason="ValueError: no <b>",
    )
    assert page.summary.status == "failed"
    assert page.summary.reason == "ValueError: no <b>"
    banner = soup.select_one("header .banner.failed")
    assert banner is not None
    assert banner.select_one(".reason").get_text() == "ValueError: no <b>"  # type: ignore[union-attr]
    assert soup.find(id=str(banner.a["href"])[1:]) is not None  # type: ignore[index]
    failure = soup.find(id="failure")
    assert failure is not None
    assert failure.select_one("code").get_text() == "f()"  # type: ignore[union-attr]
    assert failure.select_one("pre.traceback").get_text() == "Traceback\nValueError: no <b>"  # type: ignore[union-attr]
    assert "before" in soup.get_text()
    assert "After" not in soup.get_text()


def test_a_run_without_a_notebook_still_gives_a_page(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "absent.ipynb", RunState.FAILED, "unknown parameter 'campain'\n  -> did you mean ...")
    page = render_page(tmp_path / "absent.ipynb", tmp_path / "n.html", run=run)
    soup = BeautifulSoup(page.path.read_text(), "html.parser")
    assert page.summary.title == "20_report"
    assert "unknown parameter 'campain'" in soup.select_one("header .banner.failed").get_text()  # type: ignore[union-attr]
    assert soup.select("header .banner a") == []
    assert "no executed copy was kept" in soup.get_text()


def test_stopped_and_incomplete_pages_are_partial(tmp_path: Path) -> None:
    stopped = (code("print(1)", outputs=[stream("x")]), code("s()", outputs=[raised("KeyboardInterrupt", "")], count=2))
    page, soup = rendered(tmp_path, *stopped, status=RunState.TIMED_OUT, reason="stopped at the time limit of 600 s")
    assert page.summary.status == "partial"
    assert soup.find(id="why").get_text() == "This report was stopped before its end"  # type: ignore[union-attr]
    assert "time limit of 600 s" in soup.select_one("header .banner.partial").get_text()  # type: ignore[union-attr]

    page, _ = rendered(tmp_path, stopped[1], status=RunState.TIMED_OUT, reason="stopped")
    assert page.summary.status == "failed"  # it shows nothing at all

    page, soup = rendered(tmp_path, code("p", "problems", outputs=[stream("2 runs <cut>")]))
    assert page.summary.status == "partial"
    assert soup.find(id="why").get_text() == "Some input could not be used"  # type: ignore[union-attr]
    assert "2 runs <cut>" in soup.select_one("header .banner.partial").get_text()  # type: ignore[union-attr]


def test_pictures_without_alt_are_counted(tmp_path: Path) -> None:
    page, _ = rendered(
        tmp_path,
        code("a", outputs=[shown({"image/png": PIXEL}), shown({"image/svg+xml": "<svg/>"})]),
        code("b", outputs=[shown({"text/html": f"<img src='data:image/png;base64,{PIXEL}'>"})]),
    )
    assert page.images_without_alt == 3


def test_a_link_to_the_index_only_below_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_ROOT", str(tmp_path))
    for folder, expected in (("reports/deep dir", ["../index.html"]), ("reports", ["index.html"]), ("other", [])):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        _, soup = rendered(tmp_path / folder, markdown("x"))
        assert [a["href"] for a in soup.select(".kicker a")] == expected


def test_hostile_text_everywhere_stays_text(tmp_path: Path) -> None:
    """What a browser makes of such a page is looked at in tests/browser."""
    page, soup = rendered(
        tmp_path,
        markdown(f"# {HOSTILE}"),
        code("a", "answer", outputs=[stream(HOSTILE)]),
        code("h", "headline", outputs=[shown({"application/json": {HOSTILE: HOSTILE}})]),
        code("p", outputs=[stream(HOSTILE), stream(HOSTILE, "stderr"), shown({"text/plain": HOSTILE})]),
        code("m", outputs=[shown({"text/markdown": HOSTILE}), shown({"text/html": HOSTILE})]),
        code(HOSTILE, outputs=[raised(HOSTILE, HOSTILE, [HOSTILE])], count=2),
        status=RunState.FAILED,
        reason=HOSTILE,
        campaign=HOSTILE,
    )
    assert soup.select("script, body style, iframe, [onerror], [onload], meta[http-equiv=refresh]") == []
    assert [m["http-equiv"] for m in soup.select("meta[http-equiv]")] == ["Content-Security-Policy"]
    assert not [a for a in soup.select("[href]") if "javascript" in str(a["href"])]
    for place in ("title", "p.answer", ".headline dt", ".headline dd", "pre.stdout", "pre.stderr", "pre.text",
                  "pre.traceback", "header .banner .reason"):  # fmt: skip
        found = soup.select_one(place)
        assert found is not None and HOSTILE in found.get_text(), place
    assert page.summary.campaign == HOSTILE


def test_a_file_that_is_no_notebook(tmp_path: Path) -> None:
    path = tmp_path / "n.ipynb"
    path.write_text("{")
    with pytest.raises(InputError, match="not a notebook"):
        render_page(path, tmp_path / "n.html", run=finished_run(path))


def test_figures_go_into_the_summary_and_not_onto_the_page(tmp_path: Path) -> None:
    given = {
        "figures": [
            {"name": "speedup", "value": 1.25, "low": 1.2, "high": 1.3, "unit": "ratio", "run": "r", "verdict": "win"},
            {"name": "speedup", "value": "fast", "unit": "ratio"},
        ],
        "not_verified": ["3 of 4 speedups not decidable"],
        "left_out": 7,
    }
    figures = code(
        "show.key_figures(x)", "figures", outputs=[shown({"application/json": given, "text/plain": "secret"})]
    )
    problems = code("p", "problems", outputs=[stream("1 run left out\n")])
    page, soup = rendered(tmp_path, *GOOD, figures, problems)
    (figure,) = page.summary.figures
    assert (figure.value, figure.low, figure.high, figure.unit, figure.verdict) == (1.25, 1.2, 1.3, "ratio", "win")
    assert page.summary.figures_left_out == 7
    assert page.summary.not_verified == (
        "3 of 4 speedups not decidable",
        "1 figures of the notebook could not be used",
        "1 run left out",
    )
    assert "secret" not in soup.get_text()


CHANGE = Change(
    run="eagle3-c1-bbbbbb",
    label="eagle3 <c1>",
    figure="decode speed",
    unit="tok/s",
    verdict="worse",
    role="speculative",
    prompt_set="mix",
    value=80.0,
    before=100.0,
    ratio=0.8,
    low=0.78,
    high=0.82,
    good_at="2026-01-01",
    num_good=2,
    changed="sglang 0.5.14 -> 0.5.16",
)


def test_what_got_worse_stands_at_the_top_and_every_comparison_below(tmp_path: Path) -> None:
    same = CHANGE.model_copy(update={"verdict": "no change beyond noise", "figure": "accept length"})
    page, soup = rendered(tmp_path, *GOOD, since=[same, CHANGE], attempts=["r: the attempt failed"])
    (banner,) = soup.select(".banner.failed")
    assert [li.get_text() for li in banner.select("li")] == [
        "eagle3 <c1>, mix: decode speed 0.80x (0.78-0.82): 80 tok/s, 100 when it was last good (2026-01-01); "
        "since then sglang 0.5.14 -> 0.5.16"
    ]
    assert [a["href"] for a in soup.select("nav a")][-3:] == ["#since", "#words", "#provenance"]
    section = soup.select_one("section[aria-labelledby=since]")
    assert section is not None
    assert "1 of 2 figures got worse since the last good run; 1 as before." in section.get_text()
    assert "Not used: r: the attempt failed" in section.get_text()
    rows = [[cell.get_text() for cell in row.select("th, td")] for row in section.select("tbody tr")]
    # Worst first.
    assert [row[6] for row in rows] == ["worse", "no change beyond noise"]
    assert page.summary.since_last_good is not None
    assert [change.figure for change in page.summary.worse] == ["decode speed"]
    assert "r: the attempt failed" in page.summary.not_verified


def test_nothing_is_said_of_earlier_runs_where_there_are_none(tmp_path: Path) -> None:
    page, soup = rendered(tmp_path, *GOOD)
    assert page.summary.since_last_good is None and soup.find(id="since") is None
