"""YAML as version 1.2 of the language reads it; expected values are those of its core schema (section 10.3.2)."""

from __future__ import annotations

import math
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from workbench.plain import from_yaml, to_yaml, whole_number

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20)
LOOK_ALIKE = st.from_regex(r"[-+]?[0-9_.:xob]{1,8}(?:[eE][-+]?[0-9]{1,3})?", fullmatch=True)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # YAML 1.1 takes these for 8, 90, 10, true, false, a date, a text and a text.
        ("010", 10),
        ("1:30", "1:30"),
        ("1_0", "1_0"),
        ("yes", "yes"),
        ("off", "off"),
        ("2026-11-30", "2026-11-30"),
        ("1e-4", 0.0001),
        ("0o17", 15),
        # These are alike in both.
        ("0x1F", 31),
        ("-12", -12),
        ("1.5", 1.5),
        ("-.inf", -math.inf),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("", None),
        ("'010'", "010"),
        ("0b1x", "0b1x"),
        ("{<<: {a: 1}}", {"<<": {"a": 1}}),
    ],
)
def test_values_without_quotes(text: str, value: object) -> None:
    found = from_yaml(text)
    assert (found, type(found)) == (value, type(value))


def test_what_others_read_as_version_1_1_can_be_read_so() -> None:
    text = "[010, 1:30, yes, 1e-4]"
    assert from_yaml(text, version="1.1") == [8, 90, True, "1e-4"] == yaml.safe_load(text)


@given(st.dictionaries(st.text(max_size=8) | LOOK_ALIKE, SCALARS | LOOK_ALIKE | st.lists(SCALARS), max_size=4))
def test_what_is_written_is_read_back_by_both_versions(content: dict[str, Any]) -> None:
    assert from_yaml(to_yaml(content)) == content
    assert from_yaml(to_yaml(content), version="1.1") == content


def test_names_that_would_be_numbers_are_quoted() -> None:
    """A hash may look like 12e45678, which is infinity to 1.2 and a text to PyYAML's own writer."""
    assert to_yaml({"a": "12e45678", "b": "0o7", "c": "yes", "d": "plain"}) == (
        "a: '12e45678'\nb: '0o7'\nc: 'yes'\nd: plain\n"
    )


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("017", 17),
        ("9" * 18, 10**18 - 1),
        ("9" * 19, None),
        ("²", None),
        ("٣", None),
        ("", None),
        ("-1", None),
    ],
)
def test_whole_numbers(text: str, number: int | None) -> None:
    assert whole_number(text) == number
