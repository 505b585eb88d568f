"""An executed notebook to a page: its answer first, then what it shows, then where it comes from."""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from markupsafe import Markup
from pydantic import ValidationError
from traitlets.config import Config

from workbench.errors import InputError
from workbench.files import as_text
from workbench.light_import import IRI_GRAMMAR, hidden
from workbench.notebook import NotebookRun
from workbench.page import TEMPLATES, Heading, Page, closing_headings, index_href, render_template, when, write_page
from workbench.provenance import provenance_facts, provenance_rows, redact
from workbench.report.clean import clean, define_words, finish, plain_text
from workbench.report.contents import SHOWN_KINDS, Contents, take_apart
from workbench.since import since_section
from workbench.spec import RunState
from workbench.summary import Change, Figure, PageProvenance, PageStatus, Summary

with hidden(IRI_GRAMMAR):
    import nbformat
    from nbconvert.exporters.html import HTMLExporter
    from nbformat.v4 import new_notebook

_STOPPED = "This report was stopped before its end"
_INCOMPLETE = "Some input could not be used"


def render_page(
    executed: Path,
    page: Path,
    *,
    run: NotebookRun,
    title: str | None = None,
    campaign: str | None = None,
    campaign_title: str | None = None,
    made_from: str | None = None,
    inputs: Sequence[Path] = (),
    command: Sequence[str] | None = None,
    hashed: Callable[[Path], str] | None = None,
    since: Sequence[Change] | None = None,
    attempts: Sequence[str] = (),
) -> Page:
    """Write the page of a notebook run and its summary, also when the run failed or left no notebook.

    Parameters
    ----------
    executed
        The executed notebook; need not exist.
    title
        Defaults to the notebook's first heading.
    campaign, campaign_title
        Under which name the index lists the page.
    made_from
        Fingerprint of everything that the page is made from; see `workbench.reuse`.
    inputs, command, hashed
        For the provenance block; see `workbench.provenance.provenance_facts`.
    since, attempts
        Figures beside their last good measurements (``None``: nothing was measured before), and attempts to measure
        again that did not finish.
    """
    contents = take_apart(_read(executed), finished=run.status is RunState.OK)
    body, headings, without_alt = finish(_fragment(contents.cells))
    body, words = define_words(body, also=contents.headline)
    problems, _, _ = finish(_fragment(contents.problems))
    said = [redact(line.strip()) for line in plain_text(problems).splitlines() if line.strip()]
    status = _status(run, contents)
    name = title or contents.title or run.notebook.stem
    facts = provenance_facts(inputs=inputs, command=command, hashed=hashed)
    figures, unusable = _figures(contents.figures)
    summary = Summary(
        kind="report",
        title=redact(name),
        status=status,
        finished_at=run.finished_at or datetime.now(UTC).isoformat(timespec="seconds"),
        reason=None if run.reason is None else redact(run.reason),
        answer=contents.answer.sentence,
        headline=contents.headline,
        campaign=None if campaign is None else as_text(campaign),
        campaign_title=campaign_title,
        notebook=run.notebook.name,
        duration_s=run.duration_s,
        made_from=made_from,
        figures=figures,
        figures_left_out=_whole(contents.figures.get("left_out")),
        not_verified=(*_texts(contents.figures.get("not_verified")), *unusable, *map(redact, attempts), *said),
        since_last_good=None if since is None else tuple(since),
        provenance=PageProvenance.of(facts, {name: _as_texts(value) for name, value in run.parameters.items()}),
    )
    html = render_template(
        "report.html.j2",
        title=summary.title,
        contents=[*headings, *_since_heading(since, attempts), *closing_headings(words)],
        summary=summary,
        answer=contents.answer,
        body=body,
        words=words,
        problems=problems,
        partial_title=_INCOMPLETE if run.status is RunState.OK else _STOPPED,
        failure_id="failure" if any(heading.id == "failure-title" for heading in headings) else None,
        code=contents.code,
        index_href=index_href(page),
        provenance=_run_rows(run, executed) + provenance_rows(facts),
        since=since_section(since, attempts),
    )
    return write_page(page, html, summary, images_without_alt=without_alt)


def _read(executed: Path) -> Any:
    if not executed.exists():
        return new_notebook()
    try:
        return nbformat.read(executed, as_version=4)
    except (OSError, ValueError, nbformat.ValidationError) as error:
        raise InputError(f"not a notebook ({error})", where=executed) from error


def _figures(found: Mapping[str, Any]) -> tuple[tuple[Figure, ...], list[str]]:
    """The figures that a notebook gives, and how many of them are none."""
    given = found.get("figures")
    figures, unusable = [], 0
    for each in given if isinstance(given, list | tuple) else ():
        try:
            figures.append(Figure.model_validate(each))
        except ValidationError:
            unusable += 1
    return tuple(figures), [f"{unusable} figures of the notebook could not be used"] if unusable else []


def _since_heading(since: Sequence[Change] | None, attempts: Sequence[str]) -> list[Heading]:
    return [Heading(2, "since", "Since the last good run")] if since is not None or attempts else []


def _texts(found: object) -> list[str]:
    return [redact(str(text)) for text in found] if isinstance(found, list | tuple) else []


def _as_texts(value: object) -> object:
    """Names of folders in a parameter as text: a summary with bytes that are no text could not be read again."""
    if isinstance(value, list | tuple):
        return [_as_texts(each) for each in value]
    return as_text(value) if isinstance(value, str) else value


def _whole(found: object) -> int:
    return found if isinstance(found, int) else 0


def _status(run: NotebookRun, contents: Contents) -> PageStatus:
    if run.status is RunState.OK:
        return PageStatus.PARTIAL if contents.problems else PageStatus.OK
    outputs = [output for cell in contents.cells for output in cell.get("outputs", ())]
    shows_something = contents.answer.sentence or any(output.output_type != "error" for output in outputs)
    stopped = run.status in (RunState.TIMED_OUT, RunState.INTERRUPTED)
    return PageStatus.PARTIAL if stopped and shows_something else PageStatus.FAILED


def _fragment(cells: Sequence[Any]) -> str:
    html, _ = _exporter().from_notebook_node(new_notebook(cells=list(cells)))
    return str(html)


@functools.cache
def _exporter() -> HTMLExporter:
    """nbconvert with our template alone: nothing under the user's or the system's Jupyter folders takes part."""
    config = Config({"NbConvertBase": {"display_data_priority": list(SHOWN_KINDS)}})
    exporter = HTMLExporter(
        config=config, template_paths=[str(TEMPLATES / "notebook")], exclude_anchor_links=True, embed_images=False
    )
    exporter.register_filter("clean", clean)
    exporter.register_filter("image_base64", _image_base64)
    return exporter


def _image_base64(output: Any, kind: str) -> str:
    data = str(output.data[kind])
    return base64.b64encode(data.encode()).decode() if kind == "image/svg+xml" else "".join(data.split())


def _run_rows(run: NotebookRun, executed: Path) -> list[tuple[str, str | Markup]]:
    parameters = ", ".join(f"{name} = {json.dumps(value)}" for name, value in run.parameters.items())
    kept = f", executed copy {executed.name} beside this page" if executed.exists() else ", no executed copy was kept"
    end = "not finished" if run.finished_at is None else when(run.finished_at, seconds=True)
    took = "" if run.duration_s is None else f" ({run.duration_s:.1f} s)"
    return [
        ("Notebook", run.notebook.name + kept),
        ("Parameters", redact(parameters) or "none"),
        ("Run", f"{when(run.started_at, seconds=True)} to {end}{took}, {run.status}"),
    ]
