"""Speed against requests in flight."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from workbench.plot.labels import Label, label_points, label_right, most_named
from workbench.plot.levels import speed_words
from workbench.plot.marks import (
    column,
    draw_points,
    legend_above,
    log_ticks,
    not_measured,
    notes_below,
    nothing_to_draw,
    origin_handles,
    plain_number,
    run_count,
    some_of,
)
from workbench.plot.names import SETTINGS, row_names, with_series, without_drafter
from workbench.theme.style import LINES, ROLES, themed

_SETTINGS = ("num_steps", "num_draft_tokens", *(name for name in SETTINGS if name != "max_concurrency"))
_MOST_NAMES, _MOST_LINES = 4, 6
_FAINT = 0.25  # of lines without a name


_ONE_SCALE = 5  # speeds within this factor are told apart on a linear axis from 0


@themed
def plot_throughput_vs_concurrency(runs: pd.DataFrame, *, ax: Axes) -> Axes:
    """Speed by requests in flight, on a log scale where it spans more than a factor of 5; baselines in ink.

    Points are joined within one drafter (or baseline group) and setting; drafters measured at one concurrency only
    stand in grey beside each other. Speed is that of the decode phase where it is known, else end to end.
    """
    rows = runs.reset_index(drop=True)
    rows = rows.assign(value=_speed(rows))
    known = rows[(rows["value"] > 0) & rows["max_concurrency"].notna()]  # a log axis has no place for 0
    if known.empty:
        return nothing_to_draw(ax, "No run has both a speed and a concurrency.")
    levels = {level: float(place) for place, level in enumerate(sorted(known["max_concurrency"].unique()))}
    known, drafter = _styled(known)
    lines = known[known.groupby("series")["max_concurrency"].transform("nunique") > 1]
    lone = ~known["series"].isin(lines["series"]) & (known["role"] != "baseline")
    known["place"] = known["max_concurrency"].map(levels).astype("float64")
    known.loc[lone, "place"] += _beside(known.loc[lone, "place"])
    for (colour, origin), group in known.groupby([known["colour"].mask(lone, ROLES["published"]), "origin"]):
        # The ranges of sources are those of the output speed: no bars for a decode speed.
        ranged = group["value"] == column(group, "output_tok_per_s")
        low, high = (column(group, f"output_tok_per_s_{end}").where(ranged) for end in ("low", "high"))
        draw_points(ax, group["place"], group["value"], low, high, colour=str(colour), origin=origin)
    joined = known[~lone & known["series"].isin(lines["series"])]
    last = joined.sort_values("place").drop_duplicates("series", keep="last")
    named = set(last.nlargest(_MOST_LINES, "value")["series"])
    for series, line in joined.groupby("series"):
        middle = line.groupby("place")["value"].median()
        faint = series not in named and (line["role"] != "baseline").all()
        ax.plot(
            middle.index,
            middle,
            color=line["colour"].iloc[0],
            linestyle=line["linestyle"].iloc[0],
            alpha=_FAINT if faint else 1.0,
        )
    _axes(ax, known, levels)
    legend_above(ax, [*_baseline_handle(known), *origin_handles(known["origin"])])
    left_out = rows[~rows.index.isin(known.index)]
    ends, unnamed = most_named(_labels(last), _MOST_LINES)
    names = some_of(sorted(known.loc[lone, "drafter"].dropna().unique()))
    alone = f"Grey: measured at one concurrency only ({names})." if names else ""
    missing = not_measured(row_names(left_out), "No speed or no concurrency")
    notes_below(ax, run_count(known), alone, missing, drafter, unnamed)
    label_right(ax, ends)
    baselines = known[~lone & ~known.index.isin(joined.index)]
    label_points(ax, _labels(baselines) if len(baselines) <= _MOST_NAMES else [])
    return ax


def _labels(rows: pd.DataFrame) -> list[Label]:
    return [
        Label(row["place"], row["value"], f"{row['series']}\n{speed_words(row['value'])} tok/s", row["colour"])
        for row in rows.to_dict("records")
    ]


def _styled(known: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Series with their styles; baselines count as drafters of their group, in ink. Then the one drafter, if so."""
    baseline = known["role"] == "baseline"
    groups = known["baseline_group"].map(lambda group: "baseline" if group == "default" else f"baseline {group}")
    named = with_series(known.assign(drafter=known["drafter"].mask(baseline, groups)), _SETTINGS)
    order = sorted(named.loc[named["role"] == "baseline", "series"].unique())
    lines = {series: LINES[place % len(LINES)] for place, series in enumerate(order)}
    ink = named["series"].isin(order)
    styled = named.assign(
        colour=named["colour"].mask(ink, ROLES["baseline"]),
        linestyle=[lines.get(row["series"], row["linestyle"]) for row in named.to_dict("records")],
    )
    short, drafter = without_drafter(styled[~ink])
    return pd.concat([styled[ink], short]), drafter


def _beside(places: pd.Series) -> pd.Series:
    """Offsets that put points of one place beside each other."""
    count = places.groupby(places).transform("size")
    return (places.groupby(places).cumcount() - (count - 1) / 2) * np.minimum(0.1, 0.6 / count)


def _speed(runs: pd.DataFrame) -> pd.Series:
    if "tok_per_s" in runs:
        return column(runs, "tok_per_s")
    return column(runs, "decode_tok_per_s").fillna(column(runs, "output_tok_per_s"))


def _speed_words(known: pd.DataFrame) -> str:
    """Which speed is drawn."""
    if "basis" in known and "tok_per_s" in known:
        decode = known["basis"] == "decode"
    else:
        decode = column(known, "decode_tok_per_s").notna()
    if decode.all():
        return "decode speed"
    return "decode speed, else output" if decode.any() else "output speed"


def _axes(ax: Axes, known: pd.DataFrame, levels: dict[int, float]) -> None:
    ax.set_xticks(list(levels.values()), [str(level) for level in levels])
    ax.set_xlim(-0.6, max(len(levels) - 1.0, known["place"].max()) + 0.1)
    ax.set_xlabel("concurrency (requests in flight)")
    which = _speed_words(known)
    if known["value"].max() < _ONE_SCALE * known["value"].min():
        ax.set_ylim(0, known["value"].max() * 1.15)
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: plain_number(value)))
        ax.set_ylabel(f"{which} (tok/s)")
    else:
        ax.set_yscale("log")
        ax.set_ylim(known["value"].min() / 1.5, known["value"].max() * 1.5)
        log_ticks(ax.yaxis, plain_number)
        ax.set_ylabel(f"{which} (tok/s, log scale)")
    ax.grid(False, axis="x")


def _baseline_handle(known: pd.DataFrame) -> list[Artist]:
    if not (known["role"] == "baseline").any():
        return []
    return [Line2D([], [], color=ROLES["baseline"], label="baseline, no speculation")]
