"""Decode speed of every configuration at every load: measured where it was measured, else predicted, with intervals.

``tok/s = base tok/s x accept length / R``. Both factors come as draws, accept length from resamples of the prompts
(`acceptance`), R from what cycles are known (`cycle`), so that an interval holds both errors, and two configurations
are compared draw by draw: on the same prompts, with the same line of step times.

A configuration that was measured is weighed the same way: its own cycle counts by how far starts lie apart, the line
through all the others by how far cycles lie off it. Where starts repeat within a percent that is what was measured;
where they differ by 20 % a lucky start does not lead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from workbench.analysis.frames import Floats, Row, interval, typed
from workbench.tune.acceptance import MEASURED, RANGE, UNKNOWN, Length, accept_length
from workbench.tune.cycle import Cell, predict_cycles, with_misfit
from workbench.tune.noise import Noise, noise_of
from workbench.tune.state import Config, State

DRAWS = 1000
_CELL = {
    "config": "str",
    "group": "str",
    "drafter": "str",
    "num_steps": "Int64",
    "eagle_topk": "Int64",
    "num_draft_tokens": "Int64",
    "max_concurrency": "Int64",
}
_SPAN = tuple(f"{name}{end}" for name in ("accept_length", "break_even", "tok_per_s") for end in ("", "_low", "_high"))
_PREDICTED = {**_CELL, "basis": "str", "acceptance": "str", **dict.fromkeys(_SPAN, "float64"), "speedup": "float64"}
_RESIDUALS = {
    **_CELL,
    "acceptance": "str",
    **dict.fromkeys(("measured_tok_per_s", "tok_per_s", "tok_per_s_low", "tok_per_s_high", "error"), "float64"),
    "inside": "boolean",
    **dict.fromkeys(("measured_break_even", "break_even", "break_even_low", "break_even_high"), "float64"),
    "cycle_error": "float64",
    "cycle_inside": "boolean",
}


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens a second of a cell: draws, which may be NaN, and a figure unless only a range is known.

    ``measured`` is the geometric mean of its visits alone.
    """

    config: Config
    load: int
    basis: str
    length: Length
    value: float | None
    draws: Floats
    cycle: Floats
    measured: float | None = None

    @property
    def is_measured(self) -> bool:
        return self.basis == MEASURED


def speeds(
    state: State,
    configs: Sequence[Config] | None = None,
    draws: int = DRAWS,
    seed: int = 0,
    noise: Noise | None = None,
) -> list[Speed]:
    """Every cell of the grid (or of ``configs``), measured or predicted; ``noise`` where it is known already."""
    noise = noise or with_misfit(state, noise_of(state))
    wanted = state.candidates if configs is None else configs
    found: list[Speed] = []
    for group in dict.fromkeys(config.group for config in wanted):
        cells = [(config, load) for config in wanted if config.group == group for load in state.loads]
        known = [cell for cell in cells if state.of(cell[0].name, cell[1])]
        left = [cell for cell in cells if cell not in known and state.can_visit(*cell)]
        found += [_measured(state, noise, cell, draws, seed) for cell in known if cell[0].is_baseline]
        found += [_unknown(cell, draws) for cell in left if cell[0].is_baseline]
        drafting = [cell for cell in (*known, *left) if not cell[0].is_baseline]
        if drafting:
            cycles = predict_cycles(state, noise, drafting, draws, seed)
            found += [
                _weighed(state, noise, cell, mean, drawn, seed)
                for cell, mean, drawn in zip(drafting, cycles.mean, cycles.draws, strict=True)
            ]
    return found


def _weighed(state: State, noise: Noise, cell: Cell, mean: float, drawn: Floats, seed: int) -> Speed:
    """What the visits, where there are any, and the line say together; the visits alone where nothing is predicted."""
    predicted, measured = _predicted(state, cell, mean, drawn, seed), state.speed(cell[0].name, cell[1])
    if measured is None:
        return predicted
    if predicted.value is None:
        return _measured(state, noise, cell, len(drawn), seed)
    return replace(predicted, basis=MEASURED, measured=measured)


def _measured(state: State, noise: Noise, cell: Cell, draws: int, seed: int) -> Speed:
    """A speed as measured; resamples of the prompts change it as they change its accept length."""
    config, load = cell
    visits, value = state.of(config.name, load), state.speed(config.name, load)
    assert value is not None
    length = accept_length(state, config, load, draws, seed)
    rng = np.random.default_rng([seed, load, config.seed, len(visits)])
    drawn = noise.draws(visits, rng, draws)
    prompts = length.draws / length.value if length.value is not None else np.ones(draws)
    speed = value * np.exp(drawn) * prompts
    base = state.base_speed(config.group, load)
    cycle = np.ones(draws) if config.is_baseline else length.draws * (np.nan if base is None else base) / speed
    return Speed(config, load, MEASURED, length, value, speed, cycle, value)


