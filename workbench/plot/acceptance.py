"""What is accepted, position by position and step by step."""

from __future__ import annotations

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from workbench.plot.marks import column, grow, legend_above, notes_below, nothing_to_draw
from workbench.plot.names import row_names
from workbench.theme.style import rows_height, series_styles, themed

_MOST_LINES = 6
_MOST_ROWS = 30


@themed
def plot_survival(survival: pd.DataFrame, *, ax: Axes) -> Axes:
    """Share of verify steps that accept at least so many drafts, a line a run with its 95 % interval.

    Of many runs those with the longest chains are drawn, then those with the most verify steps.
    """
    if survival.empty:
        return nothing_to_draw(ax, "No run kept per-request histograms: acceptance by position is not known.")
    named = survival.assign(name=row_names(survival))
    size = named.groupby("name").agg(last=("position", "max"), steps=("num_verify_steps", "max"))
    chosen = size.sort_values(["last", "steps"], ascending=False).head(_MOST_LINES)
    styles = series_styles(chosen.index)
    handles: list[Artist] = []
    for name, line in named[named["name"].isin(chosen.index)].groupby("name"):
        style = styles[str(name)]
        position = column(line, "position")
        ax.fill_between(position, line["low"], line["high"], color=style.colour, alpha=0.12, linewidth=0)
        handles += ax.plot(
            position,
            line["survival"],
            color=style.colour,
            linestyle=style.linestyle,
            marker=".",
            label=str(name),
        )
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    ax.set_ylim(0, min(1.0, float(named["high"].fillna(named["survival"]).max()) * 1.1))
    ax.set_xlabel("position in the chain of drafts")
    ax.set_ylabel("verify steps that\nget this far")
    more = f"{len(size) - len(chosen)} more runs in the table." if len(size) > len(chosen) else ""
    low, high = chosen["steps"].min(), chosen["steps"].max()
    legend_above(ax, handles)
    notes_below(ax, f"n = {low:,} to {high:,} verify steps a run. Bands are 95 % intervals over prompts.", more)
    return ax


@themed
def plot_spread(spread: pd.DataFrame, *, ax: Axes) -> Axes:
    """Share of verify steps that accept exactly 0, 1, 2 ... drafts, a row a run: what the mean hides."""
    if spread.empty:
        return nothing_to_draw(ax, "No run kept per-request histograms: the spread is not known.")
    named = spread.assign(name=row_names(spread))
    steps = named.groupby("name", sort=False)["num_verify_steps"].max()
    shares = named.pivot_table(index="name", columns="correct_drafts", values="share", sort=False)
    shares = shares.reindex(columns=sorted(shares.columns))
    shown = shares.head(_MOST_ROWS)
    grow(ax, rows_height(len(shown)))
    words = np.where(shown.isna(), "", shown.map(lambda share: f"{share:.0%}").to_numpy())
    sns.heatmap(
        shown.astype("float64"), ax=ax, annot=words, fmt="", cmap="Blues", vmin=0, vmax=1, cbar=False, linewidths=1.5
    )
    ax.set_xlabel("drafts accepted in a verify step")
    ax.set_ylabel("")
    ax.tick_params(axis="both", length=0)
    ax.set_yticks(ax.get_yticks(), [f"{name}\nn = {steps[name]:,}" for name in shown.index], rotation=0)
    more = f" {len(shares) - len(shown)} more runs in the table." if len(shares) > len(shown) else ""
    notes_below(ax, f"Each row adds up to 100 % of its n verify steps.{more}")
    return ax
