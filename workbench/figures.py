"""The figures of the notebooks: drawn, captioned, described for those who cannot see them, with their data beside."""

from __future__ import annotations

import pandas as pd

from workbench import plot, show, theme
from workbench.analysis import acceptance, answers, views
from workbench.analysis.campaign import Fits, same_curve, scaling_points
from workbench.analysis.step_time import StepTimeFit
from workbench.analysis.wording import count
from workbench.plot.names import row_names
from workbench.table import LogSummary, Tables, reference_points
from workbench.table.training import Training
from workbench.table.tuned import Tuned

MOST_LINES = 60  # of a figure with a line a run
MOST_GROUPS = 8  # of a figure with lines for each baseline group
MOST_ROWS = 16  # of a figure with a row a run; the others stand in the table


def break_even(costs: pd.DataFrame) -> None:
    """Accept length measured against the accept length that breaks even."""
    drawn, said = _nearest(costs, "gain_needed", ascending=True)
    fig, ax = theme.new_figure(height=theme.rows_height(len(drawn)))
    plot.plot_break_even(drawn, ax=ax)
    theme.show_figure(
        fig,
        alt=show.alt("Break-even by configuration", drawn, "accept_length", "break_even"),
        caption="Accept length measured, and the accept length at which the configuration is as fast as its baseline."
        f"{said}",
        data=costs,
        name="break_even",
    )


def speedups(table: pd.DataFrame) -> None:
    """Speed over the baseline's, with intervals and verdicts."""
    drawn, said = _nearest(table, "speedup", ascending=False)
    fig, ax = theme.new_figure(height=theme.rows_height(len(drawn)))
    plot.plot_speedup(drawn, ax=ax)
    theme.show_figure(
        fig,
        alt=show.alt("Speedup by configuration", drawn, "speedup"),
        caption=f"Speed over the baseline's at the same load; 95 % intervals where prompts or passes allow one.{said}",
        data=table,
        name="speedup",
    )


def _nearest(table: pd.DataFrame, column: str, *, ascending: bool) -> tuple[pd.DataFrame, str]:
    """The runs nearest to paying, where there are more than a figure holds, and the sentence on the others."""
    if len(table) <= MOST_ROWS:
        return table, ""
    # Named before the others are left out, so that each name still says what sets its run apart from them.
    named = table.assign(label=row_names(table))
    # What a drafter reached stands before what a server was told to pretend.
    named["forced"] = named["origin"].eq("simulated")
    order, ways = ["forced", column], [True, ascending]
    drawn = named.sort_values(order, ascending=ways, kind="stable", na_position="last").head(MOST_ROWS)
    drawn = drawn.sort_values(column, ascending=ascending, kind="stable", na_position="last").drop(columns="forced")
    return drawn, f" Drawn are the {len(drawn)} of {count(len(table), 'run')} nearest to paying; the download has all."


