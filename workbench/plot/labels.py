"""Labels beside points and lines that keep clear of each other and of what is drawn."""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from workbench.analysis.frames import Floats
from workbench.theme.style import ROLES

_FONT = 10
_GAP = 2.0  # pixels between two labels in the margin
_HALO = [patheffects.withStroke(linewidth=3, foreground="white")]
_LEADER = {"arrowstyle": "-", "linewidth": 0.8, "shrinkA": 0, "shrinkB": 4}

# Where a label may stand, in points from its point, nearest first: right of it, left of it, over or under it.
_OFFSETS = [
    (side * 9, height)
    for height in (0, 11, -11, 22, -22, 34, -34, 48, -48, 64, -64)
    for side in (1, -1, 0)
    if side or abs(height) > 11
]


Box = tuple[float, float, float, float]  # x0, y0, x1, y1 in pixels


@dataclass(frozen=True, slots=True)
class Label:
    """Text that belongs to a place in data coordinates."""

    x: float
    y: float
    text: str
    colour: str = ROLES["baseline"]


def label_points(ax: Axes, labels: Sequence[Label], bars: Sequence[tuple[float, float, float]] = ()) -> None:
    """Labels beside their points, each at the free place nearest to it; to be called last.

    They keep clear of everything drawn with lines and markers, and of ``bars``: x, low and high. Where no place is
    free the one that hides least is taken.
    """
    if not labels:
        return
    _lay_out(ax)
    inside = np.array([ax.get_window_extent().extents])
    taken = np.array([*_drawn_boxes(ax), *(_bar_box(ax, *bar) for bar in bars), *_text_boxes(ax)]).reshape(-1, 4)
    offsets = np.array(_OFFSETS) * ax.figure.dpi / 72
    for label in labels:
        text = ax.annotate(_wrapped(label.text, 16), (label.x, label.y), **_look(label), path_effects=_HALO, zorder=4)
        size = text.get_window_extent()
        boxes = _boxes(ax.transData.transform((label.x, label.y)) + offsets, size.width, size.height, offsets[:, 0])
        hidden = _shared(boxes, taken).sum(axis=1) + 4 * (size.width * size.height - _shared(boxes, inside)[:, 0])
        best = int(hidden.round(3).argmin())
        across, up = _OFFSETS[best]
        text.set_position((across, up))
        text.set_horizontalalignment("center" if across == 0 else "left" if across > 0 else "right")
        taken = np.vstack([taken, boxes[best]])
        if abs(up) > 30:
            end = up - np.sign(up) * size.height / 2 * 72 / ax.figure.dpi
            ax.annotate("", (label.x, label.y), (across, end), textcoords="offset points", arrowprops=_leader(label))


def most_named(labels: Sequence[Label], most: int = 8) -> tuple[list[Label], str]:
    """The labels that fit into a margin, highest first, and the sentence on the others."""
    if len(labels) <= most:
        return list(labels), ""
    highest = sorted(labels, key=lambda label: label.y, reverse=True)[:most]
    return highest, f"Of {len(labels)} lines the {most} highest are named."


def label_right(ax: Axes, labels: Sequence[Label]) -> None:
    """Labels in the right margin at the height of their lines, pushed apart where they would overlap."""
    if not labels:
        return
    _lay_out(ax)
    inside, scale = ax.get_window_extent(), ax.figure.dpi / 72
    held = sorted(labels, key=lambda label: label.y)
    texts = [_wrapped(label.text, 18) for label in held]
    heights = [(text.count("\n") + 1) * 1.25 * _FONT * scale for text in texts]
    lines = [float(ax.transData.transform((label.x, label.y))[1]) for label in held]
    places = _within(_spread(lines, heights), heights, inside.y0 - 20, inside.y1 + 10)
    for label, text, height, place, line in zip(held, texts, heights, places, lines, strict=True):
        moved = abs(place - line) > height / 4
        ax.annotate(
            text,
            xy=(1, (line - inside.y0) / inside.height),
            xycoords="axes fraction",
            **_look(label) | {"xytext": (10 if moved else 5, (place - line) / scale)},
            arrowprops=_leader(label) | {"relpos": (0, 0.5)} if moved else None,
        )


