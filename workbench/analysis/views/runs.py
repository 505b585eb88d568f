"""Runs, what they cost, what they gain."""

from __future__ import annotations

import pandas as pd

from workbench.analysis.answers import all_on_cpu, bounded
from workbench.analysis.frames import Row, records
from workbench.analysis.views.texts import on_off, renamed, spans, texts
from workbench.analysis.wording import speed_unit

KEYS = ["campaign", "run_id"]
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
_DESCRIBED = [
    "label",
    "role",
    "drafter",
    "num_steps",
    "num_draft_tokens",
    "prompt_set",
    "ignore_eos",
    "max_concurrency",
    "origin",
]


def labelled(table: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """A table keyed by run, with the run's label, drafter, shape and prompts beside it."""
    described = runs[KEYS + [name for name in _DESCRIBED if name not in table]].drop_duplicates(KEYS)
    return table.merge(described, on=KEYS, how="left")


def runs_view(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs of a campaign in a few columns; what was measured stands where it is seen without scrolling."""
    shown = runs.assign(
        graphs=on_off(runs["cuda_graph"]),
        length=spans(runs, "accept_length_low", "accept_length_high"),
        speed=spans(runs, "output_tok_per_s_low", "output_tok_per_s_high", 1),
    )
    names = {
        "label": "run",
        "length": "accept length",
        "speed": "output tok/s",
        "decode_tok_per_s": "decode tok/s",
        "max_concurrency": "concurrency",
        "num_draft_tokens": "draft tokens",
        "num_steps": "steps",
        "graphs": "graphs",
        "prompt_set": "prompts",
        "baseline_group": "group",
        "accept_length_source": "from",
        "origin": "origin",
        "status": "status",
    }
    if runs["decode_tok_per_s"].isna().all():
        del names["decode_tok_per_s"]
    return renamed(shown, _without_graphs(names, runs))


def _without_graphs(names: dict[str, str], rows: pd.DataFrame) -> dict[str, str]:
    """The columns to show: on CPUs there are no CUDA graphs."""
    return {name: shown for name, shown in names.items() if name != "graphs" or not all_on_cpu(rows)}


def speed_names(table: pd.DataFrame) -> dict[str, str]:
    """Columns of a run's speed and its baseline's, named so that they say which speed it is."""
    bases = table["basis"].dropna().unique()
    unit = speed_unit(bases)
    names = {"tok_per_s": unit, "base_tok_per_s": f"baseline {unit}"}
    return names | {"basis": "which speed"} if len(bases) > 1 else names


def costs_view(costs: pd.DataFrame) -> pd.DataFrame:
    """What a verify cycle costs and what would pay for it, ranges as ranges; what matters most stands first."""
    shown = costs.assign(
        graphs=on_off(costs["cuda_graph"]),
        length=spans(costs, "accept_length_low", "accept_length_high"),
        cycle=spans(costs, "t_cycle_ms_low", "t_cycle_ms_high", 1),
        needed=spans(costs, "break_even_low", "break_even_high"),
    )
    names = {
        "label": "run",
        "prompt_set": "prompts",
        "max_concurrency": "concurrency",
        "num_draft_tokens": "draft tokens",
        "num_steps": "steps",
        "graphs": "graphs",
        "length": "accept length",
        "needed": "break-even",
        "gain_needed": "gain needed",
        **speed_names(costs),
        "cycle": "verify cycle (ms)",
        "t_base_ms": "plain step (ms)",
    }
    if costs["reason"].notna().any():
        names["reason"] = "what is missing"
    return renamed(shown, _without_graphs(names, costs))


def speedups_view(speedups: pd.DataFrame) -> pd.DataFrame:
    """Speedups with their intervals and verdicts, and what they stand on, best first."""
    ordered = speedups.sort_values("speedup", ascending=False, kind="stable", na_position="last")
    by = [_judged_by(row) for row in records(ordered)]
    shown = ordered.assign(
        ends=spans(bounded(ordered), "low", "high"),
        by=texts(by, ordered.index),
        # A win of acceptance that was made up is none.
        verdict=ordered["verdict"].mask(ordered["origin"] == "simulated", "simulated"),
    )
    names = {
        "label": "run",
        "prompt_set": "prompts",
        "max_concurrency": "concurrency",
        "speedup": "speedup",
        "ends": "interval",
        "verdict": "verdict",
        "by": "judged by",
        **speed_names(speedups),
    }
    if speedups["busy_s"].notna().any():
        names["busy_s"] = "busy (s a pass)"
    return renamed(shown, names)


def _judged_by(row: Row) -> str | None:
    """In a few words, how the verdict was found."""
    method = str(row["method"] or "")
    for word in ("prompt", "pass"):
        if f"bootstrap over {word}" in method:
            # With a space that does not break: a narrow column then keeps one line a row.
            return f"{row['n']}\u00a0{word}{'' if row['n'] == 1 else 'es' if word == 'pass' else 's'}"
    return {"": None, "one figure an arm": "one figure an arm"}.get(method, "client,\u00a0log")
