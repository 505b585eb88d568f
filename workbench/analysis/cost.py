"""What a verify step costs, and the accept length that would pay for it.

``tokens/s = accept length / T_cycle`` gives ``T_cycle``; with ``T_base`` the time of a plain decode step, break-even is
``R = T_cycle / T_base = accept length x base speed / speculative speed``, and the speedup is ``accept length / R``.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from workbench.analysis.frames import Row, group_ids, number, positions, records, typed
from workbench.analysis.pairing import Pair, has_finished, pairs

MIN_FIT_POINTS = 3  # two step counts always fit a line

_CONFIGURATION = {
    "drafter": "str",
    "num_steps": "Int64",
    "eagle_topk": "Int64",
    "num_draft_tokens": "Int64",
    "cuda_graph": "boolean",
    "device": "str",
    "prompt_set": "str",
    "max_concurrency": "Int64",
    "origin": "str",
}
_COST = {
    "campaign": "str",
    "run_id": "str",
    "label": "str",
    "baseline_run_id": "str",
    **_CONFIGURATION,
    "baseline_group": "str",
    "ignore_eos": "boolean",
    "simulated_accept_length": "float64",
    "basis": "str",
    "base_tok_per_s": "float64",
    "tok_per_s": "float64",
    "t_base_ms": "float64",
    "accept_length": "float64",
    "accept_length_low": "float64",
    "accept_length_high": "float64",
    "t_cycle_ms": "float64",
    "t_cycle_ms_low": "float64",
    "t_cycle_ms_high": "float64",
    "break_even": "float64",
    "break_even_low": "float64",
    "break_even_high": "float64",
    "gain_needed": "float64",
    "speedup": "float64",
    "reason": "str",
}
_REQUIRED = {"num_steps": "Int64", "acceptance": "float64", "reachable": "boolean"}
_FIT_GROUP = (
    "campaign",
    "baseline_group",
    "drafter",
    "eagle_topk",
    "cuda_graph",
    "prompt_set",
    "ignore_eos",
    "max_concurrency",
)
_FIT = {
    "run_id": "str",
    "num_steps": "Int64",
    "break_even": "float64",
    "c0": "float64",
    "c1": "float64",
    "c1_low": "float64",
    "c1_high": "float64",
    "fitted": "float64",
    "residual": "float64",
    "num_points": "Int64",
}


_COPIED = ("campaign", "run_id", "label", *_CONFIGURATION, "baseline_group", "ignore_eos", "simulated_accept_length")


def cost_df(runs: pd.DataFrame) -> pd.DataFrame:
    """Cycle time, break-even and the gain needed of every speculative run, each against its own baseline.

    ``gain_needed`` is base over speculative speed: the factor that accept length must grow by to break even. A range
    of accept length or speed gives ranges. Speeds are totals over all requests in flight; the times are of one step,
    that is, tok/s divided by the requests in flight (``max_concurrency``, or ``max_running_requests`` where that is
    lower). What is missing is named in ``reason``; whatever the rest allows is still there.
    """
    return typed((_cost(pair) for pair in pairs(runs)), _COST)


def required_acceptance_df(accept_length: float, steps: Iterable[int] = range(1, 8)) -> pd.DataFrame:
    """The constant acceptance a per position that gives this accept length: ``(1 - a^(S+1)) / (1 - a)``, by steps S.

    An assumption, not a measurement: real acceptance falls with depth. ``reachable`` is false above S + 1 (or below
    1), where there is no such a.
    """
    rows = [(count, required_acceptance(accept_length, count)) for count in steps]
    return typed(({"num_steps": count, "acceptance": a, "reachable": a is not None} for count, a in rows), _REQUIRED)


def cost_fit_df(costs: pd.DataFrame) -> pd.DataFrame:
    """Break-even as a line over steps, ``R = c0 + c1 x steps``, least squares, one row for each run that is fitted.

    Only where at least `MIN_FIT_POINTS` step counts share campaign, baseline group, drafter, topk, graphs, prompts and
    concurrency. ``c1_low`` and ``c1_high`` are the 95 % interval of the slope (Student's t).
    """
    columns = {**{name: str(costs[name].dtype) for name in _FIT_GROUP}, **_FIT}
    usable = costs.dropna(subset=["num_steps", "break_even"])
    ids, keys = group_ids(usable, _FIT_GROUP)
    rows: list[Row] = []
    for places in positions(ids, len(keys)):
        same = usable.iloc[places]
        if same["num_steps"].nunique() >= MIN_FIT_POINTS:
            rows.extend(_fit(same))
    return typed(rows, columns)


def _cost(pair: Pair) -> Row:
    run = pair.run
    finished = has_finished(run)
    length = number(run["accept_length"]) if finished else None
    row = {
        **{name: run[name] for name in _COPIED},
        "baseline_run_id": pair.baseline_run_id,
        "basis": pair.basis,
        "accept_length": length,
        "accept_length_low": _first_known(run["accept_length_low"], length) if finished else None,
        "accept_length_high": _first_known(run["accept_length_high"], length) if finished else None,
    }
    if pair.speed is None or pair.base is None:
        return {**row, "reason": pair.problem}
    row |= {
        "tok_per_s": pair.speed.value,
        "base_tok_per_s": pair.base.value,
        "gain_needed": pair.base.value / pair.speed.value,
        "speedup": pair.speed.value / pair.base.value,
    }
    return row | _times(pair, row)


def _times(pair: Pair, row: Row) -> Row:
    """Times and break-even; without an accept length, what they are as multiples of it."""
    speed, base = pair.speed, pair.base
    assert speed is not None and base is not None
    in_flight = _in_flight(pair.run)
    times: dict[str, object] = {"t_base_ms": 1000 * _in_flight(pair.baselines[0]) / base.value}
    low, length, high = row["accept_length_low"], row["accept_length"], row["accept_length_high"]
    if length is None:
        cycle, gain = 1000 * in_flight / speed.value, row["gain_needed"]
        reason = f"accept length not stated: T_cycle is {cycle:.2f} ms x accept length, break-even {gain:.3f} x it"
        return {**times, "reason": reason}
    return {
        **times,
        "t_cycle_ms": 1000 * in_flight * length / speed.value,
        "t_cycle_ms_low": 1000 * in_flight * low / speed.high,
        "t_cycle_ms_high": 1000 * in_flight * high / speed.low,
        "break_even": length * base.value / speed.value,
        "break_even_low": low * base.low / speed.high,
        "break_even_high": high * base.high / speed.low,
    }


def _in_flight(run: Row) -> float:
    """Requests decoded together: what is asked for, or the server's limit where that is lower."""
    limits = [number(run["max_concurrency"]), number(run["max_running_requests"])]
    return min((limit for limit in limits if limit is not None), default=1.0)


def _first_known(*values: object) -> float | None:
    return next((value for each in values if (value := number(each)) is not None), None)


def required_acceptance(accept_length: float, steps: int) -> float | None:
    """One cell of `required_acceptance_df`; ``None`` where it is out of reach."""
    from scipy.optimize import brentq  # most pages need no solver, and scipy takes longer to import than they to make

    if not 1 <= accept_length <= steps + 1:
        return None
    powers = np.arange(steps + 1)  # (1 - a^(S+1)) / (1 - a) is the sum of a^k, k = 0 .. S, which also holds at a = 1
    return float(brentq(lambda a: float((a**powers).sum()) - accept_length, 0.0, 1.0))


def _fit(same: pd.DataFrame) -> Iterable[Row]:
    from scipy.stats import linregress
    from scipy.stats import t as t_distribution

    steps = same["num_steps"].to_numpy(dtype=np.float64)
    measured = same["break_even"].to_numpy(dtype=np.float64)
    line = linregress(steps, measured)
    margin = float(t_distribution.ppf(0.975, len(same) - 2)) * line.stderr
    fitted = line.intercept + line.slope * steps
    parameters = {"c0": line.intercept, "c1": line.slope, "c1_low": line.slope - margin, "c1_high": line.slope + margin}
    for place, row in enumerate(records(same)):
        residual = measured[place] - fitted[place]
        yield row | parameters | {"fitted": fitted[place], "residual": residual, "num_points": len(same)}
