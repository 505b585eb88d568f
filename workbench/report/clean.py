"""HTML that notebooks emit, reduced to what a page may hold: structure, text, pictures and downloads inside the page.

An allow-list, because what a log or a model says can reach HTML through a display that forgot to escape it. No script,
no style, no form, no frame, no redirect; pictures and downloads only as ``data:`` URIs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import nh3
from bs4 import BeautifulSoup, Tag
from bs4.element import NavigableString
from markupsafe import Markup

from workbench.page import Heading
from workbench.paths import slug
from workbench.words import WORDS, Word, pattern, word_of, words_in

_TAGS = {
    *("a", "abbr", "b", "blockquote", "br", "caption", "cite", "code", "col", "colgroup", "dd", "del", "details"),
    *("dfn", "div", "dl", "dt", "em", "figcaption", "figure", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "i", "img"),
    *("ins", "kbd", "li", "mark", "ol", "p", "pre", "q", "s", "samp", "small", "span", "strong", "sub", "summary"),
    *("sup", "table", "tbody", "td", "tfoot", "th", "thead", "time", "tr", "u", "ul", "var"),
}
_ATTRIBUTES = {
    "*": {"class", "dir", "id", "lang", "role", "tabindex", "title"},
    "a": {"download", "href"},
    "col": {"span"},
    "colgroup": {"span"},
    "details": {"open"},
    "img": {"alt", "height", "src", "width"},
    "ol": {"start"},
    "td": {"colspan", "headers", "rowspan"},
    "th": {"abbr", "colspan", "headers", "rowspan", "scope"},
    "time": {"datetime"},
}
_BLOCKS = ("br", "dd", "div", "dt", "h1", "h2", "h3", "h4", "li", "p", "tr")
_IMAGE = re.compile(r"data:image/(png|jpeg|gif|webp|svg\+xml);base64,[A-Za-z0-9+/=\s]+")
_DOWNLOAD = re.compile(r"data:(text/csv|text/plain|application/json)[;,]")
_NO_ALT = "No description has been provided for this image"  # put in by nbconvert
_RESERVED_IDS = {
    *("main", "contents-title", "why", "provenance", "failure", "failure-title", "since", "worse", "words"),
    *(word.id for word in WORDS),
}
# Where a word is linked to its definition: running text and the heads of columns, not names of runs, not code.
_DEFINED_IN = "p, li, figcaption, thead th"
_NOT_IN = ["a", "code", "pre", "summary", "h2", "h3", "h4", "dfn"]


def clean(html: str) -> Markup:
    """The allowed part of a piece of HTML."""
    return Markup(  # noqa: S704 - this is what the sanitizer is for
        nh3.clean(
            html,
            tags=_TAGS,
            attributes=_ATTRIBUTES,
            attribute_filter=_keep_attribute,
            url_schemes={"http", "https", "mailto", "data"},
            generic_attribute_prefixes={"aria-"},
            clean_content_tags={"script", "style"},
            link_rel="noopener noreferrer",
        )
    )


def plain_text(html: str) -> str:
    """The text of a piece of HTML, without script and style, a line a paragraph or list item, code in backticks."""
    soup = BeautifulSoup(clean(html.replace("\n", " ")), "html.parser")
    for code in soup.find_all("code"):
        code.insert(0, "`")
        code.append("`")
    for block in soup.find_all(_BLOCKS):
        block.append("\n")
    lines = (" ".join(line.split()) for line in soup.get_text().split("\n"))
    return "\n".join(line for line in lines if line)


def _keep_attribute(tag: str, name: str, value: str) -> str | None:
    if tag == "img" and name == "src":
        return value if _IMAGE.fullmatch(value) else None
    if name == "href" and value.strip().lower().startswith("data:"):
        return value if _DOWNLOAD.match(value) else None
    return value


def finish(fragment: str) -> tuple[Markup, list[Heading], int]:
    """Make a fragment fit for the page around it.

    Headings start at level 2, have unique ids and link to themselves; wide tables and figures scroll inside boxes;
    empty header cells (the corner of a DataFrame) are no headers, a picture without a source becomes text.

    Returns
    -------
    fragment, headings of level 2 and 3, number of pictures without alt text
    """
    soup = BeautifulSoup(fragment, "html.parser")
    headings = _number_headings(soup)
    for number, table in enumerate(soup.find_all("table"), 1):
        _frame_table(soup, table, number)
    for number, image in enumerate(soup.select("figure.wb-figure > img[src]"), 1):
        image.wrap(soup.new_tag("div", attrs=_box("picture", f"Figure {number}")))
    without_alt = 0
    for image in soup.find_all("img"):
        if not image.get("src"):
            alt = str(image.get("alt") or _NO_ALT)
            image.replace_with(f"[a picture that is not part of this page{'' if alt == _NO_ALT else f': {alt}'}]")
        elif str(image.get("alt") or "").strip() in ("", _NO_ALT):
            without_alt += 1
            image["alt"] = _described_by_place(image)
    return Markup(soup), headings, without_alt  # noqa: S704 - made from cleaned parts


def _number_headings(soup: BeautifulSoup) -> list[Heading]:
    used = set(_RESERVED_IDS)
    headings: list[Heading] = []
    for heading in soup.find_all(["h1", "h2", "h3"]):
        heading.name = "h2" if heading.name == "h1" else heading.name
        text = heading.get_text(" ", strip=True)
        identifier = str(heading.get("id") or text)
        if not (identifier in _RESERVED_IDS and heading.find_parent("section")):
            identifier = _unused(slug(identifier, max_length=60), used)
            heading["id"] = identifier
        if text:
            headings.append(Heading(int(heading.name[1]), identifier, text))
            _link_to_itself(soup, heading)
    for other in soup.find_all(id=True):
        if other.name not in ("h2", "h3", "section"):
            other["id"] = _unused(str(other["id"]), used)
    return headings


def _link_to_itself(soup: BeautifulSoup, heading: Tag) -> None:
    """The address of a section is the address of its heading."""
    if heading.find("a") is None:
        link = soup.new_tag("a", attrs={"class": "self", "href": f"#{heading['id']}"})
        link.extend(list(heading.contents))
        heading.append(link)


def define_words(fragment: str, *, also: Iterable[str] = ()) -> tuple[Markup, list[Word]]:
    """Link each word of the glossary to its definition on the page, where it first stands.

    Returns
    -------
    fragment, the words found there or in ``also``
    """
    soup = BeautifulSoup(fragment, "html.parser")
    found: set[Word] = set()
    for element in soup.select(_DEFINED_IN):
        for text in element.find_all(string=pattern()):
            if text.find_parent(_NOT_IN) is None:
                _define(soup, text, found)
    found.update(words_in(also))
    return Markup(soup), [word for word in WORDS if word in found]  # noqa: S704 - made from cleaned parts


def _define(soup: BeautifulSoup, text: NavigableString, found: set[Word]) -> None:
    pieces: list[str | Tag] = []
    end = 0
    for match in pattern().finditer(text):
        word = word_of(match[0])
        if word is None or word in found:
            continue
        found.add(word)
        link = soup.new_tag("a", attrs={"class": "term", "href": f"#{word.id}", "title": word.meaning})
        link.string = match[0]
        pieces += [str(text[end : match.start()]), link]
        end = match.end()
    if pieces:
        text.replace_with(*pieces, str(text[end:]))


def _unused(wanted: str, used: set[str]) -> str:
    number, free = 1, wanted
    while free in used:
        number += 1
        free = f"{wanted}-{number}"
    used.add(free)
    return free


def _frame_table(soup: BeautifulSoup, table: Tag, number: int) -> None:
    for cell in table.find_all("th"):
        if not cell.get_text(strip=True):
            cell.name = "td"
    if table.find_parent(attrs={"role": "region"}) is None:
        caption = table.find("caption")
        label = caption.get_text(" ", strip=True) if isinstance(caption, Tag) else f"Table {number}"
        table.wrap(soup.new_tag("div", attrs=_box("scroll", label)))


def _box(kind: str, label: str) -> dict[str, str]:
    """Attributes of a box that scrolls sideways by itself, by keyboard too."""
    return {"class": kind, "role": "region", "tabindex": "0", "aria-label": label}


def _described_by_place(image: Tag) -> str:
    heading = image.find_previous(["h2", "h3"])
    where = f" in the section {heading.get_text(' ', strip=True)!r}" if isinstance(heading, Tag) else ""
    return f"Figure without a description{where}"
