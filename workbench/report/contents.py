"""What a notebook says through the tags of its cells, and its outputs made ready to be shown.

Tags
----
``answer``     its text heads the page: the first line is the answer, further lines carry it, lines that start with
               ``Next:`` are what to do. The first line is also what the index shows.
``headline``   a dict of names and numbers (``display(JSON({...}))`` or a dict as the last expression), shown below the
               answer and in the index.
``figures``    ``{"figures": [...], "not_verified": [...], "left_out": n}`` for the summary beside the page, not shown.
``problems``   whatever it shows makes the page "partial": input that could not be used.
``remove-cell``, ``remove-output``   left out of the page.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from workbench.provenance import redact
from workbench.report.clean import plain_text
from workbench.spec import Scalar

if TYPE_CHECKING:
    from nbformat import NotebookNode  # at run time `render` imports nbformat, in the quick way

NEXT = "Next:"
ANSWER, HEADLINE, PROBLEMS, FIGURES = "answer", "headline", "problems", "figures"
# The first of these that an output has is shown.
SHOWN_KINDS = (
    "text/html",
    "image/png",
    "image/svg+xml",
    "image/jpeg",
    "text/markdown",
    "text/latex",
    "text/plain",
)
_JSON = "application/json"
PAPERMILL_ERROR = "papermill-error-cell-tag"
MAX_LINES, HEAD_LINES = 200, 20
MAX_LINE_LENGTH = 2_000
_TITLE = re.compile(r"\A\s*#[ \t]+(.+?)[ \t#]*(?:\n|\Z)")


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a page, as plain text."""

    sentence: str | None = None
    points: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Contents:
    """A notebook taken apart. ``cells`` and ``problems`` are still to be rendered."""

    title: str | None
    answer: Answer
    headline: dict[str, Scalar]
    cells: list[NotebookNode]
    problems: list[NotebookNode]
    code: list[str]
    figures: Mapping[str, Any] = field(default_factory=dict)


def take_apart(notebook: NotebookNode, *, finished: bool = True) -> Contents:
    """Sort the cells by what they are for; outputs are redacted and shortened in place.

    Of a notebook that did not finish, what follows the last executed cell is left out: its headings would promise what
    is not there.
    """
    cells = [cell for cell in notebook.cells if not _tags(cell) & {"remove-cell", PAPERMILL_ERROR}]
    title = _take_title(cells)
    if not finished:
        cells = _reached(cells)
    code = [cell for cell in cells if cell.cell_type == "code"]
    for cell in code:
        _prepare(cell)
    said = {
        tag: [o for cell in code if _purpose(cell) == tag for o in cell.outputs] for tag in (ANSWER, HEADLINE, FIGURES)
    }
    return Contents(
        title=title,
        answer=parse_answer("\n".join(map(_text, said[ANSWER]))),
        headline={name: value for output in said[HEADLINE] for name, value in _headline(output).items()},
        cells=[cell for cell in cells if _purpose(cell) is None],
        problems=[cell for cell in code if _purpose(cell) == PROBLEMS and cell.outputs],
        code=[cell.source for cell in code if cell.source.strip()],
        figures={name: value for output in said[FIGURES] for name, value in _json_of(output).items()},
    )


def parse_answer(text: str) -> Answer:
    """The first line, the lines that carry it, and the lines that say what to do."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    actions = tuple(line.removeprefix(NEXT).strip() for line in lines if line.startswith(NEXT))
    others = [line for line in lines if not line.startswith(NEXT)]
    return Answer(others[0] if others else None, tuple(others[1:]), actions)


def shorten(text: str) -> str:
    """Long output with its middle left out, and said so: a page shows the ends of a log, the notebook holds it all."""
    lines = [
        line if len(line) <= MAX_LINE_LENGTH else f"{line[:MAX_LINE_LENGTH]} … ({len(line):,} characters)"
        for line in text.split("\n")
    ]
    left_out = len(lines) - MAX_LINES
    if left_out <= 0:
        return "\n".join(lines)
    note = f"… {left_out:,} lines are left out of this page …"
    return "\n".join([*lines[:HEAD_LINES], note, *lines[HEAD_LINES + left_out :]])


# --- cells -------------------------------------------------------------------------------------------------------


def _tags(cell: NotebookNode) -> set[str]:
    return set(cell.metadata.get("tags") or ())


def _purpose(cell: NotebookNode) -> str | None:
    """The tag that takes a cell out of the body; a cell that raised stays there, to be seen."""
    if cell.cell_type != "code" or any(output.output_type == "error" for output in cell.outputs):
        return None
    return next((tag for tag in (ANSWER, HEADLINE, PROBLEMS, FIGURES) if tag in _tags(cell)), None)


def _take_title(cells: list[NotebookNode]) -> str | None:
    """The first heading of level 1 that starts a cell, which loses it: the page has its own."""
    for cell in cells:
        if cell.cell_type == "markdown" and (found := _TITLE.match(cell.source)):
            cell.source = cell.source[found.end() :]
            return found.group(1)
    return None


def _reached(cells: list[NotebookNode]) -> list[NotebookNode]:
    executed = [place for place, cell in enumerate(cells) if cell.get("execution_count") is not None]
    return cells[: executed[-1] + 1] if executed else []


# --- outputs -----------------------------------------------------------------------------------------------------


def _prepare(cell: NotebookNode) -> None:
    cell.source = redact(cell.source)
    if "remove-output" in _tags(cell):
        cell.outputs = []
    for output in cell.outputs:
        if output.output_type == "stream":
            output.text = shorten(redact(output.text))
        elif output.output_type == "error":
            output.evalue = shorten(redact(output.evalue))
            output.traceback = [shorten(redact("\n".join(output.traceback)))]
        else:
            output.data = _shown_data(output.data)


def _shown_data(data: Mapping[str, Any]) -> dict[str, Any]:
    """The kinds of data that a page can show, or a note on what is left out."""
    shown = {kind: value for kind, value in data.items() if kind in SHOWN_KINDS or kind == _JSON}
    for kind, value in shown.items():
        if kind.startswith("text/"):
            shown[kind] = redact(value) if kind == "text/html" else shorten(redact(value))
    if not shown.keys() & set(SHOWN_KINDS):
        shown["text/plain"] = f"(not shown in this page: {', '.join(sorted(data)) or 'an empty output'})"
    return shown


def _text(output: NotebookNode) -> str:
    if output.output_type == "stream":
        # What libraries warn of is no answer.
        return str(output.text) if output.get("name") != "stderr" else ""
    data = output.data
    if "text/markdown" in data:
        return str(data["text/markdown"])
    if "text/html" in data:
        return plain_text(data["text/html"])
    literal = _literal(data.get("text/plain", ""))
    return literal if isinstance(literal, str) else str(data.get("text/plain", ""))


def _headline(output: NotebookNode) -> dict[str, Scalar]:
    if output.output_type == "stream":
        return {}
    found = output.data.get(_JSON)
    if not isinstance(found, Mapping):
        found = _literal(output.data.get("text/plain", ""))
    return {str(name): _scalar(value) for name, value in found.items()} if isinstance(found, Mapping) else {}


def _json_of(output: NotebookNode) -> Mapping[str, Any]:
    found = None if output.output_type == "stream" else output.data.get(_JSON)
    return found if isinstance(found, Mapping) else {}


def _scalar(value: object) -> Scalar:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)


def _literal(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None
