"""Pages of every kind, with well-meant and with hostile content, in a real browser."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from browser_checks import SCHEMES, WIDTHS, faults, look_at
from notebook_files import HOSTILE, code, finished_run, markdown, raised, shown, stream, write_notebook
from playwright.sync_api import Browser, Page

from workbench.analysis.diagnosis import Certainty, Diagnosis, Finding
from workbench.index import build_index
from workbench.page import write_diagnosis_page
from workbench.report import render_page
from workbench.spec import RunState
from workbench.theme import figure_html, new_figure, table_html

pytestmark = pytest.mark.browser

VECTORS = (
    HOSTILE,
    "<svg onload=window.pwned=5><script>window.pwned=6</script></svg>",
    "<a href='javascript:window.pwned=7' autofocus onfocus=window.pwned=8>x</a>",
    "<iframe src='javascript:parent.pwned=9'></iframe><iframe srcdoc='<script>parent.pwned=10</script>'></iframe>",
    "<img src=http://example.invalid/a.png><link rel=stylesheet href=http://example.invalid/a.css>",
    "<form action=http://example.invalid/><button autofocus>x</button></form><base href=http://example.invalid/>",
    "<details open ontoggle=window.pwned=11>x</details><video src=http://example.invalid/v><source></video>",
    "<h2 id=main>main</h2><h2>main</h2><p id=provenance>x</p>",
    "<p style='position:fixed;inset:0;background:url(http://example.invalid/b.png)'>cover</p>",
)
WORD = "eagle3-" + "x" * 300


def figure(alt: str, caption: str, df: pd.DataFrame) -> str:
    fig, ax = new_figure()
    ax.plot([1, 2, 4], [1.5, 1.8, 2.0])
    return str(figure_html(fig, alt=alt, caption=caption, data=df, name="data"))


def report(folder: Path, name: str, text: str, *, failed: bool, more: tuple[str, ...] = ()) -> Path:
    """A page whose every changeable part is ``text``; ``more`` is shown in every way that outputs have."""
    df = pd.DataFrame({text: [text, "b"], "accept_length": [2.04, float("nan")]}, index=[text, "y"])
    fig = figure(f"accept length rises, {text}", text, df)
    table = str(table_html(df, caption=text))
    cells = [
        markdown(f"# Report {text}\n\nIntroduction."),
        code("p: str = 'x'", "parameters"),
        code("answer", "answer", outputs=[stream(f"{text}\n{text}\nNext: {text}\n")]),
        code("numbers", "headline", outputs=[shown({"application/json": {text: text, "best": 2.04}})]),
        code("problems", "problems", outputs=[stream(text)]),
        markdown("## Section\n\nText with `code`, a [link](#Section) and\n\n- a list\n\n> a quote"),
        code("a", outputs=[shown({"text/html": fig}), shown({"text/html": table})]),
        code("b", outputs=[shown({"text/html": df.to_html(), "text/plain": str(df)})]),
        markdown(f"### Terminal {text}"),
        code("c", outputs=[stream(f"\x1b[1;31mred\x1b[0m \x1b[36mcyan\x1b[0m {text}\n" * 40), stream(text, "stderr")]),
        code("d", outputs=[shown({"text/markdown": text}), shown({"text/html": text}), shown({"text/plain": text})]),
        *(code(f"m{k}", outputs=every_way(other)) for k, other in enumerate(more)),
        code("e", outputs=[shown({"application/javascript": "window.pwned=20", "text/vnd.mermaid": text})]),
        code("f", outputs=[shown({"image/svg+xml": SVG}, {"image/svg+xml": {"alt": "a black square"}})]),
    ]
    if failed:
        traceback = ["\x1b[0;31m-----\x1b[0m", f"\x1b[0;32m/root/x.py\x1b[0m in f\n{text}", f"ValueError: {text}"]
        cells.append(code(f"f()  # {text}", outputs=[raised("ValueError", text, traceback)]))
    executed = write_notebook(folder / f"{name}.ipynb", *cells)
    run = finished_run(executed, RunState.FAILED if failed else RunState.OK, text if failed else None, p=text)
    return render_page(executed, folder / f"{name}.html", run=run, campaign=text, command=["workbench", text]).path


SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20" onload="window.pwned=12">'
    '<script>window.pwned=13</script><rect width="20" height="20"/></svg>'
)


def every_way(text: str) -> list[dict[str, Any]]:
    return [stream(text), *(shown({kind: text}) for kind in ("text/markdown", "text/html", "text/plain", "text/latex"))]


def diagnosis(folder: Path, name: str, text: str) -> Path:
    finding = Finding("rule", text, Certainty.CERTAIN, (text, "a line of the log"), text, text)
    note = Finding("note", "Good to know", Certainty.SUSPECTED, (), "", None, is_fault=False)
    likely = Finding("likely", "CUDA graphs were off", Certainty.LIKELY, ("cuda graph: False",), "Turn them on.")
    rows = {"name": [text], "value": [1.0], "text": [text], "unit": ["tok/s"], "source": [text]}
    fig, ax = new_figure()
    ax.plot([1, 2])
    png = io.BytesIO()
    fig.savefig(png)
    result = Diagnosis(text, (finding, likely, note), pd.DataFrame(rows), (text,))
    pictures = [(png.getvalue(), f"accept length over time, {text}", text)]
    return write_diagnosis_page(result, folder / f"{name}.html", log_name=text, figures=pictures).path


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    plain = "Break-even is 2.35, the best measured 2.04"
    made = {
        "report": report(folder, "report", plain, failed=False),
        "failed": report(folder, "failed", plain, failed=True),
        "diagnosis": diagnosis(folder, "diagnosis", plain),
        "long word": report(folder, "long", WORD, failed=True),
    }
    made["hostile report"] = report(folder, "r \"'<b>", HOSTILE, failed=True, more=VECTORS)
    made["hostile diagnosis"] = diagnosis(folder, "d", "".join(VECTORS))
    (folder / "broken <script>.summary.json").write_text("{")
    made["index"] = build_index(folder)
    made["empty index"] = build_index(tmp_path_factory.mktemp("empty"))
    return made


@pytest.mark.parametrize(
    ("scheme", "width"),
    [
        # Both in the lists of all pages, which is slow; here the one with less room.
        pytest.param(scheme, width, marks=[pytest.mark.slow] if width > min(WIDTHS) else [])
        for scheme, width in zip(SCHEMES, WIDTHS, strict=True)
    ],
)
def test_pages_of_every_kind(browser: Browser, pages: dict[str, Path], scheme: str, width: int) -> None:
    found = {}
    for name in ("failed", "diagnosis", "long word", "index", "empty index", "hostile report"):
        found[name] = faults(look_at(browser, pages[name], scheme=scheme, width=width), pages[name], width=width)
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_a_report_in_every_scheme_and_width(browser: Browser, pages: dict[str, Path], scheme: str, width: int) -> None:
    assert faults(look_at(browser, pages["report"], scheme=scheme, width=width), pages["report"], width=width) == []


def test_hostile_pages_do_not_even_try(browser: Browser, pages: dict[str, Path]) -> None:
    for name in ("hostile report", "hostile diagnosis", "index"):
        seen = look_at(browser, pages[name], scheme="light", width=400, axe=False)
        assert faults(seen, pages[name], width=400) == [], name
        assert seen.blocked == [], name  # escaping and cleaning left nothing for the policy to stop


def test_the_policy_alone_stops_what_escaping_would_miss(
    browser: Browser, pages: dict[str, Path], tmp_path: Path
) -> None:
    """The second wall by itself: the same vectors, put into a finished page as they are."""
    # A redirect by <meta> is the one thing that a policy in the page cannot forbid; the cleaning must.
    unescaped = "".join(f"<div>{vector}</div>" for vector in VECTORS).replace("http-equiv=refresh", "")
    page = tmp_path / "page.html"
    page.write_text(
        pages["report"].read_text(encoding="utf-8").replace("<main ", f"{unescaped}<main ", 1), encoding="utf-8"
    )
    seen = look_at(browser, page, scheme="light", width=1400, axe=False)
    assert seen.facts["pwned"] is None
    assert [url for url in seen.requests if url not in seen.blocked and url.startswith("http")] == []
    assert "http://example.invalid/a.png" in seen.blocked  # the vectors are live
    lawless = tmp_path / "lawless.html"
    lawless.write_text(f"<title>no policy</title><main>{unescaped}</main>", encoding="utf-8")
    assert look_at(browser, lawless, scheme="light", width=1400, axe=False).facts["pwned"] is not None


def test_the_checks_find_faults(browser: Browser, tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<main style='width:2000px'><a href='#none'>x</a><img src='http://example.invalid/a.png'>"
        "<p style='color:#ccc;background:#fff'>faint</p><script>window.pwned=1; null.x</script></main>"
    )
    seen = look_at(browser, bad, scheme="light", width=400)
    found = "\n".join(faults(seen, bad, width=400))
    for fault in ("something ran", "asks for http://example.invalid/a.png", "link without target: #none", "no title",
                  "scrolls sideways: 20", "no language", "axe: serious color-contrast", "axe: critical image-alt",
                  "error: Cannot read properties", "picture without description", "there are scripts"):  # fmt: skip
        assert fault in found, fault


def test_the_index_leads_to_pages_and_skip_link_works(browser: Browser, pages: dict[str, Path]) -> None:
    tab = browser.new_page()
    try:
        tab.goto(pages["index"].resolve().as_uri())
        hrefs = tab.eval_on_selector_all(".entry a", "links => links.map(a => decodeURIComponent(a.href))")
        assert sorted(Path(href.removeprefix("file://")) for href in hrefs) == sorted(
            page for name, page in pages.items() if not name.endswith("index")
        )
        tab.keyboard.press("Tab")
        assert tab.evaluate("document.activeElement.className") == "skip"
        tab.keyboard.press("Enter")
        assert tab.evaluate("document.activeElement.id") == "main"
    finally:
        tab.close()


def visible_links(tab: Page) -> list[str]:
    """The links of the index that can be seen, in the order in which the Tab key reaches them."""
    links = "links => links.filter(a => a.checkVisibility()).map(a => a.textContent)"
    return [str(text) for text in tab.eval_on_selector_all("main a", links)]


def test_the_index_filters_and_sorts_without_scripts(browser: Browser, tmp_path: Path) -> None:
    summary = {"kind": "report", "status": "ok", "campaign": "a", "notebook": "20_report_campaign.ipynb"}
    pages: dict[str, dict[str, str]] = {
        "Zebra": {"finished_at": "2026-11-03T10:00:00+00:00"},
        "Apple": {"finished_at": "2026-11-01T10:00:00+00:00", "campaign": "b", "status": "failed", "reason": "x"},
        "Log": {"finished_at": "2026-11-02T10:00:00+00:00", "kind": "diagnosis", "campaign": ""},
    }
    for title, more in pages.items():
        (tmp_path / f"{title}.html").write_text("page")
        (tmp_path / f"{title}.summary.json").write_text(json.dumps({**summary, "title": title, **more}))
    index = build_index(tmp_path)
    tab = browser.new_page()
    try:
        tab.goto(index.resolve().as_uri())
        assert tab.evaluate("document.scripts.length") == 0
        assert visible_links(tab) == ["Log", "Zebra", "Apple"]  # by campaign, one's own logs first
        tab.check("#order-newest")
        assert visible_links(tab) == ["Zebra", "Log", "Apple"]
        tab.check("#order-title")
        assert visible_links(tab) == ["Apple", "Log", "Zebra"]
        tab.check("#state-attention")
        assert visible_links(tab) == ["Apple"]
        tab.check("#order-campaign")
        assert (visible_links(tab), tab.locator("main .group:visible h2").all_inner_texts()) == (["Apple"], ["b"])
        tab.check("#state-all")
        tab.get_by_label("Diagnosis").focus()
        tab.keyboard.press("Space")  # by keyboard alone
        assert visible_links(tab) == ["Log"]
    finally:
        tab.close()
    seen = look_at(browser, index, scheme="dark", width=400)
    assert faults(seen, index, width=400) == []


def test_words_and_sections_can_be_reached_and_have_addresses(browser: Browser, pages: dict[str, Path]) -> None:
    tab = browser.new_page()
    try:
        tab.goto(pages["report"].resolve().as_uri())
        tab.locator("main h2 a.self", has_text="Section").focus()
        tab.keyboard.press("Enter")
        assert tab.url.endswith("#Section")
        tab.locator("a.term", has_text="accept length").first.focus()
        tab.keyboard.press("Enter")
        assert tab.url.endswith("#word-accept-length")
        assert tab.locator("#word-accept-length").evaluate("element => element.matches(':target')")
        assert tab.locator("#word-accept-length dd").is_visible()
    finally:
        tab.close()


def test_printing_leaves_out_navigation_and_uses_ink_on_white(browser: Browser, pages: dict[str, Path]) -> None:
    tab = browser.new_page(color_scheme="dark")
    try:
        tab.goto(pages["report"].resolve().as_uri())
        tab.emulate_media(media="print", color_scheme="dark")
        style = tab.evaluate(
            "() => ({nav: getComputedStyle(document.querySelector('nav')).display,"
            " ground: getComputedStyle(document.body).backgroundColor,"
            " ink: getComputedStyle(document.body).color,"
            " text: getComputedStyle(document.querySelector('pre.stdout')).maxHeight})"
        )
        assert json.dumps(style) == json.dumps(
            {"nav": "none", "ground": "rgb(255, 255, 255)", "ink": "rgb(0, 0, 0)", "text": "none"}
        )
    finally:
        tab.close()
