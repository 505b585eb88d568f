"""Figures with one row a configuration: accept length against break-even, and speedup."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from workbench.analysis.answers import bounded
from workbench.plot.marks import (
    column,
    draw_points,
    grow,
    legend_above,
    notes_below,
    nothing_to_draw,
    origin_handles,
    run_count,
)
from workbench.plot.names import row_names
from workbench.theme.style import ROLES, rows_height, safe_label, themed

_MOST_ROWS = 28
_NOT_MEASURED = "not measured"


@themed
def plot_break_even(costs: pd.DataFrame, *, ax: Axes) -> Axes:
    """Accept length measured, and the accept length that would break even, of every configuration.

    A configuration pays where its marker lies to the right of its break-even line; one with simulated acceptance only
    tells where that line is. Bars are ranges.
    """
    if costs.empty:
        return nothing_to_draw(ax, "No speculative run has a baseline beside it.")
    rows, more = first_rows(costs.sort_values(["drafter", "num_draft_tokens"], kind="stable"))
    y = pd.Series(range(len(rows)), index=rows.index, dtype="float64")
    need, need_low, need_high = (column(rows, f"break_even{end}") for end in ("", "_low", "_high"))
    have = column(rows, "accept_length")
    ax.hlines(y, have, need, color="#b5b5b5", linewidth=1.4, zorder=1)
    ax.hlines(y, need_low, need_high, color=ROLES["break-even"], linewidth=4, alpha=0.35, zorder=2)
    ax.plot(need, y, "|", color=ROLES["break-even"], markersize=15, markeredgewidth=2.6, zorder=3)
    for origin, group in rows.groupby("origin"):
        low, high = (column(group, f"accept_length_{end}") for end in ("low", "high"))
        place, values = y[group.index], have[group.index]
        draw_points(ax, values, place, low, high, colour=ROLES["speculative"], origin=origin, horizontal=True)
    gains = zip(have, need, column(rows, "gain_needed"), rows["origin"] == "simulated", strict=True)
    words = [_gain_words(*each) for each in gains]
    ax.margins(x=0.06)
    row_axis(ax, row_names(rows), words)
    ax.set_xlabel("accept length (tokens per verify step)")
    needed = Line2D([], [], linestyle="none", marker="|", markersize=12, markeredgewidth=2.6, color=ROLES["break-even"])
    needed.set_label("break-even: needed to pay")
    legend_above(ax, [*_measured(rows), needed])
    meaning = "x1.20: accept length would have to grow by that factor. Bars are ranges in the source."
    notes_below(ax, run_count(costs), meaning, more)
    return ax


def _measured(rows: pd.DataFrame) -> list[Artist]:
    handles = origin_handles(rows["origin"])
    for handle in handles:
        handle.set_label(f"accept length, {handle.get_label()}")
    return handles


def _gain_words(have: float, need: float, gain: float, is_simulated: bool) -> tuple[str, str]:
    if math.isnan(need):
        missing = "accept length" if math.isnan(have) else "speed"
        needs = "" if math.isnan(gain) else f"x{gain:.2f} needed; "
        return f"{needs}{missing} {_NOT_MEASURED}", ROLES["missing"]
    if is_simulated:
        # What was accepted was made up: the run tells its break-even, not that it reaches it.
        return f"would pay from {need:.2f}", ROLES["missing"]
    return (f"x{gain:.2f} needed", ROLES["loss"]) if gain > 1 else ("pays", ROLES["win"])


@themed
def plot_speedup(speedups: pd.DataFrame, *, ax: Axes) -> Axes:
    """Speed over the baseline's, best first, with intervals and verdicts; 1 is the baseline."""
    if speedups.empty:
        return nothing_to_draw(ax, "No speculative run has a speed and a baseline beside it.")
    rows, more = first_rows(speedups.sort_values("speedup", ascending=False, kind="stable", na_position="last"))
    rows = bounded(rows.assign(verdict=rows["verdict"].mask(rows["origin"] == "simulated", "simulated")))
    y = pd.Series(range(len(rows)), index=rows.index, dtype="float64")
    ax.axvline(1, color=ROLES["baseline"], linewidth=1.6, zorder=1)
    for (origin, verdict), group in rows.groupby(["origin", rows["verdict"].astype("object").fillna("not decidable")]):
        colour = ROLES.get(str(verdict), ROLES["missing"])
        low, high = column(group, "low"), column(group, "high")
        values, place = column(group, "speedup"), y[group.index]
        draw_points(ax, values, place, low, high, colour=colour, origin=origin, horizontal=True)
    row_axis(ax, row_names(rows), [_verdict_words(row) for row in rows.to_dict("records")])
    ax.set_xlabel("speedup over the baseline (1 = no gain)")
    ax.set_xlim(left=min(0.85, ax.get_xlim()[0]), right=max(1.15, ax.get_xlim()[1]))
    legend_above(ax, origin_handles(rows["origin"], ROLES["missing"]))
    notes_below(
        ax, "Bars are 95 % intervals where prompts or passes allow one, otherwise ranges.", _n_words(rows), more
    )
    return ax


def _verdict_words(row: dict[object, object]) -> tuple[str, str]:
    speedup, low, high = (float(row[name]) for name in ("speedup", "low", "high"))  # type: ignore[arg-type]
    if math.isnan(speedup):
        return _NOT_MEASURED, ROLES["missing"]
    verdict = safe_label(row["verdict"])
    interval = "" if math.isnan(low + high) or low == high else f" ({low:.2f}-{high:.2f})"
    return f"{speedup:.2f}{interval} {verdict}", ROLES.get(verdict, ROLES["missing"])


def _n_words(rows: pd.DataFrame) -> str:
    counts = rows["n"].dropna() if "n" in rows else pd.Series(dtype="Int64")
    if counts.empty:
        return ""
    low, high = int(counts.min()), int(counts.max())
    return f"n = {low} prompts or passes a row." if low == high else f"n = {low} to {high} prompts or passes a row."


def first_rows(df: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    more = len(df) - _MOST_ROWS
    return df.head(_MOST_ROWS).reset_index(drop=True), f"{more} more rows in the table." if more > 0 else ""


def row_axis(ax: Axes, names: Sequence[str], words: Sequence[tuple[str, str]]) -> None:
    """One row a name from the top down: name and words above its marks, in a figure high enough for them."""
    grow(ax, rows_height(len(names)))
    ax.set_ylim(len(names) - 0.5, -0.75)
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="x", labeltop=len(names) > 10)
    for place, (name, (text, colour)) in enumerate(zip(names, words, strict=True)):
        look: dict[str, Any] = {"va": "center", "fontsize": 10, "bbox": {"fc": "white", "ec": "none", "pad": 1}}
        across = ax.get_yaxis_transform()
        ax.text(0, place - 0.32, name, transform=across, color=ROLES["baseline"], **look)
        ax.text(1, place - 0.32, text, transform=across, color=colour, ha="right", **look)
        ax.axhline(place + 0.4, color="#ececec", linewidth=0.8, zorder=0)
