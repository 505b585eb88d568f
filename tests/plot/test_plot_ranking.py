from __future__ import annotations

from pathlib import Path

import pytest
from figures import points, words
from tune_answer import CHAIN, TREE, write_answer

from workbench import plot, theme
from workbench.table.tuned import Tuned, read_tuned


@pytest.fixture
def tuned(tmp_path: Path) -> Tuned:
    found, _ = read_tuned(write_answer(tmp_path))
    assert found is not None
    return found


def test_every_configuration_of_a_load_has_a_row(tuned: Tuned) -> None:
    figure, ax = theme.new_figure()
    plot.plot_ranking(tuned.ranking[tuned.ranking["max_concurrency"] == 8], ax=ax)
    assert {(round(x, 2), y) for x, y in points(ax)} >= {(1.0, 0), (0.99, 1)}
    said = words(figure)
    assert {"measured", "predicted", "800 tok/s, leader", "790 tok/s, open", TREE} <= set(said)
    figure.draw_without_rendering()


def test_a_tree_of_which_only_a_range_is_known_has_a_bar_and_no_point(tuned: Tuned) -> None:
    figure, ax = theme.new_figure()
    plot.plot_ranking(tuned.ranking[tuned.ranking["max_concurrency"] == 1], ax=ax)
    assert {"speed not predicted, out", CHAIN} <= set(words(figure))
    bars = [tuple(map(float, path.vertices[:, 0])) for bar in ax.collections for path in bar.get_paths()]
    assert (0.6, 0.9) in bars
    figure.draw_without_rendering()


def test_predictions_beside_what_was_measured(tuned: Tuned) -> None:
    figure, ax = theme.new_figure()
    plot.plot_residuals(tuned.residuals, ax=ax)
    assert {(x, round(y, 3)) for x, y in points(ax)} == {(120.0, 0.1), (760.0, -0.05)}
    figure.canvas.draw()
    assert {"100", "200", "500", "1,000"} <= {label.get_text() for label in ax.get_xticklabels()}


def test_nothing_to_draw_is_said(tuned: Tuned) -> None:
    for draw, table in ((plot.plot_ranking, tuned.ranking), (plot.plot_residuals, tuned.residuals)):
        figure, ax = theme.new_figure()
        draw(table.head(0), ax=ax)
        assert any("Nothing was measured" in word or "No configuration" in word for word in words(figure))
