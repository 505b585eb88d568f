from __future__ import annotations

import pytest

from workbench.parse.arguments import literal, split_arguments
from workbench.parse.server_log import parse_log

STAMP = "[2026-01-05 10:00:00] "


def split(text: str) -> dict[str, str]:
    return split_arguments(text, 0)[0]


def test_dataclass_form() -> None:
    text = r"model_path='/m, a=b', bs=[1, 2], nested=Config(a=1, b='x)'), quote=\"it's\", empty='', last=None)".replace(
        r"\"", '"'
    )
    arguments, closed = split_arguments(text, 0)
    assert closed
    assert arguments == {
        "model_path": "'/m, a=b'",
        "bs": "[1, 2]",
        "nested": "Config(a=1, b='x)')",
        "quote": '"it\'s"',
        "empty": "''",
        "last": "None",
    }


def test_dict_form() -> None:
    arguments, closed = split_arguments("'model_path': '/m: x', 'bs': {'a': [1, 2]}, 'n': None} rest", 0)
    assert closed
    assert arguments == {"model_path": "'/m: x'", "bs": "{'a': [1, 2]}", "n": "None"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1, b=1", {"a": "1"}),  # b may be 10
        ("a=1, b='x", {"a": "1"}),
        ("a=1, b=[1, 2", {"a": "1"}),
        ("a=1,", {"a": "1"}),
        ("a=1, 7, b=2)", {"a": "1", "b": "2"}),
        ("a=1, a=2)", {"a": "1"}),
        ("", {}),
    ],
)
def test_odd_and_cut_texts(text: str, expected: dict[str, str]) -> None:
    assert split(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("None", None),
        ("True", True),
        ("-12", -12),
        ("0.5", 0.5),
        ("'a b'", "a b"),
        ('"it\'s"', "it's"),
        ("[1, 'x']", [1, "x"]),
        ("{'a': None}", {"a": None}),
        ("Config(a=1)", "Config(a=1)"),
        ("__import__('os').system('true')", "__import__('os').system('true')"),
        ("<Enum.X: 1>", "<Enum.X: 1>"),
        (r"'\d'", r"\d"),  # an odd escape must not warn
        ("{[]: 1}", "{[]: 1}"),
        ("[" * 5000, "[" * 5000),
        ("9" * 5000, "9" * 5000),
        ("1" + "+1" * 30_000, "1" + "+1" * 30_000),
        ("inf", "inf"),
    ],
)
def test_literal(text: str, expected: object) -> None:
    assert literal(text) == expected


@pytest.mark.parametrize(
    "line",
    [
        "server_args=ServerArgs(model_path='/m', tp_size=8, speculative_algorithm='EAGLE3', odd=object(<x>), port=3)",
        "server_args={'model_path': '/m', 'tp_size': 8, 'speculative_algorithm': 'EAGLE3', 'odd': <x>, 'port': 3}",
    ],
)
def test_both_forms_reach_the_facts(line: str) -> None:
    facts = parse_log(STAMP + line + "\n").facts
    expected = {"model_path": "/m", "tp_size": 8, "speculative_algorithm": "EAGLE3", "port": 3}
    assert {name: facts.server_args.get(name) for name in expected} == expected
    assert isinstance(facts.server_args["odd"], str)
    assert facts.server_args_line == 1 and facts.server_starts == 1


def test_cut_line_of_arguments_is_counted() -> None:
    log = parse_log(STAMP + "server_args=ServerArgs(model_path='/m', speculative_num_steps=1")
    assert log.facts.server_args == {"model_path": "/m"}
    assert log.events[0].truncated and log.counts.truncated == 1