def _some_groups(table: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """The runs of the largest baseline groups, where there are more than a figure holds, and the sentence on it."""
    names = ["campaign", "baseline_group"]
    sizes = table.groupby(names, sort=False, dropna=False).size()
    if len(sizes) <= MOST_GROUPS:
        return table, ""
    chosen = sizes.sort_values(ascending=False, kind="stable").index[:MOST_GROUPS]
    drawn = table[pd.MultiIndex.from_frame(table[names]).isin(chosen)]
    left_out = f" Drawn are the {MOST_GROUPS} of {len(sizes):,} baseline groups with the most runs"
    return drawn, f"{left_out}: {count(len(drawn), 'run')} of {len(table):,}; the download has all."


def measured(runs: pd.DataFrame) -> None:
    """How the runs were measured, in a box."""
    theme.show_facts(views.measured_facts(runs), empty="No run was measured.")


def timeline(log: LogSummary | None) -> None:
    """Accept length, load, speed and CUDA graphs of one server log on one time axis."""
    if log is None or log.windows.empty:
        show.note("No server log with decode lines was kept.")
        return
    theme.show_figure(
        plot.timeline_figure(log.windows, events=log.events),
        alt=show.alt(f"Timeline of {log.name}", log.windows, "accept_len", "running_req", "gen_tok_per_s"),
        caption=f"{log.name}: accept length, load, speed and CUDA graphs on one time axis.",
        data=log.windows,
        name="timeline",
    )


def accept_length_by_draft_tokens(costs: pd.DataFrame) -> None:
    """Accept length by draft tokens."""
    drawn, said = _some_groups(costs)
    fig, ax = theme.new_figure()
    plot.plot_accept_length_vs_draft_tokens(drawn, ax=ax)
    theme.show_figure(
        fig,
        alt=show.alt("Accept length by draft tokens", drawn, "num_draft_tokens", "accept_length"),
        caption=f"Accept length by draft tokens, the root token included.{said}",
        data=costs,
        name="accept_length_by_draft_tokens",
    )


def accept_rate_by_draft_tokens(runs: pd.DataFrame) -> None:
    """Accept rate, ours and as printed, by draft tokens."""
    drawn, said = _some_groups(runs)
    fig, ax = theme.new_figure()
    plot.plot_accept_rate_vs_draft_tokens(drawn, ax=ax)
    theme.show_figure(
        fig,
        alt=show.alt("Accept rate by draft tokens", drawn, "num_draft_tokens", "accept_rate_printed", "accept_rate"),
        caption=f"Our accept rate, (accept length - 1) / steps, and the rate as SGLang printed it.{said}",
        data=runs[views.RATE_COLUMNS],
        name="accept_rate_by_draft_tokens",
    )


def throughput_by_draft_tokens(costs: pd.DataFrame) -> None:
    """Speed by draft tokens beside each run's own baseline."""
    drawn, said = _some_groups(costs)
    fig, ax = theme.new_figure()
    plot.plot_throughput_vs_draft_tokens(drawn, ax=ax)
    theme.show_figure(
        fig,
        alt=show.alt("Speed by draft tokens", drawn, "num_draft_tokens", "tok_per_s", "base_tok_per_s"),
        caption=f"Speed by draft tokens; the lines are the baselines.{said}",
        data=costs,
        name="throughput_by_draft_tokens",
    )


def step_time(fit: StepTimeFit) -> None:
    """Break-even by draft tokens with the fit of the cycle time, and its residuals; nothing where there is no fit."""
    if fit.identified.empty:
        return
    points = fit.points.dropna(subset=["fitted_ms"])
    drawn, said = _some_groups(points)
    fig, axes = theme.new_figure(2, sharex=True, height=6.0)
    plot.plot_step_time(drawn, axes=axes)
    theme.show_figure(
        fig,
        alt=show.alt("Break-even by draft tokens", drawn, "num_draft_tokens", "break_even", "residual_ms"),
        caption="Accept length that breaks even, by draft tokens, with the fitted lines; below, the cycle time less "
        f"the fit. {count(len(points), 'run')}. A number beside a point is the steps of a tree.{said}",
        data=points,
        name="step_time",
    )


def throughput_by_concurrency(runs: pd.DataFrame) -> None:
    """Speed by requests in flight: of the decode phase where it is known, else end to end."""
    fig, ax = theme.new_figure(height=5.0)
    shown, said = _some_groups(runs)
    plot.plot_throughput_vs_concurrency(shown, ax=ax)
    drawn = shown.assign(tok_per_s=runs["decode_tok_per_s"].fillna(runs["output_tok_per_s"]))
    theme.show_figure(
        fig,
        alt=show.alt("Speed by concurrency", drawn, "max_concurrency", "tok_per_s"),
        caption="Speed by requests in flight, while all slots are busy where that is known; the "
        f"baseline is what speculation has to beat.{said}",
        data=runs[views.SPEED_COLUMNS],
        name="throughput_by_concurrency",
    )


def survival(tables: Tables) -> None:
    """Share of verify steps that accept at least so many drafts."""
    chosen, said = _most_accepting(tables.runs)
    own = tables.requests_of(chosen, acceptance.USED)
    table = answers.real_runs(views.labelled(acceptance.survival_df(own), tables.runs))
    if table.empty:
        show.note("No run of this campaign kept per-request histograms: acceptance by position is not known.")
        return
    fig, ax = theme.new_figure()
    plot.plot_survival(table, ax=ax)
    theme.show_figure(
        fig,
        alt=show.alt("Survival by position", table, "position", "survival"),
        caption=f"Share of verify steps that accept at least so many drafts, 95 % intervals over prompts.{said}",
        data=table,
        name="survival",
    )


def _most_accepting(runs: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """The runs with histograms, where there are more than a figure holds those that accept most, and what is left."""
    told = answers.real_runs(runs[runs["steps_histogram"].notna()])
    if len(told) <= MOST_LINES:
        return told, ""
    chosen = told.sort_values("accept_length", ascending=False, kind="stable", na_position="last").head(MOST_LINES)
    return chosen, f" Drawn are the {MOST_LINES} of {count(len(told), 'run')} with the longest accept length."


def spread(requests: pd.DataFrame, runs: pd.DataFrame) -> None:
    """Share of verify steps that accept exactly so many drafts."""
    chosen, said = _most_accepting(runs)
    own = requests[requests["run_id"].isin(chosen["run_id"])]
    table = answers.real_runs(views.labelled(acceptance.spread_df(own), runs))
    if table.empty:
        show.note("No run of this campaign kept per-request histograms: the spread behind the average is not known.")
        return
    fig, ax = theme.new_figure()
    plot.plot_spread(table, ax=ax)
    theme.show_figure(
        fig,
        alt=show.alt("Share of verify steps by correct drafts", table, "correct_drafts", "share"),
        caption=f"Share of verify steps that accept exactly so many drafts: what the average hides.{said}",
        data=table,
        name="spread",
    )


def scaling(fits: Fits, *, offline: bool = False) -> None:
    """Accept length by training samples, with the curve that has the most sizes and the published points.

    ``offline`` says that the points are walks without a server; published ones, which were served, stay out then.
    """
    points, fit = scaling_points(fits), views.main_curve(fits)
    if points.empty:
        none = "No drafter of this campaign was" if offline else "No run of this campaign has a drafter and an"
        what = "walked along answers" if offline else "accept length"
        show.note(f"{none} {what}: there is nothing to draw.")
        return
    fig, ax = theme.new_figure(height=5.0)
    level = fit.break_even if fit is not None else None
    published = None if offline else reference_points()
    plot.plot_accept_length_vs_data(points, ax=ax, fit=fit, reference=published, break_even=level)
    said = "Walks without a server." if offline else "Published points are context and not fitted."
    theme.show_figure(
        fig,
        alt=show.alt("Accept length by training samples", points, "training_samples", "accept_length"),
        caption=f"Accept length by training samples. {said}",
        data=points,
        name="scaling_offline" if offline else "scaling",
    )


def repetition(fits: Fits, varied: Fits) -> None:
    """The first curve beside the one without repetitive answers; nothing where there are not both."""
    whole = views.main_curve(fits)
    other = None if whole is None else same_curve(varied, whole)
    if whole is None or other is None or other.num_sizes < 2:
        return
    points = pd.concat([whole.points.assign(answers="all"), other.points.assign(answers="without repetitive")])
    fig, ax = theme.new_figure()
    plot.plot_repetition(whole, other, ax=ax)
    theme.show_figure(
        fig,
        alt=show.alt("Accept length with and without repetitive answers", points, whole.x, "accept_length"),
        caption="Accept length by training size on all prompts, and without those that are answered by repetition "
        "(distinct-4 below 0.5).",
        data=points,
        name="repetition",
    )


def ranking(tuned: Tuned | None) -> None:
    """Every configuration against the fastest, a figure for each load; nothing where there was no search."""
    if tuned is None:
        return
    for load, rows in tuned.ranking.groupby("max_concurrency", sort=True):
        fig, ax = theme.new_figure(height=theme.rows_height(min(len(rows), MOST_ROWS)))
        plot.plot_ranking(rows.head(MOST_ROWS), ax=ax)
        more = f" Drawn are the first {MOST_ROWS} of {len(rows)}." if len(rows) > MOST_ROWS else ""
        theme.show_figure(
            fig,
            alt=show.alt(f"Configurations at {load} at once", rows, "ratio", "tok_per_s"),
            caption=f"At {load} at once: speed over the fastest's. Filled: measured; hollow: predicted.{more}",
            data=rows,
            name=f"ranking_{load}",
        )


def predictions(tuned: Tuned | None) -> None:
    """How far predictions lie from what was measured; nothing where nothing was predicted and measured."""
    if tuned is None or tuned.residuals["error"].dropna().empty:
        return
    fig, ax = theme.new_figure()
    plot.plot_residuals(tuned.residuals, ax=ax)
    theme.show_figure(
        fig,
        alt=show.alt("Predicted against measured", tuned.residuals, "measured_tok_per_s", "error"),
        caption="Each measured configuration, predicted by the others as if it had not been measured.",
        data=tuned.residuals,
        name="predictions",
    )


def learning(training: Training) -> None:
    """Loss and accuracy by depth against the response tokens seen."""
    fig, axes = theme.new_figure(2, sharex=True, height=6.4)
    plot.plot_learning(training.curve, training.accuracy, axes=axes)
    theme.show_figure(
        fig,
        alt=show.alt("Learning curves", training.curve, "response_tokens", "loss"),
        caption="Loss (weighted mean of all passes) and, by depth, how often the draft is the target's most likely "
        "token, with the true tokens before it.",
        data=training.curve,
        name="learning",
    )
