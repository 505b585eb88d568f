"""JSON and YAML of others to plain values: what nests too deeply or grows when it is read is no value."""

from __future__ import annotations

import json
from typing import Any

import yaml

MOST_YAML = 100_000
"""Characters; the largest campaign file that was written so far has some 4,000."""
DEEPEST_YAML = 100
NO_YAML = (yaml.YAMLError, RecursionError, ValueError, TypeError, LookupError, AttributeError)
"""What PyYAML raises: of its own where syntax is wrong, Python's for ``!!int ''``, ``!!bool x``, 2026-13-45."""


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


def from_yaml(text: str) -> Any:
    """The value of a YAML text of strings, numbers, lists and mappings.

    Raises
    ------
    ValueError
        When it is none, or has aliases: these can blow a short file up to any size.
    """
    try:
        refuse_growth(text)
        return yaml.safe_load(text)
    except NO_YAML as error:
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from error


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
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if isinstance(event, yaml.AliasEvent):
            raise TooMuch(f"alias *{event.anchor}; write the value out", _line(event))
        if depth > DEEPEST_YAML:
            raise TooMuch("nested too deeply", _line(event))


def _line(event: yaml.Event) -> int:
    return 1 + (event.start_mark.line if event.start_mark is not None else 0)
