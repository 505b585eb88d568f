from __future__ import annotations

from pathlib import Path

import pytest
from figures import words
from training_records import write_training

from workbench import plot, theme
from workbench.table.training import load_training


def test_loss_above_accuracy_by_depth(tmp_path: Path) -> None:
    training = load_training(write_training(tmp_path / "run"))
    figure, (top, bottom) = theme.new_figure(2, sharex=True)
    plot.plot_learning(training.curve, training.accuracy, axes=[top, bottom])
    assert [list(line.get_ydata()) for line in top.lines] == [[5.0, 4.0, 3.0, 2.0]]
    assert [list(line.get_ydata()) for line in bottom.lines] == [
        pytest.approx([0.1, 0.2, 0.3, 0.4]),
        pytest.approx([0.05, 0.1, 0.15, 0.2]),
        pytest.approx([0.02, 0.04, 0.06, 0.08]),
    ]
    assert {"draft 1", "draft 2", "draft 3", "response tokens seen"} <= set(words(figure))
    figure.draw_without_rendering()


def test_a_training_without_log(tmp_path: Path) -> None:
    training = load_training(write_training(tmp_path / "run", curve=[]))
    figure, axes = theme.new_figure(2, sharex=True)
    plot.plot_learning(training.curve, training.accuracy, axes=axes)
    assert "No step of this training was logged." in words(figure)
