"""Tables as the pages show them: chosen columns, joined labels, one row where several say the same."""

from workbench.analysis.views.checks import (
    drift_view,
    fairness_view,
    interference_view,
    log_speeds,
    log_speeds_view,
    longest_log,
    losslessness_view,
    resolved_view,
    resolved_words,
    sources_view,
)
from workbench.analysis.views.compare import best_by_shape, compare_view, published_view
from workbench.analysis.views.costs import (
    energy_view,
    experts_view,
    experts_words,
    prefills_view,
    step_time_view,
)
from workbench.analysis.views.drafts import (
    accept_lengths_view,
    curves_view,
    drafters_view,
    main_curve,
    offline_gaps_view,
    offline_view,
    points_view,
    required_acceptance_view,
    shorter_chains_view,
)
from workbench.analysis.views.measured import measured_facts
from workbench.analysis.views.runs import RATE_COLUMNS, SPEED_COLUMNS, costs_view, labelled, runs_view, speedups_view
from workbench.analysis.views.side_checks import (
    cross_check_view,
    cross_check_words,
    routing_words,
    step_profile_view,
    step_profile_words,
)

__all__ = [
    "RATE_COLUMNS",
    "SPEED_COLUMNS",
    "accept_lengths_view",
    "best_by_shape",
    "compare_view",
    "costs_view",
    "cross_check_view",
    "cross_check_words",
    "curves_view",
    "drafters_view",
    "drift_view",
    "energy_view",
    "experts_view",
    "experts_words",
    "fairness_view",
    "interference_view",
    "labelled",
    "log_speeds",
    "log_speeds_view",
    "longest_log",
    "losslessness_view",
    "main_curve",
    "measured_facts",
    "offline_gaps_view",
    "offline_view",
    "points_view",
    "prefills_view",
    "published_view",
    "required_acceptance_view",
    "resolved_view",
    "resolved_words",
    "routing_words",
    "runs_view",
    "shorter_chains_view",
    "sources_view",
    "speedups_view",
    "step_profile_view",
    "step_profile_words",
    "step_time_view",
]
