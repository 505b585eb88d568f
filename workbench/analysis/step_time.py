"""What a verify cycle costs, by steps and draft tokens: ``T_cycle = a + b x steps + c x draft tokens``.

Measured runs and runs with simulated acceptance both count: what a step costs does not depend on what is accepted,
which `step_time_by_length_df` checks on the shapes that were run with several simulated accept lengths.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from workbench.analysis.frames import Floats, Row, group_ids, positions, records, typed

INDEPENDENT = 0.05  # cycle times that lie this near each other are one, whatever was accepted

# Runs that differ in none of these share what else a cycle costs.
GROUP = (
    "campaign",
    "baseline_group",
    "drafter",
    "cuda_graph",
    "prompt_set",
    "ignore_eos",
    "basis",
    "max_concurrency",
)
_SHAPE = ("num_steps", "eagle_topk", "num_draft_tokens")
_PARAMETERS = ("a", "b", "c")
_FIT = {
    "form": "str",
    **{f"{name}{end}": "float64" for name in _PARAMETERS for end in ("", "_low", "_high")},
    "residual_ms": "float64",
    "num_points": "Int64",
    "num_shapes": "Int64",
    "num_simulated": "Int64",
    "identified": "boolean",
    "reason": "str",
}
_POINT = {
    "run_id": "str",
    "label": "str",
    "origin": "str",
    **dict.fromkeys(_SHAPE, "Int64"),
    **dict.fromkeys(("t_cycle_ms", "t_base_ms", "break_even", "fitted_ms", "residual_ms"), "float64"),
    "fitted_break_even": "float64",
}
_MEASURED = ("run_id", "label", "origin", *_SHAPE, "t_cycle_ms", "t_base_ms", "break_even")
_BY_LENGTH = {
    **dict.fromkeys(_SHAPE, "Int64"),
    "num_lengths": "Int64",
    "num_points": "Int64",
    **dict.fromkeys(("length_low", "length_high", "t_cycle_ms", "spread"), "float64"),
    **dict.fromkeys(("slope_ms", "slope_low", "slope_high"), "float64"),
    "verdict": "str",
}

FULL = "a + b x steps + c x draft tokens"
CHAINS = "a + b x steps (chains)"
STEPS = "a + b x steps"
TOKENS = "a + c x draft tokens"
_TERMS = {FULL: ("a", "b", "c"), CHAINS: ("a", "b"), STEPS: ("a", "b"), TOKENS: ("a", "c")}
_COLUMNS = {"a": None, "b": "num_steps", "c": "num_draft_tokens"}


@dataclass(frozen=True, slots=True)
class StepTimeFit:
    """Least squares of cycle times, a group of comparable runs at a time.

    Attributes
    ----------
    fits
        One row a group: its settings (`GROUP`), ``form``, ``a``, ``b``, ``c`` in ms with their 95 % intervals
        (Student's t), ``residual_ms`` (standard deviation), numbers of runs, shapes and simulated runs, ``identified``
        and why not.
    points
        One row a run: shape, cycle time, break-even, what the fit gives for both, and the residual; NaN where the
        group is not identified.
    """

    fits: pd.DataFrame
    points: pd.DataFrame

    @property
    def identified(self) -> pd.DataFrame:
        """The groups with a fit."""
        return self.fits[self.fits["identified"].fillna(False).astype(bool)].reset_index(drop=True)


def step_time_fit(costs: pd.DataFrame) -> StepTimeFit:
    """Fit the cycle times of every group of runs that share drafter, graphs, prompts and concurrency.

    A group needs one more shape than the form has parameters. Chains alone cannot tell a step from its draft token;
    then the two are fitted as one (`CHAINS`).
    """
    usable = costs.dropna(subset=["num_steps", "num_draft_tokens", "t_cycle_ms"])[[*GROUP, *_MEASURED]]
    ids, keys = group_ids(usable, GROUP)
    types = {name: str(costs[name].dtype) for name in GROUP}
    fits: list[Row] = []
    points: list[Row] = []
    runs = records(usable)
    columns = {
        name: usable[name].to_numpy(dtype=np.float64) for name in ("num_steps", "num_draft_tokens", "t_cycle_ms")
    }
    simulated = (usable["origin"] == "simulated").to_numpy(dtype=bool)
    for places, key in zip(positions(ids, len(keys)), records(keys), strict=True):
        fit, fitted = _fit({name: values[places] for name, values in columns.items()})
        fits.append(key | fit | {"num_simulated": int(simulated[places].sum())})
        points += [_point(runs[place], value) for place, value in zip(places, fitted, strict=True)]
    return StepTimeFit(typed(fits, types | _FIT), typed(points, types | _POINT))


def _point(row: Row, fitted: float) -> Row:
    """A run beside what the fit gives for it."""
    base = row["t_base_ms"]
    return row | {
        "fitted_ms": fitted,
        "residual_ms": row["t_cycle_ms"] - fitted,
        "fitted_break_even": None if base is None else fitted / base,
    }


def _fit(same: Mapping[str, Floats]) -> tuple[Row, Floats]:
    """Parameters of one group, and the fitted time of each of its runs."""
    measured = same["t_cycle_ms"]
    shapes = np.unique(np.stack([same["num_steps"], same["num_draft_tokens"]], axis=1), axis=0)
    form = _form(shapes)
    counts: Row = {"form": form, "num_points": len(measured), "num_shapes": len(shapes)}
    needed = len(_TERMS[form]) + 1
    if len(shapes) < needed:
        told = "1 shape was" if len(shapes) == 1 else f"{len(shapes)} shapes were"
        reason = f"not identified: {told} measured, {form} needs {needed}"
        return counts | {"identified": False, "reason": reason}, np.full(len(measured), np.nan)
    terms = _TERMS[form]
    matrix = np.column_stack([_term(same, name) for name in terms])
    values, margins, fitted, deviation = _least_squares(matrix, measured)
    if (margins * np.ptp(matrix, axis=0)).max() > measured.mean():
        reason = "not identified: an interval is wider than the cycle itself over the shapes measured; measure more"
        return counts | {"identified": False, "reason": reason}, np.full(len(measured), np.nan)
    parameters: Row = {}
    for name, value, margin in zip(terms, values, margins, strict=True):
        parameters |= {name: value, f"{name}_low": value - margin, f"{name}_high": value + margin}
    return counts | parameters | {"residual_ms": deviation, "identified": True}, fitted


def _form(shapes: Floats) -> str:
    """What these shapes, rows of steps and draft tokens, can tell apart."""
    steps, tokens = shapes.T
    if np.linalg.matrix_rank(np.column_stack([np.ones(len(shapes)), steps, tokens])) == len(_PARAMETERS):
        return FULL
    if (tokens == steps + 1).all():
        return CHAINS
    return TOKENS if len(np.unique(steps)) == 1 else STEPS


def _term(same: Mapping[str, Floats], name: str) -> Floats:
    column = _COLUMNS[name]
    return np.ones(len(same["t_cycle_ms"])) if column is None else same[column]


def _least_squares(matrix: Floats, measured: Floats) -> tuple[Floats, Floats, Floats, float]:
    """Parameters, half widths of their 95 % intervals, fitted values, and the standard deviation of the residuals."""
    from scipy.special import stdtrit  # most pages need no quantile, and scipy takes long to import

    values = np.asarray(np.linalg.lstsq(matrix, measured, rcond=None)[0], dtype=np.float64)
    fitted = matrix @ values
    degrees = len(measured) - matrix.shape[1]
    variance = float(((measured - fitted) ** 2).sum() / degrees)
    errors = np.sqrt(np.diag(np.linalg.pinv(matrix.T @ matrix)).clip(min=0) * variance)
    margins = np.asarray(float(stdtrit(degrees, 0.975)) * errors, dtype=np.float64)
    return values, margins, np.asarray(fitted, dtype=np.float64), float(np.sqrt(variance))


def step_time_by_length_df(costs: pd.DataFrame) -> pd.DataFrame:
    """Whether the cycle time depends on the accept length: shapes that were run with several simulated ones.

    ``spread`` is the slowest cycle over the fastest, minus one, of the means of each length; ``slope_ms`` the change of
    the cycle by token of accept length, with its 95 % interval where there are three runs.
    """
    forced = costs[(costs["origin"] == "simulated") & costs["simulated_accept_length"].notna()]
    forced = forced.dropna(subset=["t_cycle_ms", "num_steps", "num_draft_tokens"])
    forced = forced[[*GROUP, *_SHAPE, "simulated_accept_length", "t_cycle_ms"]]
    ids, groups = group_ids(forced, (*GROUP, *_SHAPE))
    rows = []
    columns = [forced[name].to_numpy(dtype=np.float64) for name in ("simulated_accept_length", "t_cycle_ms")]
    for places, key in zip(positions(ids, len(groups)), records(groups), strict=True):
        lengths, cycles = (values[places] for values in columns)
        if len(np.unique(lengths)) > 1:
            rows.append(key | _by_length(lengths, cycles))
    return typed(rows, {name: str(costs[name].dtype) for name in GROUP} | _BY_LENGTH)


def _by_length(lengths: Floats, cycles: Floats) -> Row:
    means = np.array([cycles[lengths == length].mean() for length in np.unique(lengths)])
    row: Row = {
        "num_lengths": len(means),
        "num_points": len(lengths),
        "length_low": lengths.min(),
        "length_high": lengths.max(),
        "t_cycle_ms": cycles.mean(),
        "spread": float(means.max() / means.min() - 1),
    }
    if len(lengths) > 2:
        values, margins, _, _ = _least_squares(np.column_stack([np.ones(len(lengths)), lengths]), cycles)
        row |= {"slope_ms": values[1], "slope_low": values[1] - margins[1], "slope_high": values[1] + margins[1]}
    return row | {"verdict": _verdict(row)}


def _verdict(row: Mapping[str, float]) -> str:
    if row["spread"] <= INDEPENDENT:
        return "does not depend on it"
    if "slope_ms" in row and (row["slope_low"] > 0 or row["slope_high"] < 0):
        return "rises with it" if row["slope_ms"] > 0 else "falls with it"
    return "not decidable"
