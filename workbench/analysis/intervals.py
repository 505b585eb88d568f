"""Intervals and verdicts of a speedup that was measured request by request.

At concurrency 1 the arms are paired by prompt. A resample draws prompts (the same ones in both arms) and takes the
ratio of the pooled speeds. Passes differ by more than prompts explain (clocks, other processes, a cold start), so
every resample is also scaled by ``exp(s t sqrt(1/P + 1/Q))``: P and Q are the passes of the arms, s the pooled
standard deviation of the log speed of repeated passes in the campaign, t from Student's distribution with the degrees
of freedom of s. Without any repeated pass there is no verdict.

Above concurrency 1 a pass is one draw: the tokens and seconds of its window in which all slots are busy. Only where
nobody timed that, its speed is that of one request times the requests in flight, which takes all slots as busy.
"""

from __future__ import annotations

import numpy as np

from workbench.analysis.frames import Floats, Row, interval, resample_weights
from workbench.analysis.pairing import NOT_DECIDABLE
from workbench.analysis.passes import Arm, BusyPasses, PassSpread, largest_difference

MIN_PASSES = 5  # of each arm, above concurrency 1
UNSTEADY = 1.0  # an arm whose fastest pass is more than twice as fast as its slowest was not measured, but disturbed
_SMALLEST_DRIFT = 0.001  # passes closer than this are alike, however narrow the interval over prompts
SHORT_S = 2.0  # passes whose slots are busy for less hold a few requests, and their speed depends on which


def by_prompts(spec: Arm, base: Arm, spread: PassSpread, n_boot: int, seed: int) -> Row:
    """Speedup at concurrency 1 of two arms that hold the same prompts."""
    row = _figures(spec.speed, base.speed, len(spec.prompts), "paired bootstrap over prompts")
    notes = [f"{len(spec.prompts)} prompts in both arms", *_failures(spec, base)]
    if len(spec.prompts) < 2:
        return row | _said(NOT_DECIDABLE, [*notes, "one prompt gives no interval"])
    ratios = _paired_ratios(spec, base, n_boot, seed)
    low, high = _ends(ratios)
    if spread.degrees == 0:
        notes.append("no arm was measured twice, so drift between passes is unknown: measure the baseline again")
        return row | {"low": low, "high": high} | _said(NOT_DECIDABLE, notes)
    notes.append(f"passes of one arm vary by {spread.deviation:.1%} (s.d. of {spread.degrees} repeats)")
    notes.extend(_drifting(spec, base, high / low - 1))
    low, high = _ends(ratios * _pass_noise(spec, base, spread, n_boot, seed))
    row["method"] += ", widened by the spread between passes"
    disturbed = _disturbed(largest_difference(spec), largest_difference(base))
    verdict = NOT_DECIDABLE if disturbed else _verdict(low, high)
    return row | {"low": low, "high": high} | _said(verdict, [*notes, *disturbed])


def by_busy_windows(spec: BusyPasses, base: BusyPasses, whole: float | None, n_boot: int, seed: int) -> Row:
    """Speedup above concurrency 1 of passes that the client timed, at least `MIN_PASSES` of each arm.

    ``whole`` is the speedup of whole passes, their beginnings and ends included. Where passes are shorter than
    `SHORT_S` there is a verdict only if it lies on the same side of 1.
    """
    arms = spec, base
    count = min(len(arm.seconds) for arm in arms)
    row = _figures(spec.speed, base.speed, count, "bootstrap over passes, while all slots are busy")
    drawn = []
    for place, arm in enumerate(arms):
        weights = resample_weights(len(arm.seconds), n_boot, seed + place)
        drawn.append((weights @ arm.tokens) / (weights @ arm.seconds))
    low, high = _ends(drawn[0] / drawn[1])
    notes = [f"{len(spec.seconds)} passes against {len(base.seconds)}"]
    verdict = _verdict(low, high)
    disturbed = _disturbed(*(float(np.ptp(arm.speeds) / arm.speeds.min()) for arm in arms))
    if disturbed:
        notes, verdict = [*notes, *disturbed], NOT_DECIDABLE
    busy = busy_seconds(spec, base)
    if busy < SHORT_S:
        notes.append(f"short passes (busy {busy:.1f} s)")
        if whole is not None and {"win": whole <= 1, "loss": whole >= 1}.get(verdict, False):
            notes.append(f"whole passes, beginnings and ends included, give {whole:.2f}x: measure longer ones")
            verdict = NOT_DECIDABLE
    return row | {"low": low, "high": high} | _said(verdict, notes)


