"""The page that reports, diagnoses and the index share: one file, no script, no outside address.

Templates escape everything that is put into them; the Content-Security-Policy of each page is the wall behind that.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from workbench import __version__
from workbench.analysis.wording import number
from workbench.errors import UsageError
from workbench.markup import sentence
from workbench.paths import reports_dir
from workbench.provenance import provenance_facts, provenance_rows, redact
from workbench.store import write_atomic, write_json
from workbench.summary import SUMMARY_SUFFIX, Figure, PageProvenance, PageStatus, Summary
from workbench.words import Word, word_of, words_in

if TYPE_CHECKING:
    from workbench.analysis.diagnosis import Diagnosis, Finding

TEMPLATES = Path(__file__).parent / "templates"
MAX_ACTIONS = 3  # what stands above the findings; each finding has its own
# Meta tags cannot forbid a redirect; what is shown is therefore cleaned of <meta> as well.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; font-src data:; base-uri 'none'; form-action 'none'"
)


@dataclass(frozen=True, slots=True)
class Page:
    """A page that was written. ``images_without_alt`` counts figures that say nothing to a screen reader."""

    path: Path
    summary: Summary
    size_bytes: int
    images_without_alt: int = 0


@dataclass(frozen=True, slots=True)
class Heading:
    """One entry of a page's contents."""

    level: int
    id: str
    text: str


def render_template(name: str, **values: Any) -> str:
    """A page from ``templates/pages``; ``title`` and ``contents`` are needed by all of them."""
    return _environment().get_template(name).render(**values)


def write_page(path: Path, html: str, summary: Summary, *, images_without_alt: int = 0) -> Page:
    """Write a page, then its summary, each atomically; the summary names the page by its hash.

    Two commands may write the same page at once, or be killed in between: the files may then be of different pages.
    """
    data = html.encode("utf-8", "backslashreplace")
    summary = summary.model_copy(update={"page_sha256": hashlib.sha256(data).hexdigest()[:16]})
    write_atomic(path, html)
    write_json(path.with_suffix(SUMMARY_SUFFIX), summary)
    return Page(path, summary, len(data), images_without_alt)


def index_href(page: Path) -> str | None:
    """Link from a page below ``reports/`` to the index; ``None`` for a page elsewhere."""
    try:
        folder = reports_dir().resolve()
    except UsageError:
        return None
    if not page.resolve().is_relative_to(folder):
        return None
    return quote(Path(os.path.relpath(folder / "index.html", page.resolve().parent)).as_posix())


def write_diagnosis_page(
    diagnosis: Diagnosis,
    page: Path,
    *,
    log_name: str,
    figures: Sequence[tuple[bytes, str, str]] = (),
    inputs: Sequence[Path] = (),
    command: Sequence[str] | None = None,
) -> Page:
    """Write the diagnosis of one log as a page.

    Parameters
    ----------
    figures
        PNG bytes, alt text and caption of each; a caption may hold a download, as markup.
    inputs, command
        For the provenance block; see `workbench.provenance.provenance_facts`.
    """
    if not all(alt.strip() for _, alt, _ in figures):
        raise UsageError("a figure without alt text", where=page)
    log_name = redact(log_name)
    facts = provenance_facts(inputs=inputs, command=command)
    summary = Summary(
        kind="diagnosis",
        title=f"Diagnosis of {log_name}",
        status=PageStatus.OK,
        finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
        answer=diagnosis.verdict,
        fault=_fault(diagnosis),
        figures=_figures(diagnosis),
        not_verified=diagnosis.not_known,
        provenance=PageProvenance.of(facts),
    )
    words = words_in(_said(diagnosis))
    sections = [
        Heading(2, "findings", "Findings"),
        *(Heading(3, f"finding-{k}", _short_title(finding)) for k, finding in enumerate(diagnosis.findings, 1)),
        *([Heading(2, "pictures", "Figures")] if figures else []),
        *([Heading(2, "numbers", "Key numbers")] if len(diagnosis.figures) else []),
        *([Heading(2, "not-known", "What this log does not tell")] if diagnosis.not_known else []),
        *closing_headings(words),
    ]
    html = render_template(
        "diagnosis.html.j2",
        title=summary.title,
        contents=sections,
        summary=summary,
        diagnosis=diagnosis,
        answer={"sentence": diagnosis.verdict, "points": (), "actions": _actions(diagnosis)},
        index_href=index_href(page),
        pictures=[{"png": base64.b64encode(png).decode(), "alt": alt, "caption": text} for png, alt, text in figures],
        rows=_number_rows(diagnosis),
        words=words,
        provenance=provenance_rows(facts),
    )
    return write_page(page, html, summary)


