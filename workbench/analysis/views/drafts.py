"""What drafts are accepted, and what the drafters were trained on."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from workbench.analysis.acceptance import USED, accept_length_df, shorter_chains_df
from workbench.analysis.answers import curve_name, offline_against_served, offline_gaps
from workbench.analysis.answers.common import real_runs
from workbench.analysis.campaign import Fits, scaling_points
from workbench.analysis.cost import required_acceptance
from workbench.analysis.frames import Row, records
from workbench.analysis.scaling import ScalingFit, forms_df
from workbench.analysis.views.runs import labelled
from workbench.analysis.views.texts import renamed, spans, texts
from workbench.analysis.wording import count, signed
from workbench.table import Tables

_ASSUMED_STEPS = range(1, 8)


def accept_lengths_view(tables: Tables) -> pd.DataFrame:
    """Accept length of every run with requests, with its interval over prompts."""
    table = labelled(accept_length_df(tables.requests), tables.runs)
    table = real_runs(table[table["role"] == "speculative"])
    names = {
        "label": "run",
        "prompt_set": "prompts",
        "max_concurrency": "concurrency",
        "accept_length": "accept length",
        "ends": "95 % over prompts",
        "num_prompts": "n prompts",
        "num_verify_steps": "n verify steps",
    }
    shown = table.assign(ends=spans(table, "low", "high"))
    return renamed(shown, names)


def shorter_chains_view(tables: Tables) -> pd.DataFrame:
    """What each drafter's longest chain predicts for shorter ones, beside the runs that measured those."""
    runs = real_runs(tables.runs)
    chains = runs[
        (runs["eagle_topk"] == 1).fillna(False).astype(bool)
        & (runs["num_steps"] > 1).fillna(False).astype(bool)
        & runs["steps_histogram"].notna()
    ]
    by = ["campaign", "drafter", "prompt_set"]
    same = [*by, "ignore_eos", "max_concurrency"]
    longest = chains.sort_values("num_steps", ascending=False, kind="stable").drop_duplicates(same)
    expected = shorter_chains_df(tables.requests_of(longest, USED))
    of_longest = longest[[*same, "run_id", "label", "num_steps"]].rename(columns={"num_steps": "longest"})
    expected = expected.merge(of_longest, on=["campaign", "run_id"])
    expected = expected[(expected["num_steps"] < expected["longest"]).fillna(False).astype(bool)]
    expected = expected.rename(columns={"accept_length": "expected", "label": "from"})
    measured = runs[(runs["eagle_topk"] == 1).fillna(False).astype(bool)]
    measured = measured[["run_id", *same, "num_steps", "accept_length"]].dropna(subset=["accept_length"])
    measured = measured.rename(columns={"run_id": "measured_by", "accept_length": "measured"})
    measured = measured.rename(columns={"max_concurrency": "measured_at"})
    shown = expected.merge(measured, on=[*by, "ignore_eos", "num_steps"], how="inner")
    # Of several measurements the one at the chain's own concurrency, else the one at the next.
    shown = shown.assign(apart=(shown["measured_at"] - shown["max_concurrency"]).abs())
    shown = shown.sort_values("apart", kind="stable").drop_duplicates(["run_id", "num_steps", *by, "ignore_eos"])
    shown = shown.sort_index()
    shown["difference"] = texts([signed(gap) for gap in shown["measured"] - shown["expected"]], shown.index)
    names = {
        "from": "from",
        "prompt_set": "prompts",
        "max_concurrency": "concurrency",
        "num_steps": "steps",
        "expected": "expected",
        "measured": "measured",
        "difference": "difference",
    }
    return renamed(shown, names)


def required_acceptance_view(costs: pd.DataFrame) -> pd.DataFrame:
    """Per-position acceptance that break-even needs, at a run's own steps beside what it has, else by assumed steps."""
    known = costs.dropna(subset=["break_even"])
    rows = [_required(row) for row in records(known)]
    columns = ["run", "prompts", "concurrency", "steps", "break-even", "acceptance needed", "acceptance now"]
    assumed = [name for name in map(_at_steps, _ASSUMED_STEPS) if any(name in row for row in rows)]
    return pd.DataFrame(rows, columns=[*columns, *assumed])


