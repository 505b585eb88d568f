"""What matters most for accept length: data, length of training, draft steps, or what is asked."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from workbench.analysis.answers.training import curve_name
from workbench.analysis.repetition import Varied
from workbench.analysis.scaling import ScalingFit
from workbench.analysis.wording import count, signed, span

_SIZE = {"training_samples": "training samples", "response_tokens": "response tokens"}
_VISIBLE = 0.005
_LONGER = 1.25  # less is another schedule rather than a longer training


@dataclass(frozen=True, slots=True)
class Effect:
    """How much accept length differs between the ends of something that was varied, and these ends in words."""

    name: str
    size: float
    words: str


def dominates(points: pd.DataFrame, main: ScalingFit) -> str | None:
    """What was varied, the largest effect first; ``None`` where it is one thing alone."""
    effects = sorted(_effects(points, main), key=lambda effect: -abs(effect.size))
    if len(effects) < 2:
        return None
    said = "; ".join(f"{effect.words} {signed(effect.size)}" for effect in effects)
    return f"What changes accept length most is {effects[0].name}: {said}."


def _effects(points: pd.DataFrame, main: ScalingFit) -> Iterator[Effect]:
    chains = points[(points["fit_note"] == "") & points["accept_length"].notna()]
    chains = chains[(chains["eagle_topk"] == 1).fillna(False).astype(bool)]
    for found in (_data(main), _depth(chains, main), _domain(chains, main), _length(chains, main)):
        if found is not None and abs(found.size) > _VISIBLE:
            yield found


def _data(main: ScalingFit) -> Effect | None:
    by_size = main.points.groupby(main.x)["accept_length"].mean()
    if len(by_size) < 2:
        return None
    sizes = f"from {by_size.index[0]:,.0f} to {by_size.index[-1]:,.0f} {_SIZE[main.x]}"
    return Effect("the training data", float(by_size.iloc[-1] - by_size.iloc[0]), sizes)


def _depth(chains: pd.DataFrame, main: ScalingFit) -> Effect | None:
    """Between the fewest and the most draft steps of the drafter that was served with most of them."""
    own = _same(chains, main, ("target", "prompt_set", "temperature", "ignore_eos"))
    served = own.groupby("drafter")["num_steps"].nunique()
    if served.empty or served.max() < 2:
        return None
    drafter = served.idxmax()
    by_steps = own[own["drafter"] == drafter].groupby("num_steps")["accept_length"].mean()
    first, last = by_steps.index[0], by_steps.index[-1]
    words = f"from {count(int(first), 'draft step')} to {int(last)} ({drafter})"
    return Effect("the number of draft steps", float(by_steps.iloc[-1] - by_steps.iloc[0]), words)


def _domain(chains: pd.DataFrame, main: ScalingFit) -> Effect | None:
    """Between the prompt sets that the curve's own drafters were measured with, in the mean of those drafters."""
    own = _same(chains, main, ("target", "num_steps", "temperature", "ignore_eos"))
    own = own[own["drafter"].isin(main.points["drafter"])]
    lengths = own.pivot_table(index="drafter", columns="prompt_set", values="accept_length").dropna()
    if lengths.shape[1] < 2 or lengths.empty:
        return None
    means = lengths.mean().sort_values()
    words = f"from {means.index[0]} to {means.index[-1]}"
    return Effect("what is asked", float(means.iloc[-1] - means.iloc[0]), words)


def _length(chains: pd.DataFrame, main: ScalingFit) -> Effect | None:
    """Between two trainings of one size that differ in recipe, where that is largest."""
    own = _same(chains, main, ("target", "data_mix", "prompt_set", "num_steps", "temperature", "ignore_eos"))
    own = own.dropna(subset=["recipe", "optimizer_steps", main.x])
    found: Effect | None = None
    for size, same in own.groupby(main.x):
        by_recipe = same.groupby("recipe")[["optimizer_steps", "accept_length"]].mean().sort_values("optimizer_steps")
        if len(by_recipe) < 2:
            continue
        first, last = by_recipe.iloc[0], by_recipe.iloc[-1]
        if last["optimizer_steps"] < _LONGER * first["optimizer_steps"]:
            continue
        gain = float(last["accept_length"] - first["accept_length"])
        steps = f"from {first['optimizer_steps']:,.0f} to {last['optimizer_steps']:,.0f} optimizer steps"
        if found is None or abs(gain) > abs(found.size):
            found = Effect("the length of training", gain, f"{steps} (at {size:,.0f} {_SIZE[main.x]})")
    return found


def _same(points: pd.DataFrame, main: ScalingFit, names: tuple[str, ...]) -> pd.DataFrame:
    """The points that share these settings with the curve; unknown equals unknown."""
    curve = main.points.iloc[0]
    for name in names:
        wanted = curve[name]
        same = points[name].isna() if pd.isna(wanted) else (points[name] == wanted).fillna(False)
        points = points[same.astype(bool)]
    return points


def gain_words(fit: ScalingFit) -> str:
    """The gain a doubling with its interval, short."""
    ends = "" if math.isnan(fit.per_doubling_low) else f" ({span(fit.per_doubling_low, fit.per_doubling_high)})"
    return f"{signed(fit.per_doubling)}{ends}"


def repetition(main: ScalingFit, other: ScalingFit | None, varied: Varied | None) -> str | None:
    """How the curve changes without the answers that repeat themselves; says so where that is not known."""
    if varied is None:
        return "Whether answers that repeat themselves lift the curve is not known: no answer was kept token by token."
    if not varied.dropped:
        return f"None of {count(varied.known, 'prompt')} is answered by repetition (distinct-4 below 0.5)."
    dropped = f"{varied.dropped} of {count(varied.known, 'prompt')} are answered by repetition (distinct-4 below 0.5)"
    if other is None or other.num_sizes < 2:
        return f"{dropped}; without them no curve is left."
    change = other.points["accept_length"].mean() - main.points["accept_length"].mean()
    return (
        f"{dropped}; without them accept length changes by {signed(change)} in the mean of the curve's drafters, and "
        f"a doubling brings {gain_words(other)} instead of {gain_words(main)} ({curve_name(main.points)})."
    )
