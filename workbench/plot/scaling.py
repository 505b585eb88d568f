"""Accept length against training size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from workbench.analysis.scaling import ScalingFit
from workbench.analysis.scaling.points import GROUP
from workbench.plot.labels import Label, label_points, label_right
from workbench.plot.marks import (
    column,
    draw_points,
    legend_above,
    level_line,
    log_ticks,
    not_measured,
    notes_below,
    nothing_to_draw,
    origin_handles,
)
from workbench.theme.style import ROLES, safe_label, themed

ACCEPT_LENGTH = "accept length\n(tokens per verify step)"
_MEASURED_ALIKE = [name for name in GROUP if name not in ("recipe", "design", "data_mix")]
_SIZE_LABELS = {
    "training_samples": "training samples (log scale)",
    "response_tokens": "response tokens trained on (log scale)",
}


@themed
def plot_accept_length_vs_data(
    points: pd.DataFrame,
    *,
    ax: Axes,
    fit: ScalingFit | None = None,
    reference: pd.DataFrame | None = None,
    break_even: float | None = None,
) -> Axes:
    """Points with their intervals, the fitted curve and its band, published points as scatter behind them.

    Beyond the largest size only the band is drawn, up to four times that size. Published points are drawn where they
    share the draft shape of ``points``; trees and other lengths of chain are counted in the note instead.
    """
    x = fit.x if fit is not None else "training_samples"
    points, apart = _same_setting(points, fit)
    published, published_note = _comparable(reference, points)
    shown = points[(points[x] > 0).fillna(False) & points["accept_length"].notna()]
    if shown.empty and published.empty:
        return nothing_to_draw(ax, "No drafter has both a training size and an accept length.")
    ends = [*shown[x], *published[x], *(fit.band["x"] if fit is not None else [])]
    size_axis(ax, x, min(ends), max(ends))
    handles = _draw_fit(ax, fit) if fit is not None and len(fit.band) else []
    _draw_measured(ax, shown.assign(colour=_colours(shown, fit)), x)
    _draw_measured(ax, published.assign(colour=ROLES["published"], origin="published"), x)
    levels = []
    if break_even is not None and math.isfinite(break_even):
        level_line(ax, break_even, ROLES["break-even"], "--")
        levels = [Label(1, break_even, f"break-even\n{break_even:.2f}", ROLES["break-even"])]
    ax.set_ylabel(ACCEPT_LENGTH)
    ax.margins(y=0.12)
    legend_above(ax, [*origin_handles([*shown["origin"], *["published"][: len(published)]]), *handles])
    if ROLES["published"] in _colours(shown, fit):
        apart = f"{apart} Grey with a name: another recipe or mix, not fitted."
    notes_below(ax, *_notes(points, shown, x, fit), apart, published_note)
    label_right(ax, levels)
    bars = shown.dropna(subset=["low", "high"])
    names = [Label(row[x], row["accept_length"], _point_name(row)) for row in _named(shown, fit, x)]
    label_points(ax, names, list(zip(column(bars, x), bars["low"], bars["high"], strict=True)))
    return ax


def _draw_measured(ax: Axes, points: pd.DataFrame, x: str) -> None:
    for (colour, origin), group in points.groupby(["colour", "origin"]):
        low, high, lengths = (column(group, name) for name in ("low", "high", "accept_length"))
        draw_points(ax, column(group, x), lengths, low, high, colour=str(colour), origin=origin)


def _same_setting(points: pd.DataFrame, fit: ScalingFit | None) -> tuple[pd.DataFrame, str]:
    """The points measured like the fitted ones, and the sentence on the others: lengths of other chains mislead."""
    if fit is None or fit.points.empty:
        steps = sorted(points["num_steps"].dropna().unique())
        mixed = f"Points have {steps[0]} to {steps[-1]} draft steps: compare only equal ones." if len(steps) > 1 else ""
        return points, mixed
    fitted = fit.points.iloc[0]
    same = pd.Series(True, index=points.index)
    for name in _MEASURED_ALIKE:
        same &= points[name].isna() if pd.isna(fitted[name]) else (points[name] == fitted[name]).fillna(False)
    others = int((~same).sum())
    at = f"{safe_label(fitted['prompt_set'])}, {fitted['num_steps']} steps" if pd.notna(fitted["num_steps"]) else ""
    words = f"{at}; {others} points with other prompts or draft settings are not drawn." if others else f"{at}."
    return points[same], words if at else ""


def _colours(shown: pd.DataFrame, fit: ScalingFit | None) -> list[str]:
    """The role's colour for points that were fitted, grey for those that only share the setting."""
    if fit is None or fit.points.empty:
        return [ROLES["speculative"]] * len(shown)
    fitted = set(fit.points["run_ids"])
    return [ROLES["speculative"] if run_ids in fitted else ROLES["published"] for run_ids in shown["run_ids"]]


