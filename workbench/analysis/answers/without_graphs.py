"""CUDA graphs switched off on purpose: a control beside the same campaign's runs with graphs, no fault to mend."""

from __future__ import annotations

import pandas as pd

from workbench.analysis.answers.common import run_name
from workbench.analysis.frames import Row, records, speed_of
from workbench.analysis.wording import count, number

ServerKey = tuple[str, str]

_MOST_SAID = 12
_LOAD = ["campaign", "prompt_set", "max_concurrency"]
_SHAPE = [*_LOAD, "drafter", "num_steps", "eagle_topk", "num_draft_tokens", "simulated_accept_length"]


def control_servers(runs: pd.DataFrame) -> set[ServerKey]:
    """Servers without graphs whose baseline has none either, in campaigns that also have a baseline with graphs."""
    plain = runs[runs["role"] == "baseline"]
    with_graphs = set(plain.loc[_is(plain, on=True), "campaign"])
    off = plain.loc[_is(plain, on=False), ["campaign", "baseline_group"]].drop_duplicates()
    groups = {(row["campaign"], row["baseline_group"]) for row in records(off) if row["campaign"] in with_graphs}
    without = runs.loc[_is(runs, on=False), ["campaign", "baseline_group", "server_id"]].drop_duplicates()
    return {
        (row["campaign"], row["server_id"])
        for row in records(without)
        if (row["campaign"], row["baseline_group"]) in groups
    }


def graphs_control(runs: pd.DataFrame, servers: set[ServerKey]) -> str | None:
    """What the same configuration reaches with and without graphs, at the lowest load that has both."""
    keys = list(zip(runs["campaign"], runs["server_id"], strict=True))
    is_control = pd.Series([key in servers for key in keys], index=runs.index, dtype=bool)
    controls, with_graphs = records(runs[is_control].sort_values("max_concurrency")), runs[_is(runs, on=True)]
    said: list[str] = []
    for place, row in enumerate(controls):
        if len(said) == _MOST_SAID:
            said.append(f"and {count(len(controls) - place, 'more run')} without")
            break
        slow, fast = speed_of(row["decode_tok_per_s"]), _speed_with_graphs(row, with_graphs)
        if slow is not None and fast is not None:
            times = fast / slow
            said.append(f"{run_name(row, runs)} {number(slow)} decode tok/s instead of {number(fast)} ({times:.1f}x)")
    return f"CUDA graphs off, as a control: {'; '.join(said)}." if said else None


def _speed_with_graphs(row: Row, runs: pd.DataFrame) -> float | None:
    """In the middle where it was measured more than once."""
    same = pd.Series(True, index=runs.index)
    for column in _LOAD if row["role"] == "baseline" else _SHAPE:
        value = row[column]
        same &= runs[column].isna() if value is None else runs[column].eq(value).fillna(False).astype(bool)
    return speed_of(runs.loc[same & (runs["role"] == row["role"]), "decode_tok_per_s"].median())


def _is(rows: pd.DataFrame, *, on: bool) -> pd.Series:
    return (rows["cuda_graph"] == on).fillna(False).astype(bool)
