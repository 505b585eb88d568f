"""What every figure is made of: points with intervals by origin, labels that keep clear of each other, notes below."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import patheffects
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

from workbench.analysis.frames import known
from workbench.theme.style import ORIGINS, ROLES, UNKNOWN_ORIGIN, WIDTH, safe_label

_HALO = [patheffects.withStroke(linewidth=3, foreground="white")]
_CHARACTERS_PER_INCH = 12.6  # of 10 pt text
_GAP = 2.0  # pixels between two labels


@dataclass(frozen=True, slots=True)
class Label:
    """Text that belongs to a place in data coordinates."""

    x: float
    y: float
    text: str
    colour: str = ROLES["baseline"]


def column(df: pd.DataFrame, name: str) -> pd.Series:
    """A numeric column as floats; all missing where the table has none of this name."""
    if name not in df:
        return pd.Series(np.nan, index=df.index, dtype="float64")
    return df[name].astype("float64")


def draw_points(
    ax: Axes,
    x: pd.Series,
    y: pd.Series,
    low: pd.Series,
    high: pd.Series,
    *,
    colour: str,
    origin: object,
    horizontal: bool = False,
) -> None:
    """Points of one origin, with their intervals or ranges as bars; those without a value are left to the notes."""
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
        marker=mark.marker,
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


def origin_handles(origins: Iterable[object], colour: str = ROLES["speculative"]) -> list[Artist]:
    """A legend entry for each origin that is drawn, always in the same order."""
    present = {str(origin) for origin in origins}
    marks = [mark for name, mark in ORIGINS.items() if name in present]
    if present - set(ORIGINS):
        marks.append(UNKNOWN_ORIGIN)
    return [
        Line2D(
            [],
            [],
            linestyle="none",
            marker=mark.marker,
            fillstyle=mark.fill,
            color=ROLES["published"] if mark.marker == "x" else colour,
            markerfacecoloralt="white",
            markeredgewidth=1.5,
            label=mark.words,
        )
        for mark in marks
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
    else:
        ax.legend(handles=list(handles), loc="lower left", bbox_to_anchor=(0, 1.01), borderaxespad=0, ncols=columns)


def notes_below(ax: Axes, *sentences: str) -> None:
    """Sentences below everything else; a figure of one Axes grows by their lines."""
    figure, text = ax.figure, " ".join(filter(None, sentences))
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


def not_measured(labels: Iterable[object], what: str = "Not measured") -> str:
    """The sentence that names what could not be drawn, at most four of them."""
    names = list(dict.fromkeys(safe_label(label) for label in labels if known(label)))
    if not names:
        return ""
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return f"{what}: {'; '.join(names[:4])}{more}."


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


def label_right(ax: Axes, labels: Sequence[Label]) -> None:
    """Labels in the right margin at the height of their lines, pushed apart where they would overlap."""
    if not labels:
        return
    _lay_out(ax)
    inside = ax.get_window_extent()
    scale = ax.figure.dpi / 72
    held = sorted(labels, key=lambda label: label.y)
    wrapped = {label: _wrapped(label.text, 18) for label in held}
    heights = [(wrapped[label].count("\n") + 1) * 12.5 * scale for label in held]
    wanted = [float(ax.transData.transform((label.x, label.y))[1]) for label in held]
    places = _within(_spread(wanted, heights), heights, inside.y0 - 20, inside.y1 + 10)
    for label, height, place, line in zip(held, heights, places, wanted, strict=True):
        moved = abs(place - line) > height / 4
        ax.annotate(
            wrapped[label],
            xy=(1, (line - inside.y0) / inside.height),
            xycoords="axes fraction",
            xytext=(10 if moved else 5, (place - line) / scale),
            textcoords="offset points",
            ha="left",
            va="center",
            fontsize=10,
            color=label.colour,
            linespacing=1.1,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": label.colour, "linewidth": 0.8, "shrinkA": 0} if moved else None,
        )


def _spread(wanted: Sequence[float], heights: Sequence[float]) -> list[float]:
    """Places in rising order, as near to the wanted ones as their heights allow: overlapping ones form blocks."""
    blocks: list[tuple[float, float, int]] = []  # centre, height, members
    for place, height in zip(wanted, heights, strict=True):
        block = (place, height + _GAP, 1)
        while blocks and blocks[-1][0] + blocks[-1][1] / 2 > block[0] - block[1] / 2:
            centre, size, members = blocks.pop()
            total = members + block[2]
            block = ((centre * members + block[0] * block[2]) / total, size + block[1], total)
        blocks.append(block)
    places: list[float] = []
    for centre, size, members in blocks:
        bottom = centre - size / 2
        for height in heights[len(places) : len(places) + members]:
            places.append(bottom + (height + _GAP) / 2)
            bottom += height + _GAP
    return places


def _wrapped(text: str, width: int) -> str:
    return "\n".join(textwrap.fill(line, width) for line in text.split("\n"))


def _within(places: Sequence[float], heights: Sequence[float], bottom: float, top: float) -> list[float]:
    """The places moved together, so that none sticks out above, or else below."""
    over = max(0.0, places[-1] + heights[-1] / 2 - top)
    under = max(0.0, bottom - (places[0] - over - heights[0] / 2))
    return [place - over + under for place in places]


def label_points(ax: Axes, labels: Sequence[Label], bars: Sequence[tuple[float, float, float]] = ()) -> None:
    """Labels beside their points, each at the free place nearest to it; to be called last.

    They keep clear of everything that is drawn with lines and markers, and of ``bars``: x, low and high.
    """
    if not labels:
        return
    _lay_out(ax)
    inside = ax.get_window_extent()
    taken = [*_drawn_boxes(ax), *(_bar_box(ax, *bar) for bar in bars)]
    taken += [text.get_window_extent() for text in ax.texts if text.get_text()]
    for label in labels:
        text = ax.annotate(
            _wrapped(label.text, 24),
            xy=(label.x, label.y),
            textcoords="offset points",
            xytext=(0, 0),
            fontsize=10,
            color=label.colour,
            linespacing=1.05,
            path_effects=_HALO,
            annotation_clip=False,
            zorder=4,
        )
        taken.append(_place(text, inside, taken))


def _drawn_boxes(ax: Axes) -> list[Bbox]:
    """Small boxes around every marker and along every line of the Axes, in pixels."""
    boxes: list[Bbox] = []
    for line in ax.lines:
        shown = line.get_transform().transform(np.asarray(line.get_xydata(), dtype=np.float64))
        half = 6.0
        if line.get_linestyle() not in ("None", "none", " ", ""):
            half = 2.0
            steps = [np.linspace(one, two, 40) for one, two in itertools.pairwise(shown)]
            shown = np.concatenate(steps) if steps else shown
        boxes += [Bbox.from_extents(x - half, y - half, x + half, y + half) for x, y in shown if np.isfinite(x + y)]
    return boxes


def _bar_box(ax: Axes, x: float, low: float, high: float) -> Bbox:
    (left, bottom), (_, top) = ax.transData.transform([(x, low), (x, high)])
    return Bbox.from_extents(left - 4, bottom - 2, left + 4, top + 2)


_PLACES = [
    (side * distance, height, {1: "left", -1: "right", 0: "center"}[side], {0: "center"}.get(height, "center"))
    for height in (0, 12, -12, 24, -24, 38, -38)
    for side, distance in ((1, 9), (-1, 9), (0, 0))
    if (side, height) != (0, 0)
]


def _place(text: Annotation, inside: Bbox, taken: Sequence[Bbox]) -> Bbox:
    """Move the text to the free place nearest to its point; where none is free, to the one that hides least."""
    best: tuple[float, tuple[float, float, str, str]] | None = None
    for place in _PLACES:
        box = _move(text, place)
        hidden = sum(_overlap(box, other) for other in taken) + 4 * _outside(box, inside)
        if best is None or hidden < best[0]:
            best = hidden, place
        if hidden == 0:
            break
    assert best is not None
    return _move(text, best[1])


def _move(text: Annotation, place: tuple[float, float, str, str]) -> Bbox:
    text.set_position(place[:2])
    text.set_horizontalalignment(place[2])  # type: ignore[arg-type]
    text.set_verticalalignment(place[3])  # type: ignore[arg-type]
    return text.get_window_extent()


def _overlap(one: Bbox, other: Bbox) -> float:
    width = min(one.x1, other.x1) - max(one.x0, other.x0)
    height = min(one.y1, other.y1) - max(one.y0, other.y0)
    return float(width * height) if width > 0 and height > 0 else 0.0


def _outside(box: Bbox, inside: Bbox) -> float:
    return float(box.width * box.height) - _overlap(box, inside)


def _lay_out(ax: Axes) -> None:
    """Settle the layout, so that places in pixels mean what they will mean when the figure is drawn."""
    figure = ax.figure
    (figure if isinstance(figure, Figure) else figure.get_figure(root=True)).draw_without_rendering()
