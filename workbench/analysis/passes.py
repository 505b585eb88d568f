"""Passes over the prompts: speeds of one arm by pass and prompt, and how far passes of the same arm lie apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from workbench.analysis.frames import Floats, Row, group_ids, grouped, in_time, number, records, speed_of, typed

SAME_LOAD = (
    "campaign",
    "baseline_group",
    "prompt_set",
    "max_concurrency",
    "ignore_eos",
    "temperature",
    "max_new_tokens",
)
_DRIFT = {
    "campaign": "str",
    "baseline_group": "str",
    "prompt_set": "str",
    "max_concurrency": "Int64",
    "ignore_eos": "boolean",
    "temperature": "float64",
    "max_new_tokens": "Int64",
    "run_id": "str",
    "recorded_at": "str",
    "repeat": "Int64",
    "basis": "str",
    "tok_per_s": "float64",
    "relative": "float64",
}
_TIMED = ("prompt_index", "repeat", "completion_tokens", "latency_s", "ttft_s")
USED = ("campaign", "run_id", "ok", *_TIMED)
"""The columns of the requests that are used here."""


@dataclass(frozen=True)
class Timings:
    """What a run's finished requests took, one entry a request, NaN where not known; ``failed`` were left out."""

    run_id: str
    columns: Mapping[str, Floats]
    failed: int

    @property
    def has_first_token(self) -> bool:
        first = self.columns["ttft_s"]
        return len(first) > 0 and bool(np.isfinite(first).all())


@dataclass(frozen=True)
class Arm:
    """Tokens and seconds, shape (passes, prompts); zero where a pass lacks a prompt. ``passes`` are (run, repeat)."""

    passes: tuple[tuple[str, int], ...]
    prompts: Floats
    tokens: Floats
    seconds: Floats
    failed: int

    def on(self, prompts: Floats) -> Arm | None:
        """These prompts only, and the passes that have any of them; ``None`` where nothing is left."""
        places = np.searchsorted(self.prompts, prompts)
        tokens, seconds = self.tokens[:, places], self.seconds[:, places]
        left = tokens.sum(axis=1) > 0
        if not left.any():
            return None
        passes = tuple(name for name, there in zip(self.passes, left, strict=True) if there)
        return Arm(passes, prompts, tokens[left], seconds[left], self.failed)

    @property
    def speeds(self) -> Floats:
        """Tokens over seconds of one request at a time, by pass."""
        return np.asarray(self.tokens.sum(axis=1) / self.seconds.sum(axis=1), dtype=np.float64)

    @property
    def speed(self) -> float:
        return float(self.tokens.sum() / self.seconds.sum())


@dataclass(frozen=True, slots=True)
class BusyPasses:
    """Tokens and seconds of the window in which all slots are busy, one entry a pass."""

    tokens: Floats
    seconds: Floats

    @property
    def speed(self) -> float:
        return float(self.tokens.sum() / self.seconds.sum())

    @property
    def speeds(self) -> Floats:
        return self.tokens / self.seconds


@dataclass(frozen=True, slots=True)
class PassSpread:
    """Standard deviation of the logarithm of a pass's speed, pooled over arms that were measured more than once.

    ``degrees`` is the number of passes minus the number of arms; 0 means that no arm was measured twice.
    """

    deviation: float
    degrees: int


def busy_passes(runs: Sequence[Row]) -> BusyPasses | None:
    """The passes of one arm as the client timed them; ``None`` unless every run has them."""
    passes: list[tuple[float, float]] = []
    for run in runs:
        speeds, seconds = run["pass_decode_tok_per_s"] or [], run["pass_busy_s"] or []
        if not speeds or len(speeds) != len(seconds):
            return None
        passes += zip(speeds, seconds, strict=True)
    held = np.asarray(passes, dtype=np.float64).reshape(-1, 2)
    if not len(held) or not (np.isfinite(held).all() and (held > 0).all()):
        return None
    return BusyPasses(held[:, 0] * held[:, 1], held[:, 1])


def timings_by_run(requests: pd.DataFrame) -> dict[tuple[str, str], Timings]:
    """Timings of each (campaign, run_id)."""
    ids, keys = group_ids(requests, ["campaign", "run_id"])
    order = np.argsort(ids, kind="stable")
    ok = requests["ok"].fillna(False).to_numpy(dtype=bool)[order]
    columns = {name: requests[name].to_numpy(dtype=np.float64, na_value=np.nan)[order] for name in _TIMED}
    sizes = np.bincount(ids, minlength=len(keys))
    ends = np.cumsum(sizes)
    found = {}
    for row, start, end in zip(records(keys), ends - sizes, ends, strict=True):
        part, good = slice(start, end), ok[start:end]
        values = {name: column[part][good] for name, column in columns.items()}
        found[row["campaign"], row["run_id"]] = Timings(row["run_id"], values, int((~good).sum()))
    return found


def _timed_alone(runs: pd.DataFrame) -> pd.DataFrame:
    if runs[["decode_tok_per_s", "output_tok_per_s"]].isna().all(axis=1).any():
        return runs
    return runs[(runs["max_concurrency"].isna() | (runs["max_concurrency"] == 1)).to_numpy(dtype=bool)]


def timings_alone(runs: pd.DataFrame, requests: pd.DataFrame) -> dict[tuple[str, str], Timings]:
    """Timings of the runs with one request at a time, which alone are judged by them; of all where one has no speed."""
    alone = _timed_alone(runs)
    return timings_by_run(requests if alone is runs else requests[requests["run_id"].isin(alone["run_id"])])


