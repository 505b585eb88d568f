"""Rows of a declared table to Arrow and back to the DataFrame that `columns.frame` makes of them.

Lists are held as JSON text, each different one once: what many requests share takes no room and is read once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa

from workbench.errors import InputError
from workbench.files import as_text
from workbench.table.columns import Column

_ARROW = {
    "str": pa.large_string(),
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "time": pa.timestamp("us"),
    "list": pa.dictionary(pa.int32(), pa.string()),
}
_PANDAS = {
    pa.large_string(): pd.StringDtype("pyarrow", na_value=np.nan),
    pa.int64(): pd.Int64Dtype(),
    pa.bool_(): pd.BooleanDtype(),
}


def schema_of(columns: Sequence[Column]) -> pa.Schema:
    return pa.schema([(column.name, _ARROW[column.dtype]) for column in columns])


def lists_of(columns: Sequence[Column]) -> list[str]:
    """Names of the columns that hold lists."""
    return [column.name for column in columns if column.dtype == "list"]


def to_arrow(columns: Sequence[Column], rows: Iterable[Mapping[str, object]]) -> pa.Table:
    """The rows with exactly the declared columns.

    Raises
    ------
    InputError
        When a column cannot hold a value; the column is named.
    """
    held = list(rows)
    arrays = []
    for column in columns:
        values = [row.get(column.name) for row in held]
        if column.dtype == "list":
            values = [None if value is None else json.dumps(value) for value in values]
        try:
            arrays.append(_array(values, column))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise InputError(f"column {column.name}: a value is not of type {column.dtype} ({error})") from error
    return pa.Table.from_arrays(arrays, schema=schema_of(columns))


def _array(values: list[object], column: Column) -> pa.Array:
    """JSON may hold half a character, which is no text: it becomes its escape."""
    try:
        return pa.array(values, type=_ARROW[column.dtype])
    except UnicodeEncodeError:
        whole = [as_text(value) if isinstance(value, str) else value for value in values]
        return pa.array(whole, type=_ARROW[column.dtype])


def to_frame(columns: Sequence[Column], table: pa.Table) -> pd.DataFrame:
    """The DataFrame of rows that `to_arrow` held."""
    lists = lists_of(columns)
    shown = table.drop_columns(lists).to_pandas(types_mapper=_PANDAS.get)
    for name in lists:
        shown[name] = pd.Series(_shared_lists(table[name]), index=shown.index, dtype="object")
    ordered: pd.DataFrame = shown[[column.name for column in columns]]
    return ordered


def _shared_lists(texts: pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.object_]]:
    """The lists, equal ones as one object, ``None`` where there is none."""
    whole = texts.combine_chunks() if texts.num_chunks != 1 else texts.chunk(0)
    whole = whole if isinstance(whole, pa.DictionaryArray) else whole.dictionary_encode()
    numbers: dict[object, object] = {}
    known = whole.dictionary.to_pylist()
    lists = np.empty(len(known) + 1, dtype=object)
    for place, text in enumerate(known):
        lists[place] = [numbers.setdefault(item, item) for item in json.loads(text)]
    shared: np.ndarray[tuple[int], np.dtype[np.object_]] = lists[
        whole.indices.fill_null(len(known)).to_numpy(zero_copy_only=False)
    ]
    return shared
