"""Several campaigns, and published results, side by side."""

from __future__ import annotations

import pandas as pd

from workbench.analysis.answers import at_lowest, real_runs
from workbench.analysis.campaign import headline
from workbench.analysis.frames import Row, most, records
from workbench.analysis.sound import sound_rows
from workbench.analysis.views.texts import EN_DASH
from workbench.analysis.wording import number, span
from workbench.table import Tables

_PUBLISHED = ["target", "drafter", "training_samples", "num_steps", "eagle_topk", "num_draft_tokens", "source"]


def best_by_shape(tables: Tables, costs: pd.DataFrame) -> pd.DataFrame:
    """The fastest sound run of each campaign, drafter and shape, its label led by the campaign."""
    known = real_runs(sound_rows(costs, tables)).dropna(subset=["speedup"])
    by = ["campaign", "drafter", "num_steps", "num_draft_tokens", "cuda_graph"]
    best = known.sort_values("speedup", ascending=False, kind="stable").drop_duplicates(by)
    return best.assign(label=best["campaign"] + ": " + best["label"].fillna(best["run_id"]))


def compare_view(tables: Tables, costs: pd.DataFrame) -> pd.DataFrame:
    """One row a campaign: target, machine, runs, the best run beside its baseline, break-even at that load."""
    sound = sound_rows(costs, tables)
    rows = []
    for name, info in tables.campaigns.items():
        own = at_lowest(sound[sound["campaign"] == name])
        real = real_runs(own)
        best = most(real, "speedup") if real["speedup"].notna().any() else None
        figures = headline(own)
        rows.append(
            {
                "campaign": name,
                "target": info.target,
                "runs": int((tables.runs["campaign"] == name).sum()),
                "best run": None if best is None else best["label"],
                "speedup": None if best is None else best["speedup"],
                "best accept length": figures.get("best accept length"),
                "break-even": figures.get("break-even"),
                "tok/s": None if best is None else number(best["tok_per_s"]),
                "baseline tok/s": None if best is None else number(best["base_tok_per_s"]),
                "which speed": None if best is None else best["basis"],
                "machine": info.machine,
            }
        )
    return pd.DataFrame(rows)


def published_view(points: pd.DataFrame) -> pd.DataFrame:
    """Published points, one row for each source, drafter and shape: what its benchmarks span."""
    rows = []
    for _, same in points.groupby(_PUBLISHED, dropna=False, sort=False):
        first = records(same.head(1))[0]
        rows.append(
            {
                "target": first["target"],
                "drafter": first["drafter"],
                "training samples": None if first["training_samples"] is None else f"{first['training_samples']:,.0f}",
                "steps, topk, tokens": _shape(first),
                "benchmarks": len(same),
                "accept length": _range(same["accept_length"]),
                "speedup": _range(same["speedup"]),
                "source": first["source"],
            }
        )
    return pd.DataFrame(rows)


def _shape(row: Row) -> str | None:
    shape = [row["num_steps"], row["eagle_topk"], row["num_draft_tokens"]]
    known = any(value is not None for value in shape)
    return ", ".join(EN_DASH if value is None else f"{value:g}" for value in shape) if known else None


def _range(values: pd.Series) -> str | None:
    known = values.dropna()
    return span(known.min(), known.max()).replace("-", EN_DASH) if len(known) else None
