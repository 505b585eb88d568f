"""Sentences about what a scaling curve cannot separate, each computed from the points."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench.analysis.frames import Floats

SIZE_WORDS = {"training_samples": "training samples", "response_tokens": "response tokens"}
FEW_PROMPTS = 10  # a bootstrap over fewer clusters is known to be too narrow
_VISIBLE = 0.005  # accept lengths are read to two digits


def number(value: float) -> str:
    """A count for a sentence: whole, with thousands separated."""
    return f"{value:,.0f}"


def signed(value: float, digits: int = 2) -> str:
    """A change for a sentence: with its sign, and never -0.00."""
    return f"{round(value, digits) + 0.0:+.{digits}f}"


def confounds(points: pd.DataFrame, x: str, ceiling: float) -> list[str]:
    """What differs between the points besides the training size, and what is not known of them."""
    notes = [*_seeds(points, x), *_training_length(points, x), *_different(points), *_not_stated(points)]
    per_sample = (points["response_tokens"] / points["training_samples"]).astype("float64").dropna()
    if len(per_sample) > 1 and per_sample.max() > 1.1 * per_sample.min():
        notes.append(
            f"answers differ in length: {per_sample.min():.0f} to {per_sample.max():.0f} response tokens a sample, "
            "so samples and response tokens give different curves"
        )
    if (points["n"] < FEW_PROMPTS).any():
        notes.append(f"a point stands on {points['n'].min()} prompts only: its interval is too narrow")
    longest = float(points["accept_length"].max())
    if longest > 1 + 0.9 * (ceiling - 1):
        notes.append(f"accept length {longest:.2f} is near its bound {ceiling:g}: more draft steps would show more")
    return notes


def _seeds(points: pd.DataFrame, x: str) -> list[str]:
    seeds = points.groupby(x)["seed"].nunique()
    notes = []
    if (seeds <= 1).all():
        notes.append("one training seed at every size: the band holds the evaluation error only")
    elif (seeds < 3).any():
        sizes = ", ".join(number(size) for size in seeds[seeds < 3].index)
        notes.append(f"fewer than three seeds at {sizes} {SIZE_WORDS[x]}: the training error there is poorly known")
    for _, same in points.dropna(subset=["seed"]).groupby([x, "seed"]):
        drafters = sorted(same["drafter"].unique())
        if len(drafters) > 1:
            shared = f"{number(same[x].iloc[0])} {SIZE_WORDS[x]} and seed {same['seed'].iloc[0]}"
            notes.append(f"{' and '.join(drafters)} share {shared}: they are not two seeds")
    return notes


def _training_length(points: pd.DataFrame, x: str) -> list[str]:
    notes = []
    steps = points["optimizer_steps"].dropna()
    if len(steps.unique()) > 1:
        notes.append(f"optimizer steps differ between the points: {number(steps.min())} to {number(steps.max())}")
    epochs = points.dropna(subset=["epochs"]).groupby(x)["epochs"].mean()
    if len(epochs.unique()) < 2:
        return notes
    first, last = (f"{epochs.iloc[k]:g} at {number(epochs.index[k])}" for k in (0, -1))
    if (epochs.diff().dropna() < 0).all():
        notes.append(
            f"epochs fall from {first} to {last} {SIZE_WORDS[x]}: more data was seen less often, so a flat end may "
            "come from short training instead of from the data"
        )
    else:
        notes.append(f"epochs differ between the points, from {first} to {last} {SIZE_WORDS[x]}")
    return notes


def _different(points: pd.DataFrame) -> list[str]:
    words = {
        "draft_vocab_size": "draft vocabularies",
        "campaign": "campaigns",
        "machine": "machines",
        "origin": "origins",
        "max_concurrency": "concurrencies",
    }
    notes = []
    for name, word in words.items():
        values = points[name].dropna().unique() if name in points else np.array([])
        if len(values) > 1:
            notes.append(f"the points differ in their {word}: {', '.join(str(value) for value in values)}")
    return notes


def _not_stated(points: pd.DataFrame) -> list[str]:
    words = {
        "recipe": "training recipe",
        "data_mix": "data mix",
        "optimizer_steps": "number of optimizer steps",
        "epochs": "number of epochs",
        "seed": "seed",
    }
    missing = [(word, points.loc[points[name].isna(), "drafter"].unique()) for name, word in words.items()]
    return [f"{word} not stated for {', '.join(drafters)}" for word, drafters in missing if len(drafters)]


def misfit(points: pd.DataFrame, x: str, y: Floats, fitted: Floats, form: str) -> tuple[str, ...]:
    """The points that lie off the fitted curve by more than their error.

    ``y`` and ``fitted`` have shape (1 + resamples, points). The interval of each residual comes from the resamples,
    with the 5 % shared out among the points.
    """
    residuals = y - fitted
    tail = 100 * 0.05 / residuals.shape[1] / 2
    if len(residuals) < 20:
        return ()
    lows, highs = np.nanpercentile(residuals[1:], [tail, 100 - tail], axis=0)
    level = f"{100 - 2 * tail:.0f}" if tail > 0.25 else f"{100 - 2 * tail:.1f}"
    notes = []
    for row, residual, low, high in zip(points.itertuples(), residuals[0], lows, highs, strict=True):
        if (low > 0 or high < 0) and abs(residual) > _VISIBLE:
            side = "above" if residual > 0 else "below"
            notes.append(
                f"{row.drafter} ({number(getattr(row, x))} {SIZE_WORDS[x]}) lies {abs(residual):.2f} {side} the {form} "
                f"curve ({level} % {signed(low, 3)} to {signed(high, 3)}): more than its error"
            )
    return tuple(notes)


def last_gain(x_name: str, x: Floats, y: Floats) -> tuple[str, ...]:
    """What the last increase of the training size brought, with its interval over the same prompts."""
    sizes = np.unique(x)
    if len(sizes) < 2:
        return ()
    before, after = (y[:, x == size].mean(axis=1) for size in sizes[-2:])
    gain = after - before
    interval = ""
    if len(gain) > 20:
        low, high = np.nanpercentile(gain[1:], [2.5, 97.5])
        interval = f" (95 % {signed(low)} to {signed(high)})"
    return (
        f"from {number(sizes[-2])} to {number(sizes[-1])} {SIZE_WORDS[x_name]} accept length changed by "
        f"{signed(gain[0])}{interval}",
    )
