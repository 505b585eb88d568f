"""Helpers of the answers: which rows count, how ranges of them are said, and what a run is called."""

from __future__ import annotations

import pandas as pd

from workbench.analysis.frames import Row, known, records
from workbench.analysis.wording import count, span

# Two passes of one configuration differ by as much: break-evens that lie within it of their middle are one value.
NEAR = 0.15
# Settings that tell runs of one label apart, and the words for them.
_APART = (("prompt_set", "{}"), ("max_concurrency", "concurrency {}"), ("baseline_group", "group {}"))


SLOWED = 0.85
"""A plain server slower than this by its settings alone is not what speculation has to beat."""


def real_runs(costs: pd.DataFrame) -> pd.DataFrame:
    """Runs whose acceptance was measured, not forced."""
    return costs[costs["origin"] != "simulated"]


def all_on_cpu(rows: pd.DataFrame) -> bool:
    """Whether every row was served by a CPU, where there are no CUDA graphs to speak of."""
    return len(rows) > 0 and bool((rows["device"] == "cpu").fillna(False).all())


def at_lowest(costs: pd.DataFrame) -> pd.DataFrame:
    """The rows at the lowest concurrency that is stated, and those that do not state theirs."""
    lowest: pd.Series = (costs["max_concurrency"] == costs["max_concurrency"].min()).fillna(True).astype(bool)
    return costs[lowest]


def as_served(costs: pd.DataFrame) -> pd.DataFrame:
    """Without forced runs whose settings slow the plain server down: they gain against what nobody serves."""
    best = costs.groupby(["campaign", "prompt_set", "max_concurrency"], dropna=False)["base_tok_per_s"].transform("max")
    slowed: pd.Series = (costs["base_tok_per_s"] < SLOWED * best).fillna(False).astype(bool)
    return costs[~(slowed & costs["origin"].eq("simulated"))]


def near(values: pd.Series) -> bool:
    """Whether all values lie within `NEAR` of their middle."""
    middle = values.median()
    return bool(((values - middle).abs() <= NEAR * middle).all())


def break_even_span(group: pd.DataFrame) -> str:
    return span(group["break_even_low"].min(), group["break_even_high"].max())


def draft_tokens(tokens: object) -> str:
    return count(int(tokens), "draft token") if known(tokens) else "an unknown number of draft tokens"  # type: ignore[call-overload]


def not_told_apart(best: Row, speedups: pd.DataFrame) -> set[tuple[object, object]]:
    """Other runs (campaign, run) whose interval of the speedup reaches that of the best one; none where it has none."""
    ends = {(row["campaign"], row["run_id"]): row for row in records(speedups)}
    itself = (best["campaign"], best["run_id"])
    low = ends.get(itself, {}).get("low")
    if not known(low):
        return set()
    return {run for run, row in ends.items() if run != itself and known(row["high"]) and row["high"] >= low}


def run_name(run: Row, among: pd.DataFrame) -> str:
    """The run's label, and the settings that set it apart from other runs of that label."""
    same = among[among["label"] == run["label"]]
    parts = [str(run["label"] if known(run["label"]) else run["run_id"])]
    for column, words in _APART:
        if column in same and len(same[column].dropna().unique()) > 1 and run[column] is not None:
            parts.append(words.format(run[column]))
    return ", ".join(parts)
