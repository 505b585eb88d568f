"""The answers of the campaign pages: which sentences belong on which page, most useful first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from workbench.analysis import answers
from workbench.analysis.answers import Answer, joined, keep
from workbench.analysis.diagnosis import Diagnosis, Finding
from workbench.analysis.diagnosis.of_campaigns import judged_logs
from workbench.analysis.frames import most, records
from workbench.analysis.interference import interference_words
from workbench.analysis.of_tables import drift, losslessness
from workbench.analysis.prefills import prefills_of_runs_df, prefills_words
from workbench.analysis.repetition import Varied
from workbench.analysis.scaling import (
    ScalingFit,
    fit_scaling,
    offline_points_df,
    point_columns,
    scaling_groups,
    scaling_points_df,
)
from workbench.analysis.scaling.points import USED, differing, drafted_runs
from workbench.analysis.sound import (
    certain_faults,
    flagged_servers,
    sound_rows,
    without_servers,
    wrong_flags,
)
from workbench.analysis.speedup import same_points_df
from workbench.analysis.step_time import step_time_by_length_df, step_time_fit
from workbench.analysis.wording import count, few, span, times
from workbench.table import Tables
from workbench.table.lazy import ServerKey

Fits = Mapping[str, tuple[pd.DataFrame, ScalingFit]]

_GRAPHS_OFF = "graph_off"
_NO_RUN = "This campaign holds no run that can be read."


def diagnose_logs(tables: Tables) -> dict[ServerKey, Diagnosis]:
    """A diagnosis for every server log, each beside the baseline's log of its group where there is one.

    Plain logs of vLLM hold nothing but speeds, which are judged with the speculative log beside them.
    """
    judged = judged_logs(tables, _baseline_keys(tables), _simulated_lengths(tables))
    with_speed = tables.runs[(tables.runs["role"] == "baseline") & tables.runs["log_median_tok_per_s"].notna()]
    plain = set(with_speed[["campaign", "server_id"]].itertuples(index=False, name=None))
    return {key: each for key, each in judged.items() if key not in plain or not _has_only_speeds(each)}


def _has_only_speeds(diagnosis: Diagnosis) -> bool:
    return {finding.rule for finding in diagnosis.findings if finding.is_fault} == {"no_decode_lines"}


def _simulated_lengths(tables: Tables) -> dict[ServerKey, float]:
    """Servers that were told to pretend an accept length, which their logs do not say."""
    forced = tables.runs.dropna(subset=["simulated_accept_length"])
    return {(row["campaign"], row["server_id"]): row["simulated_accept_length"] for row in records(forced)}


def _baseline_keys(tables: Tables) -> dict[ServerKey, ServerKey]:
    """Speculative server to the first baseline server of its campaign and group."""
    servers = tables.runs.drop_duplicates(["campaign", "server_id"])
    plain: dict[tuple[str, str], ServerKey] = {}
    for row in records(servers[servers["role"] == "baseline"]):
        key = (row["campaign"], row["server_id"])
        if key in tables.logs:
            plain.setdefault((row["campaign"], row["baseline_group"]), key)
    return {
        (row["campaign"], row["server_id"]): plain[row["campaign"], row["baseline_group"]]
        for row in records(servers[servers["role"] == "speculative"])
        if (row["campaign"], row["baseline_group"]) in plain
    }


def headline(costs: pd.DataFrame, speedups: pd.DataFrame | None = None) -> dict[str, str]:
    """The numbers below an answer: best speedup, and best accept length and break-even at the lowest concurrency.

    The speedup is that of ``speedups`` where given, which the sentences are made from: it pairs prompts, costs do not.
    """
    lowest = answers.at_lowest(costs)
    single = answers.real_runs(lowest)
    said: dict[str, str] = {}
    gains = answers.real_runs(costs if speedups is None else speedups).dropna(subset=["speedup"])
    if len(gains):
        best = most(gains, "speedup")
        elsewhere = best["max_concurrency"] is not None and best["max_concurrency"] > costs["max_concurrency"].min()
        said["best speedup"] = times(best["speedup"]) + (f" at {best['max_concurrency']}" if elsewhere else "")
    if single["accept_length_high"].notna().any():
        best = most(single, "accept_length_high")
        said["best accept length"] = span(best["accept_length_low"], best["accept_length_high"])
    level = answers.shared_level(costs)
    told_by = answers.as_served(lowest).dropna(subset=["break_even"]) if level is None else level.runs
    if len(told_by):
        forced = " (simulated)" if answers.real_runs(told_by).empty else ""
        said["break-even"] = (
            f"{answers.break_even_span(told_by) if level is None else f'near {level.value:.2f}'}{forced}"
        )
    loads = costs["max_concurrency"].dropna().unique()
    if said and len(loads) > 1:
        said["at concurrency"] = f"{min(loads)}"
    return said


def campaign_answer(
    tables: Tables, costs: pd.DataFrame, speedups: pd.DataFrame, diagnoses: Mapping[ServerKey, Diagnosis]
) -> Answer:
    """Is the deployment right, is the drafter right, does speculation pay, what next."""
    if tables.runs.empty:
        return Answer(_NO_RUN)
    certain = [(key, finding) for key, each in diagnoses.items() for finding in certain_faults(each)]
    flagged, controls = flagged_servers(diagnoses), answers.control_servers(tables.runs)
    faults = [(key[1], finding) for key, finding in certain if key not in controls or finding.rule != _GRAPHS_OFF]
    costs, speedups = (
        without_servers(sound_rows(table, tables, flagged), tables.runs, controls) for table in (costs, speedups)
    )
    missing = answers.never_measured(costs)
    drifting = drift(tables)
    once = answers.started_once(drifting, speedups)
    points = keep(
        *_fault_sentences(faults),
        answers.wrong_flag(tables.runs),
        answers.graphs_off(costs, tables.runs),
        answers.graphs_control(tables.runs, controls),
        answers.break_even(costs),
        answers.forced_break_even(costs),
        answers.accepts_nothing(tables.runs),
        answers.confounded(costs),
        answers.one_against_one(tables.runs, costs),
        prefills_words(prefills_of_runs_df(tables, costs)),
        answers.queued(tables.runs),
        *answers.lossless(losslessness(tables)),
        *_lone_sizes(tables),
        answers.offline_agrees(tables.runs, tables.offline),
        answers.drift(drifting),
        once,
        answers.timing_noise(speedups, tables.runs, drifting),
        interference_words(tables.runs),
        answers.short_passes(tables.runs),
        answers.on_cpu(tables.runs),
    )
    actions = keep(
        *(f"{few(servers)}: {action}." for action, servers in _servers_by(faults, "next_action").items()),
        answers.missing_sentence(missing) if missing else None,
        answers.fixed_cost(costs),
        answers.start_again(once),
        answers.start_rivals(speedups),
        answers.serve_on_a_gpu(tables.runs),
    )
    sentence = joined([_flag_sentence(flagged), answers.pays(speedups), answers.next_run(missing) if missing else None])
    return Answer(sentence, points, actions, headline(costs, speedups))


def _fault_sentences(faults: Sequence[tuple[str, Finding]]) -> list[str]:
    """Each fault once, with the servers that have it and the evidence of the first."""
    first = {finding.title: finding for _, finding in reversed(faults)}
    return [
        f"{few(servers)}: {title}. Certain: {'; '.join(first[title].evidence[:2]) or 'by its log'}."
        for title, servers in _servers_by(faults, "title").items()
    ]


def _servers_by(faults: Sequence[tuple[str, Finding]], field: str) -> dict[str, list[str]]:
    servers: dict[str, list[str]] = {}
    for server, finding in faults:
        servers.setdefault(str(getattr(finding, field)), []).append(server)
    return servers


def _does_not_count(flagged: Mapping[ServerKey, Finding]) -> str | None:
    if not flagged:
        return None
    verb = "does" if len(flagged) == 1 else "do"
    return f"{few(server for _, server in flagged)} {verb} not count: {next(iter(flagged.values())).title}."


def _flag_sentence(flagged: Mapping[ServerKey, Finding]) -> str | None:
    """A wrong flag makes every other figure of its server meaningless: it comes first."""
    if not flagged:
        return None
    names = few(server for _, server in flagged)
    return f"Wrong flag on {names}: {next(iter(flagged.values())).title.removeprefix('Wrong flag: ')}."


def _lone_sizes(tables: Tables) -> list[str | None]:
    targets = sorted(tables.runs["target"].dropna().unique())
    return [answers.training_sizes(tables.drafters, target) for target in targets]


def draft_tokens_answer(tables: Tables, costs: pd.DataFrame, speedups: pd.DataFrame) -> Answer:
    """Which number of draft tokens is best, and what the points cannot tell."""
    controls = answers.control_servers(tables.runs)
    costs = without_servers(sound_rows(costs, tables), tables.runs, controls)
    missing = answers.never_measured(costs)
    sentence = joined([answers.best_shape(costs, speedups), answers.next_run(missing) if missing else None])
    points = keep(
        answers.break_even(costs),
        *answers.step_time(step_time_fit(costs), step_time_by_length_df(costs)),
        answers.graphs_off(costs, tables.runs),
        answers.graphs_control(tables.runs, controls),
        answers.confounded(costs),
        answers.rate_misleads(costs, tables.runs),
        answers.same_points(same_points_df(tables.runs)),
    )
    actions = keep(
        answers.missing_sentence(missing) if missing else None,
        answers.fixed_cost(costs),
        answers.serve_on_a_gpu(tables.runs),
    )
    return Answer(sentence, points, actions, headline(costs))


def scaling_fits(tables: Tables, costs: pd.DataFrame) -> dict[str, tuple[pd.DataFrame, ScalingFit]]:
    """Points and fit of every group that may share a curve, by the group's name; most training sizes first.

    Break-even is the one that all numbers of steps share, else the middle of the group's own runs; its ends are the
    interval.
    """
    requests = tables.requests_of(drafted_runs(tables.runs), USED)
    return _fits(scaling_points_df(tables.runs, requests), costs, requests)


def _fits(
    points: pd.DataFrame,
    costs: pd.DataFrame,
    requests: pd.DataFrame | None = None,
    served_as: Mapping[str, str] | None = None,
) -> dict[str, tuple[pd.DataFrame, ScalingFit]]:
    """``served_as`` are the prompt sets of served runs by those of the points, where they are called otherwise."""
    shared = answers.shared_level(costs)
    fitted: dict[str, tuple[pd.DataFrame, ScalingFit]] = {}
    for name, group in scaling_groups(points):
        own = group if served_as is None else group.assign(prompt_set=group["prompt_set"].map(served_as))
        level, ends = (shared.value, (shared.low, shared.high)) if shared else _own_level(own, costs)
        fitted[name] = group, fit_scaling(group, requests, break_even=level, break_even_interval=ends)
    return fitted


def _own_level(group: pd.DataFrame, costs: pd.DataFrame) -> tuple[float | None, tuple[float, float] | None]:
    own = answers.at_lowest(answers.real_runs(costs)).dropna(subset=["break_even"])
    own = own[own["drafter"].isin(group["drafter"]) & own["prompt_set"].isin(group["prompt_set"])]
    own = own[own["num_steps"].isin(group["num_steps"].dropna())]
    if own.empty:
        return None, None
    return float(own["break_even"].median()), (float(own["break_even_low"].min()), float(own["break_even_high"].max()))


def offline_fits(tables: Tables, costs: pd.DataFrame) -> dict[str, tuple[pd.DataFrame, ScalingFit]]:
    """Points and fits from walks without a server: of all drafters that were evaluated, served or not.

    Break-even is that of served runs with the walked prompts.
    """
    targets = {name: info.target for name, info in tables.campaigns.items()}
    points = offline_points_df(tables.drafters, tables.offline, targets, point_columns(tables.runs))
    served = tables.offline.dropna(subset=["served_as"])
    return _fits(points, costs, served_as=dict(zip(served["prompt_set"], served["served_as"], strict=True)))


def _offline_curve(tables: Tables, walked: Fits, main: ScalingFit | None) -> ScalingFit | None:
    """The curve of the walks where it stands on more drafters than the served one; of its prompts, if it has any."""
    served = None if main is None else main.points["prompt_set"].iloc[0]
    same = set(tables.offline.loc[tables.offline["served_as"] == served, "prompt_set"])
    fits = [fit for _, fit in walked.values() if fit.num_sizes > 1]
    largest = max(fits, key=lambda fit: (fit.points["prompt_set"].iloc[0] in same, fit.num_points), default=None)
    return None if largest is None or largest.num_points <= (main.num_points if main else 0) else largest


def _offline_sentences(walked: Fits, curve: ScalingFit | None) -> tuple[str, ...]:
    if curve is None:
        return ()
    seeds, other = answers.seeds_apart(curve), answers.same_data(scaling_points(walked), curve)
    said = f"Offline, over {count(curve.num_points, 'drafter')}: {answers.curve_sentence(curve)}"
    return keep(f"{said} There {seeds}." if seeds else said, other and f"Offline: {other}")


def varied_fits(varied: Varied | None, costs: pd.DataFrame) -> dict[str, tuple[pd.DataFrame, ScalingFit]]:
    """The same without the prompts that are answered by repetition; break-even stays that of all prompts."""
    return {} if varied is None else scaling_fits(varied.tables, costs)


def repetition_sentence(fits: Fits, varied: Varied | None, costs: pd.DataFrame) -> str | None:
    """What the first curve becomes without answers that repeat themselves; ``None`` where there is no curve."""
    main = next((fit for _, fit in fits.values() if fit.num_sizes > 1), None)
    if main is None:
        return None
    return answers.repetition(main, same_curve(varied_fits(varied, costs), main), varied)


def same_curve(fits: Fits, curve: ScalingFit) -> ScalingFit | None:
    """The fit of the same group in other fits; ``None`` where they have no such group."""
    found = (fit for _, fit in fits.values() if len(fit.points))
    return next((fit for fit in found if not differing(pd.concat([fit.points, curve.points]))), None)


def scaling_points(fits: Fits) -> pd.DataFrame:
    """All points of the groups, one row each."""
    return pd.concat([group for group, _ in fits.values()]) if fits else pd.DataFrame()


def scaling_answer(tables: Tables, costs: pd.DataFrame, fits: Fits, walked: Fits) -> Answer:
    """What more training data brings, and how far to believe it; ``walked`` are the `offline_fits`."""
    costs = sound_rows(costs, tables)
    missing = answers.never_measured(costs)
    before = answers.missing_sentence(missing) if missing else answers.fixed_cost(costs)
    lone = keep(*_lone_sizes(tables))
    curves = [fit for _, fit in fits.values() if fit.num_sizes > 1]
    gap = answers.offline_gap(tables.runs, tables.offline) or answers.offline_agrees(tables.runs, tables.offline)
    if not curves:
        points = keep(gap, *_offline_sentences(walked, _offline_curve(tables, walked, None)), answers.break_even(costs))
        return Answer(joined(lone) or answers.no_curve(scaling_points(fits)), points, keep(before), headline(costs))
    main = curves[0]
    offline = _offline_curve(tables, walked, main)
    points = keep(
        gap,
        answers.dominates(scaling_points(fits), main),
        *_offline_sentences(walked, offline),
        *answers.other_curves(curves),
        *answers.curve_notes(curves),
        answers.same_data(scaling_points(fits), main),
        *lone,
    )
    actions = keep(before, answers.next_training(main, offline))
    needed = {} if main.data_needed is None else {"size at break-even": f"{main.data_needed:,.0f}"}
    said = {"gain per doubling": answers.gain_words(main), **needed, **headline(costs)}
    return Answer(joined([answers.curve_sentence(main)]), points, actions, said)


def throughput_answer(tables: Tables, costs: pd.DataFrame, speedups: pd.DataFrame) -> Answer:
    """Does speculation pay, at which concurrency, and how sure is that."""
    flagged, controls = wrong_flags(tables), answers.control_servers(tables.runs)
    costs, speedups = (
        without_servers(sound_rows(table, tables, flagged), tables.runs, controls) for table in (costs, speedups)
    )
    drifting = drift(tables)
    once = answers.started_once(drifting, speedups)
    points = keep(
        _does_not_count(flagged),
        answers.by_concurrency(speedups),
        answers.graphs_off(costs, tables.runs),
        answers.graphs_control(tables.runs, controls),
        answers.break_even(costs),
        answers.forced_break_even(costs),
        answers.one_against_one(tables.runs, costs),
        prefills_words(prefills_of_runs_df(tables, costs)),
        answers.queued(tables.runs),
        *answers.lossless(losslessness(tables)),
        answers.energy(tables.runs, speedups),
        answers.drift(drifting),
        once,
        answers.timing_noise(speedups, tables.runs, drifting),
        interference_words(tables.runs),
        answers.short_passes(tables.runs),
        answers.on_cpu(tables.runs),
        *answers.undecided(speedups),
    )
    missing = answers.never_measured(costs)
    actions = keep(
        answers.missing_sentence(missing) if missing else None,
        answers.fixed_cost(costs),
        answers.start_again(once),
        answers.start_rivals(speedups),
        answers.serve_on_a_gpu(tables.runs),
    )
    return Answer(joined([answers.pays(speedups)]), points, actions, headline(costs, speedups))


def compare_answer(tables: Tables, costs: pd.DataFrame, speedups: pd.DataFrame) -> Answer:
    """How many of the campaigns have a configuration that wins, and each one's own sentence."""
    flagged = wrong_flags(tables)
    controls = answers.control_servers(tables.runs)
    sound = without_servers(sound_rows(speedups, tables, flagged), tables.runs, controls)
    said = []
    for name in tables.campaigns:
        wrong = _flag_sentence({key: finding for key, finding in flagged.items() if key[0] == name})
        said.append(joined([f"{name}:", wrong, answers.pays(sound[sound["campaign"] == name])]))
    won = sound[(sound["verdict"] == "win") & (sound["origin"] != "simulated")]
    winners = [name for name in tables.campaigns if name in set(won["campaign"])]
    total = len(tables.campaigns)
    if total == 0:
        return Answer("No campaign was given.")
    head = f"Speculation beats its baseline beyond noise in {len(winners) or 'none'} of {count(total, 'campaign')}"
    sentence = f"{head}: {few(winners)}." if winners else f"{head}."
    return Answer(sentence, keep(*said, answers.same_baselines(tables.runs)))
