"""Figures, one function each: ``(df, *, ax) -> Axes``. Nothing is read or saved here."""

from workbench.plot.acceptance import plot_spread, plot_survival
from workbench.plot.concurrency import plot_throughput_vs_concurrency
from workbench.plot.draft_tokens import (
    plot_accept_length_vs_draft_tokens,
    plot_accept_rate_vs_draft_tokens,
    plot_throughput_vs_draft_tokens,
)
from workbench.plot.learning import plot_learning
from workbench.plot.ranking import plot_ranking, plot_residuals
from workbench.plot.repetition import plot_repetition
from workbench.plot.rows import plot_break_even, plot_speedup
from workbench.plot.scaling import plot_accept_length_vs_data
from workbench.plot.step_time import plot_step_time
from workbench.plot.timeline import PANELS, plot_timeline, timeline_figure

__all__ = [
    "PANELS",
    "plot_accept_length_vs_data",
    "plot_accept_length_vs_draft_tokens",
    "plot_accept_rate_vs_draft_tokens",
    "plot_break_even",
    "plot_learning",
    "plot_ranking",
    "plot_repetition",
    "plot_residuals",
    "plot_speedup",
    "plot_spread",
    "plot_step_time",
    "plot_survival",
    "plot_throughput_vs_concurrency",
    "plot_throughput_vs_draft_tokens",
    "plot_timeline",
    "timeline_figure",
]
