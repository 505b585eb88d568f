"""Tables with the declared columns and any content: missing, hostile, extreme and inconsistent values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from workbench.spec import CampaignInfo
from workbench.table import Tables, summarise_log
from workbench.table.columns import DRAFTERS, OFFLINE, REQUESTS, RUNS, WINDOWS, Column, frame

HOSTILE = "<script>alert(1)</script>\"'&\nNext: $x_1$"
NAMES = ("a", "b", HOSTILE)
NUMBERS = (0.0, 1.0, 1.02, 1.7, 2.4, 3.0, 90.0, 751.3, -1.0, 1e-9, 1e12)
WHOLE = (0, 1, 2, 3, 4, 8, 16, 48, 22_383, -1)
_MISSING = (0.0, 0.15, 0.6, 1.0)
_CHOICES: dict[str, tuple[object, ...]] = {
    "campaign": ("a", "b"),
    "role": ("baseline", "speculative", "speculative"),
    "origin": ("measured", "recorded", "noted", "simulated", "published", "else"),
    "status": ("ok", "ok", "failed", "running"),
    "speculative_algorithm": ("EAGLE", "EAGLE3", "NEXTN", "NONE"),
    "accept_length_source": ("requests", "log", "reported"),
    "max_concurrency": (1, 1, 8, 32),
    "num_steps": (1, 2, 3, 6, 0),
    "eagle_topk": (1, 1, 4),
    "num_draft_tokens": (2, 3, 4, 7, 16),
    "repeat": (0, 1),
    "prompt_index": tuple(range(6)),
    "dp_rank": (0, 1),
}
_ALWAYS_KNOWN = {"campaign", "run_id", "role", "server_id", "drafter", "line", "dp_rank"}
_RANGES = ("accept_length", "output_tok_per_s")  # value, low and high are known together, and in order


def random_frame(
    columns: tuple[Column, ...], rows: int, rng: np.random.Generator, **fixed: tuple[object, ...]
) -> pd.DataFrame:
    share = {column.name: rng.choice(_MISSING) for column in columns}
    return frame(columns, [_row(columns, share, number, rng, fixed) for number in range(rows)])


def _row(
    columns: tuple[Column, ...],
    share: dict[str, float],
    number: int,
    rng: np.random.Generator,
    fixed: dict[str, tuple[object, ...]],
) -> dict[str, object]:
    row: dict[str, object] = {}
    for column in columns:
        if column.name in fixed:
            row[column.name] = fixed[column.name][number % len(fixed[column.name])]
        elif column.name in _ALWAYS_KNOWN or rng.random() >= share[column.name]:
            row[column.name] = _value(column, rng)
    return row


def _value(column: Column, rng: np.random.Generator) -> object:
    if column.name in _CHOICES:
        choices = _CHOICES[column.name]
        return choices[rng.integers(len(choices))]
    if column.dtype == "str":
        return NAMES[rng.integers(len(NAMES))]
    if column.dtype == "int":
        return WHOLE[rng.integers(len(WHOLE))]
    if column.dtype == "float":
        return NUMBERS[rng.integers(len(NUMBERS))] * float(rng.choice([1.0, rng.random()]))
    if column.dtype == "bool":
        return bool(rng.integers(2))
    if column.dtype == "list":
        return [int(value) for value in rng.integers(0, 9, size=rng.integers(0, 6))]
    return pd.Timestamp("2026-11-29 21:36:00") + pd.Timedelta(seconds=int(rng.integers(0, 9)))


def _with_ranges(runs: pd.DataFrame) -> pd.DataFrame:
    for name in _RANGES:
        ends = runs[[name, f"{name}_low", f"{name}_high"]]
        known = ends.notna().all(axis=1)
        runs[f"{name}_low"], runs[f"{name}_high"] = ends.min(axis=1).where(known), ends.max(axis=1).where(known)
        runs[name] = runs[name].where(known)
    return runs


def _as_parsed(windows: pd.DataFrame) -> pd.DataFrame:
    """Counts and speeds of decode lines are never negative, and a line with a queue has running requests too."""
    for name in ("idle", "opening", "truncated"):
        windows[name] = windows[name].fillna(False)
    for name in ("running_req", "queue_req", "gen_tok_per_s", "accept_len", "window_tokens", "window_s"):
        windows[name] = windows[name].abs().where(windows[name].abs() < 1e15)
    windows["queue_req"] = windows["queue_req"].where(windows["running_req"].notna())
    return windows


def random_tables(seed: int) -> Tables:
    """Up to 25 runs of two campaigns, their requests, two logs; what the tables promise of any input holds."""
    rng = np.random.default_rng(seed)
    count = int(rng.choice([0, 1, 2, 9, 25]))
    ids = tuple(f"run {number} {HOSTILE if number % 5 == 4 else ''}" for number in range(max(count, 1)))
    runs = _with_ranges(random_frame(RUNS, count, rng, run_id=ids))
    requests = random_frame(REQUESTS, int(rng.choice([0, 1, 120])), rng)
    requests["run_id"] = pd.Series(rng.choice(ids, size=len(requests)), dtype="str")
    drafters = random_frame(DRAFTERS, int(rng.choice([0, 1, 6])), rng)
    logs = {}
    for campaign, server in (("a", "a"), ("b", HOSTILE)):
        windows = _as_parsed(random_frame(WINDOWS, int(rng.choice([0, 1, 40])), rng))
        empty = summarise_log([], name=f"{campaign}/{server}")
        logs[campaign, server] = replace(empty, windows=windows)
    return Tables(
        campaigns={name: CampaignInfo(name=name, title=HOSTILE, target="T", machine=HOSTILE) for name in ("a", "b")},
        runs=runs,
        requests=requests,
        windows=random_frame(WINDOWS, 0, rng),
        drafters=drafters,
        offline=random_frame(OFFLINE, int(rng.choice([0, 1, 9])), rng),
        logs=logs,
        problems=(),
    )
