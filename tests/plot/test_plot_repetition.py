from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from analysis.scaling_tables import curve, drafters
from figures import points, words

from workbench import plot, theme
from workbench.analysis.scaling import ScalingFit, fit_scaling, scaling_points_df


def fit(lengths: dict[int, float]) -> ScalingFit:
    run_table, request_table = curve(lengths)
    return fit_scaling(scaling_points_df(run_table, request_table, n_boot=20), request_table, n_boot=40)


def test_two_curves_over_the_same_sizes() -> None:
    figure, ax = theme.new_figure()
    plot.plot_repetition(fit({500: 1.5, 1000: 1.6, 2000: 1.7}), fit({500: 1.4, 1000: 1.5, 2000: 1.55}), ax=ax)
    drawn = {(x, round(y, 6)) for x, y in points(ax)}
    assert drawn == {(500, 1.5), (1000, 1.6), (2000, 1.7), (500, 1.4), (1000, 1.5), (2000, 1.55)}
    assert {"all answers", "without repetitive answers"} <= set(words(figure))
    assert len([line for line in ax.lines if len(line.get_xdata()) > 10]) == 2
    figure.draw_without_rendering()


@pytest.mark.parametrize("lost", ["whole", "varied", "points"])
def test_without_one_of_the_curves(lost: str) -> None:
    whole = varied = None if lost == "both" else fit({500: 1.5, 1000: 1.6})
    empty = replace(fit({500: 1.5, 1000: 1.6}), points=pd.DataFrame())
    figure, ax = theme.new_figure()
    shown = {"whole": (None, varied), "varied": (whole, None), "points": (whole, empty)}[lost]
    plot.plot_repetition(*shown, ax=ax)
    assert any("No curve is left" in word for word in words(figure))


def test_a_study_names_the_other_design_and_not_its_seeds() -> None:
    rows: list[dict[str, object]] = [
        {"name": f"n{size}-{seed}", "size": size, "length": 1.5 + size / 1e4, "seed": seed, "design": "fixed epochs"}
        for size in (500, 1000, 2000)
        for seed in (0, 1, 2)
    ]
    rows.append({"name": "long", "size": 500, "length": 1.9, "recipe": "other", "design": "fixed steps"})
    run_table, request_table = drafters(rows)
    found = scaling_points_df(run_table, request_table, n_boot=20)
    main = fit_scaling(found[found["design"] == "fixed epochs"], request_table, n_boot=40)
    figure, ax = theme.new_figure()
    plot.plot_accept_length_vs_data(found, ax=ax, fit=main)
    figure.draw_without_rendering()
    said = set(words(figure))
    assert "fixed steps" in said and not {"long", "n500-0", "n2000-2"} & said
    # The line is that of the fit alone: it ends below the point of the other design.
    (line,) = (line for line in ax.lines if len(line.get_xdata()) > 10)
    assert max(line.get_ydata()) < 1.75
