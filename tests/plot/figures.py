"""What the plot tests share: text boxes of a figure, small tables with the declared columns, recorded campaigns."""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from workbench.analysis.frames import typed
from workbench.table import Tables, load_tables

COSTS = {
    "campaign": "str",
    "run_id": "str",
    "label": "str",
    "baseline_run_id": "str",
    "baseline_group": "str",
    "drafter": "str",
    "num_steps": "Int64",
    "eagle_topk": "Int64",
    "num_draft_tokens": "Int64",
    "cuda_graph": "boolean",
    "prompt_set": "str",
    "max_concurrency": "Int64",
    "ignore_eos": "boolean",
    "origin": "str",
    "base_tok_per_s": "float64",
    "tok_per_s": "float64",
    "accept_length": "float64",
    "accept_length_low": "float64",
    "accept_length_high": "float64",
    "break_even": "float64",
    "break_even_low": "float64",
    "break_even_high": "float64",
    "gain_needed": "float64",
    "speedup": "float64",
}
HOSTILE = [
    "<script>alert(1)</script>",
    r"$\frac{1}{$",
    "two\nlines\tand a tab",
    "long " * 60,
    "模型 draft \u0000\u202e",
    "50% {brace} \\alpha _x^2",
]


def costs(*rows: dict[str, object]) -> pd.DataFrame:
    """Costs of recorded runs of drafter "d" at concurrency 1, unless a row says otherwise."""
    common = {"campaign": "c", "drafter": "d", "origin": "recorded", "max_concurrency": 1, "baseline_run_id": "base"}
    return typed([{"label": row["run_id"], **common, **row} for row in rows], COSTS)


@lru_cache
def recorded(campaign: str) -> Tables:
    return load_tables(Path(__file__).parents[2] / "data" / "recorded" / campaign)


def points(ax: Axes, colour: str | None = None) -> set[tuple[float, float]]:
    """Coordinates of everything drawn with markers (the caps of error bars are none), rounded."""
    caps = {cap for container in ax.containers for cap in container.lines[1]}
    marked = [line for line in ax.lines if line.get_marker() not in ("None", "", None) and line not in caps]
    chosen = [line for line in marked if colour is None or line.get_color() == colour]
    xy = [place for line in chosen for place in np.asarray(line.get_xydata(), dtype=float)]
    return {(round(float(x), 4), round(float(y), 4)) for x, y in xy if np.isfinite(x + y)}


def words(figure: Figure) -> list[str]:
    """Every text that is drawn, whole lines joined."""
    return [" ".join(text.get_text().split()) for text in texts(figure)]


def texts(figure: Figure) -> list[Text]:
    figure.draw_without_rendering()
    hidden = {text for ax in figure.axes for text in _hidden_ticks(ax)}
    return [
        text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip() and text not in hidden
    ]


def _hidden_ticks(ax: Axes) -> list[Text]:
    """Tick labels that exist and are not drawn: those of a hidden axis and those outside the limits."""
    hidden = []
    for axis in (ax.xaxis, ax.yaxis):
        low, high = sorted(axis.get_view_interval())
        for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
            if not (ax.axison and low <= tick.get_loc() <= high):
                hidden += [tick.label1, tick.label2]
    return hidden


def collisions(figure: Figure) -> list[str]:
    """Pairs of texts that overlap, and texts that are cut off by the edge of the figure."""
    boxes = [(text.get_text(), Text.get_window_extent(text)) for text in texts(figure)]  # without arrows
    edge = figure.bbox
    cut = [
        f"cut off: {text!r}"
        for text, box in boxes
        if box.x0 < edge.x0 - 1 or box.x1 > edge.x1 + 1 or box.y0 < edge.y0 - 1 or box.y1 > edge.y1 + 1
    ]
    over = [
        f"{one!r} over {other!r}"
        for (one, first), (other, second) in combinations(boxes, 2)
        if min(first.x1, second.x1) - max(first.x0, second.x0) > 1.5
        and min(first.y1, second.y1) - max(first.y0, second.y0) > 2.5
    ]
    return cut + over
