"""Baseline lines, and the choice of one load for figures that cannot show several."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from workbench.plot.labels import Label
from workbench.plot.marks import column, level_line
from workbench.plot.names import setting_words
from workbench.theme.style import ROLES, safe_label

_MOST_LINES = 3
_MOST_PLAUSIBLE = 1e7


def draw_baselines(ax: Axes, rows: pd.DataFrame) -> list[Label]:
    """A line for each baseline that the rows are compared with, and their labels; many become one shaded range."""
    known = rows[column(rows, "base_tok_per_s") > 0].drop_duplicates(["baseline_run_id", "base_tok_per_s"])
    speeds = known["base_tok_per_s"].astype("float64")
    for speed in speeds:
        level_line(ax, speed, ROLES["baseline"], linewidth=1.6 if len(speeds) <= _MOST_LINES else 0.7)
    if len(speeds) > _MOST_LINES:
        ax.axhspan(speeds.min(), speeds.max(), color=ROLES["baseline"], alpha=0.08, linewidth=0)
        words = f"{len(speeds)} baselines\n{speed_words(speeds.min())}-{speed_words(speeds.max())} tok/s"
        return [Label(0, float(speeds.median()), words)]
    return [
        Label(0, float(row["base_tok_per_s"]), f"{_name(row)}\n{speed_words(row['base_tok_per_s'])} tok/s")
        for row in known.to_dict("records")
    ]


def _name(row: dict[object, object]) -> str:
    group = row.get("baseline_group")
    named = group if group is not None and group != "default" and not pd.isna(group) else None  # type: ignore[call-overload]
    return f"baseline {safe_label(named, 12)}" if named is not None else "baseline"


def speed_words(value: float) -> str:
    """tok/s with the digits that matter: 90, 63.6, 1,395; what no machine reaches in few characters."""
    if abs(value) >= _MOST_PLAUSIBLE:
        return f"{value:.1e}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}".removesuffix(".0")


def one_concurrency(rows: pd.DataFrame, wanted: int | None) -> tuple[pd.DataFrame, str]:
    """The rows at one concurrency, by default the most measured one, and the sentence on the others.

    Rows that do not state theirs are kept.
    """
    stated = rows["max_concurrency"].dropna()
    if stated.empty:
        return rows, ""
    chosen = int(stated.mode().iloc[0]) if wanted is None else wanted
    others = sorted(int(value) for value in stated.unique() if value != chosen)
    kept = rows[(rows["max_concurrency"] == chosen) | rows["max_concurrency"].isna()].reset_index(drop=True)
    said = f"At {setting_words('max_concurrency', chosen)}"
    return kept, f"{said}; measured also at {', '.join(map(str, others))}." if others else f"{said}."
