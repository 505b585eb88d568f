"""The parameters cell of a notebook, read and checked without starting a kernel.

One assignment a line, a literal as default, an annotation, a trailing comment as help::

    campaign: str = "kimi_k25"  # which campaign
    limit: int | None = None    # None: all runs

The cell is read with ``ast``: papermill's own reader drops ``str | None``, ``Literal[...]`` and defaults that hold a
``#``, and papermill only warns about a name it does not know.
"""

from __future__ import annotations

import ast
import difflib
import io
import json
import math
import operator
import tokenize
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError

from workbench.errors import SpecError
from workbench.files import read_small

TAG = "parameters"
_PLAIN: dict[str, object] = {
    "str": str, "int": int, "float": float, "bool": bool, "list": list, "dict": dict, "object": object, "Any": object,
}  # fmt: skip
_GENERIC: dict[str, Any] = {"list": list, "List": list, "dict": dict, "Dict": dict}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One line of the parameters cell. ``type`` is the annotation as written, or the type of the default."""

    name: str
    type: str
    default: object
    help: str | None = None


def parameters_of(path: Path) -> list[Parameter]:
    """The parameters of a notebook in order; empty when it has no cell tagged ``parameters``.

    Raises
    ------
    SpecError
        When the file is no notebook, has two such cells, or a line is not a typed assignment of a literal.
    """
    sources = [_source(cell) for cell in _read_cells(path) if _is_parameters(cell)]
    if len(sources) > 1:
        raise SpecError("two cells are tagged `parameters`", where=path, next_step="keep one")
    return _read_source(sources[0], path) if sources else []


def check_parameters(path: Path, given: Mapping[str, object]) -> dict[str, object]:
    """All parameters of a run: the notebook's defaults, replaced by what is given.

    Raises
    ------
    SpecError
        Naming every unknown name (with the nearest known one) and every value of a wrong type.
    """
    known = {parameter.name: parameter for parameter in parameters_of(path)}
    faults = [
        _unknown(name, known) if name not in known else _fault(known[name], value) for name, value in given.items()
    ]
    found = [fault for fault in faults if fault]
    if found:
        listing = ", ".join(f"{p.name}: {p.type}" for p in known.values()) or "none"
        raise SpecError("; ".join(found), where=path, next_step=f"this notebook's parameters: {listing}")
    return {name: given.get(name, parameter.default) for name, parameter in known.items()}


# --- the cell ----------------------------------------------------------------------------------------------------


def _read_cells(path: Path) -> list[dict[str, Any]]:
    try:
        notebook = json.loads(read_small(path))
    except OSError as error:
        raise SpecError(f"cannot be read ({error.strerror or error})", where=path) from error
    except (ValueError, RecursionError) as error:
        raise SpecError(f"not a notebook ({error})", where=path) from error
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        raise SpecError("not a notebook of format 4 (no cells)", where=path)
    return cells


def _is_parameters(cell: Mapping[str, Any]) -> bool:
    metadata = cell.get("metadata")
    tags = metadata.get("tags") if isinstance(metadata, dict) else None
    return cell.get("cell_type") == "code" and isinstance(tags, list) and TAG in tags


def _source(cell: Mapping[str, Any]) -> str:
    source = cell.get("source", "")
    return "".join(map(str, source)) if isinstance(source, list) else str(source)


def _read_source(source: str, path: Path) -> list[Parameter]:
    try:
        body = ast.parse(source).body
    except SyntaxError as error:
        raise SpecError(f"line {error.lineno} of the parameters cell: {error.msg}", where=path) from error
    except (ValueError, RecursionError, MemoryError) as error:  # a NUL, half a character, thousands of brackets
        raise SpecError(f"the parameters cell is no Python ({error})", where=path) from error
    comments = _comments(source)
    parameters: list[Parameter] = []
    used: set[int] = set()
    for statement in body:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue  # a docstring
        parameter = _parameter(statement, comments)
        if parameter is None or statement.lineno in used:
            raise SpecError(
                f"line {statement.lineno} of the parameters cell is not one typed assignment of a literal",
                where=path,
                next_step='write it as `name: type = "default"  # help`',
            )
        used.update(range(statement.lineno, (statement.end_lineno or statement.lineno) + 1))
        parameters.append(parameter)
    _check_cell(parameters, path)
    return parameters


def _parameter(statement: ast.stmt, comments: Mapping[int, str]) -> Parameter | None:
    """``None`` when the statement is anything but ``name[: type] = literal``."""
    target: ast.expr
    annotation: ast.expr | None = None
    if isinstance(statement, ast.AnnAssign):
        target, annotation = statement.target, statement.annotation
    elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
    else:
        return None
    if not isinstance(target, ast.Name) or statement.value is None:
        return None
    try:
        default = ast.literal_eval(statement.value)
    except (ValueError, TypeError, RecursionError, MemoryError):
        return None
    inferred = "object" if default is None else type(default).__name__
    return Parameter(
        name=target.id,
        type=inferred if annotation is None else _spelling(annotation),
        default=default,
        help=comments.get(statement.end_lineno or statement.lineno),
    )


def _spelling(annotation: ast.expr) -> str:
    quoted = isinstance(annotation, ast.Constant) and isinstance(annotation.value, str)
    return str(cast(ast.Constant, annotation).value) if quoted else ast.unparse(annotation)


def _comments(source: str) -> dict[int, str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {
        token.start[0]: text
        for token in tokens
        if token.type == tokenize.COMMENT and (text := token.string.lstrip("#").strip())
    }


def _check_cell(parameters: list[Parameter], path: Path) -> None:
    names = [parameter.name for parameter in parameters]
    for parameter in parameters:
        if names.count(parameter.name) > 1:
            raise SpecError(f"parameter {parameter.name!r} is assigned twice", where=path)
        fault = _fault(parameter, parameter.default)
        if fault:
            raise SpecError(f"default of {fault}", where=path)


# --- one value ---------------------------------------------------------------------------------------------------


def _unknown(name: str, known: Mapping[str, Parameter]) -> str:
    nearest = difflib.get_close_matches(name, known, n=1)
    return f"unknown parameter {name!r}" + (f" (did you mean {nearest[0]!r}?)" if nearest else "")


def _fault(parameter: Parameter, value: object) -> str | None:
    """What is wrong with a value, ``None`` when nothing is."""
    if not _json_plain(value):
        return f"{parameter.name}: {value!r} is not a plain JSON value ({type(value).__name__})"
    try:
        wanted = _type_of(ast.parse(parameter.type, mode="eval").body)
    except (SyntaxError, KeyError, TypeError, ValueError):
        return f"{parameter.name}: {parameter.type!r} is not a type that parameters can have"
    try:
        TypeAdapter(cast(Any, wanted), config=ConfigDict(strict=True)).validate_python(value)
    except ValidationError:
        return f"{parameter.name}: {value!r} is not of type {parameter.type}"
    return None


def _json_plain(value: object) -> bool:
    """Exactly what JSON can hold. Papermill would turn anything else (a numpy integer, a path) into a string."""
    if value is None or type(value) in (str, int, bool):
        return True
    if type(value) is float:
        return math.isfinite(value)
    if type(value) is list:
        return all(map(_json_plain, value))
    return type(value) is dict and all(type(key) is str for key in value) and all(map(_json_plain, value.values()))


def _type_of(node: ast.expr) -> object:
    """The type that an annotation means; KeyError or TypeError for one that a parameter cannot have."""
    if isinstance(node, ast.Constant):
        return type(None) if node.value is None else _type_of(ast.parse(str(node.value), mode="eval").body)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return operator.or_(cast(Any, _type_of(node.left)), _type_of(node.right))
    if isinstance(node, ast.Subscript):
        return _generic_type(_last_name(node.value), node.slice)
    return _PLAIN[_last_name(node)]


def _generic_type(name: str, inner: ast.expr) -> object:
    parts = list(inner.elts) if isinstance(inner, ast.Tuple) else [inner]
    if name == "Literal":
        return cast(Any, Literal)[tuple(ast.literal_eval(part) for part in parts)]
    types = [_type_of(part) for part in parts]
    if name == "Optional":
        return cast(Any, types[0]) | None
    if name == "Union":
        joined: Any = types[0]
        for other in types[1:]:
            joined = joined | other
        return joined
    return _GENERIC[name][tuple(types)]


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Name):
        return node.id
    raise TypeError(ast.unparse(node))
