"""The time of a verify cycle at every load, as a multiple R of a plain decode step, from few measured shapes.

``R = c0 + c1 steps + c2 draft tokens + c3 steps (topk - 1)``, each c its own at each load but alike at loads that lie
near each other, plus a smooth misfit of a few percent, for experts and rooflines bend the line. All of it is one
Gaussian process, so that an interval grows with the distance from what was measured. `analysis.step_time` fits the
same line by least squares at one load, and needs four shapes for it; a search begins with two or three.

The weak priors below span what is published and recorded: R = 1.1 + 0.07 a step (Llama-3.1-8B, H200) to 1.9 + 0.5 a
step (a fast target with a slow drafter). The misfit was set by leaving out each configuration of recorded campaigns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from workbench.analysis.frames import Floats
from workbench.tune.acceptance import accept_length
from workbench.tune.noise import STARTS, Noise
from workbench.tune.state import Config, State

PRIOR_MEAN = np.array([1.4, 0.15, 0.02, 0.0])
PRIOR_SD = np.array([0.8, 0.25, 0.06, 0.01])
LARGE_R = 2.0
"""Where the measured R are larger than this, so are the priors, in proportion: slow drafters have larger parts."""
OCTAVES = 4.0  # loads this many doublings apart share 1/e of their deviation from the prior
MISFIT = 0.09  # of R, one standard deviation
REACH = 1.0  # doublings of steps or draft tokens over which the misfit is alike
DRAFTER = 0.02  # of R: drafters of one architecture cost nearly the same
SIMULATED = 0.1  # of R: forced against real acceptance, which at 32 at once took 1.4 times as long in h200_step_cost
_LEAST_R = 0.2
_SHARED = 0.5  # of the variance of starts, what all loads of a start have alike: recorded starts did so in part
_STEEPER = (1.0, 2.0, 4.0, 8.0)  # times what the priors allow a draft token to cost; at a full batch it is more

Cell = tuple[Config, int]


@dataclass(frozen=True, slots=True)
class Cycles:
    """R of some cells: mean and draws, shape (cells, draws); NaN where nothing of the group was measured."""

    mean: Floats
    draws: Floats


def measured_cycles(state: State, noise: Noise, group: str) -> tuple[list[Cell], Floats, Floats]:
    """Cells of a group with a measured R, its value, and its relative standard deviation."""
    cells: list[Cell] = []
    values, deviations = [], []
    for config in state.configs:
        for load in state.loads if config.group == group and not config.is_baseline else ():
            speed, base = state.speed(config.name, load), state.base_speed(group, load)
            length = _own_length(state, config, load)
            if speed is not None and base is not None and length is not None:
                cells.append((config, load))
                values.append(length * base / speed)
                deviations.append(noise.deviation(state.of(config.name, load)))
    return cells, np.array(values), np.array(deviations)


def with_misfit(state: State, noise: Noise) -> Noise:
    """The noise, with that of starts also from how far measured cycles lie off the line: nobody starts a shape twice
    at first, and a machine whose starts differ by 10 % would be taken for one where they differ by 1 %.

    The posterior over `STARTS`: what repeated visits say as a scaled inverse chi-squared distribution, times the
    likelihood of the measured R. Draft tokens that cost more than the priors expect are weighed too: that is no noise.
    """
    variances = STARTS**2
    score = np.tile(-noise.degrees / 2 * (np.log(variances) + noise.start**2 / variances), (len(_STEEPER), 1))
    for group in dict.fromkeys(config.group for config in state.configs):
        cells, values, deviations = measured_cycles(state, replace(noise, start=0.0), group)
        if cells:
            shared = _of_starts(state, cells, values)
            score += [_likelihoods(cells, values, deviations, shared, steeper) for steeper in _STEEPER]
    weights = np.exp(score - score.max()).sum(axis=0)
    weights = weights / weights.sum()
    return replace(noise, start=float(np.sqrt(weights @ variances)), weights=tuple(weights))


def _of_starts(state: State, cells: Sequence[Cell], values: Floats) -> Floats:
    """Covariance of R by starts of variance 1: loads of one configuration share a start, but not all it does."""
    names = np.array([config.name for config, _ in cells])
    alike = _SHARED * (names[:, None] == names) + (1 - _SHARED) * np.eye(len(cells))
    each = values / np.sqrt([len(state.of(config.name, load)) for config, load in cells])
    return np.asarray(alike * np.outer(each, each), dtype=np.float64)


def _likelihoods(cells: Sequence[Cell], values: Floats, deviations: Floats, shared: Floats, steeper: float) -> Floats:
    """Logarithm, up to a constant, for each of `STARTS`: with one factorisation, for only a multiple changes."""
    scale = float(np.median(values))
    known = _covariance(cells, cells, scale, steeper) + np.diag((deviations * values) ** 2 + 1e-9)
    root = np.linalg.cholesky(known)
    off = np.linalg.solve(root, values - _features(cells) @ (PRIOR_MEAN * _size(scale)))
    half = np.linalg.solve(root, shared)
    sizes, vectors = np.linalg.eigh(np.linalg.solve(root, half.T))
    spread = 1 + np.outer(STARTS**2, sizes.clip(min=0))
    return np.asarray(
        -0.5 * (np.log(spread).sum(axis=1) + ((off @ vectors) ** 2 / spread).sum(axis=1)) - np.log(np.diag(root)).sum()
    )


def predict_cycles(state: State, noise: Noise, cells: Sequence[Cell], draws: int, seed: int = 0) -> Cycles:
    """R of cells of one group, given everything that is measured of the group."""
    known, values, passes = measured_cycles(state, replace(noise, start=0.0), cells[0][0].group)
    if not known:
        nothing = np.full((len(cells), draws), np.nan)
        return Cycles(nothing[:, 0] if draws else np.full(len(cells), np.nan), nothing)
    scale = float(np.median(values))
    between = _covariance(known, known, scale) + np.diag((passes * values) ** 2 + 1e-9)
    between += noise.start**2 * _of_starts(state, known, values)
    across, within = _covariance(cells, known, scale), _covariance(cells, cells, scale)
    gain = np.linalg.solve(between, across.T).T
    prior = PRIOR_MEAN * _size(scale)
    mean = _features(cells) @ prior + gain @ (values - _features(known) @ prior)
    spread = within - gain @ across.T
    drawn = _normal(mean, spread, draws, seed)
    return Cycles(np.maximum(mean, _LEAST_R), np.maximum(drawn, _LEAST_R))


def _own_length(state: State, config: Config, load: int) -> float | None:
    """As measured, also where it was forced: a forced length is met within a percent."""
    known = [visit.accept_length for visit in state.of(config.name, load) if visit.accept_length is not None]
    return float(np.mean(known)) if known else accept_length(state, config, load, 1).value


def _features(cells: Sequence[Cell]) -> Floats:
    return np.array([[1.0, c.steps, c.draft_tokens, c.steps * (c.topk - 1)] for c, _ in cells], dtype=np.float64)


def _covariance(left: Sequence[Cell], right: Sequence[Cell], scale: float, steeper: float = 1.0) -> Floats:
    near = np.exp(-np.abs(_logs(left, 0)[:, None] - _logs(right, 0)) / OCTAVES)
    slopes = PRIOR_SD * _size(scale) * np.array([1.0, 1.0, steeper, 1.0])
    line = (_features(left) * slopes**2) @ _features(right).T
    apart = sum((_logs(left, axis)[:, None] - _logs(right, axis)) ** 2 for axis in (1, 2))
    misfit = (MISFIT * scale) ** 2 * np.exp(-apart / (2 * REACH**2))
    same = np.array([[one.drafter == other.drafter for other, _ in right] for one, _ in left])
    alike = np.array([[(one.forced is None) == (other.forced is None) for other, _ in right] for one, _ in left])
    misfit = misfit + (SIMULATED * scale) ** 2 * alike
    return np.asarray((line + misfit) * near + (DRAFTER * scale) ** 2 * same, dtype=np.float64)


def _size(scale: float) -> float:
    return max(1.0, scale / LARGE_R)


def _logs(cells: Sequence[Cell], axis: int) -> Floats:
    """Doublings of load, steps, draft tokens."""
    return np.log2([(load, config.steps, config.draft_tokens)[axis] for config, load in cells])


def _normal(mean: Floats, spread: Floats, draws: int, seed: int) -> Floats:
    """Draws of a normal distribution, shape (cells, draws); ``spread`` may be singular."""
    values, vectors = np.linalg.eigh((spread + spread.T) / 2)
    root = vectors * np.sqrt(values.clip(min=0))
    drawn = np.random.default_rng([seed, 2]).standard_normal((len(mean), draws))
    return np.asarray(mean[:, None] + root @ drawn, dtype=np.float64)
