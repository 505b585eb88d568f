"""How far starts of the same server lie apart, which the passes of one start do not tell."""

from __future__ import annotations

import pandas as pd

from workbench.analysis.answers.common import real_runs
from workbench.analysis.frames import records, speed_of
from workbench.analysis.wording import number

ALIKE = 0.05
"""Baselines of several campaigns that lie closer than this are as good as one."""
_LOAD = ["campaign", "baseline_group", "prompt_set", "max_concurrency", "ignore_eos", "max_new_tokens"]


def drift(found: pd.DataFrame) -> str | None:
    """The largest change between the first baseline of a load and the one measured again, from `drift_df`."""
    ends = _starts(found)
    again = ends[ends["size"] > 1]
    if again.empty:
        return None
    change = again["last"] / again["first"] - 1
    most_changed = change.abs().to_numpy().argmax()
    value = float(change.iloc[most_changed])
    first, last = (number(float(again[end].iloc[most_changed])) for end in ("first", "last"))
    where = "" if len(again) == 1 else f", the most of {len(again)} loads"
    return f"The baseline measured again ran at {last} tok/s after {first} ({value:+.1%}{where})."


def started_once(found: pd.DataFrame, speedups: pd.DataFrame) -> str | None:
    """What the intervals do not hold where no baseline was started twice; ``found`` is `drift_df`."""
    judged = real_runs(speedups)
    judged = judged[judged["verdict"].isin(["win", "loss"]) & judged["method"].str.contains("bootstrap").fillna(False)]
    if judged.empty or (_starts(found)["size"] > 1).any():
        return None
    return (
        "Every baseline was started once: intervals hold prompts and passes, not how far starts of the same server lie "
        "apart. Measure it again after the others, as `workbench run` does unless it is stopped before."
    )


def _starts(found: pd.DataFrame) -> pd.DataFrame:
    """Speed of the first and of the last start of a load's baseline, and how many there are (``size``)."""
    speeds = found.groupby([*_LOAD, "run_id"], dropna=False, sort=False)["tok_per_s"].mean().reset_index()
    return speeds.groupby(_LOAD, dropna=False, sort=False)["tok_per_s"].agg(["first", "last", "size"])


def same_baselines(runs: pd.DataFrame) -> str | None:
    """The baseline whose speed differs most between campaigns that measured the same one, by its content's id."""
    groups: dict[tuple[str, str], list[tuple[float, str]]] = {}
    for run in records(runs[runs["role"] == "baseline"]):
        speed = speed_of(run["decode_tok_per_s"])
        if run["status"] == "ok" and run["machine"] is not None and speed is not None:
            groups.setdefault((run["run_id"], run["machine"]), []).append((speed, run["campaign"]))
    apart = {key: max(each)[0] / min(each)[0] - 1 for key, each in groups.items() if len(each) > 1}
    if not apart or max(apart.values()) <= ALIKE:
        return None
    run_id, machine = most = max(apart, key=lambda key: apart[key])
    (slow, slower), (fast, faster) = min(groups[most]), max(groups[most])
    return (
        f"The same baseline ({run_id} on {machine}) ran at {number(slow)} tok/s in {slower} and at {number(fast)} in "
        f"{faster} ({apart[most]:+.0%}): starts of one server lie that far apart there, so compare speeds within a "
        "campaign, and read a speedup whose baseline was started once with that in mind."
    )
