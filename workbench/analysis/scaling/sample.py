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
    variance is zero, all points weigh the same.
    """
    y = usable["accept_length"].to_numpy(dtype=np.float64)[None, :]
    weights = np.ones_like(y)
    means = "no interval: no per-request data of several prompts"
    resampled = _resampled_points(usable, requests, n_boot, seed)
    if resampled is not None:
        variance = np.nanvar(resampled, axis=0)
        if (variance > 0).all():
            weights = 1 / variance[None, :]
        picks, means = _resampled_seeds(usable, x, n_boot, seed)
        y = np.vstack([y, np.take_along_axis(resampled, picks, axis=1)])
        weights = np.vstack([weights, weights[0][picks]])
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


def _resampled_seeds(usable: pd.DataFrame, x: str, n_boot: int, seed: int) -> tuple[np.ndarray, str]:
    """Which point stands in for each point: one of the same size, drawn anew where that size has several seeds."""
    picks = np.tile(np.arange(len(usable)), (n_boot, 1))
    rng = np.random.default_rng([seed, 1])
    several, sizes = 0, 0
    for _, same in usable.groupby(x):
        sizes += 1
        if len(same["seed"].dropna().unique()) > 1:
            several += 1
            places = same.index.to_numpy()
            picks[:, places] = rng.choice(places, size=(n_boot, len(places)))
    if several == 0:
        return picks, "evaluation error only"
    if several == sizes:
        return picks, "evaluation and training error"
    return picks, f"evaluation error, with training error at {several} of {sizes} sizes only"
