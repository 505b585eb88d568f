"""A fit as a sentence and as a table."""

from __future__ import annotations

import math

import pandas as pd

from workbench.analysis.scaling.fit import FormFit, ScalingFit
from workbench.analysis.scaling.notes import SIZE_WORDS, number, signed


def scaling_sentence(fit: ScalingFit) -> str:
    """The answer of one curve: the gain per doubling, and the data that break-even would take."""
    if fit.num_sizes < 2:
        return f"{_capital(fit.reason)}."
    interval = ""
    if not math.isnan(fit.per_doubling_low):
        low, high = fit.per_doubling_low, fit.per_doubling_high
        interval = f" (95 % {signed(low)} to {signed(high)}, {fit.interval_means})"
    gain = f"Each doubling of the {SIZE_WORDS[fit.x]} changes accept length by {signed(fit.per_doubling)}{interval}"
    gain += f", over {fit.num_sizes} sizes"
    if fit.break_even is None:
        return f"{gain}; {fit.reason}." if fit.reason else f"{gain}."
    return f"{gain}. {_data_needed(fit)}"


def _data_needed(fit: ScalingFit) -> str:
    if fit.data_needed is None:
        return f"Data needed to reach break-even {fit.break_even:.2f}: {fit.data_needed_reason}."
    ends = [
        number(end) if math.isfinite(end) else f"beyond {number(fit.trusted_max)}"
        for end in (fit.data_needed_low, fit.data_needed_high)
    ]
    size = f"{number(fit.data_needed)} {SIZE_WORDS[fit.x]}"
    return f"Break-even {fit.break_even:.2f} would take about {size} (95 % {ends[0]} to {ends[1]})."


def forms_df(fit: ScalingFit) -> pd.DataFrame:
    """One row a form: formula, parameters with intervals, AICc, leave-one-out error, whether drawn, and why not."""
    rows = [
        {
            "form": form.name,
            "formula": form.formula,
            "parameters": ", ".join(_parameter(form, name) for name in form.parameters),
            "aicc": form.aicc,
            "loo_rmse": form.loo_rmse,
            "drawn": form.name == fit.main,
            "reason": form.reason,
        }
        for form in fit.forms
    ]
    return pd.DataFrame(rows, columns=["form", "formula", "parameters", "aicc", "loo_rmse", "drawn", "reason"])


def _parameter(form: FormFit, name: str) -> str:
    low, high = form.intervals[name]
    interval = "" if math.isnan(low) else f" ({low:.3g} to {high:.3g})"
    return f"{name} = {form.parameters[name]:.3g}{interval}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