def common_basis(timings: Iterable[Timings]) -> str:
    """``decode`` where every finished request of every run has its time to first token, else ``output``."""
    return "decode" if all(timing.has_first_token for timing in timings) else "output"


def arm_of(timings: Sequence[Timings], basis: str) -> Arm | None:
    """The passes of one arm, from the requests of its runs; ``None`` without a timed request.

    ``decode`` takes tokens after the first over the time after the first, ``output`` all tokens over the latency.
    """
    if not timings:
        return None
    run = np.repeat(np.arange(len(timings)), [len(timing.columns["repeat"]) for timing in timings])
    merged = {name: np.concatenate([timing.columns[name] for timing in timings]) for name in _TIMED}
    decode = basis == "decode"
    tokens = merged["completion_tokens"] - (1 if decode else 0)
    seconds = merged["latency_s"] - (merged["ttft_s"] if decode else 0.0)
    timed = np.isfinite(tokens) & (seconds > 0) & np.isfinite(merged["prompt_index"]) & np.isfinite(merged["repeat"])
    if not tokens[timed].sum() > 0:
        return None
    prompts, prompt = np.unique(merged["prompt_index"][timed], return_inverse=True)
    names, code = np.unique(np.stack([run[timed], merged["repeat"][timed]]), axis=1, return_inverse=True)
    shape = names.shape[1], len(prompts)
    cell = code.reshape(-1) * shape[1] + prompt
    sums = [
        np.bincount(cell, weights=values[timed], minlength=shape[0] * shape[1]).reshape(shape).astype(np.float64)
        for values in (tokens, seconds)
    ]
    passes = tuple((timings[int(number)].run_id, int(repeat)) for number, repeat in names.T)
    return Arm(passes, prompts, sums[0], sums[1], sum(timing.failed for timing in timings))


def pass_spread(arms: Iterable[Arm]) -> PassSpread:
    """How far passes of one arm lie apart, over the prompts that all of its passes have."""
    return pooled_spread(map(squares_of, arms))


def squares_of(arm: Arm) -> tuple[float, int]:
    """What an arm adds to the spread: squared deviations of its passes, and degrees of freedom."""
    logs = _comparable_logs(arm)
    return (float(((logs - logs.mean()) ** 2).sum()), len(logs) - 1) if len(logs) > 1 else (0.0, 0)


def pooled_spread(squares: Iterable[tuple[float, int]]) -> PassSpread:
    """The spread of arms of which each adds `squares_of` it."""
    total, degrees = 0.0, 0
    for added, own in squares:
        total, degrees = total + added, degrees + own
    return PassSpread(float(np.sqrt(total / degrees)) if degrees else float("nan"), degrees)


def largest_difference(arm: Arm) -> float:
    """Fastest pass over slowest, minus one; 0 for a single pass."""
    logs = _comparable_logs(arm)
    return float(np.expm1(logs.max() - logs.min())) if len(logs) else 0.0


def drift_df(runs: pd.DataFrame, requests: pd.DataFrame) -> pd.DataFrame:
    """Every pass of every baseline, and its speed relative to the first pass at the same load.

    Passes come from the requests at concurrency 1; otherwise each run is one pass at its own speed and ``repeat`` is
    missing. ``relative`` is missing where passes of one load have different bases. A speed that is not above 0 is none.
    """
    timings = timings_alone(runs, requests)
    return drift_of(runs, lambda run: passes_of(run, timings))


def drift_of(runs: pd.DataFrame, passes_of_run: Callable[[Row], list[Row]]) -> pd.DataFrame:
    """The table of `drift_df` from the passes of each baseline."""
    rows: list[Row] = []
    for same in grouped(records(runs[runs["role"] == "baseline"]), SAME_LOAD).values():
        passes = [run | row for run in in_time(same) for row in passes_of_run(run)]
        comparable = len({row["basis"] for row in passes}) == 1
        for row in passes:
            rows.append({**row, "relative": row["tok_per_s"] / passes[0]["tok_per_s"] if comparable else None})
    return typed(rows, _DRIFT)


def passes_of(run: Row, timings: Mapping[tuple[str, str], Timings]) -> list[Row]:
    """The passes of a baseline: ``repeat``, ``basis`` and ``tok_per_s`` of each."""
    timing = timings.get((run["campaign"], run["run_id"]))
    if timing is not None and number(run["max_concurrency"]) == 1:
        basis = common_basis([timing])
        arm = arm_of([timing], basis)
        arm = arm.on(arm.prompts) if arm is not None else None
        if arm is not None:
            speeds = zip(arm.passes, arm.speeds, strict=True)
            return [{"repeat": repeat, "basis": basis, "tok_per_s": speed} for (_, repeat), speed in speeds]
    for basis in ("decode", "output"):
        if (speed := speed_of(run[f"{basis}_tok_per_s"])) is not None:
            return [{"repeat": None, "basis": basis, "tok_per_s": speed}]
    return []


def _comparable_logs(arm: Arm) -> Floats:
    """Logarithm of each pass's speed over the prompts that all passes have; empty when there are none."""
    shared = (arm.seconds > 0).all(axis=0)
    tokens, seconds = arm.tokens[:, shared].sum(axis=1), arm.seconds[:, shared].sum(axis=1)
    return np.asarray(np.log(tokens / seconds) if (tokens > 0).all() else [], dtype=np.float64)
