"""What the number of draft tokens does: to accept length, to accept rate, to speed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from workbench.plot.labels import Label, label_points, label_right, most_named
from workbench.plot.levels import draw_baselines, one_concurrency
from workbench.plot.marks import (
    column,
    draw_points,
    legend_above,
    not_measured,
    notes_below,
    nothing_to_draw,
    origin_handles,
    point_handle,
    run_count,
    some_of,
)
from workbench.plot.names import SETTINGS, row_names, with_series, without_drafter
from workbench.plot.scaling import ACCEPT_LENGTH
from workbench.theme.style import ROLES, safe_label, themed

_SETTINGS = tuple(name for name in SETTINGS if name != "baseline_group")  # acceptance does not depend on it
_MOST_NAMES = 8
_MARKERS = ">p<*dH"  # of series of points; no origin has one of these


@dataclass(frozen=True, slots=True)
class _Drawn:
    """What stands in the Axes: legend entries, labels still to be placed, bars to keep clear of, and a note."""

    handles: list[Artist]
    ends: list[Label]
    labels: list[Label]
    bars: list[tuple[float, float, float]]
    note: str


@themed
def plot_accept_length_vs_draft_tokens(df: pd.DataFrame, *, ax: Axes, expected: pd.DataFrame | None = None) -> Axes:
    """Accept length by draft tokens, one point a run; runs whose draft tokens are not stated stand apart.

    Points are joined only within one drafter and setting, and only for chains whose steps are known: elsewhere more
    than the draft tokens may have changed. ``expected`` (num_steps, accept_length) adds what one long chain predicts.
    """
    rows = _speculative(df)
    drawn = _draw_by_tokens(ax, rows, "accept_length")
    if drawn is None:
        return nothing_to_draw(ax, "No run has an accept length.")
    if expected is not None and len(expected):
        at = (expected["num_steps"].astype("Int64") + 1).map(_places(rows)).astype("float64")
        drawn.handles.extend(
            ax.plot(at, expected["accept_length"], ":", color=ROLES["missing"], label="expected from the longest chain")
        )
    ax.set_ylabel(ACCEPT_LENGTH)
    bars = "Bars are ranges in the source, or intervals." if drawn.bars else ""
    _finish(ax, drawn, [bars, _counts(rows, "accept_length"), _rewritten(df)])
    return ax


@themed
def plot_throughput_vs_draft_tokens(costs: pd.DataFrame, *, ax: Axes, max_concurrency: int | None = None) -> Axes:
    """Speed by draft tokens at one concurrency (the most measured one by default), with the baselines' lines."""
    rows, elsewhere = one_concurrency(_speculative(costs), max_concurrency)
    drawn = _draw_by_tokens(ax, rows, "tok_per_s")
    if drawn is None:
        return nothing_to_draw(ax, "No run has a speed.")
    levels = draw_baselines(ax, rows)
    bases = set(rows["basis"].dropna()) if "basis" in rows else set()
    ax.set_ylabel(f"{bases.pop() if len(bases) == 1 else 'decode or output'} speed (tok/s)")
    ax.set_ylim(bottom=0)
    _finish(ax, drawn, [_counts(rows, "tok_per_s"), elsewhere, _rewritten(costs)], levels)
    return ax


@themed
def plot_accept_rate_vs_draft_tokens(df: pd.DataFrame, *, ax: Axes) -> Axes:
    """Our accept rate, (accept length - 1) / steps, and the rate as the log prints it, which means something else.

    Printed rates are hollow and named by their definition: their denominators change with the draft tokens.
    """
    rows = _speculative(df)
    printed = rows[column(rows, "accept_rate_printed").notna()]
    ours = _draw_by_tokens(ax, rows, "accept_rate", "(accept length - 1) / steps, ")
    if ours is None and printed.empty:
        return nothing_to_draw(ax, "No run has an accept rate: steps are not stated and no log printed one.")
    printed, drafter = without_drafter(with_series(printed, _SETTINGS))
    drawn = ours or _Drawn([], [], [], [], drafter)
    _draw_printed(ax, drawn, printed, _places(rows))
    _token_axis(ax, _places(rows), unknown=bool(rows["num_draft_tokens"].isna().any()))
    highest = pd.concat([column(rows, "accept_rate"), column(rows, "accept_rate_printed")]).max()
    ax.set_ylim(-0.04, max(1.0, highest * 1.05))
    ax.set_ylabel("accept rate")
    neither = rows[column(rows, "accept_rate").isna() & column(rows, "accept_rate_printed").isna()]
    _finish(ax, drawn, [not_measured(row_names(neither), "No accept rate"), _rewritten(df)])
    return ax


