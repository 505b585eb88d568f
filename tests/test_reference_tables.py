"""The published points and costs: they parse, every row names its source, and nothing impossible was typed."""

from __future__ import annotations

import csv
from functools import cache

from workbench.paths import project_root, reference_points_csv

POINT_COLUMNS = """
target drafter training_samples benchmark num_steps eagle_topk num_draft_tokens batch_size engine accept_length
speedup tree notes source
"""
# Published with a speedup above the accept length, which no draft can give at equal cost of a step.
ODD_POINTS = {("Llama-4-Scout", "MT-Bench"), ("Llama-4-Scout", "MATH-500")}


@cache
def points() -> list[dict[str, str]]:
    with reference_points_csv().open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def values(column: str, **wanted: str) -> list[str]:
    return [row[column] for row in points() if all(row[key] == value for key, value in wanted.items())]


def test_reference_points_parse_and_every_row_has_a_source_and_a_figure() -> None:
    assert list(points()[0]) == POINT_COLUMNS.split()
    assert len(points()) == 114
    for row in points():
        assert row["source"]
        assert row["accept_length"] or row["speedup"]
        assert row["tree"] in ("", "true", "false")
        for column in ("training_samples", "num_steps", "eagle_topk", "num_draft_tokens", "batch_size"):
            assert row[column] == "" or int(row[column]) > 0
        assert row["speedup"] == "" or 0 < float(row["speedup"]) < 10
    assert len({tuple(row.values()) for row in points()}) == 114


def test_reference_accept_lengths_are_possible() -> None:
    for row in points():
        if not row["accept_length"]:
            continue
        length = float(row["accept_length"])
        assert length >= 1
        if row["num_steps"]:
            assert length <= int(row["num_steps"]) + 1
        if row["speedup"] and (row["target"], row["benchmark"]) not in ODD_POINTS:
            assert float(row["speedup"]) < length
        if row["eagle_topk"] == "1":
            assert row["tree"] == "false"
            assert row["num_draft_tokens"] in ("", str(int(row["num_steps"]) + 1))


def test_reference_points_against_their_sources() -> None:
    k25 = {"target": "Kimi-K2.5", "benchmark": "MT-Bench"}
    assert values("accept_length", drafter="lightseek MHA, phase 1", **k25) == ["2.624"]
    assert values("accept_length", drafter="lightseek MHA, phase 2", **k25) == ["2.687"]
    assert values("training_samples", drafter="lightseek MHA, phase 2", **k25) == ["600000"]
    assert values("speedup", target="Llama-3.1-8B-Instruct", drafter="yuhuili", benchmark="GSM8K") == ["1.26"]
    trees = values("accept_length", target="Llama-3.1-8B-Instruct", tree="true", drafter="EAGLE-3 paper")
    assert trees == ["6.13", "6.74", "6.23", "6.70", "5.34"]
    maverick = values("accept_length", target="Llama-4-Maverick")
    assert maverick == ["1.83", "2.45", "2.94", "3.26", "3.47", "3.57", "3.62"]


def test_reference_costs() -> None:
    with (project_root() / "data" / "reference_costs.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 16
    for row in rows:
        assert row["source"]
        assert 1 < float(row["r_min"]) <= float(row["r_median"]) <= float(row["r_max"])
    kimi = [row["r_median"] for row in rows if row["target"] == "Kimi-K2-Instruct"]
    assert kimi == ["1.95", "2.28", "2.59", "2.42"]
