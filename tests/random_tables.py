"""Tables with the declared columns and any content: missing, hostile, extreme and inconsistent values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from workbench.spec import CampaignInfo
from workbench.table import Tables, summarise_log
from workbench.table.columns import DRAFTERS, OFFLINE, REQUESTS, RUNS, SETTINGS, WINDOWS, Column, frame

HOSTILE = "<script>alert(1)</script>\"'&\nNext: $x_1$"
NAMES = ("a", "b", HOSTILE)
PLAUSIBLE = (0.0, 1.0, 1.02, 1.7, 2.4, 3.0, 90.0, 751.3)
ANY = (*PLAUSIBLE, -1.0, 1e-9, 1e12)
WHOLE = (0, 1, 2, 3, 4, 8, 16, 48, 22_383, -1)
SEEDS = (1, 0, 50)  # no run; nine runs with requests and logs; everything
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
    "setting": ("attention_backend", "device", "port", "speculative_num_steps", HOSTILE),
    "device": ("cuda", "cpu"),
}
_ALWAYS_KNOWN = {"campaign", "run_id", "role", "server_id", "origin", "status", "drafter", "line", "dp_rank"}
_START = pd.Timestamp("2026-11-29 21:36:00")
_RANGES = ("accept_length", "output_tok_per_s")  # value, low and high are known together, and in order


class _Random:
    """Random rows; ``numbers`` is what figures are taken from."""

    def __init__(self, seed: int, numbers: tuple[float, ...]) -> None:
        self.rng = np.random.default_rng(seed)
        self.numbers = numbers

    def frame(self, columns: tuple[Column, ...], *sizes: int, run_ids: tuple[str, ...] = ()) -> pd.DataFrame:
        """A table of one of these sizes; each column misses another share of its values."""
        share = {column.name: 0.0 if column.name in _ALWAYS_KNOWN else self.rng.choice(_MISSING) for column in columns}
        rows = [
            {column.name: self.value(column) for column in columns if self.rng.random() >= share[column.name]}
            for _ in range(self.pick(sizes))
        ]
        if run_ids:
            rows = [{**row, "run_id": run_ids[place % len(run_ids)]} for place, row in enumerate(rows)]
        return frame(columns, rows)

    def pick(self, values: Sequence[Any]) -> Any:
        return values[self.rng.integers(len(values))]

    def value(self, column: Column) -> object:
        if column.name in _CHOICES:
            return self.pick(_CHOICES[column.name])
        made: dict[str, Callable[[], object]] = {
            "str": lambda: self.pick(NAMES),
            "int": lambda: self.pick(WHOLE),
            "float": lambda: self.pick(self.numbers) * self.pick((1.0, float(self.rng.random()))),
            "bool": lambda: self.pick((True, False)),
            "list": lambda: [int(count) for count in self.rng.integers(0, 9, size=self.rng.integers(0, 6))],
            "time": lambda: _START + pd.Timedelta(seconds=int(self.rng.integers(0, 9))),
        }
        return made[column.dtype]()


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


def random_tables(seed: int, numbers: tuple[float, ...] = ANY) -> Tables:
    """Up to 25 runs of two campaigns, their requests, two logs; what the tables promise of any input holds."""
    make = _Random(seed, numbers)
    ids = tuple(f"run {number}{f' {HOSTILE}' if number % 5 == 4 else ''}" for number in range(25))
    logs = {}
    for campaign, server in (("a", "a"), ("b", HOSTILE)):
        empty = summarise_log([], name=f"{campaign}/{server}")
        logs[campaign, server] = replace(empty, windows=_as_parsed(make.frame(WINDOWS, 0, 1, 40)))
    return Tables(
        campaigns={name: CampaignInfo(name=name, title=HOSTILE, target="T", machine=HOSTILE) for name in ("a", "b")},
        runs=_with_ranges(make.frame(RUNS, 0, 1, 2, 9, 25, run_ids=ids)),
        requests=make.frame(REQUESTS, 0, 1, 120, run_ids=ids[:12]),
        windows=make.frame(WINDOWS, 0),
        drafters=make.frame(DRAFTERS, 0, 1, 6),
        offline=make.frame(OFFLINE, 0, 1, 9),
        logs=logs,
        problems=(),
        settings=make.frame(SETTINGS, 0, 60, run_ids=ids),
    )
