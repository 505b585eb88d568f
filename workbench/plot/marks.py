"""What every figure is made of: points with intervals by origin, a legend above, notes below."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from workbench.analysis.frames import known
from workbench.theme.style import ORIGINS, ROLES, UNKNOWN_ORIGIN, WIDTH, safe_label

_MOST_DRAWN = 1e15
_CHARACTERS_PER_INCH = 12.6  # of 10 pt text


def column(df: pd.DataFrame, name: str) -> pd.Series:
    """A numeric column as floats; all missing where the table has none of this name.

    What no axis can hold (infinite, or so large that the length of an axis overflows) is missing too.
    """
    if name not in df:
        return pd.Series(np.nan, index=df.index, dtype="float64")
    values = df[name].astype("float64")
    return values.where(values.abs() < _MOST_DRAWN)


def draw_points(
    ax: Axes,
    x: pd.Series,
    y: pd.Series,
    low: pd.Series,
    high: pd.Series,
    *,
    colour: str,
    origin: object,
    marker: str | None = None,
    horizontal: bool = False,
) -> None:
    """Points of one origin, with their intervals or ranges as bars; those without a value are left to the notes.

    A ``marker`` of their own replaces that of the origin, which their filling still tells.
    """
    mark = ORIGINS.get(str(origin), UNKNOWN_ORIGIN)
    values, places = (x, y) if horizontal else (y, x)
    shown = places.notna() & values.notna()
    bars = np.array([(values - low).clip(lower=0)[shown], (high - values).clip(lower=0)[shown]], dtype=np.float64)
    ax.errorbar(
        x[shown],
        y[shown],
        xerr=bars if horizontal else None,
        yerr=None if horizontal else bars,
        linestyle="none",
        marker=marker or mark.marker,
        fillstyle=mark.fill,
        color=colour,
        markeredgecolor=colour,
        markerfacecoloralt="white",
        markeredgewidth=1.5,
        elinewidth=1.5,
        capsize=3,
        zorder=3,
        label="_nolegend_",
    )


def point_handle(label: str, colour: str, origin: object, marker: str | None = None) -> Artist:
    """A legend entry for points as `draw_points` draws them."""
    mark = ORIGINS.get(str(origin), UNKNOWN_ORIGIN)
    return Line2D(
        [],
        [],
        linestyle="none",
        marker=marker or mark.marker,
        fillstyle=mark.fill,
        color=colour,
        markerfacecoloralt="white",
        markeredgewidth=1.5,
        label=label,
    )


def origin_handles(origins: Iterable[object], colour: str = ROLES["speculative"]) -> list[Artist]:
    """A legend entry for each origin that is drawn, always in the same order."""
    present = {str(origin) for origin in origins}
    marks = {name: mark for name, mark in ORIGINS.items() if name in present}
    if present - set(ORIGINS):
        marks["unknown"] = UNKNOWN_ORIGIN
    return [
        point_handle(mark.words, ROLES["published"] if mark.marker == "x" else colour, name)
        for name, mark in marks.items()
    ]


def legend_above(ax: Axes, handles: Sequence[Artist]) -> None:
    """A legend above the Axes, where it covers no data."""
    if not handles:
        return
    longest = max(len(str(handle.get_label())) for handle in handles)
    figure = ax.figure
    columns = max(1, min(3, len(handles), int(_CHARACTERS_PER_INCH * WIDTH * 0.95 / (longest + 7))))
    if isinstance(figure, Figure) and len(figure.axes) == 1:
        figure.legend(handles=list(handles), loc="outside upper left", ncols=columns, handletextpad=0.5)
        rows = -(-len(handles) // columns)
        figure.set_figheight(figure.get_figheight() + 0.22 * (rows - 1))
    else:
        ax.legend(handles=list(handles), loc="lower left", bbox_to_anchor=(0, 1.01), borderaxespad=0, ncols=columns)


def notes_below(ax: Axes, *sentences: str) -> None:
    """Sentences below everything else; a figure of one Axes grows by their lines."""
    figure, text = ax.figure, " ".join(" ".join(sentences).split())
    if not text:
        return
    style: dict[str, Any] = {"ha": "left", "fontsize": 10, "color": ROLES["missing"], "linespacing": 1.15}
    if not isinstance(figure, Figure) or len(figure.axes) > 1 or figure.get_layout_engine() is None:
        anchor = ("axes fraction", ax.xaxis.label if ax.get_xlabel() else "axes fraction")
        ax.annotate(
            textwrap.fill(text, 72),
            (0, 0),
            xycoords=anchor,
            xytext=(0, -8),
            textcoords="offset points",
            va="top",
            **style,
        )
        return
    lines = textwrap.wrap(text, int(figure.get_figwidth() * _CHARACTERS_PER_INCH))
    below = 0.17 * len(lines) + 0.12
    figure.set_figheight(figure.get_figheight() + below)
    share = below / figure.get_figheight()
    figure.get_layout_engine().set(rect=(0, share, 1, 1 - share))  # type: ignore[union-attr, call-arg]
    figure.text(0.012, share - 0.04 / figure.get_figheight(), "\n".join(lines), va="top", **style)


def some_of(names: Iterable[object], separator: str = ", ") -> str:
    """At most four names, and how many more there are."""
    held = list(dict.fromkeys(safe_label(name) for name in names if known(name)))
    more = f" and {len(held) - 4:,} more" if len(held) > 4 else ""
    return f"{separator.join(held[:4])}{more}"


def not_measured(labels: Iterable[object], what: str = "Not measured") -> str:
    """The sentence that names what could not be drawn; empty if there is nothing."""
    names = some_of(labels, "; ")
    return f"{what}: {names}." if names else ""


def run_count(rows: pd.DataFrame) -> str:
    return f"n = {len(rows):,} run{'' if len(rows) == 1 else 's'}."


def nothing_to_draw(ax: Axes, sentence: str) -> Axes:
    """An Axes that says why it is empty."""
    ax.set_axis_off()
    ax.text(0.5, 0.5, textwrap.fill(safe_label(sentence, 200), 60), ha="center", va="center", transform=ax.transAxes)
    return ax


def level_line(ax: Axes, y: float, colour: str, linestyle: str = "-", linewidth: float = 1.6) -> None:
    ax.axhline(y, color=colour, linestyle=linestyle, linewidth=linewidth, zorder=2)


def grow(ax: Axes, height: float) -> None:
    """Make room for a figure of rows, where the Axes has the figure to itself."""
    figure = ax.figure
    if isinstance(figure, Figure) and len(figure.axes) == 1 and figure.get_figheight() < height:
        figure.set_figheight(height)


def log_ticks(axis: Axis, words: Callable[[float], str], subs: Sequence[float] = (1, 2, 5)) -> None:
    """Ticks of a log axis at ``subs`` times the powers of ten, in ``words``. After the scale is set."""
    axis.set_major_locator(LogLocator(10, subs=subs))
    axis.set_major_formatter(FuncFormatter(lambda value, _: words(value)))
    axis.set_minor_formatter(NullFormatter())


def plain_number(value: float) -> str:
    """A tick without powers of ten: 0.5, 20, 1,000."""
    return f"{value:,.6g}" if value < 10 else f"{value:,.0f}"