def busy_seconds(*arms: BusyPasses) -> float:
    """How long all slots are busy in the median pass, of the arm where that is shortest."""
    return min(float(np.median(arm.seconds)) for arm in arms)


def by_passes(spec: Arm, base: Arm, in_flight: float, n_boot: int, seed: int) -> Row:
    """Speedup above concurrency 1; without `MIN_PASSES` of each arm a figure but no verdict."""
    speeds = spec.speeds * in_flight, base.speeds * in_flight
    means = [float(values.mean()) for values in speeds]
    count = min(len(values) for values in speeds)
    row = _figures(means[0], means[1], count, "bootstrap over passes, all slots taken as busy")
    notes = [f"{len(speeds[0])} passes against {len(speeds[1])}", *_failures(spec, base)]
    if count < MIN_PASSES:
        return row | _said(NOT_DECIDABLE, [*notes, f"{MIN_PASSES} of each are needed, the arms in turn"])
    drawn = [
        resample_weights(len(values), n_boot, seed + place) @ values / len(values)
        for place, values in enumerate(speeds)
    ]
    low, high = _ends(drawn[0] / drawn[1])
    return row | {"low": low, "high": high} | _said(_verdict(low, high), notes)


def _figures(speed: float, base: float, count: int, method: str) -> Row:
    return {"tok_per_s": speed, "base_tok_per_s": base, "speedup": speed / base, "n": count, "method": method}


def _said(verdict: str, notes: list[str]) -> Row:
    return {"verdict": verdict, "reason": "; ".join(notes)}


def _paired_ratios(spec: Arm, base: Arm, n_boot: int, seed: int) -> Floats:
    """Speedup in each resample of the prompts; passes of a prompt are pooled."""
    sums = np.stack([spec.tokens.sum(0), spec.seconds.sum(0), base.tokens.sum(0), base.seconds.sum(0)], axis=1)
    drawn = resample_weights(len(sums), n_boot, seed) @ sums
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((drawn[:, 0] / drawn[:, 1]) / (drawn[:, 2] / drawn[:, 3]), dtype=np.float64)


def _pass_noise(spec: Arm, base: Arm, spread: PassSpread, n_boot: int, seed: int) -> Floats:
    scale = spread.deviation * np.sqrt(1 / len(spec.passes) + 1 / len(base.passes))
    drawn = np.random.default_rng([seed, 1]).standard_t(spread.degrees, size=n_boot)
    # With few degrees of freedom t reaches values whose exponential overflows.
    return np.asarray(np.exp(np.clip(scale * drawn, -50, 50)), dtype=np.float64)


def _ends(replicates: Floats) -> tuple[float, float]:
    low, high = interval(replicates)
    return float(low), float(high)


def _verdict(low: float, high: float) -> str:
    if not (np.isfinite(low) and np.isfinite(high)):
        return NOT_DECIDABLE
    return "win" if low > 1 else "loss" if high < 1 else "noise"


def _failures(spec: Arm, base: Arm) -> list[str]:
    counted = ((spec.failed, "speculative"), (base.failed, "plain"))
    return [f"{failed} failed requests of the {name} arm left out" for failed, name in counted if failed]


def _disturbed(spec: float, base: float) -> list[str]:
    """Says so where an arm changed its speed in the middle by more than anything that is compared here."""
    apart = ((spec, "speculative"), (base, "plain"))
    return [
        f"the fastest {name} pass is {1 + value:.1f} times as fast as the slowest: measure again on a quiet machine"
        for value, name in apart
        if value > UNSTEADY
    ]


def _drifting(spec: Arm, base: Arm, width: float) -> list[str]:
    """Says so where passes of one arm lie further apart than the interval over prompts is wide."""
    apart = ((largest_difference(spec), "speculative"), (largest_difference(base), "plain"))
    return [
        f"{name} passes lie {value:{'.0%' if value >= 0.1 else '.1%'}} apart, more than prompts explain"
        for value, name in apart
        if value > max(width, _SMALLEST_DRIFT)
    ]
