"""Rows of the table of windows kept as columns: a row is a kilobyte as a dict, and some 120 bytes in columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench.parse.digits import MISSING
from workbench.table.columns import WINDOWS, Column

Array = npt.NDArray[Any]
Row = dict[str, object]

_ROWS = 1 << 14
_DTYPES: Mapping[str, tuple[str, object]] = {
    "int": ("int64", MISSING),
    "float": ("float64", np.nan),
    "bool": ("int8", -1),
    "time": ("datetime64[us]", np.datetime64("NaT", "us")),
}
_KEPT = {column.name: _DTYPES[column.dtype] for column in WINDOWS if column.dtype in _DTYPES}


class Pieces:
    """Columns of WINDOWS that are no text. What is missing is `MISSING`, NaN, NaT or, of a flag, -1."""

    def __init__(self) -> None:
        self._parts: dict[str, list[Array]] = {name: [] for name in _KEPT}
        self._sizes: list[int] = []
        self._rows: list[Row] = []

    def add(self, size: int, columns: Mapping[str, Array]) -> None:
        """Rows as columns; columns that are not given are missing."""
        self._settle()
        self._add(size, columns)

    def append(self, row: Row) -> None:
        """One row; what is missing is None."""
        self._rows.append(row)
        if len(self._rows) == _ROWS:
            self._settle()

    def _settle(self) -> None:
        rows, self._rows = self._rows, []
        names = dict.fromkeys(name for row in rows for name in row)
        if rows:
            self._add(len(rows), {name: array_of(name, [row.get(name) for row in rows]) for name in names})

    def _add(self, size: int, columns: Mapping[str, Array]) -> None:
        self._sizes.append(size)
        for name, parts in self._parts.items():
            # Of a column without any value only the length is kept.
            parts.append(columns[name] if name in columns else _nothing(name))

    def table(self, **texts: str) -> pd.DataFrame:
        """The rows as a table, with the columns of text the same in all; they are not kept."""
        self._settle()
        index = pd.RangeIndex(sum(self._sizes))
        series = {
            column.name: self._series(column, index)
            if column.name in _KEPT
            else pd.Series(texts.get(column.name, ""), index=index, dtype="str")
            for column in WINDOWS
        }
        self._sizes.clear()
        return pd.DataFrame(series, index=index, copy=False)

    def _series(self, column: Column, index: pd.RangeIndex) -> pd.Series:
        parts, self._parts[column.name] = self._parts[column.name], []
        whole = [
            part if len(part) == size else part.repeat(size) for part, size in zip(parts, self._sizes, strict=True)
        ]
        values = np.concatenate(whole) if whole else np.zeros(0, _KEPT[column.name][0])
        if column.dtype == "int":
            return pd.Series(pd.arrays.IntegerArray(values, values == MISSING), index=index, copy=False)
        if column.dtype == "bool":
            return pd.Series(pd.arrays.BooleanArray(values == 1, values < 0), index=index, copy=False)
        return pd.Series(values, index=index, copy=False)


def array_of(name: str, values: list[object]) -> Array:
    """The values of a column, ``None`` where one is missing."""
    dtype, nothing = _KEPT[name]
    return np.array([nothing if value is None else value for value in values], dtype)


def _nothing(name: str) -> Array:
    dtype, nothing = _KEPT[name]
    return np.full(1, nothing, dtype)
