"""Tables as the pages show them: chosen columns, joined labels, one row where several say the same."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from workbench.analysis.acceptance import shorter_chains_df
from workbench.analysis.answers import offline_against_served
from workbench.analysis.cost import required_acceptance_df
from workbench.analysis.frames import most, records
from workbench.analysis.scaling import ScalingFit, scaling_points_df
from workbench.analysis.speedup import fairness_df, log_speed_df, losslessness_df
from workbench.table import LogSummary, Tables

RATE_COLUMNS = [
    "label",
    "num_draft_tokens",
    "num_steps",
    "accept_rate_printed",
    "accept_rate_definition",
    "accept_rate",
    "accept_length",
]
SPEED_COLUMNS = [
    "label",
    "role",
    "baseline_group",
    "prompt_set",
    "max_concurrency",
    "output_tok_per_s",
    "decode_tok_per_s",
    "log_median_tok_per_s",
    "origin",
]
_KEYS = ["campaign", "run_id"]


def labelled(table: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """A table keyed by run, with the run's label, drafter, shape and prompts beside it."""
    described = ["label", "role", "drafter", "num_steps", "num_draft_tokens", "prompt_set", "ignore_eos"]
    described += ["max_concurrency", "origin"]
    return table.merge(runs[_KEYS + [name for name in described if name not in table]], on=_KEYS, how="left")


def runs_view(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs of a campaign in a few columns."""
    shown = runs.assign(
        graphs=_on_off(runs["cuda_graph"]),
        length=_spans(runs, "accept_length"),
        speed=_spans(runs, "output_tok_per_s", 1),
    )
    names = {
        "label": "run",
        "baseline_group": "group",
        "prompt_set": "prompts",
        "num_steps": "steps",
        "num_draft_tokens": "draft tokens",
        "graphs": "graphs",
        "max_concurrency": "at once",
        "speed": "output tok/s",
        "length": "accept length",
        "accept_length_source": "from",
        "origin": "origin",
        "status": "status",
    }
    return shown[list(names)].rename(columns=names)


def costs_view(costs: pd.DataFrame) -> pd.DataFrame:
    """What a verify cycle costs and what would pay for it, ranges as ranges."""
    shown = costs.assign(
        graphs=_on_off(costs["cuda_graph"]),
        length=_spans(costs, "accept_length"),
        cycle=_spans(costs, "t_cycle_ms", 1),
        needed=_spans(costs, "break_even"),
    )
    names = {
        "label": "run",
        "prompt_set": "prompts",
        "num_draft_tokens": "draft tokens",
        "num_steps": "steps",
        "graphs": "graphs",
        "max_concurrency": "at once",
        "base_tok_per_s": "baseline tok/s",
        "tok_per_s": "tok/s",
        "t_base_ms": "plain step (ms)",
        "cycle": "verify cycle (ms)",
        "length": "accept length",
        "needed": "break-even",
        "gain_needed": "gain needed",
        "reason": "note",
    }
    return shown[list(names)].rename(columns=names)


def speedups_view(speedups: pd.DataFrame) -> pd.DataFrame:
    """Speedups with their intervals and verdicts."""
    interval = [
        None if row["low"] is None else f"{row['low']:.2f}\N{EN DASH}{row['high']:.2f}" for row in records(speedups)
    ]
    names = {
        "label": "run",
        "prompt_set": "prompts",
        "max_concurrency": "at once",
        "tok_per_s": "tok/s",
        "base_tok_per_s": "baseline tok/s",
        "speedup": "speedup",
        "interval": "interval",
        "verdict": "verdict",
        "reason": "how sure",
    }
    return speedups.assign(interval=pd.Series(interval, index=speedups.index, dtype="str"))[list(names)].rename(
        columns=names
    )


def fairness_view(tables: Tables) -> pd.DataFrame:
    """Settings in which runs and their baselines differ, by run."""
    shown = fairness_df(tables.runs)
    names = tables.runs.set_index(_KEYS)["label"]
    run = [names.get((row["campaign"], row["run_id"]), row["run_id"]) for row in records(shown)]
    columns = ["run", "baseline_run_id", "setting", "speculative", "baseline", "matters", "why"]
    return shown.assign(run=pd.Series(run, index=shown.index, dtype="str"))[columns].rename(
        columns={"baseline_run_id": "against"}
    )


def losslessness_view(tables: Tables) -> pd.DataFrame:
    """Share of prompts with the baseline's text, by run."""
    return losslessness_df(tables.requests, tables.runs).drop(columns="campaign")


def points_view(tables: Tables) -> pd.DataFrame:
    """The points of the training-size figure in a few columns."""
    points = scaling_points_df(tables.runs, tables.requests)
    names = {
        "drafter": "drafter",
        "training_samples": "samples",
        "response_tokens": "response tokens",
        "optimizer_steps": "optimizer steps",
        "epochs": "epochs",
        "prompt_set": "prompts",
        "num_steps": "steps",
        "accept_length": "accept length",
        "low": "low",
        "high": "high",
        "n": "n",
        "origin": "origin",
    }
    return points[list(names)].rename(columns=names)


def _on_off(values: pd.Series) -> pd.Series:
    return values.map({True: "on", False: "off"}).astype("str")


def _spans(table: pd.DataFrame, column: str, decimals: int = 2) -> pd.Series:
    """One text a row: the value, or its range where a source gives one."""

    def said(value: float) -> str:
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.{decimals}f}"

    ends = zip(table[f"{column}_low"].tolist(), table[f"{column}_high"].tolist(), strict=True)
    texts = [
        None if pd.isna(low) else said(low) if said(low) == said(high) else f"{said(low)}\N{EN DASH}{said(high)}"
        for low, high in ends
    ]
    return pd.Series(texts, index=table.index, dtype="str")


