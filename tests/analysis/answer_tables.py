"""The recorded campaigns with figures changed, and the tables that answers are made from."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
from analysis_tables import recorded

from workbench.analysis.cost import cost_df
from workbench.analysis.speedup import speedup_df
from workbench.table import Tables


def with_runs(tables: Tables, changes: dict[str, dict[str, object]]) -> Tables:
    """The tables with figures of runs replaced, by run id."""
    return replace(tables, runs=_changed(tables.runs, "run_id", changes))


def with_drafters(tables: Tables, changes: dict[str, dict[str, object]]) -> Tables:
    """The tables with what is known of drafters replaced, also where their runs repeat it."""
    in_runs = {name: {key: value for key, value in own.items() if key in tables.runs} for name, own in changes.items()}
    return replace(
        tables,
        drafters=_changed(tables.drafters, "drafter", changes),
        runs=_changed(tables.runs, "drafter", in_runs),
    )


def _changed(table: pd.DataFrame, key: str, changes: dict[str, dict[str, object]]) -> pd.DataFrame:
    changed = table.copy()
    for name, values in changes.items():
        rows = changed[key] == name
        assert rows.any(), name
        for column, value in values.items():
            changed.loc[rows, column] = value
    return changed


def exactly(column: str, value: float | None) -> dict[str, object]:
    """A figure without a range."""
    return dict.fromkeys((column, f"{column}_low", f"{column}_high"), value)


def costs_of(tables: Tables) -> pd.DataFrame:
    return cost_df(tables.runs)


def speedups_of(tables: Tables) -> pd.DataFrame:
    return speedup_df(tables.runs, tables.requests, n_boot=200)


def speeds(table: pd.DataFrame, *rows: dict[str, object]) -> pd.DataFrame:
    """Rows of a table of speedups or costs made by hand, with the dtypes of a real one."""
    empty = table.iloc[:0]
    made = pd.DataFrame([{name: row.get(name) for name in empty.columns} for row in rows], columns=empty.columns)
    return made.astype(empty.dtypes.to_dict())


def speedup_rows(*rows: dict[str, object]) -> pd.DataFrame:
    """Speedups: recorded runs of one campaign at concurrency 1 unless a row says otherwise."""
    common = {"campaign": "c", "origin": "recorded", "max_concurrency": 1, "prompt_set": "p", "method": "bootstrap"}
    common |= {"tok_per_s": 120.0, "base_tok_per_s": 100.0, "verdict": "noise"}
    return speeds(
        _TEMPLATE_SPEEDUPS, *({"label": f"run {k}", "run_id": f"r{k}", **common, **r} for k, r in enumerate(rows))
    )


def cost_rows(*rows: dict[str, object]) -> pd.DataFrame:
    """Costs: recorded runs of one campaign, drafter and group at concurrency 1 with graphs on; ranges are points."""
    made = []
    for number, row in enumerate(rows):
        full = {
            "campaign": "c",
            "run_id": f"r{number}",
            "label": f"run {number}",
            "drafter": "d",
            "origin": "recorded",
            "max_concurrency": 1,
            "cuda_graph": True,
            "prompt_set": "p",
            "baseline_group": "A",
            **row,
        }
        for name in ("accept_length", "break_even", "t_cycle_ms"):
            for end in ("low", "high"):
                full.setdefault(f"{name}_{end}", full.get(name))
        made.append(full)
    return speeds(_TEMPLATE_COSTS, *made)


_KIMI = recorded("kimi_k25")
_TEMPLATE_COSTS = costs_of(_KIMI)
_TEMPLATE_SPEEDUPS = speedups_of(_KIMI)
