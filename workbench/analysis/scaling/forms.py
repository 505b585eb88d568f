"""The curves that accept length may follow over training size, fitted by weighted least squares.

Every function takes replicates at once: ``y`` and ``weights`` have shape (replicates, points), ``parameters`` has shape
(replicates, parameters). A replicate that a form cannot hold gets NaN parameters; nothing raises.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from workbench.analysis.frames import Floats

EXPONENTS = np.linspace(0.02, 1.0, 50)  # the power law's exponent is searched on this grid; it must lie in (0, 1]


@dataclass(frozen=True, slots=True)
class Form:
    """A curve. ``ceiling`` is the longest accept length that the draft steps allow (steps + 1), NaN if unknown."""

    name: str
    formula: str
    names: tuple[str, ...]
    fit: Callable[[Floats, Floats, Floats, float], Floats]
    predict: Callable[[Floats, Floats, float], Floats]
    solve: Callable[[Floats, Floats, float], Floats]


def weighted_line(u: Floats, y: Floats, weights: Floats) -> Floats:
    """Intercept and slope of each replicate; NaN where fewer than two different ``u`` carry weight."""
    total = weights.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        u_mean = (weights * u).sum(axis=1) / total
        y_mean = (weights * y).sum(axis=1) / total
        spread = (weights * (u - u_mean[:, None]) ** 2).sum(axis=1)
        flat = spread <= 1e-12 * total
        slope = (weights * (u - u_mean[:, None]) * (y - y_mean[:, None])).sum(axis=1) / np.where(flat, np.nan, spread)
    return np.column_stack([y_mean - slope * u_mean, slope])


def _fit_log_linear(x: Floats, y: Floats, weights: Floats, ceiling: float) -> Floats:
    return weighted_line(np.log(x), y, weights)


def _predict_log_linear(parameters: Floats, x: Floats, ceiling: float) -> Floats:
    a, b = parameters[:, 0:1], parameters[:, 1:2]
    return np.asarray(a + b * np.log(x), dtype=np.float64)


def _solve_log_linear(parameters: Floats, level: Floats, ceiling: float) -> Floats:
    a, b = parameters.T
    return _rising(b, (level - a) / np.where(b == 0, np.nan, b))


def _fit_bounded(x: Floats, y: Floats, weights: Floats, ceiling: float) -> Floats:
    p = (y - 1) / (ceiling - 1)
    inside = ((p > 0) & (p < 1)) | (weights == 0)
    p = np.where((p > 0) & (p < 1), p, 0.5)
    # the delta method: an error in y becomes an error in logit(p) of 1 / ((ceiling - 1) p (1 - p)) times its size
    parameters = weighted_line(np.log(x), np.log(p / (1 - p)), weights * (p * (1 - p)) ** 2)
    parameters[~inside.all(axis=1)] = np.nan
    return parameters


def _predict_bounded(parameters: Floats, x: Floats, ceiling: float) -> Floats:
    a, b = parameters[:, 0:1], parameters[:, 1:2]
    with np.errstate(over="ignore"):
        return np.asarray(1 + (ceiling - 1) / (1 + np.exp(-(a + b * np.log(x)))), dtype=np.float64)


def _solve_bounded(parameters: Floats, level: Floats, ceiling: float) -> Floats:
    a, b = parameters.T
    p = (level - 1) / (ceiling - 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        logit = np.where(p >= 1, np.inf, np.where(p <= 0, -np.inf, np.log(p / (1 - p))))
        return _rising(b, (logit - a) / np.where(b == 0, np.nan, b))


def _rising(slope: Floats, log_size: Floats) -> Floats:
    """Training size from its logarithm; infinite where the curve does not rise, NaN where it is not known."""
    with np.errstate(over="ignore"):
        size = np.exp(log_size)
    return np.where(np.isnan(slope), np.nan, np.where(slope > 0, size, np.inf))


def _fit_plateau(x: Floats, y: Floats, weights: Floats, ceiling: float) -> Floats:
    """For each exponent the best plateau and drop are linear; the exponent with the smallest error wins."""
    best = np.full((len(y), 3), np.nan)
    best_error = np.full(len(y), np.inf)
    for exponent in EXPONENTS:
        decay = (x / x.min()) ** -exponent
        level, drop = _bounded_plateau(decay, y, weights, ceiling)
        error = (weights * (y - level[:, None] + drop[:, None] * decay) ** 2).sum(axis=1)
        better = error < best_error
        scaled = drop * x.min() ** exponent
        best[better] = np.column_stack([level, scaled, np.full(len(y), exponent)])[better]
        best_error = np.where(better, error, best_error)
    return best


def _bounded_plateau(decay: Floats, y: Floats, weights: Floats, ceiling: float) -> tuple[Floats, Floats]:
    level, slope = weighted_line(decay, y, weights).T
    mean = (weights * y).sum(axis=1) / weights.sum(axis=1)
    level, drop = np.where(slope > 0, mean, level), np.maximum(-slope, 0)
    over = level > ceiling
    pinned = (weights * (ceiling - y) * decay).sum(axis=1) / (weights * decay**2).sum(axis=1)
    return np.where(over, ceiling, level), np.where(over, pinned, drop)


def _predict_plateau(parameters: Floats, x: Floats, ceiling: float) -> Floats:
    level, drop, exponent = (parameters[:, k : k + 1] for k in range(3))
    return np.asarray(level - drop * x**-exponent, dtype=np.float64)


def _solve_plateau(parameters: Floats, level: Floats, ceiling: float) -> Floats:
    top, drop, exponent = parameters.T
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        size = ((top - level) / drop) ** (-1 / exponent)
    return np.where(np.isnan(top), np.nan, np.where((level < top) & (drop > 0), size, np.inf))


LOG_LINEAR = Form("log-linear", "L = a + b ln D", ("a", "b"), _fit_log_linear, _predict_log_linear, _solve_log_linear)
BOUNDED = Form(
    "bounded logit", "logit((L - 1) / S) = a + b ln D", ("a", "b"), _fit_bounded, _predict_bounded, _solve_bounded
)
PLATEAU = Form(
    "power law with plateau",
    "L = p - c D^-k",
    ("p", "c", "k"),
    _fit_plateau,
    _predict_plateau,
    _solve_plateau,
)


def aicc(form: Form, parameters: Floats, x: Floats, y: Floats, weights: Floats, ceiling: float) -> float:
    """Akaike's criterion, corrected for few points, with ``weights`` = 1 / variance; NaN with too few points."""
    k, n = len(form.names), len(y)
    if n - k - 1 <= 0:
        return float("nan")
    chi_square = float((weights * (y - form.predict(parameters[None, :], x, ceiling)[0]) ** 2).sum())
    return chi_square + 2 * k + 2 * k * (k + 1) / (n - k - 1)


def leave_one_out(form: Form, x: Floats, y: Floats, weights: Floats, ceiling: float) -> float:
    """Root mean square error of predicting each point from the others, in accept length; NaN with too few points."""
    n = len(y)
    if len(np.unique(x)) <= len(form.names):
        return float("nan")
    others = form.fit(x, np.tile(y, (n, 1)), np.tile(weights, (n, 1)) * (1 - np.eye(n)), ceiling)
    predicted = np.diagonal(form.predict(others, x, ceiling))
    return float(np.sqrt(np.mean((y - predicted) ** 2)))
