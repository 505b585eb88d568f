"""Small tools that every room of the analysis uses: typed result tables, scalars that may be missing, resampling."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

Row = dict[str, Any]
Floats = npt.NDArray[np.float64]


def typed(rows: Iterable[Mapping[str, object]], columns: Mapping[str, str]) -> pd.DataFrame:
    """A table with exactly these columns and pandas dtypes, also when there are no rows."""
    held = list(rows)
    return pd.DataFrame(
        {name: pd.Series([row.get(name) for row in held], dtype=dtype) for name, dtype in columns.items()},
        columns=list(columns),
    )


def records(frame: pd.DataFrame) -> list[Row]:
    """The rows as dicts, ``None`` for whatever is missing."""
    names = [str(name) for name in frame.columns]
    rows = zip(*(series.tolist() for _, series in frame.items()), strict=True)
    missing = frame.isna().to_numpy().tolist()
    return [
        {name: None if gone else value for name, value, gone in zip(names, values, row, strict=True)}
        for values, row in zip(rows, missing, strict=True)
    ]


def most(frame: pd.DataFrame, column: str) -> Row:
    """The row with the largest value of a column, the first of equals, ``None`` for whatever is missing in it."""
    return records(frame.sort_values(column, ascending=False, kind="stable").head(1))[0]


def least(frame: pd.DataFrame, column: str) -> Row:
    """The row with the smallest value of a column, likewise."""
    return records(frame.sort_values(column, kind="stable").head(1))[0]


def grouped(rows: Iterable[Row], by: Sequence[str]) -> dict[tuple[object, ...], list[Row]]:
    """Rows that share these values, in order of appearance."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in by), []).append(row)
    return groups


def in_time(runs: Sequence[Row]) -> list[Row]:
    """Runs in the order in which they were made; as they are where that is not known of all."""
    moments = [run["recorded_at"] for run in runs]
    return list(runs) if None in moments else sorted(runs, key=lambda run: str(run["recorded_at"]))


def known(value: object) -> bool:
    """Whether a scalar is there: not None, NaN, NA or NaT."""
    return value is not None and not bool(pd.isna(value))  # type: ignore[call-overload]


def number(value: object) -> float | None:
    """A scalar as a float, ``None`` where it is missing."""
    return float(value) if known(value) else None  # type: ignore[arg-type]


def speed_of(value: object) -> float | None:
    """A speed in tok/s; one that is not above 0 and finite was not measured."""
    speed = number(value)
    return speed if speed is not None and 0 < speed < math.inf else None


def same_where_known(left: object, right: object) -> bool:
    """False only when both are known and differ."""
    return not (known(left) and known(right)) or bool(left == right)


def group_ids(frame: pd.DataFrame, by: Sequence[str]) -> tuple[npt.NDArray[np.intp], pd.DataFrame]:
    """Group number of every row, in order of appearance, and the table of keys: row i is group i."""
    names = list(by)
    held = frame[names]
    # Rows of a group mostly stand together: one row of each stretch is enough to tell the groups.
    begins = np.ones(len(held), dtype=bool)
    before, after = held.iloc[:-1].reset_index(drop=True), held.iloc[1:].reset_index(drop=True)
    begins[1:] = ~np.logical_and.reduce(
        [after[name].eq(before[name]).fillna(False).to_numpy(dtype=bool) for name in names]
    )
    stretches = held[begins]
    own = np.asarray(stretches.groupby(names, sort=False, dropna=False).ngroup(), dtype=np.intp)
    return own[np.cumsum(begins) - 1], stretches.drop_duplicates().reset_index(drop=True)


def positions(ids: npt.NDArray[np.intp], num_groups: int) -> list[npt.NDArray[np.intp]]:
    """Places of the rows of each group, in order."""
    order = np.argsort(ids, kind="stable")
    return np.split(order, np.cumsum(np.bincount(ids, minlength=num_groups))[:-1]) if num_groups else []


def means_by(groups: Floats, values: Floats) -> dict[int, float]:
    """The mean of the known values of each group, by its number, ascending; groups without any are left out."""
    known = ~(np.isnan(groups) | np.isnan(values))
    means = pd.Series(values[known]).groupby(groups[known].astype(np.int64)).mean()
    return dict(zip(means.index.tolist(), means.tolist(), strict=True))


@lru_cache(maxsize=8)  # runs of one campaign mostly share their numbers of prompts and passes
def resample_weights(clusters: int, n_boot: int, seed: int) -> Floats:
    """How often each cluster is drawn in each bootstrap replicate, shape (n_boot, clusters); not to be written to."""
    rng = np.random.default_rng(seed)
    weights = rng.multinomial(clusters, np.full(clusters, 1.0 / clusters), size=n_boot).astype(np.float64)
    weights.flags.writeable = False
    return weights


def interval(replicates: Floats) -> tuple[Floats, Floats]:
    """95 % percentile interval over the first axis, NaN where no replicate has a value; others are left out."""
    if replicates.size and np.isfinite(replicates).all():
        low, high = np.percentile(replicates, [2.5, 97.5], axis=0)
    else:
        kept = np.where(np.isfinite(replicates), replicates, np.nan)
        if not np.isfinite(kept).any(axis=0).all():
            nothing = np.full(kept.shape[1:], np.nan)
            return nothing, nothing
        low, high = np.nanpercentile(kept, [2.5, 97.5], axis=0)
    return np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
