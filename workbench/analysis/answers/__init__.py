"""Campaign-level answers: sentences computed from the tables, so that they change when a number does.

Every function returns ``None`` where the data do not support a sentence.
"""

from workbench.analysis.answers.break_even import break_even, fixed_cost, graphs_off
from workbench.analysis.answers.drafters import (
    accepts_nothing,
    offline_against_served,
    offline_agrees,
    queued,
    rate_misleads,
    training_sizes,
    wrong_flag,
)
from workbench.analysis.answers.model import Answer, keep
from workbench.analysis.answers.speed import best_shape, by_concurrency, pays, timing_noise
from workbench.analysis.answers.unmade import Missing, confounded, missing_sentence, never_measured, next_run

__all__ = [
    "Answer",
    "Missing",
    "accepts_nothing",
    "best_shape",
    "break_even",
    "by_concurrency",
    "confounded",
    "fixed_cost",
    "graphs_off",
    "keep",
    "missing_sentence",
    "never_measured",
    "next_run",
    "offline_against_served",
    "offline_agrees",
    "pays",
    "queued",
    "rate_misleads",
    "timing_noise",
    "training_sizes",
    "wrong_flag",
]
