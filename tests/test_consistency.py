"""One name for one thing: from flag to column to table to label of a plot to glossary."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

from workbench.table.columns import TABLES
from workbench.words import WORDS, word_of

PACKAGE = Path(__file__).parents[1] / "workbench"
COLUMNS = {column.name for columns in TABLES.values() for column in columns}
# Headings that tell the part a column plays in one table, where its usual name would not.
APART = {
    # Of a shorter chain: by a longer one's run, and by its own.
    "accept_length": {"accept length", "expected", "measured"},
    # One run, several that a row stands for, the run that is expected from.
    "label": {"run", "runs", "from"},
    "run_id": {"baseline", "served by", "measured_by"},
    "num_steps": {"steps", "longest"},
    "max_concurrency": {"concurrency", "measured_at"},
}


def headings() -> dict[str, set[str]]:
    """By column, the headings that the tables of pages give it."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted((PACKAGE / "analysis" / "views").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            pairs = zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ()
            for key, value in pairs:
                if isinstance(key, ast.Constant) and isinstance(value, ast.Constant) and key.value in COLUMNS:
                    found[str(key.value)].add(str(value.value))
    return found


def axis_labels() -> set[str]:
    """Labels of axes that are written out in the plots."""
    calls = [
        node
        for path in sorted((PACKAGE / "plot").glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    ]
    labels = [call.args[0] for call in calls if call.func.attr in ("set_xlabel", "set_ylabel") and call.args]
    return {" ".join(label.value.split()) for label in labels if isinstance(label, ast.Constant) and label.value}


def test_a_column_has_one_heading_in_all_tables() -> None:
    found = headings()
    assert len(found) > 25
    assert {name: said for name, said in found.items() if len(said) > 1 and said != APART.get(name)} == {}


@pytest.mark.parametrize(
    ("column", "heading"),
    [
        ("max_concurrency", "concurrency"),
        ("num_draft_tokens", "draft tokens"),
        ("num_steps", "steps"),
        ("accept_length", "accept length"),
        ("output_tok_per_s", "output tok/s"),
        ("decode_tok_per_s", "decode tok/s"),
        ("drafter", "drafter"),
    ],
)
def test_headings_are_words_of_the_glossary_for_the_same_column(column: str, heading: str) -> None:
    word = word_of(heading)
    assert word is not None and word.column == column
    if column != "accept_length":
        assert heading in headings()[column]


def test_axes_are_called_by_words_of_the_glossary() -> None:
    labels = axis_labels()
    assert {"concurrency (requests in flight)", "draft tokens, root included"} <= labels
    for name in ("accept length", "speedup", "break-even", "concurrency", "draft tokens"):
        assert [label for label in labels if label.startswith(name)], name
    # Nothing else is used for what has a name.
    others = ("acceptance length", "batch size", "num draft", "mean accepted", "tau", "at once", "throughput")
    assert [label for label in labels if any(other in label.lower() for other in others)] == []


def test_every_column_of_the_glossary_exists() -> None:
    assert [word.name for word in WORDS if word.column is not None and word.column not in COLUMNS] == []
