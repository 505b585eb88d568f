"""Several campaigns, and published results, side by side."""

from __future__ import annotations

import pandas as pd

from workbench.analysis.answers import at_lowest, break_even_span, real_runs
from workbench.analysis.frames import most, records
from workbench.analysis.sound import sound_rows
from workbench.analysis.views.texts import EN_DASH
from workbench.analysis.wording import number, span
from workbench.table import Tables

_PUBLISHED = ["target", "drafter", "training_samples", "num_steps", "eagle_topk", "num_draft_tokens", "source"]


def best_by_shape(costs: pd.DataFrame) -> pd.DataFrame:
    """The fastest run of each campaign, drafter and shape whose acceptance was measured."""
    known = real_runs(costs).dropna(subset=["speedup"])
    by = ["campaign", "drafter", "num_steps", "num_draft_tokens", "cuda_graph"]
    return known.sort_values("speedup", ascending=False, kind="stable").drop_duplicates(by)


def compare_view(tables: Tables, costs: pd.DataFrame) -> pd.DataFrame:
    """One row a campaign: target, machine, runs, the best run beside its baseline, break-even at that load."""
    sound = real_runs(sound_rows(costs, tables))
    rows = []
    for name, info in tables.campaigns.items():
        own = at_lowest(sound[sound["campaign"] == name])
        best = most(own, "speedup") if own["speedup"].notna().any() else None
        reached = most(own, "accept_length_high") if own["accept_length_high"].notna().any() else None
        rows.append(
            {
                "campaign": name,
                "target": info.target,
                "machine": info.machine,
                "runs": int((tables.runs["campaign"] == name).sum()),
                "best run": None if best is None else best["label"],
                "tok/s": None if best is None else number(best["tok_per_s"]),
                "baseline tok/s": None if best is None else number(best["base_tok_per_s"]),
                "speedup": None if best is None else best["speedup"],
                "best accept length": reached and span(reached["accept_length_low"], reached["accept_length_high"]),
                "break-even": break_even_span(own) if own["break_even"].notna().any() else None,
            }
        )
    return pd.DataFrame(rows)


def published_view(points: pd.DataFrame) -> pd.DataFrame:
    """Published points, one row for each source, drafter and shape: what its benchmarks span."""
    rows = []
    for _, same in points.groupby(_PUBLISHED, dropna=False, sort=False):
        first = records(same.head(1))[0]
        shape = [first["num_steps"], first["eagle_topk"], first["num_draft_tokens"]]
        rows.append(
            {
                "target": first["target"],
                "drafter": first["drafter"],
                "training samples": None if first["training_samples"] is None else f"{first['training_samples']:,.0f}",
                "steps, topk, draft tokens": None if None in shape else ", ".join(f"{value:g}" for value in shape),
                "benchmarks": len(same),
                "accept length": _range(same["accept_length"]),
                "speedup": _range(same["speedup"]),
                "source": first["source"],
            }
        )
    return pd.DataFrame(rows)


def _range(values: pd.Series) -> str | None:
    known = values.dropna()
    return span(known.min(), known.max()).replace("-", EN_DASH) if len(known) else None
