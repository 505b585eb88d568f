"""Decode lines as arrays: where thousands of logs are judged, a table for every figure takes longer than the figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial

import numpy as np
import numpy.typing as npt
import pandas as pd

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

Read = Callable[[str], Floats]


class Lines:
    """The columns of the table of windows that hold numbers or flags, each read when it is first asked for."""

    def __init__(self, size: int, read: Read) -> None:
        self._size, self._read = size, read
        self._held: dict[str, Floats] = {}

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, name: str) -> Floats:
        """A column, NaN where a value is missing; a flag is 1 or 0."""
        if name not in self._held:
            self._held[name] = self._read(name)
        return self._held[name]

    def flag(self, name: str) -> Flags:
        """Where a flag is set; a missing one is not."""
        return np.asarray(self[name] == 1, dtype=np.bool_)

    def only(self, chosen: Flags | npt.NDArray[np.intp]) -> Lines:
        """The lines of a mask, or those at some places in their order."""
        size = int(chosen.sum()) if chosen.dtype == np.bool_ else len(chosen)
        return Lines(size, lambda name: self[name][chosen])


def lines_of(windows: pd.DataFrame) -> Lines:
    """The same of a table of windows."""
    return Lines(len(windows), partial(_of_frame, windows))


def lines_in(columns: Callable[[], Mapping[str, Floats] | Lines], size: int) -> Lines:
    """The same of columns that are read together, when the first of them is asked for."""
    once = cache(columns)
    return Lines(size, lambda name: once()[name])


def _of_frame(windows: pd.DataFrame, name: str) -> Floats:
    return windows[name].to_numpy(dtype=np.float64, na_value=np.nan)