def _named(shown: pd.DataFrame, fit: ScalingFit | None, x: str) -> list[dict[Any, Any]]:
    """The rows to label: of several points of one drafter and size the highest.

    In a study sizes and seeds tell the fitted drafters, and the design the others, one label a size.
    """
    highest = shown.sort_values("accept_length", ascending=False).drop_duplicates(["drafter", x])
    if fit is None or shown["design"].isna().all():
        return highest.to_dict("records")
    others = highest[pd.Series(_colours(highest, fit), index=highest.index) == ROLES["published"]]
    told = others["design"].fillna(others["drafter"])
    return others.assign(drafter=told).drop_duplicates(["drafter", x]).to_dict("records")


def _point_name(row: Mapping[Any, Any]) -> str:
    name = safe_label(row["drafter"], 24)
    return f"{name}\n({safe_label(row['fit_note'], 40)})" if row.get("fit_note") else name


def _comparable(reference: pd.DataFrame | None, points: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Published points of the draft shape that the points have, and the note on them.

    Where no point states its shape they are the chains of the most usual length.
    """
    if reference is None:
        return pd.DataFrame({"training_samples": [], "response_tokens": [], "accept_length": []}), ""
    known = reference[reference["training_samples"].notna() & reference["accept_length"].notna()]
    shapes = points[["num_steps", "eagle_topk"]].dropna().drop_duplicates().astype("float64")
    stated = len(shapes) > 0
    if not stated:
        chains = known[known["eagle_topk"] == 1]
        shapes = (
            chains[["num_steps", "eagle_topk"]].value_counts().head(1).index.to_frame(index=False).astype("float64")
        )
    same = known.loc[known.reset_index().merge(shapes, on=["num_steps", "eagle_topk"])["index"]]
    steps = " or ".join(f"{steps:g}" for steps in sorted(shapes["num_steps"].unique()))
    note = f"{len(same)} published points ({steps} steps), other targets and mixes: context, never fitted."
    if len(same) < len(known):
        note = f"{note[:-1]}; {len(known) - len(same)} of other draft shapes are not drawn."
    return same.assign(response_tokens=np.nan), note if stated else f"{note} The points here do not state their steps."


def _draw_fit(ax: Axes, fit: ScalingFit) -> list[Artist]:
    inside = fit.band[~fit.band["extrapolated"]]
    beyond = fit.band[fit.band["x"] >= inside["x"].max()]
    colour = ROLES["speculative"]
    ax.plot(inside["x"], inside["fit"], color=colour, linewidth=1.6, zorder=2)
    handles: list[Artist] = [Line2D([], [], color=colour, linewidth=1.6, label=f"fit, {fit.main}")]
    if fit.band["low"].isna().all():
        return handles
    ax.fill_between(inside["x"], inside["low"], inside["high"], color=colour, alpha=0.18, linewidth=0, zorder=1)
    ax.fill_between(
        beyond["x"], beyond["low"], beyond["high"], facecolor="none", edgecolor=colour, alpha=0.45, hatch="//", zorder=1
    )
    return [
        *handles,
        Patch(facecolor=colour, alpha=0.18, label="95 % band"),
        Patch(facecolor="none", edgecolor=colour, alpha=0.45, hatch="//", label="band, extrapolated to 4x"),
    ]


def size_axis(ax: Axes, x: str, low: float, high: float) -> None:
    """A log axis that shows at least a decade and a half, with ticks that read as counts."""
    margin = max((30 / (high / low)) ** 0.5, 1.5)
    ax.set_xscale("log")
    ax.set_xlim(low / margin, high * margin)
    narrow = np.log10(high / low * margin**2) < 2.6
    log_ticks(ax.xaxis, short_count, (1, 2, 5) if narrow else (1,))
    ax.set_xlabel(_SIZE_LABELS[x])


def short_count(value: float) -> str:
    """A count for an axis: 500, 10k, 1.4M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _notes(points: pd.DataFrame, shown: pd.DataFrame, x: str, fit: ScalingFit | None) -> list[str]:
    notes = []
    if fit is not None and fit.reason:
        notes.append(f"{fit.reason[:1].upper()}{fit.reason[1:]}.")
    if fit is None and len(shown[x].unique()) == 1:
        notes.append("One training size is no curve.")
    if fit is not None and fit.num_sizes > 1:
        notes.append(f"The band holds: {fit.interval_means}.")
    prompts = shown["n"].dropna() if "n" in shown else pd.Series(dtype="Int64")
    if len(prompts):
        span = f"{prompts.min()}" if prompts.min() == prompts.max() else f"{prompts.min()} to {prompts.max()}"
        notes.append(f"n = {span} prompts a point; bars are 95 % intervals over prompts.")
    if (shown.get("interval", pd.Series(dtype="str")) == "range in the source").any():
        notes.append("Bars of noted points are the ranges that the source gives.")
    notes.append(not_measured(points.loc[points[x].isna(), "drafter"], "Training size not stated"))
    notes.append(not_measured(points.loc[(points[x] == 0).fillna(False), "drafter"], "Not trained, so not drawn"))
    notes.append(not_measured(points.loc[points[x].notna() & points["accept_length"].isna(), "drafter"]))
    return notes
