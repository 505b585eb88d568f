"""Is a run as fast, and does its drafter hit as often, as when the same run was last measured and good?

The newest measurement is judged against the last good ones before it (at most `MOST_GOOD`, pooled) as a speculative
run is against its baselines: speed by `workbench.analysis.speedup`, accept length by a bootstrap over prompts, paired.
Passes of one night say little about how nights differ, so a change counts only where it is not small and the new figure
lies beyond every good one. The same is asked of the first good ones, so that steps too small to count are named when
they add up. A measurement that got worse is not good, and the next is not compared with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from workbench.analysis.frames import Row, interval, known, number, records, resample_weights, speed_of, typed
from workbench.analysis.pairing import NOT_DECIDABLE
from workbench.analysis.speedup import speedup_df
from workbench.table.earlier import Measurements

MOST_GOOD = 5
LEAST_SPEED, LEAST_LENGTH = 0.03, 0.01
"""Relative changes below these are none, however close passes lie together: after one good night nobody knows more."""
WORSE, BETTER, SAME = "worse", "better", "no change beyond noise"
SPEED, LENGTH = "speed", "accept length"
_VERDICTS = {"loss": WORSE, "win": BETTER, "noise": SAME}
_SINCE = {
    "campaign": "str",
    "run_id": "str",
    "label": "str",
    "role": "str",
    "prompt_set": "str",
    "max_concurrency": "Int64",
    "figure": "str",
    "unit": "str",
    "value": "float64",
    "before": "float64",
    "ratio": "float64",
    "low": "float64",
    "high": "float64",
    "verdict": "str",
    "reason": "str",
    "measured_at": "str",
    "good_at": "str",
    "num_good": "Int64",
    "changed": "str",
}
_FIGURES = ("output_tok_per_s", "decode_tok_per_s", "accept_length_requests")
_DESCRIBED = ("campaign", "label", "role", "prompt_set", "max_concurrency")


def since_last_good_df(measured: Iterable[Measurements], n_boot: int = 2000, seed: int = 0) -> pd.DataFrame:
    """One row for the speed of each run that was measured before, and one for its accept length where it has one.

    ``ratio`` is the newest figure over the pooled good ones, ``low`` and ``high`` its 95 % interval where there is one.
    ``verdict`` is worse, better, no change beyond noise, or not decidable. ``good_at`` is the time of the last good
    measurement, ``changed`` what else differs between the two.
    """
    return typed((row for one in measured if len(one.runs) > 1 for row in _judged(one, n_boot, seed)), _SINCE)


def worse_rows(since: pd.DataFrame) -> pd.DataFrame:
    return since[since["verdict"] == WORSE]


def _judged(one: Measurements, n_boot: int, seed: int) -> list[Row]:
    """The newest measurement against the good ones, which are found by judging each in turn."""
    runs = records(one.runs)
    good = [0]
    for place in range(1, len(runs) - 1):
        if not (_may_be_worse(runs, place, good) and _is_worse(one, runs, place, good, n_boot, seed)):
            good.append(place)
    rows = _compared(one, runs, len(runs) - 1, good, n_boot, seed)
    described = {name: runs[-1][name] for name in _DESCRIBED} | {"run_id": one.run_id}
    described |= {"measured_at": runs[-1]["recorded_at"]} | _beside(one, runs, good[-1])
    return [described | row for row in rows]


def _may_be_worse(runs: Sequence[Row], place: int, good: Sequence[int]) -> bool:
    """Whether a figure lies below all that it is compared with, or is missing: only then there is anything to judge."""
    for name in _FIGURES:
        new = number(runs[place][name])
        for compared in (good[-MOST_GOOD:], good[:MOST_GOOD]):
            old = [number(runs[each][name]) for each in compared]
            if all(each is None for each in (new, *old)):
                continue
            if new is None or None in old or all(each is not None and new < each for each in old):
                return True
    return False


def _is_worse(one: Measurements, runs: Sequence[Row], place: int, good: Sequence[int], n_boot: int, seed: int) -> bool:
    beside = [good[-MOST_GOOD:], *([good[:MOST_GOOD]] if len(good) > MOST_GOOD else [])]
    rows = (row for compared in beside for row in _against(one, runs, place, compared, n_boot, seed))
    return any(row["verdict"] == WORSE for row in rows)


def _compared(
    one: Measurements, runs: Sequence[Row], place: int, good: Sequence[int], n_boot: int, seed: int
) -> list[Row]:
    """Speed and accept length beside the last good ones; beside the first where they are worse only than those."""
    first = good[:MOST_GOOD]
    rows = list(_against(one, runs, place, good[-MOST_GOOD:], n_boot, seed))
    if len(good) <= MOST_GOOD:
        return rows
    crept = {row["figure"]: row for row in _against(one, runs, place, first, n_boot, seed) if row["verdict"] == WORSE}
    for at, row in enumerate(rows):
        if row["verdict"] != WORSE and (found := crept.get(row["figure"])) is not None:
            why = f"little by little, since the first {len(first)} good measurements"
            said = f"{why}; {found['reason']}" if known(found["reason"]) else why
            rows[at] = found | _beside(one, runs, first[-1]) | {"reason": said}
    return rows


def _against(
    one: Measurements, runs: Sequence[Row], place: int, good: Sequence[int], n_boot: int, seed: int
) -> Iterator[Row]:
    yield _speed(one, runs, place, good, n_boot, seed)
    yield from _length(one, runs, place, good, n_boot, seed)


def _beside(one: Measurements, runs: Sequence[Row], good: int) -> Row:
    """What is said of the good measurement that the newest is compared with."""
    changed = _changed(one.versions[good], one.versions[-1], runs[good], runs[-1])
    return {"good_at": runs[good]["recorded_at"], "changed": changed}


def _speed(one: Measurements, runs: Sequence[Row], place: int, good: Sequence[int], n_boot: int, seed: int) -> Row:
    """As a speculative run is judged against its baselines, whatever both are."""
    if differing := _other_machine(runs[place], runs[good[-1]]):
        return {"figure": SPEED, "unit": "tok/s", "verdict": NOT_DECIDABLE, "reason": differing}
    arms = one.runs.iloc[[*good, place]].assign(baseline_group="same")
    arms["role"] = ["baseline"] * len(good) + ["speculative"]
    found = records(speedup_df(arms, one.requests[one.requests["run_id"].isin(arms["run_id"])], n_boot, seed))[0]
    speeds = [speed_of(runs[each][f"{found['basis'] or 'output'}_tok_per_s"]) for each in (*good, place)]
    said = re.sub(r"\bplain\b", "earlier", re.sub(r"\bspeculative\b", "new", str(found["reason"] or "")))
    verdict = _small_is_none(_VERDICTS.get(found["verdict"], NOT_DECIDABLE), found["speedup"], LEAST_SPEED)
    verdict, reason = _beyond_every(verdict, said or None, speeds)
    return {
        "figure": f"{found['basis'] or 'output'} {SPEED}",
        "unit": "tok/s",
        "value": found["tok_per_s"],
        "before": found["base_tok_per_s"],
        "ratio": found["speedup"],
        "low": found["low"],
        "high": found["high"],
        "verdict": verdict,
        "reason": reason,
        "num_good": len(good),
    }


def _small_is_none(verdict: str, ratio: float | None, least: float) -> str:
    return SAME if verdict in (WORSE, BETTER) and ratio is not None and abs(ratio - 1) < least else verdict


def _beyond_every(verdict: str, reason: object, figures: Sequence[float | None]) -> tuple[str, str | None]:
    """A change holds only where the new figure (the last) lies beyond each of the good ones."""
    *good, new = (figure for figure in figures)
    said = str(reason) if known(reason) else None
    if verdict not in (WORSE, BETTER) or new is None or None in good:
        return verdict, said
    beyond = all(new < each if verdict == WORSE else new > each for each in good if each is not None)
    if beyond:
        return verdict, said
    return SAME, f"{said}; but within the range of the {len(good)} good measurements"


def _length(
    one: Measurements, runs: Sequence[Row], place: int, good: Sequence[int], n_boot: int, seed: int
) -> list[Row]:
    """Pooled accept length of the prompts that both arms hold, and its ratio with a bootstrap over them."""
    by_run = {run_id: part for run_id, part in one.requests.groupby("run_id") if len(part)}
    names = [str(runs[each]["run_id"]) for each in (*good, place)]
    sums = [_steps_by_prompt(by_run[name]) for name in names if name in by_run]
    if len(sums) < len(names) or runs[place]["role"] != "speculative":
        return []
    *before, new = sums
    pooled = pd.concat(before).groupby(level=0).sum()
    both = pd.concat([new.add_suffix("_new"), pooled.add_suffix("_old")], axis=1, join="inner")
    if both.empty or not (both.sum() > 0).all():
        return []
    lengths = [number(runs[each]["accept_length_requests"]) for each in (*good, place)]
    value, old = (float(both[f"tokens_{arm}"].sum() / both[f"steps_{arm}"].sum()) for arm in ("new", "old"))
    drawn = resample_weights(len(both), n_boot, seed) @ both.to_numpy(dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        ends = interval((drawn[:, 0] / drawn[:, 1]) / (drawn[:, 2] / drawn[:, 3]))
    low, high = float(ends[0]), float(ends[1])
    verdict = NOT_DECIDABLE if len(both) < 2 else WORSE if high < 1 else BETTER if low > 1 else SAME
    verdict = _small_is_none(verdict, value / old, LEAST_LENGTH)
    verdict, reason = _beyond_every(verdict, f"{len(both)} prompts in both arms", lengths)
    row: Row = {"figure": LENGTH, "unit": "tokens/step", "value": value, "before": old, "ratio": value / old}
    return [row | {"low": low, "high": high, "verdict": verdict, "reason": reason, "num_good": len(good)}]


def _steps_by_prompt(requests: pd.DataFrame) -> pd.DataFrame:
    """Tokens of verify steps, and those steps, by prompt: of histograms where there are any."""
    sums: dict[int, list[float]] = {}
    for row in records(requests):
        if not row["ok"] or row["prompt_index"] is None:
            continue
        histogram, steps, tokens = row["steps_histogram"], row["spec_verify_ct"], row["completion_tokens"]
        if isinstance(histogram, list):
            found = (float(sum((k + 1) * n for k, n in enumerate(histogram))), float(sum(histogram)))
        elif steps is not None and tokens is not None:
            found = (float(tokens - 1), float(steps))
        else:
            continue
        held = sums.setdefault(int(row["prompt_index"]), [0.0, 0.0])
        held[0] += found[0]
        held[1] += found[1]
    return pd.DataFrame.from_dict(sums, orient="index", columns=["tokens", "steps"], dtype="float64")


def _other_machine(new: Row, old: Row) -> str | None:
    for name, words in (("machine", "machine"), ("gpu_name", "GPU"), ("device", "device"), ("places", "neighbours")):
        if known(new[name]) and known(old[name]) and new[name] != old[name]:
            return (
                f"measured on another {words}: {new[name]}, before {old[name]}"
                if words != "neighbours"
                else (f"measured beside others: {new[name]} places, before {old[name]}")
            )
    return None


def _changed(old: Mapping[str, str], new: Mapping[str, str], before: Row, after: Row) -> str | None:
    names = [name for name in new if old.get(name) not in (None, new[name])]
    said = [f"{name} {old[name]} -> {new[name]}" for name in names]
    if before["servers_alive"] != after["servers_alive"] and known(after["servers_alive"]):
        said.append(f"servers alive {before['servers_alive']} -> {after['servers_alive']}")
    return ", ".join(said) or None