def _predicted(state: State, cell: Cell, mean: float, drawn: Floats, seed: int) -> Speed:
    config, load = cell
    base = state.base_speed(config.group, load)
    length = accept_length(state, config, load, len(drawn), seed)
    speed = length.draws * (np.nan if base is None else base) / drawn
    if length.value is None or base is None or not np.isfinite(mean):
        basis = RANGE if np.isfinite(speed).all() else UNKNOWN
        return Speed(config, load, basis, length, None, speed, drawn)
    return Speed(config, load, "predicted", length, length.value * base / mean, speed, drawn)


def _unknown(cell: Cell, draws: int) -> Speed:
    nothing = np.full(draws, np.nan)
    return Speed(*cell, UNKNOWN, Length(MEASURED, 1.0, np.ones(draws)), None, nothing, nothing)


# --- tables ------------------------------------------------------------------------------------------------------


def predicted_df(state: State, found: Sequence[Speed]) -> pd.DataFrame:
    """One row a cell: accept length, R (``break_even``) and tok/s with 95 % intervals, and what they rest on.

    ``basis`` is measured, predicted, range (a tree of which only the ends are known: no figure, an interval that
    serves to rule it out) or not predicted.
    """
    rows = []
    for speed in found:
        base = state.base_speed(speed.config.group, speed.load)
        known = speed.value is not None
        row = _cell(speed.config, speed.load) | {"basis": speed.basis, "acceptance": speed.length.basis}
        row |= _span("accept_length", speed.length.value, speed.length.draws)
        row |= _span("break_even", float(np.median(speed.cycle)) if known else None, speed.cycle)
        row |= _span("tok_per_s", speed.value, speed.draws)
        rows.append(row | {"speedup": speed.value / base if speed.value is not None and base else None})
    return typed(rows, _PREDICTED)


def residuals_df(state: State, draws: int = DRAWS, seed: int = 0) -> pd.DataFrame:
    """Every measured configuration predicted as if it alone had not been measured, beside what was measured.

    ``error`` is predicted over measured tok/s, minus one; ``cycle_error`` the same of R, which needs no accept length.
    The intervals are of what a measurement would give: they hold the noise of one too.
    """
    rows = []
    for config in state.configs:
        cells = [load for load in state.loads if state.of(config.name, load)]
        if not config.is_baseline and cells:
            rest = state.without(config.name)
            noise = with_misfit(rest, noise_of(rest))
            predicted = {each.load: each for each in speeds(rest, [config], draws, seed, noise)}
            for load in cells:
                extra = noise.draws(state.of(config.name, load), np.random.default_rng([seed, 3]), draws)
                rows.append(_residual(state, predicted[load], np.exp(extra)))
    return typed(rows, _RESIDUALS)


def _residual(state: State, predicted: Speed, drawn: Floats) -> Row:
    config, load = predicted.config, predicted.load
    measured, base = state.speed(config.name, load), state.base_speed(config.group, load)
    assert measured is not None
    length = accept_length(state, config, load, 1).value
    measured_cycle = np.nan if length is None or base is None else length * base / measured
    cycle = float(np.median(predicted.cycle))
    row = _cell(config, load) | {"acceptance": predicted.length.basis}
    row |= {"measured_tok_per_s": measured, "measured_break_even": measured_cycle}
    row |= _span("tok_per_s", predicted.value, predicted.draws * drawn) | _span(
        "break_even", cycle, predicted.cycle * drawn
    )
    row |= {"error": None if predicted.value is None else predicted.value / measured - 1}
    row |= {"cycle_error": cycle / measured_cycle - 1}
    row["inside"] = _inside(row, "tok_per_s", measured) if predicted.value is not None else None
    row["cycle_inside"] = _inside(row, "break_even", measured_cycle)
    return row


def _inside(row: Row, name: str, value: float) -> bool | None:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return None if low is None or not np.isfinite([low, high, value]).all() else bool(low <= value <= high)


def _cell(config: Config, load: int) -> Row:
    return {
        "config": config.name,
        "group": config.group,
        "drafter": config.drafter,
        "num_steps": None if config.is_baseline else config.steps,
        "eagle_topk": None if config.is_baseline else config.topk,
        "num_draft_tokens": None if config.is_baseline else config.draft_tokens,
        "max_concurrency": load,
    }


def _span(name: str, value: float | None, drawn: Floats) -> Row:
    low, high = interval(drawn)
    return {name: value, f"{name}_low": float(low), f"{name}_high": float(high)}
