"""GPU samples to figures of a run: energy a token, power, clock and memory while its windows were measured."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from workbench.spec import LoadWindow

# Samples come twice a second. What a GPU drew is not known in a longer gap, nor further from the first or last sample.
LONGEST_GAP_S = 5.0
FARTHEST_END_S = 1.0

_PLACES = ("gpu", "t_s")
_FIGURES = ("power_w", "memory_used_bytes", "sm_clock_mhz")
_NAMES = (*_PLACES, *_FIGURES)

Row = dict[str, object]
Floats = npt.NDArray[np.float64]
Span = tuple[float, float]


def gpu_row(
    samples: Sequence[Mapping[str, object]],
    windows: Sequence[LoadWindow],
    *,
    gpus_used: Iterable[int],
    shared: bool,
) -> tuple[Row, list[str]]:
    """Figures of the runs table from the samples of one run, and what of these could not be used or is not covered.

    Energy is the power of every GPU over the windows, from the beginning of each to its last answer, divided by the
    tokens that they produced: it holds what prefills and the emptying of slots take.

    Parameters
    ----------
    gpus_used
        Numbers of GPUs that the server may have: samples of more or fewer are not those of the server.
    shared
        Another server ran on the GPUs, so their energy is not that of this run.
    """
    table = np.array([[_number(sample.get(name)) for name in _NAMES] for sample in samples], np.float64)
    table = table.reshape(-1, len(_NAMES))
    faults = _unusable(samples, np.isnan(table))
    gpus = [gpu for gpu in np.unique(table[:, 0]).tolist() if not math.isnan(gpu)]
    if not gpus:
        return {}, faults
    memory = [values for gpu in gpus for values in [_series(table, gpu, "memory_used_bytes")[1]] if len(values)]
    row: Row = {"gpu_peak_memory_bytes": max((float(values.max()) for values in memory), default=None)}
    spans = [(window.started_s, window.started_s + window.wall_s) for window in windows if window.started_s is not None]
    if not spans or len(spans) < len(windows):
        return row, faults  # the windows do not say when they were
    row["gpu_sm_clock_mhz"] = _mean_within([_series(table, gpu, "sm_clock_mhz") for gpu in gpus], spans)
    power = [_series(table, gpu, "power_w") for gpu in gpus]
    if not all(len(seconds) for seconds, _ in power):
        return row, faults  # a GPU that does not tell its power
    why = _no_energy(len(gpus), gpus_used, shared=shared)
    joules = [energy_j(seconds, watts, *span) for seconds, watts in power for span in spans]
    if why is None and None in joules:
        why = "its samples do not cover the windows"
    if why is not None:
        return row, [*faults, f"no energy is computed: {why}"]
    total, duration = sum(each or 0.0 for each in joules), sum(end - start for start, end in spans)
    tokens = sum(window.completion_tokens for window in windows)
    row |= {"gpu_power_w": total / duration, "energy_j_per_tok": total / tokens if tokens else None}
    return row, faults


def _unusable(samples: Sequence[Mapping[str, object]], missing: npt.NDArray[np.bool_]) -> list[str]:
    """One sentence about values that are no numbers; ``null`` is what a GPU does not say, and no fault."""
    counts = Counter(
        name
        for place in np.flatnonzero(missing.any(axis=1)).tolist()
        for name, is_missing in zip(_NAMES, missing[place].tolist(), strict=True)
        if is_missing and (name in _PLACES or samples[place].get(name) is not None)
    )
    if not counts:
        return []
    named = ", ".join(f"{name} ({count:,})" for name, count in counts.items())
    return [f"not a number from 0 in some of {len(samples):,} samples, and left out: {named}"]


def energy_j(seconds: Floats, watts: Floats, start: float, end: float) -> float | None:
    """Power integrated by trapezoids from ``start`` to ``end``; ``None`` where the samples do not cover that time."""
    if end <= start or seconds[0] - start > FARTHEST_END_S or end - seconds[-1] > FARTHEST_END_S:
        return None
    first = max(int(np.searchsorted(seconds, start, side="right")) - 1, 0)
    last = int(np.searchsorted(seconds, end, side="left")) + 1
    if float(np.diff(seconds[first:last]).max(initial=0.0)) > LONGEST_GAP_S:
        return None
    points = np.concatenate([[start], seconds[(start < seconds) & (seconds < end)], [end]])
    return float(np.trapezoid(np.interp(points, seconds, watts), points))


def _no_energy(num_gpus: int, gpus_used: Iterable[int], *, shared: bool) -> str | None:
    if num_gpus not in set(gpus_used):
        sampled = "1 GPU was" if num_gpus == 1 else f"{num_gpus} GPUs were"
        return f"{sampled} sampled, which is not how many the server has"
    return "another server ran on the GPUs" if shared else None


def _mean_within(series: Iterable[tuple[Floats, Floats]], spans: Sequence[Span]) -> float | None:
    within = [values[(start <= seconds) & (seconds <= end)] for seconds, values in series for start, end in spans]
    values = np.concatenate(within) if within else np.array([])
    return float(values.mean()) if len(values) else None


def _series(table: Floats, gpu: float, name: str) -> tuple[Floats, Floats]:
    """Seconds and values of one GPU, in order of time; samples without the value are left out."""
    seconds, values = table[:, 1], table[:, _NAMES.index(name)]
    own = (table[:, 0] == gpu) & ~np.isnan(seconds) & ~np.isnan(values)
    seconds, values = seconds[own], values[own]
    order = np.lexsort((values, seconds))
    return seconds[order], values[order]


def _number(value: object) -> float | None:
    """A finite number from 0; a GPU says neither NaN nor less than nothing."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e18:
        return None
    return float(value)
