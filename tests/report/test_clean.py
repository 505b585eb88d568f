from __future__ import annotations

import re

import pytest
from bs4 import BeautifulSoup
from notebook_files import HOSTILE

from workbench.page import Heading
from workbench.report.clean import clean, define_words, finish, plain_text

PIXEL = "data:image/png;base64,iVBORw0KGgo="


@pytest.mark.parametrize(
    "html",
    [
        HOSTILE,
        "<svg onload=a()><script>a()</script></svg>",
        "<math><mtext></form><form><mglyph><style></math><img src onerror=a()>",
        "<iframe srcdoc='<script>a()</script>'></iframe><object data=x></object><embed src=x>",
        "<form action=http://example.invalid><input name=a><button formaction=javascript:a()>b</button></form>",
        "<a href='javascript:a()'>x</a><a href=' JaVaScRiPt:a()'>y</a>",
        "<a href='data:text/html,<script>a()</script>'>z</a>",
        "<a href='vbscript:a()' onclick=a() style='position:fixed'>x</a>",
        "<base href=http://example.invalid><link rel=stylesheet href=http://example.invalid/x.css>",
        "<img src=http://example.invalid/x.png><img src=//example.invalid/x.png><img src=data:text/html;base64,AAAA>",
        "<p style='background:url(http://example.invalid)'>x</p><template><script>a()</script></template>",
        "<noscript><p title='</noscript><img src=x onerror=a()>'>",
    ],
)
def test_nothing_that_acts_is_left(html: str) -> None:
    soup = BeautifulSoup(clean(html), "html.parser")
    acting = {"script", "style", "svg", "math", "iframe", "object", "embed", "form", "input", "button", "base", "link"}
    assert [tag.name for tag in soup.find_all(acting | {"meta", "template", "noscript"})] == []
    for tag in soup.find_all(True):
        assert not [name for name in tag.attrs if name.startswith("on") or name == "style"], tag
        assert not re.match(r"\s*(javascript|vbscript|data:text/html)", str(tag.get("href", "")), re.I), tag
        assert tag.name != "img" or str(tag.get("src", PIXEL)).startswith("data:image/"), tag


def test_what_a_report_needs_is_left() -> None:
    html = (
        f'<figure class="wb-figure"><img alt="a &amp; b" src="{PIXEL}" width="640"><figcaption>c '
        '<a download="x.csv" href="data:text/csv;charset=utf-8;base64,AAAA">CSV</a></figcaption></figure>'
        '<div aria-label="t" role="region" tabindex="0"><table><caption>t</caption><thead><tr>'
        '<th scope="col">a</th></tr></thead><tbody><tr><td class="num" colspan="2">1</td></tr></tbody></table></div>'
        '<details open=""><summary>s</summary><p>x<br>y</p></details>'
    )
    kept = BeautifulSoup(clean(html), "html.parser")
    link = kept.find("a")
    assert link is not None
    assert link["rel"] == ["noopener", "noreferrer"]
    del link["rel"]
    assert kept == BeautifulSoup(html, "html.parser")


def test_plain_text() -> None:
    assert plain_text("<p>It <b>pays</b> &lt;not&gt;</p><script>x</script><style>y</style>") == "It pays <not>"
    assert plain_text("<p>Try <code>workbench tune</code>.</p>") == "Try `workbench tune`."
    html = "<p>It\n pays.</p><p>Next: <em>go</em></p><ul><li>one<br>two</li><li></li></ul><div>three</div>"
    assert plain_text(html) == "It pays.\nNext: go\none\ntwo\nthree"


def test_headings_get_unique_ids_below_the_title_and_make_the_contents() -> None:
    html, headings, _ = finish(
        "<h1>One</h1><h2 id='Break-even'>Break-even</h2><h3>Two &lt;b&gt;</h3><h2>main</h2><h2>One</h2><h4>four</h4>"
        "<h2 id='Break-even'>again</h2><p id='main'>x</p><h2> </h2>"
    )
    assert headings == [
        Heading(2, "One", "One"),
        Heading(2, "Break-even", "Break-even"),
        Heading(3, "Two-b", "Two <b>"),
        Heading(2, "main-2", "main"),  # the page itself has an element `main`
        Heading(2, "One-2", "One"),
        Heading(2, "Break-even-2", "again"),
    ]
    soup = BeautifulSoup(html, "html.parser")
    assert soup.find("h1") is None
    ids = [str(tag["id"]) for tag in soup.find_all(id=True)]
    assert len(ids) == len(set(ids))
    assert "main" not in ids
    assert [str(soup.find(id=heading.id).get_text()) for heading in headings] == [h.text for h in headings]  # type: ignore[union-attr]