def _draw_printed(ax: Axes, drawn: _Drawn, printed: pd.DataFrame, places: dict[int, float]) -> None:
    """Rates as the log prints them, a marker for each definition; labelled where nothing else is."""
    place = _dodged(printed, places)
    meanings = printed["accept_rate_definition"].astype("object").fillna("unknown").astype("str")
    for marker, (meaning, group) in zip("DvPX*", printed.groupby(meanings), strict=False):
        rate = column(group, "accept_rate_printed")
        words = "as the log prints it: " + ("meaning unknown" if meaning == "unknown" else safe_label(meaning))
        drawn.handles.extend(
            ax.plot(
                place[group.index],
                rate,
                linestyle="none",
                marker=marker,
                fillstyle="none",
                color=ROLES["missing"],
                label=words,
            )
        )
    if not drawn.labels and not drawn.ends and len(printed) <= _MOST_NAMES:
        rates = column(printed, "accept_rate_printed")
        drawn.labels.extend(map(Label, place, rates, printed["series"], printed["colour"]))


def _speculative(df: pd.DataFrame) -> pd.DataFrame:
    return df[df["drafter"].notna()].reset_index(drop=True)


def _draw_by_tokens(ax: Axes, rows: pd.DataFrame, name: str, meaning: str = "") -> _Drawn | None:
    """Points and lines of the column ``name`` by draft tokens; ``None`` if no row has a value."""
    if column(rows, name).isna().all():
        return None
    known, drafter = _in_series(rows, name)
    markers, grey, words = _told_apart(known)
    known["marker"] = [markers.get(series, "") for series in known["series"]]
    known["colour"] = known["colour"].mask(known["series"].isin(grey), ROLES["published"])
    _draw_series(ax, known)
    _token_axis(ax, _places(rows), unknown=bool(rows["num_draft_tokens"].isna().any()))
    handles = origin_handles(known["origin"])
    for handle in handles:
        handle.set_label(f"{meaning}{handle.get_label()}")
    marked = known[known["marker"] != ""].drop_duplicates("series")
    looks = marked[["series", "colour", "origin", "marker"]]
    named = known[~known["is_sweep"] & ~known["series"].isin({*markers, *grey})]
    highest = named.groupby(["series", "num_draft_tokens"], dropna=False)["value"].idxmax()
    ends = known[known["is_sweep"]].sort_values("num_draft_tokens").drop_duplicates("series", keep="last")
    ranged = known[known["low"] < known["high"]]
    return _Drawn(
        handles + [point_handle(*look) for look in looks.itertuples(index=False)],
        _labels(ends),
        _labels(named.loc[highest]),
        list(zip(ranged["place"], ranged["low"], ranged["high"], strict=True)),
        f"{drafter} {words}",
    )


def _in_series(rows: pd.DataFrame, name: str) -> tuple[pd.DataFrame, str]:
    """The rows that have a value, with their series and places, and the sentence on what all series share."""
    known, drafter = without_drafter(with_series(rows[column(rows, name).notna()], _SETTINGS))
    known = known.assign(place=_dodged(known, _places(rows)), value=column(known, name))
    known["low"], known["high"] = column(known, f"{name}_low"), column(known, f"{name}_high")
    known["is_sweep"] = known.groupby("series")["value"].transform(lambda own: _is_sweep(known.loc[own.index]))
    return known, drafter


def _told_apart(known: pd.DataFrame) -> tuple[dict[str, str], set[str], str]:
    """How points that no line joins are told apart: markers by series, the grey series, and the sentence on these.

    A few points stand by their names. Of many, series of several points get a marker each, as far as there are
    markers; single points keep their names, or are grey where these would be too many too.
    """
    lone, lines = known[~known["is_sweep"]], known.loc[known["is_sweep"], "series"].nunique()
    if lines + len(lone) <= _MOST_NAMES:
        return {}, set(), ""
    sizes = lone.groupby("series").size()
    order = lone.sort_values("value", ascending=False, kind="stable")["series"].unique()
    clouds = [series for series in order if sizes[series] > 1]
    named, grey = clouds[: len(_MARKERS)], set(clouds[len(_MARKERS) :])
    more = f"Of {len(clouds)} series of points the {len(named)} highest are named; the others are grey."
    words = [more] if grey else []
    single = lone[~lone["series"].isin(clouds)]
    if lines + single["series"].nunique() > _MOST_NAMES:
        grey |= set(single["series"])
        names = some_of(sorted(single["drafter"].unique()))
        whose = f" ({names})" if len(known["drafter"].unique()) > 1 else ""
        words.insert(0, f"Grey: measured at one number of draft tokens only{whose}.")
    return dict(zip(sorted(named), _MARKERS, strict=False)), grey, " ".join(words)


