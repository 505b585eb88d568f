"""JSON and YAML of others to plain values: what nests too deeply or grows when it is read is no value."""

from __future__ import annotations

import json
import re
from typing import Any, Literal

import yaml

_MOST_DIGITS = 18
MOST_YAML = 100_000
"""Characters; the largest campaign file that was written so far has some 4,000."""
DEEPEST_YAML = 100
NO_YAML = (yaml.YAMLError, RecursionError, ValueError, TypeError, LookupError, AttributeError)
"""What PyYAML raises: of its own where syntax is wrong, Python's for ``!!int ''``, ``!!bool x``, 2026-13-45."""


_YAML = "tag:yaml.org,2002:"
_CORE = (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", [*"tTfF"]),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", [*"-+0123456789"]),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        [*"-+.0123456789"],
    ),
)
"""Kind, pattern and first letters of values without quotes, by the core schema of YAML 1.2 (section 10.3.2)."""


class Reader(yaml.SafeLoader):
    """Values as YAML 1.2 reads them: ``010`` is ten; ``1:30``, ``yes``, ``off`` and ``<<`` are texts.

    PyYAML's own reader is of YAML 1.1, to which these are 8, 90, true, false and an order to merge.
    """

    def construct_int(self, node: yaml.ScalarNode) -> int:
        text = self.construct_scalar(node)
        return int(text, 0) if text.startswith(("0o", "0x")) else int(text)


Reader.yaml_implicit_resolvers = {}
Reader.add_constructor(f"{_YAML}int", Reader.construct_int)


class Writer(yaml.SafeDumper):
    """What both versions of YAML read as what it was: a text that either takes for a number is put into quotes."""


for _kind, _pattern, _first in _CORE:
    for _side in (Reader, Writer):
        _side.add_implicit_resolver(f"{_YAML}{_kind}", re.compile(rf"(?:{_pattern})\Z"), _first)


class TooMuch(ValueError):
    """A text that would take far more time or memory than its length says."""

    def __init__(self, what: str, line: int) -> None:
        self.what = what
        self.line = line
        super().__init__(f"line {line}: {what}")


def from_json(text: str | bytes) -> Any:
    """The value of a JSON text.

    Raises
    ------
    ValueError
        When it is none.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def from_yaml(text: str, *, version: Literal["1.1", "1.2"] = "1.2") -> Any:
    """The value of a YAML text of strings, numbers, lists and mappings; 1.1 is what programs in Python mostly read.

    Raises
    ------
    ValueError
        When it is none, or has aliases: these can blow a short file up to any size.
    """
    try:
        refuse_growth(text)
        return read(text, Reader if version == "1.2" else yaml.SafeLoader)
    except NO_YAML as error:
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from error


def read(text: str, reader: type[yaml.SafeLoader] = Reader) -> Any:
    """The value of a YAML text that `refuse_growth` lets pass; raises whatever `NO_YAML` names."""
    loader = reader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def to_yaml(value: object) -> str:
    """A YAML text of plain values, keys in their order."""
    return str(yaml.dump(value, Dumper=Writer, sort_keys=False))


def whole_number(text: str) -> int | None:
    """The number that a text writes in at most 18 digits, ``None`` for any other text.

    `str.isdigit` is also true of superscripts, which `int` refuses, as it does very many digits.
    """
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None


def refuse_growth(text: str) -> None:
    """Refuse aliases, which can blow a short YAML text up to any size, depth, and more than `MOST_YAML` characters.

    Raises
    ------
    TooMuch
        Which of them, and where.
    yaml.YAMLError
        When it is no YAML.
    """
    if len(text) > MOST_YAML:
        raise TooMuch(f"longer than {MOST_YAML:,} characters", 1)
    depth = 0
    for event in yaml.parse(text, Loader=Reader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if isinstance(event, yaml.AliasEvent):
            raise TooMuch(f"alias *{event.anchor}; write the value out", _line(event))
        if depth > DEEPEST_YAML:
            raise TooMuch("nested too deeply", _line(event))


def _line(event: yaml.Event) -> int:
    return 1 + (event.start_mark.line if event.start_mark is not None else 0)
