from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from notebook_files import code, markdown, write_notebook

from workbench.errors import SpecError
from workbench.notebook import Parameter, check_parameters, parameters_of


def notebook(folder: Path, source: str) -> Path:
    return write_notebook(folder / "n.ipynb", markdown("# Title"), code(source, "parameters"), code("print(1)"))


SOURCE = """\
campaign: str = "kimi # k25"  # which campaign
limit: int | None = None      # None: all runs
kind: Literal["a", "b"] = "a"
names: 'list[str]' = ["x"]
share: float = 0.5
on: bool = True
free = {"a": 1}
shift: Optional[int] = -3
many: list[str] = [
    "one",
    "two",
]  # over several lines
"""


def test_reads_what_papermill_drops(tmp_path: Path) -> None:
    # papermill 2.7.0 loses the unions, the Literal, and cuts the first default at its `#`.
    assert parameters_of(notebook(tmp_path, SOURCE)) == [
        Parameter("campaign", "str", "kimi # k25", "which campaign"),
        Parameter("limit", "int | None", None, "None: all runs"),
        Parameter("kind", "Literal['a', 'b']", "a", None),
        Parameter("names", "list[str]", ["x"], None),
        Parameter("share", "float", 0.5, None),
        Parameter("on", "bool", True, None),
        Parameter("free", "dict", {"a": 1}, None),
        Parameter("shift", "Optional[int]", -3, None),
        Parameter("many", "list[str]", ["one", "two"], "over several lines"),
    ]


def test_a_notebook_without_parameters(tmp_path: Path) -> None:
    path = write_notebook(tmp_path / "n.ipynb", code("x = 1"))
    assert parameters_of(path) == []
    assert check_parameters(path, {}) == {}
    with pytest.raises(SpecError, match="unknown parameter 'x'"):
        check_parameters(path, {"x": 1})


def test_given_values_replace_defaults(tmp_path: Path) -> None:
    path = notebook(tmp_path, "a: int = 1\nb: float = 2.0\nc: str = 'x'")
    assert check_parameters(path, {"b": 3}) == {"a": 1, "b": 3, "c": "x"}


def test_a_misspelt_name_is_refused_with_the_nearest(tmp_path: Path) -> None:
    path = notebook(tmp_path, "campaign: str = 'x'\nn_boot: int = 5")
    with pytest.raises(SpecError) as caught:
        check_parameters(path, {"campain": "y", "zzz": 1})
    assert "unknown parameter 'campain' (did you mean 'campaign'?)" in caught.value.what
    assert "unknown parameter 'zzz'" in caught.value.what
    assert caught.value.where == str(path)
    assert "campaign: str, n_boot: int" in str(caught.value.next_step)


@pytest.mark.parametrize(
    ("annotation", "default", "value"),
    [
        ("int", "1", "2"),
        ("int", "1", 2.5),
        ("int", "1", True),
        ("str", "'a'", 1),
        ("bool", "True", 1),
        ("int | None", "None", "none"),
        ("Literal['a', 'b']", "'a'", "c"),
        ("list[str]", "[]", ["a", 1]),
        ("dict[str, float]", "{}", {"a": "b"}),
        ("Union[int, str]", "1", 1.5),
        ("float", "1.0", float("nan")),
        ("float", "1.0", float("inf")),
        ("int", "1", np.int64(3)),
        ("object", "None", Path("x")),
        ("object", "None", (1, 2)),
        ("object", "None", {1: 2}),
    ],
)
def test_a_value_of_a_wrong_type_is_refused(tmp_path: Path, annotation: str, default: str, value: object) -> None:
    path = notebook(tmp_path, f"x: {annotation} = {default}")
    with pytest.raises(SpecError, match="x: "):
        check_parameters(path, {"x": value})


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        ("float | None", 3),
        ("list[int | str]", [1, "a"]),
        ("typing.Optional[str]", None),
        ("dict[str, list[int]]", {"a": [1]}),
        ("Any", {"a": [None, True, 1.5]}),
        ("'int | None'", None),
    ],
)
def test_values_of_the_right_type_pass(tmp_path: Path, annotation: str, value: object) -> None:
    path = notebook(tmp_path, f"x: {annotation} = {value!r}")
    assert check_parameters(path, {"x": value}) == {"x": value}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("a: int = 1; b: int = 2", "line 1 of the parameters cell"),
        ("import os", "line 1 of the parameters cell"),
        ("a: int = 1\nb: str = str(a)", "line 2 of the parameters cell"),
        ("a = b = 1", "line 1 of the parameters cell"),
        ("a: int", "line 1 of the parameters cell"),
        ("a: int = 'x'", "default of a: 'x' is not of type int"),
        ("a: Path = 'x'", "'Path' is not a type"),
        ("a: list[Path] = []", "not a type"),
        ("a = (1, 2)", "not a plain JSON value"),
        ("a: int = 1\na: int = 2", "assigned twice"),
        ("a: int = ", "invalid syntax"),
    ],
)
def test_a_parameters_cell_that_breaks_the_rules(tmp_path: Path, source: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parameters_of(notebook(tmp_path, source))


def test_two_parameters_cells(tmp_path: Path) -> None:
    path = write_notebook(tmp_path / "n.ipynb", code("a = 1", "parameters"), code("b = 1", "parameters"))
    with pytest.raises(SpecError, match="two cells"):
        parameters_of(path)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"cells": 3}', '{"worksheets": []}', "[" * 100_000])
def test_a_file_that_is_no_notebook(tmp_path: Path, text: str) -> None:
    path = tmp_path / "n.ipynb"
    path.write_text(text)
    with pytest.raises(SpecError, match="not a notebook"):
        parameters_of(path)
    with pytest.raises(SpecError, match="cannot be read"):
        parameters_of(tmp_path / "absent.ipynb")


def test_source_may_be_a_list_of_lines(tmp_path: Path) -> None:
    cell = code("", "parameters") | {"source": ["a: int = 1  # one\n", "b: int = 2"]}
    assert [p.name for p in parameters_of(write_notebook(tmp_path / "n.ipynb", cell))] == ["a", "b"]
