"""How far starts of the same server lie apart, which the passes of one start do not tell."""

from __future__ import annotations

import pandas as pd

from workbench.analysis.answers.common import not_told_apart, real_runs
from workbench.analysis.frames import Row, most, records, speed_of
from workbench.analysis.passes import SAME_LOAD
from workbench.analysis.wording import count, few, number, one_of

ALIKE = 0.05
"""Baselines of several campaigns that lie closer than this are as good as one."""
_SAME = ("run_id", "machine", "gpu_name", "sglang_version", "target")


def drift(found: pd.DataFrame) -> str | None:
    """The largest change between the first baseline of a load and the one measured again, from `drift_df`."""
    ends = _starts(found)
    again = ends[(ends["size"] > 1) & (ends["bases"] == 1)]
    if again.empty:
        return None
    change = again["last"] / again["first"] - 1
    most_changed = change.abs().to_numpy().argmax()
    value = float(change.iloc[most_changed])
    first, last = (number(float(again[end].iloc[most_changed])) for end in ("first", "last"))
    where = "" if len(again) == 1 else f", the most of {len(again)} loads"
    return f"The baseline measured again ran at {last} tok/s after {first} ({value:+.1%}{where})."


def started_once(found: pd.DataFrame, speedups: pd.DataFrame) -> str | None:
    """What the intervals do not hold where a verdict's baseline was not started twice; ``found`` is `drift_df`."""
    judged = real_runs(speedups)
    judged = judged[judged["verdict"].isin(["win", "loss"]) & judged["method"].str.contains("bootstrap").fillna(False)]
    used = set(zip(judged["campaign"], judged["baseline_run_id"], strict=True))
    groups = dict.fromkeys(_group(row) for row in records(found) if (row["campaign"], row["run_id"]) in used)
    twice = {_group(row) for row in records(_starts(found).reset_index()) if row["size"] > 1}
    once = [str(group[1]) for group in groups if group not in twice]
    if not once:
        return None
    whose = f"The baseline of {few(once)}" if len(once) < len(groups) else "Every baseline"
    return (
        f"{whose} was started once: intervals hold prompts and passes, not how far starts of the same server lie apart."
    )


def _group(row: Row) -> tuple[object, object]:
    return row["campaign"], row["baseline_group"]


def start_again(once: str | None) -> str | None:
    """The next action after what `started_once` said."""
    if once is None:
        return None
    return (
        "Start the baseline once more after the others and measure it again, as `workbench run` does unless it is "
        "stopped before: the speedups stand on one start of it."
    )


def start_rivals(speedups: pd.DataFrame) -> str | None:
    """The next action where a run gains and the intervals do not tell others at its load from it."""
    real = real_runs(speedups).dropna(subset=["speedup", "low", "high", "max_concurrency"])
    real = real[real["method"].str.contains("bootstrap").fillna(False)]
    near: dict[int, int] = {}
    for _, same in real.groupby("max_concurrency"):
        best = most(same, "speedup")
        others = len(not_told_apart(best, same))
        if best["speedup"] >= 1 and others:
            near[int(best["max_concurrency"])] = others
    if not near:
        return None
    said = one_of(f"{count(others, 'other run')} at {level}" for level, others in near.items())
    return (
        f"Start the likeliest again before choosing between them, as `workbench tune` does until it is decided: {said} "
        "may be as fast as the fastest, by the intervals of the speedups."
    )


def _starts(found: pd.DataFrame) -> pd.DataFrame:
    """Speed of the first and the last start of a load's baseline, how many there are, and how many kinds of speed."""
    starts = found.groupby([*SAME_LOAD, "run_id"], dropna=False, sort=False)
    speeds = starts.agg(tok_per_s=("tok_per_s", "mean"), basis=("basis", "first")).reset_index()
    return speeds.groupby(list(SAME_LOAD), dropna=False, sort=False).agg(
        first=("tok_per_s", "first"), last=("tok_per_s", "last"), size=("tok_per_s", "size"), bases=("basis", "nunique")
    )


def same_baselines(runs: pd.DataFrame) -> str | None:
    """The baseline whose speed differs most between campaigns that measured the same one, by its content's id."""
    groups: dict[tuple[object, ...], list[tuple[float, str]]] = {}
    for run in records(runs[(runs["role"] == "baseline") & runs["origin"].isin(["measured", "recorded"])]):
        speed = speed_of(run["decode_tok_per_s"])
        if run["status"] == "ok" and run["gpu_name"] is not None and speed is not None:
            groups.setdefault(tuple(run[name] for name in _SAME), []).append((speed, run["campaign"]))
    apart = {key: max(each)[0] / min(each)[0] - 1 for key, each in groups.items() if len(each) > 1}
    if not apart or max(apart.values()) <= ALIKE:
        return None
    most = max(apart, key=lambda key: apart[key])
    (slow, slower), (fast, faster) = min(groups[most]), max(groups[most])
    return (
        f"The same baseline ({most[0]}, both times on {most[2]}) ran at {number(slow)} tok/s in {slower} and at "
        f"{number(fast)} in {faster} ({apart[most]:+.0%}): so far do starts of one command line lie apart, on one "
        "machine or on two of a kind. Compare speeds within a campaign, and read a speedup whose baseline was started "
        "once with that in mind."
    )
