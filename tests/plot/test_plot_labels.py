import numpy as np
import pytest
from figures import collisions
from hypothesis import given
from hypothesis import strategies as st

from workbench import theme
from workbench.plot.labels import (
    Label,
    _shared,
    _spread,
    _within,
    _wrapped,
    label_beside,
    label_points,
    label_right,
    most_named,
)


def test_labels_far_apart_stay_where_they_belong() -> None:
    assert _spread([0, 100], [10, 10]) == pytest.approx([0, 100])


def test_labels_on_one_line_are_pushed_apart_around_it() -> None:
    # heights 10 and a gap of 2 each: centres 12 apart, around 50
    assert _spread([50, 50], [10, 10]) == pytest.approx([44, 56])


@given(st.lists(st.tuples(st.floats(0, 500), st.floats(5, 40)), min_size=1, max_size=12))
def test_spread_labels_never_overlap(labels: list[tuple[float, float]]) -> None:
    wanted, heights = zip(*sorted(labels), strict=True)
    places = _spread(wanted, heights)
    for k in range(len(places) - 1):
        assert places[k + 1] - places[k] >= (heights[k] + heights[k + 1]) / 2 - 1e-6


def test_labels_are_moved_into_the_margin_together() -> None:
    assert _within([0, 20], [10, 10], bottom=0, top=100) == [5, 25]
    assert _within([80, 100], [10, 10], bottom=0, top=100) == [75, 95]


def test_shared_area_of_boxes() -> None:
    boxes = np.array([[0.0, 0, 10, 10], [20, 20, 30, 30]])
    assert _shared(boxes, np.array([[5.0, 5, 15, 15]])).tolist() == [[25.0], [0.0]]


def test_more_lines_than_a_margin_holds_are_counted() -> None:
    labels = [Label(0, y, str(y)) for y in range(10)]
    named, words = most_named(labels, most=3)
    assert [label.text for label in named] == ["9", "8", "7"]
    assert words == "Of 10 lines the 3 highest are named."
    assert most_named(labels, most=10) == (labels, "")


def test_a_number_stays_with_the_word_before_it() -> None:
    assert _wrapped("simulated, topk 1", 16).split("\n") == ["simulated,", "topk\N{NO-BREAK SPACE}1"]


def test_labels_of_points_close_together_do_not_overlap() -> None:
    figure, ax = theme.new_figure()
    ax.plot([1, 1.01, 1.02, 3], [1, 1.01, 0.99, 2], "o")
    label_points(ax, [Label(x, y, f"point {x}") for x, y in ((1, 1), (1.01, 1.01), (1.02, 0.99))])
    assert collisions(figure) == []


def test_labels_beside_points_of_one_place_do_not_overlap() -> None:
    figure, ax = theme.new_figure()
    ax.plot([1, 1, 2, 2], [1, 1.01, 1, 3], "o")
    label_beside(ax, [Label(1, 1, "5"), Label(1, 1.01, "7"), Label(2, 1, "6"), Label(2, 3, "8")])
    figure.draw_without_rendering()
    boxes = [text.get_window_extent().extents for text in ax.texts]
    assert [text.get_text() for text in ax.texts] == ["5", "7", "6", "8"]
    assert _shared(np.array(boxes[:1]), np.array(boxes[1:2])).tolist() == [[0.0]]
    assert boxes[1][1] > boxes[0][1]


def test_labels_of_lines_that_end_together_do_not_overlap() -> None:
    figure, ax = theme.new_figure()
    ax.plot([1, 2], [1, 2])
    label_right(ax, [Label(2, 1.5, "one\nline"), Label(2, 1.51, "another"), Label(2, 1.52, "and a third one")])
    assert collisions(figure) == []
