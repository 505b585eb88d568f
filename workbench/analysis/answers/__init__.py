"""Campaign-level answers: sentences computed from the tables, so that they change when a number does.

Every function returns ``None`` where the data do not support a sentence.
"""

from workbench.analysis.answers.break_even import (
    Level,
    break_even,
    fixed_cost,
    forced_break_even,
    graphs_off,
    shared_level,
)
from workbench.analysis.answers.checked import energy, lossless, on_cpu, serve_on_a_gpu, step_time
from workbench.analysis.answers.common import all_on_cpu, as_served, at_lowest, break_even_span, real_runs
from workbench.analysis.answers.dominant import dominates, gain_words, repetition
from workbench.analysis.answers.drafters import (
    accepts_nothing,
    offline_against_served,
    offline_agrees,
    offline_gap,
    offline_gaps,
    queued,
    wrong_flag,
)
from workbench.analysis.answers.model import Answer, joined, keep
from workbench.analysis.answers.shape import best_shape, confounded, rate_misleads, same_points
from workbench.analysis.answers.speed import bounded, by_concurrency, pays, short_passes, timing_noise, undecided
from workbench.analysis.answers.starts import drift, same_baselines, start_again, start_rivals, started_once
from workbench.analysis.answers.training import (
    curve_name,
    curve_notes,
    curve_sentence,
    next_training,
    no_curve,
    other_curves,
    same_data,
    seeds_apart,
    training_sizes,
)
from workbench.analysis.answers.unmade import Missing, missing_sentence, never_measured, next_run
from workbench.analysis.answers.variants import one_against_one
from workbench.analysis.answers.without_graphs import control_servers, graphs_control

__all__ = [
    "Answer",
    "Level",
    "Missing",
    "accepts_nothing",
    "all_on_cpu",
    "as_served",
    "at_lowest",
    "best_shape",
    "bounded",
    "break_even",
    "break_even_span",
    "by_concurrency",
    "confounded",
    "control_servers",
    "curve_name",
    "curve_notes",
    "curve_sentence",
    "dominates",
    "drift",
    "energy",
    "fixed_cost",
    "forced_break_even",
    "gain_words",
    "graphs_control",
    "graphs_off",
    "joined",
    "keep",
    "lossless",
    "missing_sentence",
    "never_measured",
    "next_run",
    "next_training",
    "no_curve",
    "offline_against_served",
    "offline_agrees",
    "offline_gap",
    "offline_gaps",
    "on_cpu",
    "one_against_one",
    "other_curves",
    "pays",
    "queued",
    "rate_misleads",
    "real_runs",
    "repetition",
    "same_baselines",
    "same_data",
    "same_points",
    "seeds_apart",
    "serve_on_a_gpu",
    "shared_level",
    "short_passes",
    "start_again",
    "start_rivals",
    "started_once",
    "step_time",
    "timing_noise",
    "training_sizes",
    "undecided",
    "wrong_flag",
]
