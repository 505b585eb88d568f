"""What more training data brings, as far as the drafters of a campaign tell."""

from __future__ import annotations

import math

import pandas as pd

from workbench.analysis.answers.model import one_line
from workbench.analysis.frames import Row, least, most
from workbench.analysis.scaling import ScalingFit
from workbench.analysis.wording import capital, count, few, signed, span

_REACHED = "the measured points reach it from "
_SIZE = {"training_samples": "training samples", "response_tokens": "response tokens"}


def training_sizes(drafters: pd.DataFrame, target: str) -> str | None:
    """Says so where there is no curve: one training size among the drafters made for this target."""
    own = drafters[(drafters["drafter_target"].fillna(target) == target) & (drafters["training_samples"] > 0)]
    sizes = sorted(own["training_samples"].unique())
    if len(sizes) != 1:
        return None
    return f"One training size ({int(sizes[0]):,} samples) is no curve: nothing here says what more data would bring."


def no_curve(points: pd.DataFrame) -> str:
    """Why there is none, where no two sizes can be joined."""
    if points.empty:
        return "No drafter of this campaign states its training size: there is no curve."
    drafters = few(dict.fromkeys(one_line(str(name)) for name in points["drafter"]))
    return f"One training size was served ({drafters}): there is no curve."


def curve_sentence(fit: ScalingFit) -> str:
    """The gain a doubling, over which sizes, and whether the data that break-even takes are known."""
    sizes = fit.points[fit.x]
    over = f"{curve_name(fit.points)}, {sizes.min():,.0f} to {sizes.max():,.0f} in {fit.num_sizes} sizes"
    interval = (
        "" if math.isnan(fit.per_doubling_low) else f"95 % {_ends(fit.per_doubling_low, fit.per_doubling_high)}; "
    )
    verb = "adds" if fit.per_doubling >= 0.005 else "changes accept length by"
    unit = " to accept length" if verb == "adds" else ""
    return (
        f"Each doubling of the {_SIZE[fit.x]} {verb} {_change(fit.per_doubling)}{unit} ({interval}{over})"
        f"{_flat_end(fit)}; {_needed(fit)}."
    )


def _flat_end(fit: ScalingFit) -> str:
    """Says so where the last increase brought less than half of what the doublings in it promise."""
    reached = fit.points.groupby(fit.x)["accept_length"].mean()
    before, last = reached.index[-2:]
    promised = fit.per_doubling * math.log2(last / before)
    gain = float(reached.iloc[-1] - reached.iloc[-2])
    return f", but from {before:,.0f} to {last:,.0f} it changed by {signed(gain)}" if gain < promised / 2 else ""


def _change(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}"


def _ends(low: float, high: float) -> str:
    return span(low, high) if low >= 0 else f"{_change(low)} to {_change(high)}"


def _needed(fit: ScalingFit) -> str:
    """The data that break-even takes, as the end of a sentence."""
    if fit.break_even is None:
        return "break-even is not known here"
    level = f"break-even ({fit.break_even:.2f})"
    if fit.data_needed is not None:
        ends = " to ".join(
            f"{end:,.0f}" if math.isfinite(end) else f"beyond {fit.trusted_max:,.0f}"
            for end in (fit.data_needed_low, fit.data_needed_high)
        )
        return f"{level} would take about {fit.data_needed:,.0f} (95 % {ends})"
    if fit.identified and fit.data_needed_reason.startswith("beyond"):
        return f"{level} lies beyond {fit.trusted_max:,.0f}, 4x the largest size"
    reached = fit.data_needed_reason.rpartition(_REACHED)[2] if _REACHED in fit.data_needed_reason else None
    if reached is not None:
        return f"the measured points reach {level} from {reached}"
    if fit.reason:
        return f"how much would reach {level} is not identified"
    return f"no amount is known to reach {level}"


def other_curves(fits: list[ScalingFit], most: int = 3) -> list[str]:
    """The sentences of the curves after the first."""
    said = [curve_sentence(fit) for fit in fits[1 : most + 1]]
    more = len(fits) - 1 - len(said)
    return [*said, f"{count(more, 'more curve')} in the table of curves."] if more > 0 else said


def curve_notes(fits: list[ScalingFit]) -> list[str]:
    """Why the data needed are not known and what the curves cannot separate; the curve's name where they differ."""
    said: dict[str, list[str]] = {}
    for fit in fits:
        for note in _own_notes(fit):
            said.setdefault(note, []).append(curve_name(fit.points))
    return [f"{note if len(names) == len(fits) else f'{note} ({names[0]})'}." for note, names in said.items()]