def _draw_series(ax: Axes, known: pd.DataFrame) -> None:
    """All points, and the lines of what is a sweep."""
    for (colour, origin, marker), group in known.groupby(["colour", "origin", "marker"]):
        spans = group["place"], group["value"], group["low"], group["high"]
        draw_points(ax, *spans, colour=str(colour), origin=origin, marker=str(marker) or None)
    lines = known[known["is_sweep"]]
    lines = lines.assign(linestyle=with_series(lines, _SETTINGS)["linestyle"])  # lone series use up no styles
    for _, sweep in lines.groupby("series"):
        middle = sweep.groupby("num_draft_tokens")[["place", "value"]].median()
        ax.plot(middle["place"], middle["value"], color=sweep["colour"].iloc[0], linestyle=sweep["linestyle"].iloc[0])


def _counts(rows: pd.DataFrame, name: str) -> str:
    """How many rows have a value, and which have none."""
    measured = column(rows, name).notna()
    return f"{run_count(rows[measured])} {not_measured(row_names(rows[~measured]))}"


def _labels(rows: pd.DataFrame) -> list[Label]:
    return list(map(Label, rows["place"], rows["value"], rows["series"], rows["colour"]))


def _finish(ax: Axes, drawn: _Drawn, notes: list[str], levels: Sequence[Label] = ()) -> None:
    ends, unnamed = most_named(drawn.ends)
    ax.margins(y=0.15)
    legend_above(ax, drawn.handles)
    notes_below(ax, *notes, drawn.note, unnamed)
    label_right(ax, [*levels, *ends])
    label_points(ax, drawn.labels, drawn.bars)


def _is_sweep(series: pd.DataFrame) -> bool:
    """Whether only the draft tokens vary: a chain of known steps at several lengths."""
    chain = (series["eagle_topk"] == 1) & series["num_steps"].notna()
    return bool(chain.fillna(False).all()) and len(series["num_draft_tokens"].unique()) > 1


def _places(rows: pd.DataFrame) -> dict[int, float]:
    """Numbers of draft tokens side by side, in order; the distances between them mean nothing."""
    return {int(tokens): float(k) for k, tokens in enumerate(sorted(rows["num_draft_tokens"].dropna().unique()))}


def _token_axis(ax: Axes, places: dict[int, float], *, unknown: bool) -> None:
    ticks = {str(tokens): place for tokens, place in places.items()}
    if unknown:
        ticks["not stated"] = float(len(places))
    ax.set_xticks(list(ticks.values()), list(ticks))
    ax.set_xlim(-0.6, len(ticks) - 0.4)
    ax.set_xlabel("draft tokens, root included")
    ax.grid(False, axis="x")


def _dodged(rows: pd.DataFrame, places: dict[int, float]) -> pd.Series:
    """The place of each row; rows with one number of draft tokens stand beside each other."""
    at = rows["num_draft_tokens"].map(places).astype("float64").fillna(float(len(places)))
    count = at.groupby(at).transform("size")
    return at + (at.groupby(at).cumcount() - (count - 1) / 2) * np.minimum(0.14, 0.7 / count)


def _rewritten(df: pd.DataFrame) -> str:
    """What the server made of draft tokens that were asked for otherwise."""
    if "asked_num_draft_tokens" not in df:
        return ""
    changed = df[(df["asked_num_draft_tokens"] != df["num_draft_tokens"]).fillna(False)]
    asked = changed[["asked_num_draft_tokens", "num_draft_tokens"]].dropna().drop_duplicates()
    said = [f"{asked_for} was asked and {used} run" for asked_for, used in asked.itertuples(index=False)]
    return f"The server rewrites draft tokens: {'; '.join(said)}." if said else ""
