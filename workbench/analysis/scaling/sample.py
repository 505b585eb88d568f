"""What is fitted: the points of one group by size, with their resamples and weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from workbench.analysis.frames import Floats
from workbench.analysis.scaling.points import prompt_sums, resample_prompts


@dataclass(frozen=True, slots=True)
class Sample:
    """Points sorted by size; row 0 of ``y`` and ``weights`` is the estimate itself, the others are resamples.

    ``ceiling`` is the longest accept length that the draft steps allow, NaN where the steps are not stated.
    """

    points: pd.DataFrame
    x_name: str
    x: Floats
    y: Floats
    weights: Floats
    ceiling: float
    interval_means: str

    @property
    def num_sizes(self) -> int:
        return len(np.unique(self.x))


def usable_points(points: pd.DataFrame, x: str) -> pd.DataFrame:
    """The points that may enter a fit, by size."""
    known = points[(points["fit_note"] == "") & points[x].notna() & points["accept_length"].notna()]
    return known[known[x] > 0].sort_values([x, "drafter"], kind="stable").reset_index(drop=True)


def make_sample(usable: pd.DataFrame, requests: pd.DataFrame | None, x: str, n_boot: int, seed: int) -> Sample:
    """Resample the seeds where a size has several, then the prompts, the same ones for every point.

    The weight of a point is 1 / the variance of its accept length over the prompts; without requests, or where that
    variance is zero, all points weigh the same. Without requests only the seeds are drawn, where a size has several.
    """
    y = usable["accept_length"].to_numpy(dtype=np.float64)[None, :]
    weights = np.ones_like(y)
    means = "no interval: no per-request data of several prompts"
    resampled = _resampled_points(usable, requests, n_boot, seed)
    picks, added, borrowed = _resampled_seeds(usable, x, n_boot, seed)
    if resampled is not None:
        variance = np.nanvar(resampled, axis=0)
        if (variance > 0).all():
            weights = 1 / variance[None, :]
        means = "evaluation error only"
        if borrowed is not None:
            means = f"evaluation and training error{borrowed and f', the latter {borrowed}'}"
        y = np.vstack([y, np.take_along_axis(resampled, picks, axis=1) + added])
        weights = np.vstack([weights, weights[0][picks]])
    elif borrowed is not None:
        means = f"training error only{borrowed and f', {borrowed}'}"
        y = np.vstack([y, y[0][picks] + added])
        weights = np.ones_like(y)
    steps = usable["num_steps"].iloc[0]
    ceiling = float("nan") if pd.isna(steps) else float(steps) + 1
    return Sample(usable, x, usable[x].to_numpy(dtype=np.float64), y, weights, ceiling, means)


def _resampled_points(usable: pd.DataFrame, requests: pd.DataFrame | None, n_boot: int, seed: int) -> Floats | None:
    if requests is None:
        return None
    sums = prompt_sums(requests)
    keys = [
        [(campaign, run) for run in runs] for campaign, runs in zip(usable["campaign"], usable["run_ids"], strict=True)
    ]
    if not all(key in sums for own in keys for key in own) or (usable["n"] < 2).any():
        return None  # one prompt has no spread to resample
    return resample_prompts(sums, keys, n_boot, seed)


def _resampled_seeds(usable: pd.DataFrame, x: str, n_boot: int, seed: int) -> tuple[np.ndarray, Floats, str | None]:
    """Which point stands in for each point, what is added to it, and of which sizes the error is not their own.

    Where a size has several seeds, one of its points is drawn anew. Where it has one, a deviation of a seed from the
    mean of its size is drawn from the sizes that have several: one seed is no training without error. ``None`` where
    none has several, so that nothing is drawn.
    """
    picks = np.tile(np.arange(len(usable)), (n_boot, 1))
    added = np.zeros((n_boot, len(usable)))
    rng = np.random.default_rng([seed, 1])
    places = [same.index.to_numpy() for _, same in usable.groupby(x)]
    several = [own for own in places if len(usable.loc[own, "seed"].dropna().unique()) > 1]
    for own in several:
        picks[:, own] = rng.choice(own, size=(n_boot, len(own)))
    if not several:
        return picks, added, None
    if len(several) == len(places):
        return picks, added, ""
    deviations = np.concatenate([_deviations(usable.loc[own, "accept_length"]) for own in several])
    for own in places:
        if not any(own is other for other in several):
            added[:, own] = rng.choice(deviations, size=(n_boot, 1))
    return picks, added, f"at {len(places) - len(several)} of {len(places)} sizes taken from the others"


def _deviations(lengths: pd.Series) -> Floats:
    """How far the seeds of a size lie from their mean, widened because the mean is their own."""
    values = lengths.to_numpy(dtype=np.float64)
    return np.asarray((values - values.mean()) * np.sqrt(len(values) / (len(values) - 1)), dtype=np.float64)