def label_beside(ax: Axes, labels: Sequence[Label]) -> None:
    """Short labels right of their points, those of one place on the x axis pushed apart where they would overlap."""
    if not labels:
        return
    _lay_out(ax)
    scale = ax.figure.dpi / 72
    ordered = sorted(labels, key=lambda label: (label.x, label.y))
    for _, same in itertools.groupby(ordered, key=lambda label: label.x):
        held = list(same)
        points = [float(ax.transData.transform((label.x, label.y))[1]) for label in held]
        for label, place, point in zip(held, _spread(points, [_FONT * scale] * len(held)), points, strict=True):
            look = _look(label) | {"xytext": (7, (place - point) / scale), "path_effects": _HALO}
            ax.annotate(label.text, (label.x, label.y), **look)


def _look(label: Label) -> dict[str, Any]:
    return {
        "xytext": (0, 0),
        "textcoords": "offset points",
        "va": "center",
        "fontsize": _FONT,
        "color": label.colour,
        "linespacing": 1.1,
        "annotation_clip": False,
    }


def _leader(label: Label) -> dict[str, Any]:
    return _LEADER | {"color": label.colour}


def _wrapped(text: str, width: int) -> str:
    """The text in lines of that width; a number stays with the word before it."""
    joined = re.sub(r" (?=\d)", "\N{NO-BREAK SPACE}", text)
    return "\n".join(textwrap.fill(line, width) for line in joined.split("\n"))


def _lay_out(ax: Axes) -> None:
    """Settle the layout, so that places in pixels mean what they will mean when the figure is drawn."""
    figure = ax.figure
    (figure if isinstance(figure, Figure) else figure.get_figure(root=True)).draw_without_rendering()


def _drawn_boxes(ax: Axes) -> list[Box]:
    """Small boxes around every marker and along every line of the Axes."""
    boxes: list[Box] = []
    for line in ax.lines:
        shown = line.get_transform().transform(np.asarray(line.get_xydata(), dtype=np.float64))
        half = 6.0
        if line.get_linestyle() not in ("None", "none", " ", ""):
            half = 2.0
            between = [np.linspace(one, two, 40) for one, two in itertools.pairwise(shown)]
            shown = np.concatenate(between) if between else shown
        boxes += [(x - half, y - half, x + half, y + half) for x, y in shown if np.isfinite(x + y)]
    return boxes


def _bar_box(ax: Axes, x: float, low: float, high: float) -> Box:
    (left, bottom), (_, top) = ax.transData.transform([(x, low), (x, high)])
    return left - 4, bottom - 2, left + 4, top + 2


def _text_boxes(ax: Axes) -> list[Box]:
    extents = [text.get_window_extent() for text in ax.texts if text.get_text()]
    return [(box.x0, box.y0, box.x1, box.y1) for box in extents]


def _boxes(places: Floats, width: float, height: float, across: Floats) -> Floats:
    """Boxes of a text of that size at each place, on the side that ``across`` says."""
    left = places[:, 0] - np.where(across > 0, 0, np.where(across < 0, width, width / 2))
    bottom = places[:, 1] - height / 2
    return np.column_stack([left, bottom, left + width, bottom + height])


def _shared(boxes: Floats, others: Floats) -> Floats:
    """Area that each box shares with each of the others, shape (boxes, others)."""
    corner = np.maximum(boxes[:, None, :2], others[None, :, :2])
    opposite = np.minimum(boxes[:, None, 2:], others[None, :, 2:])
    return np.asarray(np.clip(opposite - corner, 0, None).prod(axis=2), dtype=np.float64)


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


def _within(places: Sequence[float], heights: Sequence[float], bottom: float, top: float) -> list[float]:
    """The places moved together, so that none sticks out above, or else below."""
    over = max(0.0, places[-1] + heights[-1] / 2 - top)
    under = max(0.0, bottom - (places[0] - over - heights[0] / 2))
    return [place - over + under for place in places]