def longest_log(tables: Tables) -> LogSummary | None:
    """The server log with the most decode lines."""
    return max(tables.logs.values(), key=lambda log: len(log.windows), default=None)


def shorter_chains(tables: Tables) -> pd.DataFrame:
    """What each campaign's longest chains predict for shorter ones, beside the runs that measured those."""
    runs = tables.runs
    chains = runs[(runs["eagle_topk"] == 1) & (runs["num_steps"] > 1) & runs["steps_histogram"].notna()]
    by = ["campaign", "drafter", "prompt_set"]
    same = [*by, "ignore_eos", "max_concurrency"]
    longest = chains.sort_values("num_steps", ascending=False).drop_duplicates(same)
    longest = longest[longest.duplicated(by, keep=False) | (longest["num_steps"] > 3)]
    expected = shorter_chains_df(tables.requests[tables.requests["run_id"].isin(longest["run_id"])])
    expected = expected.merge(longest[[*_KEYS, "label", "drafter", "prompt_set", "ignore_eos"]], on=_KEYS)
    expected = expected.rename(columns={"accept_length": "expected", "label": "from"})
    measured = runs.loc[runs["eagle_topk"] == 1, [*by, "ignore_eos", "num_steps", "accept_length"]]
    measured = measured.dropna(subset=["accept_length"]).drop_duplicates([*by, "ignore_eos", "num_steps"])
    shown = expected.merge(measured, on=[*by, "ignore_eos", "num_steps"], how="left")
    shown = shown.rename(columns={"accept_length": "measured"})
    shown["difference"] = shown["measured"] - shown["expected"]
    return shown[["from", "prompt_set", "num_steps", "expected", "measured", "difference"]]


def required_acceptance(costs: pd.DataFrame) -> pd.DataFrame:
    """Per-position acceptance that break-even needs: at a run's own steps, else over steps, marked as assumed."""
    known = costs.dropna(subset=["break_even"])
    parts = []
    for row in records(known):
        stated = row["num_steps"] is not None
        steps = [row["num_steps"]] if stated else range(1, 8)
        part = required_acceptance_df(row["break_even"], steps=steps)
        said = "stated" if stated else "assumed"
        parts.append(part.assign(label=row["label"], break_even=row["break_even"], steps=said))
    columns = ["label", "break_even", "num_steps", "steps", "acceptance", "reachable"]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


def main_curve(
    tables: Tables, fits: Mapping[str, tuple[pd.DataFrame, ScalingFit]]
) -> tuple[pd.DataFrame, ScalingFit | None]:
    """Points to draw and the curve with the most training sizes, the first of equals."""
    points = scaling_points_df(tables.runs, tables.requests)
    curve = max((fit for _, fit in fits.values()), key=lambda fit: fit.num_sizes, default=None)
    return points, curve if curve is not None and curve.num_sizes > 1 else None


def offline_pairs(tables: Tables) -> pd.DataFrame:
    """Offline accept length beside the served one."""
    return offline_against_served(tables.runs, tables.offline).drop(columns="campaign")


def log_speeds(tables: Tables) -> pd.DataFrame:
    """`log_speed_df` of every speculative server's log against the baseline's of its group."""
    servers = tables.runs.drop_duplicates(["campaign", "server_id"])
    parts = []
    for spec in records(servers[servers["role"] == "speculative"]):
        same = servers[
            (servers["campaign"] == spec["campaign"]) & (servers["baseline_group"] == spec["baseline_group"])
        ]
        for base in records(same[same["role"] == "baseline"]):
            own, other = (tables.logs.get((row["campaign"], row["server_id"])) for row in (spec, base))
            if own is not None and other is not None:
                part = log_speed_df(own.windows, other.windows)
                parts.append(part.assign(server=spec["server_id"], baseline=base["server_id"]))
    if not parts:
        return pd.DataFrame()
    table = pd.concat(parts, ignore_index=True)
    return table[["server", "baseline", *(name for name in table if name not in ("server", "baseline"))]]


def best_by_shape(costs: pd.DataFrame) -> pd.DataFrame:
    """The fastest run of each campaign, drafter and shape."""
    known = costs.dropna(subset=["speedup"])
    by = ["campaign", "drafter", "num_steps", "num_draft_tokens", "cuda_graph"]
    return known.sort_values("speedup", ascending=False).drop_duplicates(by)


def compare_df(tables: Tables, costs: pd.DataFrame) -> pd.DataFrame:
    """One row a campaign: target, machine, runs, baseline, best speed, accept length and break-even."""
    rows = []
    for name, info in tables.campaigns.items():
        own = costs[(costs["campaign"] == name) & (costs["origin"] != "simulated")]
        runs = tables.runs[tables.runs["campaign"] == name]
        best = most(own, "speedup") if own["speedup"].notna().any() else None
        rows.append(
            {
                "campaign": name,
                "target": info.target,
                "machine": info.machine,
                "runs": len(runs),
                "best run": None if best is None else best["label"],
                "base_tok_per_s": None if best is None else best["base_tok_per_s"],
                "tok_per_s": None if best is None else best["tok_per_s"],
                "speedup": None if best is None else best["speedup"],
                "accept_length_high": own["accept_length_high"].max(),
                "break_even_low": own["break_even_low"].min(),
                "break_even_high": own["break_even_high"].max(),
            }
        )
    return pd.DataFrame(rows)
