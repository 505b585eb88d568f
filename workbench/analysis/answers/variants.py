"""Settings of the server one against one: the same shape, drafter and load, and nothing else changed."""

from __future__ import annotations

import pandas as pd

from workbench.analysis.frames import Row, grouped, records
from workbench.analysis.wording import count, one_of

NOISE = 0.8
"""Cycles of one configuration differed by a fifth between starts (`h200_step_cost` beside `h200_variants`)."""

_SAME = (
    "campaign",
    "drafter",
    "num_steps",
    "eagle_topk",
    "num_draft_tokens",
    "simulated_accept_length",
    "cuda_graph",
    "prompt_set",
    "max_concurrency",
)


def one_against_one(runs: pd.DataFrame, costs: pd.DataFrame) -> str | None:
    """Cycle and speed of each setting at the lowest load, where a campaign varies settings; else nothing.

    The server starts of one shape have names that begin alike; what the longer ones add is the setting.
    """
    servers = {(row["campaign"], row["run_id"]): str(row["server_id"]) for row in records(runs)}
    known = records(costs.dropna(subset=["t_cycle_ms", "tok_per_s", "max_concurrency"]))
    named = [{**row, "server": servers.get((row["campaign"], row["run_id"]), "")} for row in known]
    varied = [settings for group in grouped(named, _SAME).values() if (settings := _settings(group))]
    if not varied:
        return None
    lowest = min(settings[""]["max_concurrency"] for settings in varied)
    return " ".join(_compared(settings) for settings in varied if settings[""]["max_concurrency"] == lowest)


def _settings(group: list[Row]) -> dict[str, Row] | None:
    """Runs by what their server's name adds to the shortest one; ``None`` where there is but one, or no such name."""
    names = {row["server"] for row in group}
    usual = min(names, key=len)
    if len(names) < 2 or not usual or not all(name.startswith(usual) for name in names):
        return None
    return {row["server"].removeprefix(usual).strip("-"): row for row in group}


def _compared(settings: dict[str, Row]) -> str:
    usual = settings[""]
    parts = [
        f"{row['t_cycle_ms']:.1f} ms with {name} ({row['tok_per_s']:,.0f})" for name, row in settings.items() if name
    ]
    best = min(row["t_cycle_ms"] for row in settings.values())
    shape = "" if usual["num_steps"] is None else f" of {count(int(usual['num_steps']), 'step')}"
    near = best > NOISE * usual["t_cycle_ms"]
    verdict = "; starts of one server differ by more, so that none is shown to be better" if near else ""
    return (
        f"Settings one against one, at {usual['max_concurrency']} at once: a cycle{shape} takes "
        f"{usual['t_cycle_ms']:.1f} ms as it is ({usual['tok_per_s']:,.0f} tok/s), {one_of(parts)}{verdict}."
    )
