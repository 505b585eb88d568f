"""Figures and tables as HTML for notebooks and pages: alt text, captions, downloads; everything escaped.

Pages carry no script and no outside address, so pictures and downloads are ``data:`` URIs.
"""

from __future__ import annotations

import base64
import io
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure

from workbench.errors import UsageError
from workbench.terminal import no_formula

DOWNLOAD_LIMIT_BYTES = 200_000
NOT_MEASURED = "not measured"
LONG_TEXT = 40  # characters from which a column needs room of its own
_DPI = 144
_NUMBER = re.compile("[<>+-]?[0-9.,]+(\N{EN DASH}[0-9.,]+)?( ?%)?")
_UNITS = {"tok_per_s": "tok/s", "ms": "ms", "s": "s", "bytes": "bytes", "gb": "GB"}

Format = str | Callable[[Any], str]
_COLLECTING: ContextVar[list[tuple[Markup, str]] | None] = ContextVar("collecting", default=None)


def show_figure(
    fig: Figure, *, alt: str, caption: str, data: pd.DataFrame | None = None, name: str | None = None
) -> None:
    """Display a figure once, with alt text, caption and the data behind it as a CSV download.

    Parameters
    ----------
    alt
        What the figure says, for those who cannot see it.
    data, name
        The rows that were drawn, and the file name to give them (without ``.csv``).
    """
    display_html(figure_html(fig, alt=alt, caption=caption, data=data, name=name), f"{caption}\n[{alt}]")


def show_table(
    df: pd.DataFrame,
    *,
    caption: str,
    columns: Mapping[str, str] | None = None,
    formats: Mapping[str, Format] | None = None,
    missing: str = NOT_MEASURED,
    empty: str = "Nothing to show.",
    max_rows: int = 40,
    data: pd.DataFrame | None = None,
    name: str | None = None,
) -> None:
    """Display a table; the arguments are those of `table_html`."""
    page = table_html(
        df,
        caption=caption,
        columns=columns,
        formats=formats,
        missing=missing,
        empty=empty,
        max_rows=max_rows,
        data=data,
        name=name,
    )
    display_html(page, f"{caption}\n{df.head(max_rows).to_string(index=False)}" if len(df) else f"{caption}: {empty}")


def figure_html(
    fig: Figure, *, alt: str, caption: str, data: pd.DataFrame | None = None, name: str | None = None
) -> Markup:
    """A ``<figure>`` with the picture as PNG; the figure is emptied, so that it cannot be shown twice.

    Raises
    ------
    UsageError
        Without alt text.
    """
    if not alt.strip():
        raise UsageError("a figure needs alt text", where=caption, next_step="say in one sentence what it shows")
    width = round(fig.get_figwidth() * 96)
    png = io.BytesIO()
    fig.savefig(png, format="png", dpi=_DPI, metadata={"Software": None})
    fig.clear()
    return Markup(
        '<figure class="wb-figure"><img src="data:image/png;base64,{png}" alt="{alt}" width="{width}" '
        'style="max-width:100%;height:auto;background:#fff">'
        "<figcaption>{caption}{download}</figcaption></figure>"
    ).format(
        png=base64.b64encode(png.getvalue()).decode(),
        alt=" ".join(alt.split()),
        width=width,
        caption=caption,
        download="" if data is None else Markup(" ") + csv_link(data, name or caption),
    )


def table_html(
    df: pd.DataFrame,
    *,
    caption: str,
    columns: Mapping[str, str] | None = None,
    formats: Mapping[str, Format] | None = None,
    missing: str = NOT_MEASURED,
    empty: str = "Nothing to show.",
    max_rows: int = 40,
    data: pd.DataFrame | None = None,
    name: str | None = None,
) -> Markup:
    """A table that scrolls inside its own box, with a CSV download of all rows and columns.

    Parameters
    ----------
    columns
        The columns to show, in order, with their headings; all of them, with headings made from their names, if
        omitted. The first one heads the rows.
    formats
        A format string such as ``"{:.2f}"`` or a function by column; others are shown with sensible digits.
    missing
        What stands in for a missing value.
    empty
        The sentence that stands in for a table without rows.
    data, name
        What the download holds (the whole of ``df`` if omitted), and the file name to give it (without ``.csv``).
    """
    if df.empty:
        return Markup('<p class="wb-empty"><strong>{}.</strong> {}</p>').format(caption.rstrip("."), empty)
    headings = columns or {str(column): heading(str(column)) for column in df.columns}
    shown = df.head(max_rows)
    cells = {column: _cells(shown[column], (formats or {}).get(column), missing) for column in headings}
    head = Markup("").join(
        Markup('<th scope="col"{}>{}</th>').format(_align(shown[column]), text) for column, text in headings.items()
    )
    body = Markup("\n").join(_row([cells[column][k] for column in headings]) for k in range(len(shown)))
    download = csv_link(df if data is None else data, name or caption)
    return Markup(
        '<div class="wb-table" role="region" tabindex="0" aria-label="{caption}" style="overflow-x:auto">\n'
        "<table><caption>{caption}</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
        '<p class="wb-download-line">{more}{download}</p>'
    ).format(
        caption=caption,
        head=head,
        body=body,
        more=f"{len(df) - max_rows:,} more rows{' in the download' if 'href=' in download else ''}. "
        if len(df) > max_rows
        else "",
        download=download,
    )


