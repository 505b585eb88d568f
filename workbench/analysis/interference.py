"""What measuring side by side costs: runs of one content with neighbours over those without."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import pandas as pd

from workbench.analysis.frames import Row, grouped, records, typed
from workbench.analysis.wording import count, one_of

_COLUMNS = {
    "campaign": "str",
    "server_id": "str",
    "prompt_set": "str",
    "max_concurrency": "Int64",
    "places": "Int64",
    "alone_tok_per_s": "float64",
    "packed_tok_per_s": "float64",
    "ratio": "float64",
}
_SAME = ("campaign", "_content")


def interference_df(runs: pd.DataFrame) -> pd.DataFrame:
    """Tok/s with neighbours over tok/s alone, of every run that was measured both ways, a row a concurrency.

    ``places`` is how many worked at once. Speeds are those of all slots busy; where a run has none, of both from the
    first request to the last answer. Several runs of a kind count by their median.
    """
    done = [row for row in records(runs[runs["status"] == "ok"]) if row["places"] is not None]
    rows = []
    # A run's name ends with what it is made of.
    for same in grouped([{**row, "_content": row["run_id"].rpartition("-")[2]} for row in done], _SAME).values():
        alone, packed = [row for row in same if row["places"] == 1], [row for row in same if row["places"] > 1]
        speeds = _speeds(alone, packed) if alone and packed else None
        if speeds is not None:
            figures = {"alone_tok_per_s": speeds[0], "packed_tok_per_s": speeds[1], "ratio": speeds[1] / speeds[0]}
            rows.append({**packed[0], "places": max(row["places"] for row in packed), **figures})
    by = ["campaign", "server_id", "prompt_set", "max_concurrency"]
    return typed(rows, _COLUMNS).sort_values(by, kind="stable", ignore_index=True)


def _speeds(alone: Sequence[Row], packed: Sequence[Row]) -> tuple[float, float] | None:
    for column in ("decode_tok_per_s", "output_tok_per_s"):
        known = [[row[column] for row in rows if row[column]] for rows in (alone, packed)]
        if all(known):
            return median(known[0]), median(known[1])
    return None


def interference_words(runs: pd.DataFrame) -> str | None:
    """How many runs had neighbours, and what those cost where it was measured, in a sentence."""
    places = runs["places"].dropna()
    packed = places[places > 1]
    if packed.empty:
        return None
    many = int(packed.max())
    head = f"{count(len(packed), 'run')} of {len(runs)} had neighbours, up to {count(many, 'start')} at once"
    found = interference_df(runs)
    if found.empty:
        return f"{head}; what that does to their speed was not measured (`--interference` does)."
    by_load = found.groupby("max_concurrency")["ratio"].median()
    said = one_of(f"{ratio:.2f} at concurrency {load}" for load, ratio in by_load.items())
    return f"{head}; with neighbours a start reaches this share of its speed alone: {said}."