def _required(row: Row) -> dict[str, object]:
    shown: dict[str, object] = {
        "run": row["label"],
        "prompts": row["prompt_set"],
        "concurrency": row["max_concurrency"],
        "steps": row["num_steps"],
        "break-even": row["break_even"],
    }
    if row["num_steps"] is not None:
        shown["acceptance needed"] = _acceptance(row["break_even"], row["num_steps"])
        forced = row["origin"] == "simulated"
        shown["acceptance now"] = None if forced else _acceptance(row["accept_length"], row["num_steps"])
        return shown
    return shown | {_at_steps(steps): _acceptance(row["break_even"], steps) for steps in _ASSUMED_STEPS}


def _at_steps(steps: int) -> str:
    return f"needed at {count(steps, 'step')}"


def _acceptance(accept_length: float, steps: int) -> str:
    needed = required_acceptance(accept_length, steps)
    return ">1" if needed is None else f"{needed:.2f}"


def points_view(fits: Fits) -> pd.DataFrame:
    """The points of the training-size figure in a few columns."""
    points = scaling_points(fits)
    names = {
        "drafter": "drafter",
        "training_samples": "samples",
        "prompt_set": "prompts",
        "num_steps": "steps",
        "accept_length": "accept length",
        "ends": "interval",
        "n": "n prompts",
        "origin": "origin",
    }
    if points.empty:
        return pd.DataFrame(columns=list(names.values()))
    points = points.sort_values(["training_samples", "drafter", "prompt_set", "num_steps"], kind="stable")
    return renamed(points.assign(ends=spans(points, "low", "high")), names)


def curves_view(fits: Fits) -> pd.DataFrame:
    """The forms tried for every curve: parameters with intervals, errors, which one is drawn, and why not."""
    parts = [forms_df(fit).assign(curve=curve_name(fit.points)) for _, fit in fits.values() if fit.num_sizes > 1]
    names = {
        "curve": "curve",
        "form": "form",
        "parameters": "parameters (95 %)",
        "aicc": "AICc",
        "loo_rmse": "leave-one-out error",
        "drawn": "drawn",
        "reason": "why not",
    }
    if not parts:
        return pd.DataFrame(columns=list(names.values()))
    tried = pd.concat(parts, ignore_index=True)
    for name in ("parameters", "reason"):
        tried[name] = texts([text or None for text in tried[name]], tried.index)
    return renamed(tried, names)


def main_curve(fits: Fits) -> ScalingFit | None:
    """The curve with the most training sizes, the first of equals."""
    curve = max((fit for _, fit in fits.values()), key=lambda fit: fit.num_sizes, default=None)
    return curve if curve is not None and curve.num_sizes > 1 else None


def drafters_view(drafters: pd.DataFrame) -> pd.DataFrame:
    """What the drafters were trained on."""
    names: Mapping[str, str] = {
        "drafter": "drafter",
        "drafter_target": "made for",
        "training_samples": "samples",
        "response_tokens": "response tokens",
        "optimizer_steps": "optimizer steps",
        "epochs": "epochs",
        "seed": "seed",
        "draft_vocab_size": "draft vocabulary",
        "recipe": "recipe",
        "design": "design",
        "data_mix": "data",
        "notes": "notes",
    }
    return renamed(drafters, names)


def offline_gaps_view(tables: Tables) -> pd.DataFrame:
    """The pairs of `offline_view` that lie too far apart to be chance."""
    gaps = offline_gaps(offline_against_served(tables.runs, tables.offline))
    gaps["gap"] = texts([f"{gap:+.0%}" for gap in gaps["gap"]], gaps.index)
    names = {
        "drafter": "drafter",
        "prompt_set": "prompts",
        "num_steps": "steps",
        "served": "served",
        "offline": "offline",
        "gap": "gap",
        "run_id": "served by",
    }
    return renamed(gaps, names)


def offline_view(tables: Tables) -> pd.DataFrame:
    """Offline accept length beside the served one."""
    pairs = offline_against_served(tables.runs, tables.offline)
    pairs["difference"] = texts([signed(gap, 3) for gap in pairs["difference"]], pairs.index)
    names = {
        "drafter": "drafter",
        "prompt_set": "prompts",
        "num_steps": "steps",
        "served": "served",
        "offline": "offline",
        "difference": "difference",
        "run_id": "served by",
    }
    return renamed(pairs, names)
