"""Fit accept length over training size, with bands from a bootstrap over seeds and prompts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import pandas as pd

from workbench.analysis.frames import Floats, typed
from workbench.analysis.scaling.forms import (
    BOUNDED,
    EXPONENTS,
    LOG_LINEAR,
    PLATEAU,
    Form,
    aicc,
    leave_one_out,
)
from workbench.analysis.scaling.notes import SIZE_WORDS, confounds, last_gain, misfit, number
from workbench.analysis.scaling.points import differing
from workbench.analysis.scaling.sample import Sample, make_sample, usable_points
from workbench.errors import UsageError

TRUSTED_FACTOR = 4  # nothing is said about sizes beyond this multiple of the largest one
PLATEAU_SIZES, PLATEAU_DECADES = 6, 1.5  # a curve of three parameters needs at least this much
BAND = {"x": "float64", "fit": "float64", "low": "float64", "high": "float64", "extrapolated": "bool"}
_NAN = float("nan")

Size = Literal["training_samples", "response_tokens"]


@dataclass(frozen=True, slots=True)
class FormFit:
    """One form, fitted. ``intervals`` are 95 %; ``aicc`` and ``loo_rmse`` are NaN where the points are too few."""

    name: str
    formula: str
    parameters: dict[str, float] = field(default_factory=dict)
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    aicc: float = _NAN
    loo_rmse: float = _NAN
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ScalingFit:
    """What the points of one group say about more data.

    ``band`` has the columns ``x``, ``fit``, ``low``, ``high`` and ``extrapolated``; it ends at ``trusted_max``, four
    times the largest size. ``per_doubling`` is the gain in accept length when the training size doubles, from the
    log-linear form. ``data_needed`` is in units of ``x``; an end of its interval is infinite where it lies beyond
    ``trusted_max``, and ``data_needed_reason`` says why there is no figure, or what it means. Intervals are 95 %, NaN
    where unknown; ``interval_means`` says which errors they hold. ``points`` are the points that were fitted, by size.
    """

    x: str
    num_points: int
    num_sizes: int
    identified: bool
    reason: str
    break_even: float | None = None
    forms: tuple[FormFit, ...] = ()
    main: str | None = None
    per_doubling: float = _NAN
    per_doubling_low: float = _NAN
    per_doubling_high: float = _NAN
    band: pd.DataFrame = field(default_factory=lambda: typed([], BAND))
    trusted_max: float = _NAN
    data_needed: float | None = None
    data_needed_low: float = _NAN
    data_needed_high: float = _NAN
    data_needed_reason: str = ""
    interval_means: str = ""
    notes: tuple[str, ...] = ()
    points: pd.DataFrame = field(default_factory=pd.DataFrame)


def fit_scaling(
    points: pd.DataFrame,
    requests: pd.DataFrame | None = None,
    *,
    x: Size = "training_samples",
    break_even: float | None = None,
    break_even_interval: tuple[float, float] | None = None,
    n_boot: int = 2000,
    seed: int = 0,
) -> ScalingFit:
    """Fit the forms to the points of one group.

    Parameters
    ----------
    points
        Rows of ``scaling_points_df`` that share target, recipe, mix, prompts and draft settings.
    requests
        The requests behind them; without them there are no intervals and nothing is identified.
    break_even, break_even_interval
        Accept length at which speculation pays. The interval widens that of the data needed: the lower end of the
        level goes with the lower end of the curve's error, the upper with the upper.

    Raises
    ------
    UsageError
        When the points differ in a setting that a curve must hold fixed.
    """
    _check_one_group(points)
    usable = usable_points(points, x)
    sizes = int(usable[x].nunique())
    if sizes < 2:
        reason = "no curve: one training size" if sizes else "no curve: no point with a known training size"
        notes = tuple(_left_out(points, x))
        return ScalingFit(
            x, len(usable), sizes, False, reason, break_even, data_needed_reason=reason, notes=notes, points=usable
        )
    sample = make_sample(usable, requests, x, n_boot, seed)
    parameters = {form: form.fit(sample.x, sample.y, sample.weights, sample.ceiling) for form in _forms_for(sample)}
    forms = tuple(_form_fit(form, sample, parameters.get(form)) for form in (LOG_LINEAR, BOUNDED, PLATEAU))
    main = _main_form(forms)
    fit = _with_slope(sample, parameters[LOG_LINEAR][:, 1] * np.log(2), main, parameters[main], break_even)
    noted = (*_left_out(points, x), *fit.notes, *(f"{form.name}: {form.reason}" for form in forms if form.reason))
    return _with_data_needed(
        replace(fit, forms=forms, notes=noted), main, parameters[main], sample, break_even_interval
    )


def _with_slope(
    sample: Sample, doubling: Floats, main: Form, parameters: Floats, break_even: float | None
) -> ScalingFit:
    """The curve, the gain per doubling, and whether the points bear them out."""
    curve = main.predict(parameters, sample.x, sample.ceiling)
    off_curve = misfit(sample.points, sample.x_name, sample.y, curve, main.name)
    low, high = _interval(doubling)
    reason = _why_not_identified(sample.num_sizes, low, high, off_curve)
    return ScalingFit(
        sample.x_name,
        len(sample.points),
        sample.num_sizes,
        identified=not reason,
        reason=reason,
        break_even=break_even,
        main=main.name,
        per_doubling=float(doubling[0]),
        per_doubling_low=low,
        per_doubling_high=high,
        band=_band(main, parameters, sample),
        trusted_max=TRUSTED_FACTOR * float(sample.x.max()),
        interval_means=sample.interval_means,
        notes=(
            *last_gain(sample.x_name, sample.x, sample.y),
            *off_curve,
            *confounds(sample.points, sample.x_name, sample.ceiling),
        ),
        points=sample.points,
    )


def _check_one_group(points: pd.DataFrame) -> None:
    mixed = differing(points)
    if mixed:
        raise UsageError(
            f"points of one curve must share {', '.join(mixed)}",
            where="fit_scaling",
            next_step="split them with scaling_groups and fit each group",
        )


def _left_out(points: pd.DataFrame, x: str) -> list[str]:
    reasons = points["fit_note"].where(points["fit_note"] != "", f"{SIZE_WORDS[x]} not stated")
    left = (points["fit_note"] != "") | points[x].isna()
    return [
        f"{drafter} is left out of the fit: {reason}"
        for drafter, reason in zip(points.loc[left, "drafter"], reasons[left], strict=True)
    ]


def _forms_for(sample: Sample) -> list[Form]:
    return [form for form in (LOG_LINEAR, BOUNDED, PLATEAU) if not _why_not_tried(form, sample)]


def _why_not_tried(form: Form, sample: Sample) -> str:
    if form is LOG_LINEAR:
        return ""
    if np.isnan(sample.ceiling):
        return "not fitted: the draft steps are not stated, so the longest accept length is unknown"
    if form is BOUNDED:
        inside = bool(((sample.y[0] > 1) & (sample.y[0] < sample.ceiling)).all())
        return "" if inside else f"not fitted: a point lies on or outside its bounds 1 and {sample.ceiling:g}"
    decades = np.log10(sample.x.max() / sample.x.min())
    if sample.num_sizes >= PLATEAU_SIZES and decades >= PLATEAU_DECADES:
        return ""
    return (
        f"not fitted: {sample.num_sizes} sizes over {decades:.1f} decades, "
        f"at least {PLATEAU_SIZES} over {PLATEAU_DECADES} are needed"
    )


def _form_fit(form: Form, sample: Sample, parameters: Floats | None) -> FormFit:
    if parameters is None:
        return FormFit(form.name, form.formula, reason=_why_not_tried(form, sample))
    estimate = (sample.x, sample.y[0], sample.weights[0], sample.ceiling)
    intervals = {name: _interval(parameters[:, k]) for k, name in enumerate(form.names)}
    fit = FormFit(
        form.name,
        form.formula,
        dict(zip(form.names, map(float, parameters[0]), strict=True)),
        intervals,
        aicc(form, parameters[0], *estimate) if len(sample.y) > 1 else _NAN,
        leave_one_out(form, *estimate),
    )
    if form is PLATEAU and not (intervals["p"][1] < sample.ceiling - 1e-9 and intervals["k"][0] > EXPONENTS[0]):
        return replace(fit, reason="not identified: the interval of the plateau or of its exponent touches a bound")
    return fit


def _main_form(forms: tuple[FormFit, ...]) -> Form:
    """The bounded form where it can be fitted; the plateau only where it is identified and clearly better."""
    log_linear, bounded, plateau = forms
    simple, form = (log_linear, LOG_LINEAR) if bounded.reason else (bounded, BOUNDED)
    return PLATEAU if not plateau.reason and plateau.aicc < simple.aicc - 2 else form


def _interval(values: Floats) -> tuple[float, float]:
    resampled = values[1:][np.isfinite(values[1:])]
    if len(resampled) < 20:
        return _NAN, _NAN
    low, high = np.percentile(resampled, [2.5, 97.5])
    return float(low), float(high)


def _why_not_identified(num_sizes: int, low: float, high: float, off_curve: tuple[str, ...]) -> str:
    if num_sizes < 3:
        return "not identified: two training sizes fit any curve of two parameters exactly"
    if np.isnan(low):
        return "not identified: no per-request data, so the error of the slope is unknown"
    if low <= 0 <= high:
        return f"not identified: the gain per doubling may be zero (95 % {low:+.3f} to {high:+.3f})"
    if off_curve:
        return "not identified: the points do not follow the curve within their error"
    return ""


def _band(form: Form, parameters: Floats, sample: Sample) -> pd.DataFrame:
    largest = float(sample.x.max())
    inside, beyond = np.geomspace(sample.x.min(), largest, 61), np.geomspace(largest, TRUSTED_FACTOR * largest, 15)
    sizes = np.concatenate([inside, beyond[1:]])
    curves = form.predict(parameters, sizes, sample.ceiling)
    low, high = np.transpose([_interval(curves[:, k]) for k in range(len(sizes))])
    extrapolated = np.arange(len(sizes)) >= len(inside)
    return pd.DataFrame({"x": sizes, "fit": curves[0], "low": low, "high": high, "extrapolated": extrapolated})


def _with_data_needed(
    fit: ScalingFit, form: Form, parameters: Floats, sample: Sample, break_even_interval: tuple[float, float] | None
) -> ScalingFit:
    level = fit.break_even
    if level is None:
        return replace(fit, data_needed_reason="break-even is not known")
    if level >= sample.ceiling:
        longest = f"the longest accept length that the draft steps allow, {sample.ceiling:g}"
        return replace(fit, data_needed_reason=f"break-even {level:.2f} is not below {longest}")
    reached = _reached_by_points(sample, level)
    if fit.reason:
        beyond = float(fit.band["high"].iloc[-1]) < level
        more = (
            f"; even its upper end stays below break-even up to {_limit(fit)}" if beyond else reached and f"; {reached}"
        )
        return replace(fit, data_needed_reason=fit.reason + more)
    bottom, top = break_even_interval or (level, level)
    low = np.percentile(_solved(form, parameters[1:], bottom, sample.ceiling, fit.trusted_max), 2.5, method="lower")
    high = np.percentile(_solved(form, parameters[1:], top, sample.ceiling, fit.trusted_max), 97.5, method="higher")
    needed = float(_solved(form, parameters[:1], level, sample.ceiling, fit.trusted_max)[0])
    fit = replace(fit, data_needed_low=float(low), data_needed_high=float(high))
    if np.isinf(needed):
        return replace(fit, data_needed_reason=f"beyond {_limit(fit)}: not reachable within the trusted range")
    return replace(fit, data_needed=needed, data_needed_reason=reached)


def _reached_by_points(sample: Sample, level: float) -> str:
    """From which size on every measured point is at or above the level; empty where the largest is below."""
    below = sample.x[sample.y[0] < level]
    above = sample.x[sample.x > below.max(initial=0)]
    return (
        f"the measured points reach it from {number(above.min())} {SIZE_WORDS[sample.x_name]} on" if len(above) else ""
    )


def _limit(fit: ScalingFit) -> str:
    return f"{TRUSTED_FACTOR}x the largest size ({number(fit.trusted_max)} {SIZE_WORDS[fit.x]})"


def _solved(form: Form, parameters: Floats, level: float, ceiling: float, trusted_max: float) -> Floats:
    """Sizes at which the curves reach ``level``, infinite beyond the trusted range."""
    known = parameters[np.isfinite(parameters).all(axis=1)]
    sizes = form.solve(known, np.full(len(known), level), ceiling)
    return np.where(sizes <= trusted_max, sizes, np.inf)