def show_facts(facts: Sequence[tuple[str, str]], *, empty: str) -> None:
    """Display labels and what is said of each, as a list in a box; ``empty`` where there are none."""
    rows = Markup("").join(Markup("<dt>{}</dt><dd>{}</dd>").format(label, text) for label, text in facts)
    html = Markup('<dl class="wb-facts wb-box">{}</dl>').format(rows)
    if not facts:
        html = Markup('<p class="wb-empty">{}</p>').format(empty)
    display_html(html, "\n".join(f"{label}: {text}" for label, text in facts) or empty)


def csv_link(df: pd.DataFrame, name: str) -> Markup:
    """A download of the rows inside the page; a sentence where they would make the page too heavy."""
    rows = "1 row" if len(df) == 1 else f"{len(df):,} rows"
    # More rows than bytes allow need not be written to know it.
    text = b"" if len(df) > DOWNLOAD_LIMIT_BYTES // 2 else _spreadsheet_safe(df).to_csv(index=False).encode()
    if not text or len(text) > DOWNLOAD_LIMIT_BYTES:
        return Markup('<span class="wb-download">Data: {}, too large for the page.</span>').format(rows)
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60] or "data"
    return Markup(
        '<a class="wb-download" download="{}.csv" href="data:text/csv;charset=utf-8;base64,{}">CSV, {}</a>'
    ).format(slug, base64.b64encode(text).decode(), rows)


def heading(column: str) -> str:
    """A column name as words, with its unit: ``t_cycle_ms`` becomes ``t cycle (ms)``."""
    for suffix, unit in _UNITS.items():
        if column == suffix:
            return unit
        if column.endswith(f"_{suffix}"):
            return f"{column.removesuffix(f'_{suffix}').replace('_', ' ')} ({unit})"
    return column.replace("_", " ")


def digits(value: float) -> str:
    """A number with the digits that are worth reading."""
    size = abs(value)
    if not math.isfinite(value):
        return "infinite" if value > 0 else "minus infinite"
    if size >= 100 or value == 0:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if size >= 0.1 else f"{value:.2g}"


def display_html(page: Markup, text: str) -> None:
    into = _COLLECTING.get()
    if into is not None:
        into.append((page, text))
        return
    from IPython.display import display  # only a notebook has somewhere to display to

    display({"text/html": str(page), "text/plain": text}, raw=True)  # type: ignore[no-untyped-call]


@contextmanager
def collecting() -> Iterator[list[tuple[Markup, str]]]:
    """Within the block what would be displayed is gathered: the HTML and the text of each piece."""
    pieces: list[tuple[Markup, str]] = []
    token = _COLLECTING.set(pieces)
    try:
        yield pieces
    finally:
        _COLLECTING.reset(token)


def _row(cells: list[tuple[str, Markup]]) -> Markup:
    first, *others = cells
    head = Markup('<th scope="row"{}>{}</th>').format(first[1], first[0])
    return Markup("<tr>{}{}</tr>").format(
        head, Markup("").join(Markup("<td{}>{}</td>").format(align, text) for text, align in others)
    )


def _cells(values: pd.Series, form: Format | None, missing: str) -> list[tuple[str, Markup]]:
    texts = [_text(value, form, missing) for value in values.tolist()]
    look = Markup(' class="long"') if any(len(text) > LONG_TEXT for text in texts) else _align(values)
    return [(text, look) for text in texts]


def _align(values: pd.Series) -> Markup:
    """Numbers stand at the right, and so do texts that are numbers or ranges of them."""
    numeric = pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)
    if not numeric and values.notna().any():
        numeric = all(isinstance(value, str) and _NUMBER.fullmatch(value) for value in values.dropna())
    return Markup(' class="num" style="text-align:right"') if numeric else Markup("")


def _text(value: Any, form: Format | None, missing: str) -> str:
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(_text(item, form, missing) for item in value)
    if value is None or pd.isna(value):
        return missing
    if form is not None:
        return form.format(value) if isinstance(form, str) else form(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return digits(value) if isinstance(value, float) else str(value)


def _spreadsheet_safe(df: pd.DataFrame) -> pd.DataFrame:
    def safe(value: object) -> object:
        return no_formula(value) if isinstance(value, str) else value

    texts = [column for column in df.columns if not pd.api.types.is_numeric_dtype(df[column])]
    return df.assign(**{str(column): df[column].map(safe) for column in texts})