def test_headings_link_to_themselves_unless_they_hold_a_link() -> None:
    html, _, _ = finish("<h2>Speed <em>now</em></h2><h3>A <a href='#x'>link</a></h3>")
    soup = BeautifulSoup(html, "html.parser")
    link = soup.select_one("h2 > a.self")
    assert link is not None and (link["href"], str(link.em)) == ("#Speed-now", "<em>now</em>")
    assert [str(a["href"]) for a in soup.select("h3 a")] == ["#x"]


def test_words_are_linked_to_their_definition_where_they_first_stand() -> None:
    html, words = define_words(
        "<h2>Break-even</h2><pre>baseline</pre><p>The break-even &lt;b&gt; of <code>steps</code>; break-even again.</p>"
        "<table><thead><tr><th>accept length</th></tr></thead><tbody><tr><th>the drafter</th><td>tree</td></tr></tbody>"
        "</table><p><a href='#x'>baseline</a></p>",
        also=["speedup", "no word"],
    )
    soup = BeautifulSoup(html, "html.parser")
    assert [(a["href"], a.get_text()) for a in soup.select("a.term")] == [
        ("#word-break-even", "break-even"),
        ("#word-accept-length", "accept length"),
    ]
    assert soup.p is not None and soup.p.get_text() == "The break-even <b> of steps; break-even again."
    assert "baseline speed / speculative speed" in str(soup.select("a.term")[0]["title"])
    assert [word.name for word in words] == ["accept length", "break-even", "speedup"]


def test_ids_of_definitions_cannot_be_taken() -> None:
    html, _, _ = finish("<p id='word-break-even'>x</p><h2>words</h2>")
    assert [tag["id"] for tag in BeautifulSoup(html, "html.parser").find_all(id=True)] == [
        "word-break-even-2",
        "words-2",
    ]


def test_tables_scroll_in_a_named_box_and_have_no_empty_headers() -> None:
    html, _, _ = finish(
        "<table><tr><th></th><th>a</th></tr><tr><th>0</th><td>1</td></tr></table>"
        "<table><caption>Costs &lt;x&gt;</caption><tr><td>1</td></tr></table>"
        "<div role='region' aria-label='mine'><table><tr><td>1</td></tr></table></div>"
    )
    soup = BeautifulSoup(html, "html.parser")
    assert [box["aria-label"] for box in soup.find_all(attrs={"role": "region"})] == ["Table 1", "Costs <x>", "mine"]
    assert [box["tabindex"] for box in soup.find_all(class_="scroll")] == ["0", "0"]
    assert [cell.name for cell in soup.find_all("tr")[0].find_all(True)] == ["td", "th"]


def test_figures_scroll_in_a_named_box_that_leaves_the_caption_outside() -> None:
    picture = f'<figure class="wb-figure"><img src="{PIXEL}" alt="rises"><figcaption>c</figcaption></figure>'
    html, _, without = finish(
        f"{picture}<figure><img src='{PIXEL}' alt='small'></figure>{picture}<figure class=wb-figure><img></figure>"
    )
    soup = BeautifulSoup(html, "html.parser")
    boxes = soup.select("[role=region]")
    assert [(box["class"], box["aria-label"], box["tabindex"]) for box in boxes] == [
        (["picture"], "Figure 1", "0"),
        (["picture"], "Figure 2", "0"),
    ]
    assert [[child.name for child in box.find_all(True)] for box in boxes] == [["img"], ["img"]]
    assert without == 0


def test_pictures_without_alt_are_counted_and_placed() -> None:
    html, _, without = finish(
        f"<h2>Speed</h2><img src='{PIXEL}'><img src='{PIXEL}' alt=' '><img src='{PIXEL}' alt='rises'>"
        f"<img src='{PIXEL}' alt='No description has been provided for this image'><img alt='gone'><img>"
    )
    assert without == 3
    soup = BeautifulSoup(html, "html.parser")
    placed = "Figure without a description in the section 'Speed'"
    assert [image["alt"] for image in soup.find_all("img")] == [placed, placed, "rises", placed]
    assert "[a picture that is not part of this page: gone][a picture that is not part of this page]" in html
