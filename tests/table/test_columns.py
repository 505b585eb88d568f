from __future__ import annotations

from datetime import datetime

import pandas as pd
import pytest

from workbench.errors import InputError
from workbench.table.columns import TABLES, Column, describe, frame
from workbench.table.export import PARSED

COLUMNS = (
    Column("name", "str", "", "a name", "here"),
    Column("count", "int", "", "a count", "here"),
    Column("speed", "float", "tok/s", "a speed", "here"),
    Column("on", "bool", "", "a flag", "here"),
    Column("at", "time", "", "a time", "here"),
    Column("steps", "list", "", "a list", "here"),
)


def test_a_frame_has_the_declared_columns_types_and_order() -> None:
    rows = [
        {
            "steps": [1, 2],
            "at": datetime(2026, 1, 5, 10, 0, 1, 500_000),
            "on": True,
            "speed": 1,
            "count": 2,
            "name": "a",
        },
        {},
    ]
    table = frame(COLUMNS, rows)
    assert {name: str(dtype) for name, dtype in table.dtypes.items()} == {
        "name": "str",
        "count": "Int64",
        "speed": "float64",
        "on": "boolean",
        "at": "datetime64[us]",
        "steps": "object",
    }
    first = table.iloc[0]
    assert (first["name"], first["count"], first["speed"], first["on"]) == ("a", 2, 1.0, True)
    assert (first["at"], first["steps"]) == (pd.Timestamp("2026-01-05 10:00:01.5"), [1, 2])
    assert table.iloc[1].isna().all()


def test_an_empty_frame_has_the_same_columns_and_types() -> None:
    assert frame(COLUMNS, []).dtypes.equals(frame(COLUMNS, [{}]).dtypes)


@pytest.mark.parametrize(
    ("name", "value"),
    [("count", 2**63), ("count", 1.5), ("count", "many"), ("speed", "fast"), ("speed", 10**400), ("on", "yes")],
)
def test_a_value_that_a_column_cannot_hold_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(InputError, match=f"column {name}: a value is not of type"):
        frame(COLUMNS, [{name: value}])


def test_a_column_that_is_not_declared_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="undeclared columns: other, sped"):
        frame(COLUMNS, [{"name": "a"}, {"sped": 1.0, "other": 2}])


@pytest.mark.parametrize("name", [*TABLES, "parsed"])
def test_every_column_is_declared_once_with_a_meaning(name: str) -> None:
    columns = TABLES.get(name, PARSED)
    names = [column.name for column in columns]
    assert len(set(names)) == len(names)
    assert all(column.meaning for column in columns)
    # The types are the ones that a frame knows, and the page in docs/ is a Markdown table.
    assert list(frame(columns, []).columns) == names
    assert not any("|" in text or "\n" in text for column in columns for text in (column.meaning, column.source))


def test_units_stand_in_the_names_of_figures() -> None:
    suffixes = {"s": "_s", "tok/s": "_tok_per_s"}
    for columns in TABLES.values():
        for column in columns:
            if column.unit in suffixes:
                assert suffixes[column.unit] in column.name


def test_a_description_is_a_table_in_markdown() -> None:
    assert describe(COLUMNS[1:3]) == (
        "| column | type | unit | meaning | source |\n"
        "|---|---|---|---|---|\n"
        "| `count` | int |  | a count | here |\n"
        "| `speed` | float | tok/s | a speed | here |\n"
    )
