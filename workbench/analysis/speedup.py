"""Does speculation pay: speedup over the baseline with its interval and a verdict, and the checks beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from workbench.analysis.fairness import fairness_df, same_points_df
from workbench.analysis.frames import Row, grouped, number, records, speed_of, typed
from workbench.analysis.intervals import MIN_PASSES, busy_seconds, by_busy_windows, by_passes, by_prompts
from workbench.analysis.log_speed import agreed_verdict, log_speed_df
from workbench.analysis.lossless import losslessness_df
from workbench.analysis.pairing import NOT_DECIDABLE, Pair, pair_baselines, pairs
from workbench.analysis.passes import (
    Arm,
    BusyPasses,
    PassSpread,
    Timings,
    arm_of,
    busy_passes,
    common_basis,
    drift_df,
    pass_spread,
    timings_alone,
)

__all__ = [
    "drift_df",
    "fairness_df",
    "log_speed_df",
    "losslessness_df",
    "pair_baselines",
    "same_points_df",
    "speedup_df",
]

NOT_REPEATED = PassSpread(float("nan"), 0)
_ONE_ARM = ("campaign", "arm", "baseline_group", "prompt_set", "ignore_eos", "temperature", "max_new_tokens")
_SPEEDUP = {
    "campaign": "str",
    "run_id": "str",
    "label": "str",
    "baseline_run_id": "str",
    "drafter": "str",
    "num_steps": "Int64",
    "eagle_topk": "Int64",
    "num_draft_tokens": "Int64",
    "prompt_set": "str",
    "max_concurrency": "Int64",
    "origin": "str",
    "basis": "str",
    "tok_per_s": "float64",
    "base_tok_per_s": "float64",
    "speedup": "float64",
    "low": "float64",
    "high": "float64",
    "verdict": "str",
    "method": "str",
    "n": "Int64",
    "busy_s": "float64",
    "reason": "str",
}


def speedup_df(runs: pd.DataFrame, requests: pd.DataFrame, n_boot: int = 2000, seed: int = 0) -> pd.DataFrame:
    """Speedup of every speculative run over its baseline, with a verdict: win, loss, noise or not decidable.

    ``low`` and ``high`` are a 95 % interval where ``method`` names a bootstrap; for two readings of one pass they are
    the two speedups, for noted figures the range that the source gives. ``n`` counts what was resampled: prompts at
    concurrency 1, passes of the smaller arm above it. Failed requests are left out and counted in ``reason``.
    Speeds above concurrency 1 are those of ``runs``, which costs are made from too. ``busy_s`` is how long all slots
    were busy in the median pass, of the arm where that is shorter; missing where passes were not timed.
    """
    study = Study(timings_alone(runs, requests), n_boot, seed)
    spreads = {campaign: pass_spread(arms) for campaign, arms in _arms_alone(runs, study).items()}
    return as_speedups(
        (pair, judged(pair, study, spreads.get(pair.run["campaign"], NOT_REPEATED))) for pair in pairs(runs)
    )


def as_speedups(judgements: Iterable[tuple[Pair, Row]]) -> pd.DataFrame:
    """The table of `speedup_df` from what `judged` says of each pair."""
    return typed((_described(pair) | said for pair, said in judgements), _SPEEDUP)


def _described(pair: Pair) -> Row:
    row = {name: pair.run[name] for name in _SPEEDUP if name in pair.run}
    row |= {"baseline_run_id": pair.baseline_run_id, "basis": pair.basis}
    row["tok_per_s"] = pair.speed.value if pair.speed else None
    timed = _busy(pair)
    return row | {"busy_s": busy_seconds(*timed) if timed else None}


@dataclass(frozen=True, slots=True)
class Study:
    """The timings that pairs are judged by, and how often they are resampled."""

    timings: Mapping[tuple[str, str], Timings]
    n_boot: int = 2000
    seed: int = 0

    def of(self, *runs: Row) -> list[Timings]:
        names = ((run["campaign"], run["run_id"]) for run in runs)
        return [self.timings[name] for name in names if name in self.timings]

    def arm(self, members: Sequence[Row]) -> Arm | None:
        timings = self.of(*members)
        return arm_of(timings, common_basis(timings))

    def arms(self, pair: Pair) -> tuple[Arm, Arm, str] | None:
        """Both arms over the prompts that they share, and the basis of both speeds."""
        left, right = self.of(pair.run), self.of(*pair.baselines)
        basis = common_basis([*left, *right])
        spec, base = arm_of(left, basis), arm_of(right, basis)
        if spec is None or base is None:
            return None
        shared = np.intersect1d(spec.prompts, base.prompts)
        spec, base = spec.on(shared), base.on(shared)
        return None if spec is None or base is None else (spec, base, basis)


def arms_alone(runs: pd.DataFrame) -> list[list[Row]]:
    """The runs of each arm at concurrency 1."""
    single = records(runs[(runs["max_concurrency"] == 1).fillna(False).to_numpy(dtype=bool)])
    for run in single:
        run["arm"] = run["run_id"] if run["role"] == "speculative" else None
    return list(grouped(single, _ONE_ARM).values())


def _arms_alone(runs: pd.DataFrame, study: Study) -> dict[str, list[Arm]]:
    """Every arm at concurrency 1, by campaign: those that were measured more than once tell the spread of passes."""
    arms: dict[str, list[Arm]] = {}
    for members in arms_alone(runs):
        if (arm := study.arm(members)) is not None:
            arms.setdefault(members[0]["campaign"], []).append(arm)
    return arms


def _busy(pair: Pair) -> tuple[BusyPasses, BusyPasses] | None:
    """The passes of both arms as the client timed them."""
    spec, base = busy_passes([pair.run]), busy_passes(pair.baselines)
    return None if spec is None or base is None else (spec, base)


def by_requests(pair: Pair) -> bool:
    """Whether a pair is judged by its requests, where they are known."""
    return (number(pair.run["max_concurrency"]) or 1.0) == 1 or pair.speed is None


def judged(pair: Pair, study: Study, spread: PassSpread) -> Row:
    """The best that the data allow: prompts, else passes, else single figures, else what is missing."""
    in_flight = number(pair.run["max_concurrency"]) or 1.0
    if by_requests(pair):
        found = study.arms(pair) if pair.baselines else None
        if found is not None and in_flight == 1:
            return {"basis": found[2]} | by_prompts(*found[:2], spread, study.n_boot, study.seed)
        if found is not None:
            return {"basis": found[2]} | by_passes(*found[:2], in_flight, study.n_boot, study.seed)
    if pair.speed is None or pair.base is None:
        return {"verdict": NOT_DECIDABLE, "reason": pair.problem}
    timed = _busy(pair) if in_flight > 1 and pair.basis == "decode" else None
    if timed is not None and min(len(arm.seconds) for arm in timed) >= MIN_PASSES:
        return by_busy_windows(*timed, _whole(pair), study.n_boot, study.seed)
    return _single_figures(pair, timed)


def _whole(pair: Pair) -> float | None:
    """Speedup by the output speeds of whole passes."""
    bases = [speed_of(base["output_tok_per_s"]) for base in pair.baselines]
    known = [base for base in bases if base is not None]
    own = speed_of(pair.run["output_tok_per_s"])
    return own / (sum(known) / len(known)) if own is not None and known else None


def _single_figures(pair: Pair, timed: tuple[BusyPasses, BusyPasses] | None) -> Row:
    """One figure an arm: a verdict only where the logs' median windows are known too and tell the same."""
    speed, base = pair.speed, pair.base
    assert speed is not None and base is not None
    speedup = speed.value / base.value
    row: Row = {
        "base_tok_per_s": base.value,
        "speedup": speedup,
        "n": 1,
        "verdict": NOT_DECIDABLE,
    }
    medians = [value for run in pair.baselines if (value := speed_of(run["log_median_tok_per_s"])) is not None]
    median = speed_of(pair.run["log_median_tok_per_s"])
    if median is not None and medians:
        steady = median / (sum(medians) / len(medians))
        verdict, reason = agreed_verdict(speedup, steady)
        ends = {"low": min(speedup, steady), "high": max(speedup, steady)}
        return {**row, **ends, "verdict": verdict, "method": "client's figure and median log window", "reason": reason}
    row |= {"method": "one figure an arm", "reason": _too_few(timed)}
    if speed.low < speed.high or base.low < base.high:
        row |= {"low": speed.low / base.high, "high": speed.high / base.low}
    return row


def _too_few(timed: tuple[BusyPasses, BusyPasses] | None) -> str:
    if timed is None:
        return "one figure an arm, no repeats"
    spec, base = (len(arm.seconds) for arm in timed)
    return f"{spec} passes against {base}; {MIN_PASSES} of each are needed, the arms in turn"
