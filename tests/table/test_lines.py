from __future__ import annotations

import numpy as np
import pytest

from workbench.table.columns import WINDOWS, frame
from workbench.table.lines import Lines, lines_in, lines_of


@pytest.fixture
def lines() -> Lines:
    rows = [
        {"running_req": 8, "accept_len": 2.5, "cuda_graph": True},
        {"running_req": None, "accept_len": None, "cuda_graph": None},
        {"running_req": 1, "accept_len": 1.0, "cuda_graph": False},
    ]
    return lines_of(frame(WINDOWS, rows))


def test_what_is_missing_is_nan_and_no_flag(lines: Lines) -> None:
    assert len(lines) == 3
    np.testing.assert_array_equal(lines["running_req"], [8.0, np.nan, 1.0])
    np.testing.assert_array_equal(lines["accept_len"], [2.5, np.nan, 1.0])
    np.testing.assert_array_equal(lines["cuda_graph"], [1.0, np.nan, 0.0])
    assert lines.flag("cuda_graph").tolist() == [True, False, False]


def test_some_lines_by_mask_and_by_place(lines: Lines) -> None:
    masked, placed = lines.only(np.array([True, False, True])), lines.only(np.array([2, 0, 0]))
    assert (len(masked), masked["running_req"].tolist()) == (2, [8.0, 1.0])
    assert (len(placed), placed["running_req"].tolist()) == (3, [1.0, 8.0, 8.0])


def test_columns_that_come_together_are_read_once_and_only_when_asked_for() -> None:
    reads = []

    def columns() -> dict[str, np.ndarray]:
        reads.append(1)
        return {"a": np.ones(2), "b": np.zeros(2)}

    lines = lines_in(columns, 2)
    assert (len(lines), len(reads)) == (2, 0)
    assert (lines["a"].tolist(), lines["b"].tolist(), len(reads)) == ([1.0, 1.0], [0.0, 0.0], 1)
