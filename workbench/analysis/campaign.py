"""The answers of the campaign pages: which sentences belong on which page, most useful first."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from workbench.analysis import answers
from workbench.analysis.answers import Answer, keep
from workbench.analysis.diagnosis import Certainty, Diagnosis, Finding, diagnose
from workbench.analysis.frames import records
from workbench.analysis.scaling import (
    ScalingFit,
    fit_scaling,
    scaling_groups,
    scaling_points_df,
    scaling_sentence,
)
from workbench.analysis.speedup import drift_df, same_points_df
from workbench.analysis.wording import one_of
from workbench.table import Tables


def diagnose_logs(tables: Tables) -> dict[str, Diagnosis]:
    """A diagnosis for every server log of the campaigns, by server name."""
    return {server: diagnose(log) for (_, server), log in tables.logs.items()}


def campaign_answer(
    tables: Tables, costs: pd.DataFrame, speedups: pd.DataFrame, diagnoses: Mapping[str, Diagnosis]
) -> Answer:
    """Is the deployment right, is the drafter right, does speculation pay, what next."""
    if tables.runs.empty:
        return Answer("This campaign holds no run that can be read.")
    faulty = faults(diagnoses)
    sound = speedups[~speedups["run_id"].isin(_runs_of(tables, faulty))] if faulty else speedups
    missing = answers.never_measured(costs, tables.runs)
    drift = drift_df(tables.runs, tables.requests)
    # A wrong flag makes every other figure of its server meaningless: it comes first. Other faults are points.
    flagged = [f"{server}: {title}" for server, title in faulty.items() if title.startswith("Wrong flag")]
    headline = [f"{one_of(flagged)}."] if flagged else []
    to_make = [answers.next_run(missing)] if missing else []
    points = keep(
        *(f"{server}: {title}." for server, title in faulty.items()),
        answers.wrong_flag(tables.runs),
        answers.graphs_off(costs),
        answers.break_even(costs),
        answers.accepts_nothing(tables.runs),
        answers.confounded(costs),
        answers.queued(tables.runs),
        *(answers.training_sizes(tables.drafters, target) for target in tables.runs["target"].dropna().unique()),
        answers.offline_agrees(tables.runs, tables.offline),
        answers.timing_noise(speedups, tables.runs, drift),
    )
    actions = keep(
        *_next_actions(diagnoses), answers.missing_sentence(missing) if missing else None, answers.fixed_cost(costs)
    )
    return Answer(" ".join([*headline, answers.pays(sound), *to_make]), points, actions)


def draft_tokens_answer(tables: Tables, costs: pd.DataFrame, speedups: pd.DataFrame) -> Answer:
    """Which number of draft tokens is best, and what the points cannot tell."""
    merged = same_points_df(tables.runs)
    same = f"{len(merged)} asked configurations are the same to the server and are merged." if len(merged) else None
    missing = answers.never_measured(costs, tables.runs)
    return Answer(
        answers.best_shape(costs),
        keep(answers.break_even(costs), answers.confounded(costs), answers.rate_misleads(costs, tables.runs), same),
        keep(answers.missing_sentence(missing) if missing else None, answers.fixed_cost(costs)),
    )


def scaling_fits(tables: Tables, costs: pd.DataFrame) -> dict[str, tuple[pd.DataFrame, ScalingFit]]:
    """Points and fit of every group that may share a curve, by the group's name.

    Break-even is the middle of the group's own runs, with their range as its interval.
    """
    points = scaling_points_df(tables.runs, tables.requests)
    fitted: dict[str, tuple[pd.DataFrame, ScalingFit]] = {}
    for name, group in scaling_groups(points):
        own = costs[costs["drafter"].isin(group["drafter"]) & costs["prompt_set"].isin(group["prompt_set"])]
        own = own[own["num_steps"].isin(group["num_steps"].dropna())].dropna(subset=["break_even"])
        level = float(own["break_even"].median()) if len(own) else None
        ends = (float(own["break_even_low"].min()), float(own["break_even_high"].max())) if len(own) else None
        fitted[name] = group, fit_scaling(group, tables.requests, break_even=level, break_even_interval=ends)
    return fitted


def scaling_answer(tables: Tables, fits: Mapping[str, tuple[pd.DataFrame, ScalingFit]]) -> Answer:
    """What more training data brings, and how far to believe it."""
    targets = sorted(tables.runs["target"].dropna().unique())
    lone = keep(*(answers.training_sizes(tables.drafters, target) for target in targets))
    curves = {name: fit for name, (_, fit) in fits.items() if fit.num_sizes > 1}
    if lone or not curves:
        return Answer(" ".join(lone) or "No drafter of this campaign states its training size: there is no curve.")
    said = [f"{_curve_name(fits[name][0])}: {scaling_sentence(fit)}" for name, fit in curves.items()]
    notes = dict.fromkeys(f"{note[:1].upper()}{note[1:]}." for fit in curves.values() for note in fit.notes)
    return Answer(said[0], keep(*said[1:], *notes, answers.offline_agrees(tables.runs, tables.offline)))


def _curve_name(points: pd.DataFrame) -> str:
    first = points.iloc[0]
    return f"On {first['prompt_set']} at {first['num_steps']} steps"


def throughput_answer(
    tables: Tables, costs: pd.DataFrame, speedups: pd.DataFrame, diagnoses: Mapping[str, Diagnosis]
) -> Answer:
    """Does speculation pay, at which concurrency, and how sure is that."""
    faulty = faults(diagnoses)
    sound = speedups[~speedups["run_id"].isin(_runs_of(tables, faulty))]
    undecided = sound[sound["verdict"] == "not decidable"].drop_duplicates("reason")
    reasons = [f"Not decided, {row['label']}: {row['reason']}." for row in records(undecided) if row["reason"]]
    points = keep(
        *(f"{server} does not count: {title}." for server, title in faulty.items()),
        answers.by_concurrency(sound),
        answers.graphs_off(costs),
        answers.break_even(costs),
        answers.queued(tables.runs),
        answers.timing_noise(sound, tables.runs, drift_df(tables.runs, tables.requests)),
        *reasons[:3],
    )
    return Answer(answers.pays(sound), points, keep(answers.fixed_cost(costs)))


def compare_answer(tables: Tables, costs: pd.DataFrame, speedups: pd.DataFrame) -> Answer:
    """How many of the campaigns have a configuration that wins, and each one's own sentence."""
    said = [f"{name}: {answers.pays(speedups[speedups['campaign'] == name])}" for name in tables.campaigns]
    winners = sorted(
        speedups.loc[(speedups["verdict"] == "win") & (speedups["origin"] != "simulated"), "campaign"].unique()
    )
    count = f"{len(winners)} of {len(tables.campaigns)} campaigns"
    head = f"In {count} speculation beats its baseline beyond noise"
    return Answer(f"{head}{': ' + one_of(winners) if winners else ''}.", tuple(said))


def faults(diagnoses: Mapping[str, Diagnosis]) -> dict[str, str]:
    """Server to the title of its first certain finding."""
    found: dict[str, str] = {}
    for server, diagnosis in diagnoses.items():
        certain = certain_faults(diagnosis)
        if certain:
            found[server] = certain[0].title
    return found


def certain_faults(diagnosis: Diagnosis) -> list[Finding]:
    """What is wrong beyond doubt, in the order in which to mend it."""
    return [f for f in diagnosis.findings if f.is_fault and f.certainty is Certainty.CERTAIN]


def _runs_of(tables: Tables, servers: Mapping[str, str]) -> list[str]:
    return tables.runs.loc[tables.runs["server_id"].isin(list(servers)), "run_id"].tolist()


def _next_actions(diagnoses: Mapping[str, Diagnosis]) -> list[str]:
    return [
        f"{server}: {finding.next_action}"
        for server, diagnosis in diagnoses.items()
        for finding in certain_faults(diagnosis)
    ]
