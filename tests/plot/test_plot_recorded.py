"""Every figure of the recorded campaigns: it draws, and its words can be read."""

from collections.abc import Callable

import pandas as pd
import pytest
from figures import collisions, recorded
from matplotlib.axes import Axes

from workbench import plot, theme
from workbench.analysis.acceptance import spread_df, survival_df
from workbench.analysis.cost import cost_df
from workbench.analysis.scaling import fit_scaling, scaling_groups, scaling_points_df
from workbench.analysis.speedup import speedup_df
from workbench.analysis.views import labelled, longest_log
from workbench.paths import reference_points_csv
from workbench.table import Tables

CAMPAIGNS = ["kimi_k25", "h200_first_trial", "h200_smollm2"]


def scaling(tables: Tables, ax: Axes) -> None:
    points = scaling_points_df(tables.runs, tables.requests, n_boot=200)
    groups = scaling_groups(points)
    fit = fit_scaling(groups[0][1], tables.requests, break_even=2.35, n_boot=200) if groups else None
    reference = pd.read_csv(reference_points_csv())
    plot.plot_accept_length_vs_data(points, ax=ax, fit=fit, reference=reference, break_even=2.35)


FIGURES: dict[str, Callable[[Tables, Axes], object]] = {
    "scaling": scaling,
    "accept length": lambda t, ax: plot.plot_accept_length_vs_draft_tokens(cost_df(t.runs), ax=ax),
    "accept rate": lambda t, ax: plot.plot_accept_rate_vs_draft_tokens(t.runs, ax=ax),
    "throughput": lambda t, ax: plot.plot_throughput_vs_draft_tokens(cost_df(t.runs), ax=ax),
    "concurrency": lambda t, ax: plot.plot_throughput_vs_concurrency(t.runs, ax=ax),
    "break-even": lambda t, ax: plot.plot_break_even(cost_df(t.runs), ax=ax),
    "speedup": lambda t, ax: plot.plot_speedup(speedup_df(t.runs, t.requests, n_boot=100), ax=ax),
    "survival": lambda t, ax: plot.plot_survival(labelled(survival_df(t.requests, n_boot=100), t.runs), ax=ax),
    "spread": lambda t, ax: plot.plot_spread(labelled(spread_df(t.requests), t.runs), ax=ax),
}


@pytest.mark.parametrize("campaign", CAMPAIGNS)
@pytest.mark.parametrize("name", FIGURES)
def test_words_neither_overlap_nor_are_cut_off(name: str, campaign: str) -> None:
    figure, ax = theme.new_figure()
    FIGURES[name](recorded(campaign), ax)
    assert collisions(figure) == []


@pytest.mark.parametrize("campaign", ["h200_tune", "h200_best_drafter", "h200_variants"])
@pytest.mark.parametrize("name", ["accept length", "accept rate", "throughput"])
def test_words_of_many_shapes_neither_overlap_nor_are_cut_off(name: str, campaign: str) -> None:
    figure, ax = theme.new_figure()
    FIGURES[name](recorded(campaign), ax)
    assert collisions(figure) == []


@pytest.mark.parametrize("campaign", CAMPAIGNS)
def test_timeline_of_the_longest_recorded_log(campaign: str) -> None:
    log = longest_log(recorded(campaign))
    assert log is not None
    assert collisions(plot.timeline_figure(log.windows, log.events)) == []
