"""What a verify cycle costs, by steps and draft tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from workbench.plot.labels import Label, label_beside
from workbench.plot.marks import column, draw_points, legend_above, nothing_to_draw, origin_handles
from workbench.plot.names import setting_words
from workbench.theme.style import ROLES, SeriesStyle, level_styles, themed

# What tells the lines of one figure apart, where it differs; concurrency always does.
_APART = ("campaign", "baseline_group", "drafter", "cuda_graph", "prompt_set", "ignore_eos", "basis")
_MOST_NAMES = 12


@themed
def plot_step_time(points: pd.DataFrame, *, axes: Sequence[Axes]) -> Sequence[Axes]:
    """Break-even by draft tokens with the fitted lines, and below it what the fit leaves of each cycle time.

    ``points`` are those of a `StepTimeFit`. A colour is a concurrency. Lines join the fitted values of chains, and of
    trees with the same number of steps; a tree has its steps beside it.
    """
    known = points.dropna(subset=["fitted_ms", "break_even"])
    if known.empty:
        nothing_to_draw(axes[0], "No group of runs has enough shapes for a fit of the cycle time.")
        for ax in axes[1:]:
            ax.set_axis_off()
        return axes
    known = known.assign(series=_series(known), chain=known["num_draft_tokens"] == known["num_steps"] + 1)
    styles = level_styles(known.sort_values("max_concurrency", kind="stable")["series"])
    names: list[Label] = []
    for name, same in known.groupby("series"):
        _draw(axes, same, styles[str(name)])
        names += _trees(same, styles[str(name)].colour)
    top, bottom = axes[0], axes[-1]
    top.axhline(1, color=ROLES["baseline"], linewidth=1.2, zorder=1)
    top.set_ylabel("break-even\naccept length")
    bottom.axhline(0, color=ROLES["baseline"], linewidth=1.2, zorder=1)
    bottom.set_ylabel("residual (ms)")
    bottom.set_xlabel("draft tokens, root included")
    bottom.xaxis.set_major_locator(MaxNLocator(integer=True))
    lines = [_line(name, style) for name, style in styles.items()]
    legend_above(top, [*lines, *origin_handles(known["origin"], ROLES["missing"])])
    label_beside(top, names)
    return axes


def _draw(axes: Sequence[Axes], same: pd.DataFrame, style: SeriesStyle) -> None:
    top, bottom = axes[0], axes[-1]
    tokens = column(same, "num_draft_tokens")
    for values, ax in ((column(same, "break_even"), top), (column(same, "residual_ms"), bottom)):
        for origin, own in same.groupby("origin"):
            place, value = tokens[own.index], values[own.index]
            draw_points(ax, place, value, value, value, colour=style.colour, origin=origin)
    for _, line in same.groupby(same["num_steps"].mask(same["chain"].astype(bool), 0)):
        fitted = line.groupby("num_draft_tokens")["fitted_break_even"].mean()
        top.plot(fitted.index.astype(float), fitted, color=style.colour, linestyle=style.linestyle, linewidth=1.3)


def _trees(same: pd.DataFrame, colour: str) -> list[Label]:
    """The steps of each tree, unless there are too many."""
    trees = same[~same["chain"].astype(bool)].drop_duplicates(["num_steps", "num_draft_tokens"])
    return [
        Label(float(row["num_draft_tokens"]), float(row["break_even"]), f"{row['num_steps']}", colour)
        for row in (trees.to_dict("records") if len(trees) <= _MOST_NAMES else [])
    ]


def _line(name: str, style: SeriesStyle) -> Artist:
    look: Any = style.linestyle
    return Line2D([], [], color=style.colour, linestyle=look, label=name)


def _series(points: pd.DataFrame) -> list[str]:
    """The concurrency of each point, and the settings in which the points differ besides."""
    apart = [name for name in _APART if len(points[name].dropna().unique()) > 1]
    return [
        ", ".join(setting_words(name, row[name]) for name in ("max_concurrency", *apart))
        for row in points.to_dict("records")
    ]