def _own_notes(fit: ScalingFit) -> list[str]:
    names = set(map(str, fit.points["drafter"]))
    untried = {f"{form.name}: {form.reason}" for form in fit.forms}
    notes = [note for note in fit.notes if note not in untried]
    if fit.break_even is not None and fit.data_needed is None and fit.data_needed_reason:
        notes.insert(0, f"data needed to break even: {fit.data_needed_reason}")
    return [note if any(note.startswith(name) for name in names) else capital(note) for note in notes]


def curve_name(points: pd.DataFrame) -> str:
    """Prompts and steps of a curve: ``mix_heldout, 3 steps``."""
    first = points.iloc[0]
    prompts = "prompts not stated" if pd.isna(first["prompt_set"]) else str(first["prompt_set"])
    steps = "steps not stated" if pd.isna(first["num_steps"]) else count(int(first["num_steps"]), "step")
    design = "" if pd.isna(first["design"]) else f", {first['design']}"
    return f"{prompts}, {steps}{design}"


def same_data(points: pd.DataFrame, fit: ScalingFit) -> str | None:
    """Another recipe on the samples of the largest size, at the curve's prompts and steps: training apart from data."""
    largest = most(fit.points, fit.x)
    alike = points[
        (points[fit.x] == largest[fit.x])
        & (points["drafter"] != largest["drafter"])
        & points["accept_length"].notna()
        & (points["fit_note"] == "")
        & ~_another_seed(points, largest)
    ]
    for name in ("target", "prompt_set", "num_steps", "eagle_topk", "ignore_eos", "temperature"):
        alike = alike[(alike[name] == largest[name]).fillna(False).astype(bool)] if largest[name] is not None else alike
    if alike.empty or largest["accept_length"] is None:
        return None
    other = most(alike, "accept_length")
    return (
        f"Another training on the same {int(largest[fit.x]):,} {_SIZE[fit.x]}, {other['drafter']}, reaches "
        f"{other['accept_length']:.2f} against {largest['accept_length']:.2f} ({curve_name(fit.points)})"
        f"{_within(largest, other)}."
    )


def _another_seed(points: pd.DataFrame, largest: Row) -> pd.Series:
    """Drafters that differ from this one by their seed alone."""
    if largest["recipe"] is None or largest["seed"] is None:
        return pd.Series(False, index=points.index)
    same: pd.Series = (points["recipe"] == largest["recipe"]) & (points["seed"] != largest["seed"])
    return same.fillna(False).astype(bool)


def _within(one: Row, two: Row) -> str:
    ends = [one["low"], one["high"], two["low"], two["high"]]
    if any(end is None for end in ends):
        return ""
    overlap = one["low"] <= two["high"] and two["low"] <= one["high"]
    return ", within their intervals" if overlap else ", beyond their intervals: training matters, not only data"


def seeds_apart(fit: ScalingFit) -> str | None:
    """How far seeds of one size lie from each other; ``None`` where no size has several."""
    sizes = [same.drop_duplicates("seed") for _, same in fit.points.dropna(subset=["seed"]).groupby(fit.x)]
    apart = pd.Series([same["accept_length"].max() - same["accept_length"].min() for same in sizes if len(same) > 1])
    if apart.empty:
        return None
    return f"seeds of one size differ by {apart.median():.2f} in the median, {apart.max():.2f} at most"


def next_training(fit: ScalingFit, offline: ScalingFit | None = None) -> str | None:
    """The training that would tell data from training length, where epochs fall or seeds are single.

    Seeds that only walks without a server tell apart count, too.
    """
    epochs = fit.points.dropna(subset=["epochs"]).sort_values(fit.x)
    wanted = []
    if len(epochs) > 1 and (epochs["epochs"].diff().dropna() < 0).all():
        first, last = least(epochs, fit.x), most(epochs, fit.x)
        apart = f"{last['epochs']:g} epochs against {first['epochs']:g} of {first['drafter']}"
        wanted.append(f"train {last['drafter']} longer ({apart})")
    if all(each.points.groupby(each.x)["seed"].nunique().max() <= 1 for each in (fit, offline or fit)):
        wanted.append("train a second and third seed of one size")
    if not wanted:
        return None
    return f"Before collecting more data {' and '.join(wanted)}: that tells the data's effect from the training's."
