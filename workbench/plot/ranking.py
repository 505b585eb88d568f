"""What a search found: every configuration of a load against the fastest, and predictions against measurements."""

from __future__ import annotations

import math

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from workbench.plot.marks import column, legend_above, log_ticks, notes_below, nothing_to_draw, plain_number
from workbench.plot.rows import first_rows, row_axis
from workbench.theme.style import ROLES, safe_label, themed

_FILL = {True: "full", False: "none"}
_WORDS = {True: "measured", False: "predicted"}
_COLOURS = {"leader": ROLES["win"], "out": ROLES["missing"]}


@themed
def plot_ranking(ranking: pd.DataFrame, *, ax: Axes) -> Axes:
    """Speed of each configuration of one load over the leader's, with its 95 % interval; filled where measured."""
    rows = ranking[column(ranking, "ratio_high").notna()] if len(ranking) else ranking
    if rows.empty:
        return nothing_to_draw(ax, "Nothing was measured at this load.")
    rows, more = first_rows(rows)
    ax.axvline(1, color=ROLES["baseline"], linewidth=1.6, zorder=1)
    measured = rows["basis"].eq("measured")
    ratio, low, high = (column(rows, name) for name in ("ratio", "ratio_low", "ratio_high"))
    for place, (standing, known) in enumerate(zip(rows["standing"], measured, strict=True)):
        colour = _COLOURS.get(str(standing), ROLES["speculative"])
        ax.hlines(place, low[place], high[place], color=colour, linewidth=1.6, zorder=2)
        ax.plot(ratio[place], place, "o", color=colour, fillstyle=_FILL[bool(known)], zorder=3)
    ax.margins(x=0.06)
    row_axis(ax, [safe_label(name, 60) for name in rows["config"]], [_words(row) for row in rows.to_dict("records")])
    ax.set_xlabel("speed over the fastest's (1 = as fast)")
    legend_above(ax, _handles(measured))
    notes_below(ax, "Bars are 95 % intervals of paired draws; what lies left of 1 with its whole bar is out.", more)
    return ax


def _handles(measured: pd.Series) -> list[Artist]:
    return [_handle(known) for known in (True, False) if (measured == known).any()]


def _handle(known: bool) -> Artist:
    style = {"linestyle": "none", "marker": "o", "color": ROLES["speculative"], "fillstyle": _FILL[known]}
    return Line2D([], [], label=_WORDS[known], **style)  # type: ignore[arg-type]


def _words(row: dict[object, object]) -> tuple[str, str]:
    speed = float(row["tok_per_s"])  # type: ignore[arg-type]
    standing = safe_label(row["standing"])
    said = "speed not predicted" if math.isnan(speed) else f"{speed:,.0f} tok/s"
    return f"{said}, {standing}", _COLOURS.get(standing, ROLES["speculative"])


@themed
def plot_residuals(residuals: pd.DataFrame, *, ax: Axes) -> Axes:
    """Predicted over measured speed, minus one, of each configuration predicted as if it had not been measured."""
    known = residuals[column(residuals, "error").notna() & (column(residuals, "measured_tok_per_s") > 0)]
    if known.empty:
        return nothing_to_draw(ax, "No configuration was both measured and predicted.")
    truth, error = column(known, "measured_tok_per_s"), column(known, "error")
    low, high = (column(known, f"tok_per_s_{end}") / truth - 1 for end in ("low", "high"))
    ax.axhline(0, color=ROLES["baseline"], linewidth=1.6, zorder=1)
    ax.vlines(truth, low, high, color=ROLES["speculative"], linewidth=1.4, alpha=0.6, zorder=2)
    ax.plot(truth, error, "o", color=ROLES["speculative"], zorder=3)
    ax.set_xscale("log")
    ax.set_xlim(truth.min() / 1.5, truth.max() * 1.5)
    log_ticks(ax.xaxis, plain_number)
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    ax.set_xlabel("measured decode speed (tok/s, log scale)")
    ax.set_ylabel("predicted speed less measured")
    notes_below(
        ax, f"n = {len(known):,}. Bars are the 95 % intervals of the predictions, a measurement's noise included."
    )
    return ax
