"""What a search found, in sentences and tables: which configuration at which concurrency, and what that buys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from workbench.analysis import answers
from workbench.analysis.answers.model import Answer, joined, keep
from workbench.analysis.frames import Row, number, records
from workbench.analysis.key_figures import KeyFigures
from workbench.analysis.views.texts import renamed, spans, texts
from workbench.analysis.wording import count, few, one_of, signed, times
from workbench.table.tuned import NOT_CONFIRMED, UNDECIDED, BestAt, Tuned

NO_SEARCH = "No search was made in this campaign: `workbench tune` makes one."
_BASELINE = "baseline-"


def tune_answer(tuned: Tuned | None, runs: pd.DataFrame) -> Answer:
    """Which configuration to use at which concurrency and what it buys, how sure that is, and what it cost."""
    if tuned is None or not tuned.best:
        return Answer(NO_SEARCH)
    sentence = joined([_use(tuned.best), _not_sure(tuned.best)])
    points = keep(
        _simulated(runs),
        *_rivals(tuned.best),
        _one_for_all(tuned),
        _spent(tuned),
        _residuals(tuned.residuals),
        *_left_out(tuned),
        answers.on_cpu(runs),
    )
    going_on = tuned.next_start and f"`workbench tune` would go on with {tuned.next_start[0]}: {tuned.next_start[1]}."
    return Answer(sentence, points, keep(going_on), _headline(tuned))


def _use(best: Sequence[BestAt]) -> str:
    return f"Use {'; '.join(_with(config, own) for config, own in _by_config(best).items())}."


def _by_config(best: Sequence[BestAt]) -> dict[str, list[BestAt]]:
    """The loads that each configuration is the best at."""
    by_config: dict[str, list[BestAt]] = {}
    for each in best:
        by_config.setdefault(each.config, []).append(each)
    return by_config


def _loads(own: Sequence[BestAt]) -> str:
    return one_of(str(each.load) for each in own)


def _with(config: str, own: Sequence[BestAt]) -> str:
    loads = _loads(own)
    if config.startswith(_BASELINE):
        sure = all(each.state != UNDECIDED for each in own)
        return f"no speculation ({config}) at {loads} at once{', where nothing that drafts is faster' if sure else ''}"
    gains = [each.speedup for each in own if each.speedup is not None]
    buys = f", {one_of(map(times, gains))} the baseline's speed" if len(gains) == len(own) else ""
    return f"{config} at {loads} at once{buys}"


def _not_sure(best: Sequence[BestAt]) -> str | None:
    open_at, once = (_loads([each for each in best if each.state == state]) for state in (UNDECIDED, NOT_CONFIRMED))
    said = [f"Undecided at {open_at} at once: others may be faster."] if open_at else []
    said += [f"Not confirmed by a second start at {once}."] if once else []
    return joined(said) or None


def _rivals(best: Sequence[BestAt]) -> list[str]:
    """Who may still be faster at each load."""
    return [f"At {each.load} at once {few(each.rivals)} may be faster." for each in best if each.rivals]


def _simulated(runs: pd.DataFrame) -> str | None:
    drafting = runs[runs["role"] == "speculative"]
    if drafting.empty or not drafting["origin"].eq("simulated").all():
        return None
    return "Acceptance is simulated: this is what a drafter of that accept length would bring, not what one brought."


def _one_for_all(tuned: Tuned) -> str | None:
    single = tuned.one_for_all
    if single is None or len(tuned.best) < 2:
        return None
    losses = one_of(f"{loss:.1%} at {load}" for load, loss in sorted(single.regret.items()))
    return f"One configuration for all loads: {single.config}, which loses {losses}."


def _spent(tuned: Tuned) -> str:
    minutes = tuned.minutes
    spent = f"The search took {minutes.spent:.1f} GPU minutes in {count(minutes.starts, 'start')}"
    if not minutes.full_grid_estimate:
        return f"{spent}."
    configs = tuned.ranking["config"].nunique()
    return (
        f"{spent}; all {count(configs, 'configuration')} with all passes would take about "
        f"{minutes.full_grid_estimate:.1f} ({minutes.spent / minutes.full_grid_estimate:.0%})."
    )


def _residuals(residuals: pd.DataFrame) -> str | None:
    """How far a prediction lies from what was then measured: why the rest may be believed."""
    errors = residuals["error"].dropna().abs()
    if errors.empty:
        return None
    inside = residuals["inside"].dropna()
    held = f"; {int(inside.sum())} of {len(inside)} lie within their 95 % interval" if len(inside) else ""
    return (
        f"Predicted as if it had not been measured, a configuration's speed is {errors.median():.1%} off in the median "
        f"and {errors.max():.1%} at most ({count(len(errors), 'pair')}){held}."
    )


def _left_out(tuned: Tuned) -> list[str]:
    return [
        f"Left out: {each.config}{'' if each.load is None else f' at {each.load}'}, {each.why}"
        for each in tuned.left_out
    ]


def _headline(tuned: Tuned) -> dict[str, str]:
    gains = [(each.speedup, each.load) for each in tuned.best if each.speedup is not None]
    said = {}
    if gains:
        gain, load = max(gains)
        said["best speedup"] = f"{times(gain)} at {load}"
    said["GPU minutes"] = f"{tuned.minutes.spent:.1f}"
    if tuned.minutes.full_grid_estimate:
        said["of the full grid's"] = f"{tuned.minutes.spent / tuned.minutes.full_grid_estimate:.0%}"
    return said


# --- tables and numbers ------------------------------------------------------------------------------------------


def ranking_view(tuned: Tuned | None) -> pd.DataFrame:
    """Every configuration at every load, the fastest first."""
    if tuned is None:
        return pd.DataFrame()
    table = tuned.ranking
    shown = table.assign(ends=spans(table, "low", "high"), ratio_ends=spans(table, "ratio_low", "ratio_high"))
    names = {
        "max_concurrency": "concurrency",
        "rank": "rank",
        "config": "configuration",
        "basis": "basis",
        "tok_per_s": "tok/s",
        "ends": "95 %",
        "measured_tok_per_s": "measured",
        "speedup": "speedup",
        "ratio": "of the leader's speed",
        "ratio_ends": "95 % of that",
        "accept_length": "accept length",
        "visits": "visits",
        "standing": "standing",
    }
    return renamed(shown, names)


def residuals_view(tuned: Tuned | None) -> pd.DataFrame:
    """What was measured beside what the other configurations had predicted for it."""
    if tuned is None:
        return pd.DataFrame()
    table = tuned.residuals
    errors = texts([_percent(row) for row in records(table)], table.index)
    shown = table.assign(ends=spans(table, "tok_per_s_low", "tok_per_s_high"), apart=errors)
    names = {
        "config": "configuration",
        "max_concurrency": "concurrency",
        "measured_tok_per_s": "measured tok/s",
        "tok_per_s": "predicted tok/s",
        "ends": "95 %",
        "apart": "predicted too high by",
    }
    return renamed(shown, names)


def _percent(row: Row) -> str | None:
    error = number(row["error"])
    return None if error is None else f"{signed(100 * error, 1)} %"


def commands(tuned: Tuned | None) -> Mapping[str, str]:
    """Command lines by what they are for."""
    if tuned is None:
        return {}
    best = _by_config(tuned.best)
    found = {
        f"To serve {_loads(best[config])} at once": command
        for config, command in tuned.commands.items()
        if config in best
    }
    if tuned.adaptive_command is not None:
        found["All loads by one server that changes its steps with the batch (not measured)"] = tuned.adaptive_command
    return found


def figures_of(tuned: Tuned | None, campaign: str) -> KeyFigures:
    """The speed and the speedup of the best at each load."""
    if tuned is None:
        return KeyFigures((), (NO_SEARCH,))
    figures: list[Row] = []
    for each in tuned.best:
        about = {"campaign": campaign, "label": each.config, "max_concurrency": each.load}
        ends = {"low": each.low, "high": each.high, "interval": "95 %"} if each.low is not None else {}
        speed = {"name": "decode_tok_per_s", "unit": "tok/s", "value": each.tok_per_s, **ends}
        figures.append(speed | about)
        if each.speedup is not None:
            figures.append({"name": "speedup", "unit": "ratio", "value": each.speedup} | about)
    doubts = [f"at {each.load}: {each.state}" for each in tuned.best if each.state in (UNDECIDED, NOT_CONFIRMED)]
    return KeyFigures(tuple(figures), tuple(doubts))
