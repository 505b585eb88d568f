"""What is accepted, position by position and step by step."""

from __future__ import annotations

import textwrap

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from workbench.plot.marks import column, grow, legend_above, notes_below, nothing_to_draw
from workbench.plot.names import row_names, setting_words
from workbench.theme.style import rows_height, series_styles, themed

_MOST_LINES = 6
_MOST_ROWS = 28
_RUN = ["campaign", "run_id"]


@themed
def plot_survival(survival: pd.DataFrame, *, ax: Axes) -> Axes:
    """Share of verify steps that accept at least so many drafts, a line a drafter with its 95 % interval.

    Where the table names drafters and prompts, one prompt set is drawn (that of most runs), and of each drafter the
    longest chain, which holds what the shorter ones show.
    """
    if survival.empty:
        return nothing_to_draw(ax, "No run kept per-request histograms: acceptance by position is not known.")
    chosen, note = _longest_chains(survival)
    chosen = chosen.assign(name=row_names(chosen))
    styles = series_styles(chosen["name"])
    handles: list[Artist] = []
    for name, line in chosen.groupby("name"):
        style, position = styles[str(name)], column(line, "position")
        ax.fill_between(position, line["low"], line["high"], color=style.colour, alpha=0.12, linewidth=0)
        handles += ax.plot(
            position, line["survival"], color=style.colour, linestyle=style.linestyle, marker=".", label=str(name)
        )
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    ax.set_ylim(0, min(1.0, float(chosen["high"].fillna(chosen["survival"]).max()) * 1.1))
    ax.set_xlabel("position in the chain of drafts")
    ax.set_ylabel("verify steps that\nget this far")
    low, high = chosen["num_verify_steps"].min(), chosen["num_verify_steps"].max()
    legend_above(ax, handles)
    steps = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    notes_below(ax, f"n = {steps} verify steps a run. Bands are 95 % intervals over prompts.", note)
    return ax


def _longest_chains(survival: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """The rows of the runs to draw, and the sentence on the others."""
    runs = survival.sort_values("position").drop_duplicates(_RUN, keep="last")
    among, words = runs, ""
    for name in ("prompt_set", "ignore_eos"):
        if name in among and len(among[name].dropna().unique()) > 1:
            usual = sorted(among[name].mode())[0]
            among, words = among[among[name] == usual], f"{words}Only {setting_words(name, usual)}. "
    among = among.sort_values(["position", "num_verify_steps"], ascending=False, kind="stable")
    alike = [name for name in ("campaign", "drafter") if name in among] if "drafter" in among else _RUN
    chosen = among.drop_duplicates(alike).head(_MOST_LINES)
    hidden = len(runs) - len(chosen)
    more = f"{hidden} more runs (other prompts, shorter chains) stand in the table." if hidden else ""
    return survival.merge(chosen[_RUN], on=_RUN), f"{words}{more}"


@themed
def plot_spread(spread: pd.DataFrame, *, ax: Axes) -> Axes:
    """Share of verify steps that accept exactly 0, 1, 2 ... drafts, a row a run: what the mean hides."""
    import seaborn as sns  # only this figure needs it, and it takes longer to import than to draw

    if spread.empty:
        return nothing_to_draw(ax, "No run kept per-request histograms: the spread is not known.")
    names = [
        f"{name}, n\u00a0=\u00a0{n:,}" for name, n in zip(row_names(spread), spread["num_verify_steps"], strict=True)
    ]
    shares = spread.assign(name=names).pivot_table(index="name", columns="correct_drafts", values="share", sort=False)
    shown = shares.reindex(columns=sorted(shares.columns)).head(_MOST_ROWS)
    grow(ax, rows_height(len(shown), 0.45))
    ax.grid(False)
    words = np.where(shown.isna(), "", shown.map(lambda share: f"{share:.0%}").to_numpy())
    sns.heatmap(
        shown.astype("float64"), ax=ax, annot=words, fmt="", cmap="Blues", vmin=0, vmax=1, cbar=False, linewidths=1.5
    )
    ax.set_xlabel("drafts accepted in a verify step")
    ax.set_ylabel("")
    ax.tick_params(axis="both", length=0)
    ax.set_yticks(ax.get_yticks(), [textwrap.fill(name, 34) for name in shown.index], rotation=0)
    more = f" {len(shares) - len(shown)} more runs stand in the table." if len(shares) > len(shown) else ""
    notes_below(ax, f"Each row adds up to 100 % of its n verify steps.{more}")
    return ax