def closing_headings(words: Sequence[Word]) -> list[Heading]:
    """Of the sections with which every page ends."""
    return [*([Heading(2, "words", "Words")] if words else []), Heading(2, "provenance", "Provenance")]


def _said(diagnosis: Diagnosis) -> list[str]:
    findings = [text for each in diagnosis.findings for text in (each.title, *each.evidence, each.next_action)]
    return [diagnosis.verdict, *findings, *diagnosis.not_known, *(row["name"] for row in _number_rows(diagnosis))]


def _fault(diagnosis: Diagnosis) -> Literal["found", "suspected", "none"] | None:
    """What the index says of a diagnosis; ``None`` for a log with nothing to judge."""
    faults = [finding for finding in diagnosis.findings if finding.is_fault]
    if faults and all(finding.rule == "no_decode_lines" for finding in faults):
        return None
    if diagnosis.certain_fault:
        return "found"
    return "suspected" if faults else "none"


def _short_title(finding: Finding) -> str:
    """The rule's name as words, short enough for the contents."""
    words = finding.rule.replace("_", " ")
    return f"{words[:1].upper()}{words[1:]}"


def _actions(diagnosis: Diagnosis) -> list[str]:
    """What to do about the faults, in their order; where there are none, about the rest."""
    faults = [finding for finding in diagnosis.findings if finding.is_fault]
    actions = [finding.next_action for finding in faults or diagnosis.findings]
    return [action for action in dict.fromkeys(actions) if action][:MAX_ACTIONS]


def figure_text(value: object) -> str:
    """A number as it stands in a headline or a table; ``None`` and NaN are "not measured"."""
    if value is None or value != value:
        return "not measured"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return number(value) if abs(value) >= 0.1 or value == 0 else f"{value:.2g}"
    return str(value)


def _number_rows(diagnosis: Diagnosis) -> list[dict[str, str]]:
    rows: Sequence[Mapping[Any, Any]] = diagnosis.figures.to_dict("records")
    return [
        {
            "name": _words(row["name"]),
            "value": _words(row["text"]) or figure_text(row["value"]),
            "unit": _words(row["unit"]),
            "source": _words(row["source"]),
        }
        for row in rows
    ]


def _figures(diagnosis: Diagnosis) -> tuple[Figure, ...]:
    """The key numbers of a diagnosis; those that are words have no value."""
    rows: Sequence[Mapping[Any, Any]] = diagnosis.figures.to_dict("records")
    return tuple(
        Figure(
            name=_words(row["name"]),
            value=None if row["value"] is None or row["value"] != row["value"] else float(row["value"]),
            text=_words(row["text"]) or None,
            unit=_words(row["unit"]),
            source=_words(row["source"]) or None,
        )
        for row in rows
    )


def _words(value: object) -> str:
    return value if isinstance(value, str) else ""  # a missing text is NaN


def when(timestamp: str, *, seconds: bool = False) -> str:
    """An ISO 8601 time as a reader writes it, in UTC; anything else as it is."""
    try:
        time = datetime.fromisoformat(timestamp)
        utc = time.astimezone(UTC) if time.tzinfo else time
    except (ValueError, OverflowError):  # the first and last day there is, in another zone
        return timestamp
    return f"{utc.day} {utc:%B %Y, %H:%M:%S} UTC" if seconds else f"{utc.day} {utc:%B %Y, %H:%M} UTC"


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES / "pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = (TEMPLATES / "pages" / "style.css").read_text(encoding="utf-8")
    environment.globals.update(csp=CONTENT_SECURITY_POLICY, css=Markup(style), version=__version__)  # noqa: S704
    environment.filters.update(figure=figure_text, when=when, sentence=sentence, word=word_of)
    environment.filters.update(first_line=lambda text: text.partition("\n")[0])
    return environment
