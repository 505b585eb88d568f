import numpy as np
import pytest
from analysis_tables import runs, speculative

from workbench.analysis.frames import (
    group_ids,
    grouped,
    interval,
    known,
    number,
    records,
    resample_weights,
    same_where_known,
    typed,
)


def test_records_are_plain_values_with_none_for_what_is_missing() -> None:
    row = records(runs(speculative(num_steps=3, accept_length=2.5, cuda_graph=True)))[0]
    assert (row["num_steps"], row["accept_length"], row["cuda_graph"]) == (3, 2.5, True)
    assert row["eagle_topk"] is None
    assert row["decode_tok_per_s"] is None
    assert row["machine"] is None
    assert row["steps_histogram"] is None
    assert records(runs()) == []


def test_rows_are_grouped_in_order_with_missing_values_together() -> None:
    rows = [{"a": 2, "n": 0}, {"a": None, "n": 1}, {"a": 2, "n": 2}, {"a": None, "n": 3}]
    found = grouped(rows, ["a"])
    assert [(key, [row["n"] for row in held]) for key, held in found.items()] == [((2,), [0, 2]), ((None,), [1, 3])]


def test_group_numbers_follow_the_order_of_appearance() -> None:
    table = runs(speculative("b"), speculative("a"), speculative("b"))
    ids, keys = group_ids(table, ["run_id"])
    assert list(ids) == [0, 1, 0]
    assert list(keys["run_id"]) == ["b", "a"]


def test_every_resample_draws_as_many_clusters_as_there_are() -> None:
    weights = resample_weights(5, 300, 0)
    assert weights.shape == (300, 5)
    assert set(weights.sum(axis=1)) == {5.0}
    assert weights.mean() == pytest.approx(1.0)
    assert weights.std() == pytest.approx(np.sqrt(0.8), rel=0.1)  # binomial: 5 draws at a chance of 1 / 5


def test_interval_cuts_a_fortieth_at_each_end() -> None:
    low, high = interval(np.arange(1001.0))
    assert (low, high) == (25.0, 975.0)
    low, high = interval(np.array([np.nan, np.inf, *np.arange(1001.0)]))
    assert (low, high) == (25.0, 975.0)


def test_interval_of_nothing_is_missing() -> None:
    for values in (np.array([]), np.array([np.nan, np.nan])):
        assert np.isnan(interval(values)).all()


def test_missing_scalars() -> None:
    missing = [None, float("nan"), runs(speculative())["num_steps"].iloc[0]]
    assert [known(value) for value in missing] == [False, False, False]
    assert [number(value) for value in missing] == [None, None, None]
    assert number(3) == 3.0
    assert same_where_known(None, 1)
    assert same_where_known(1, 1)
    assert not same_where_known(0, 1)


def test_typed_tables_have_their_columns_without_rows() -> None:
    table = typed([], {"a": "Int64", "b": "str"})
    assert [str(dtype) for dtype in table.dtypes] == ["Int64", "str"]
