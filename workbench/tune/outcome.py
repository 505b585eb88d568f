"""What a search found: a ranking for each load, the best of each, one configuration for all, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from workbench.analysis.frames import Row, interval, records, typed
from workbench.table.tuned import DECIDED, NOT_CONFIRMED, UNDECIDED
from workbench.tune.plan import Position, fixed_seconds, pass_seconds
from workbench.tune.race import TOLERANCE, Race, Rival, is_confirmed
from workbench.tune.state import Config, State

_RANKING = {
    "max_concurrency": "Int64",
    "rank": "Int64",
    "config": "str",
    "basis": "str",
    **dict.fromkeys(
        ("tok_per_s", "low", "high", "measured_tok_per_s", "speedup", "ratio", "ratio_low", "ratio_high"), "float64"
    ),
    "accept_length": "float64",
    "visits": "Int64",
    "standing": "str",
}
_ORDER = ("leader", "open", "may be as fast", "out")


@dataclass(frozen=True, slots=True)
class Best:
    """The answer at one load. ``rivals`` are those that may still be faster by more than the tolerance."""

    load: int
    config: str
    tok_per_s: float
    low: float
    high: float
    measured_tok_per_s: float | None
    speedup: float | None
    state: str
    rivals: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OneForAll:
    """The configuration that loses least when it serves every load: its regret at each, 0 where it leads."""

    config: str
    regret: Mapping[int, float]

    @property
    def worst(self) -> float:
        return max(self.regret.values())


# --- tables ------------------------------------------------------------------------------------------------------


def ranking_df(state: State, at: Position) -> pd.DataFrame:
    """Every configuration at every load: measured ones by speed, then the others by what they may reach.

    ``tok_per_s`` weighs what was measured with what the other shapes say of it, ``measured_tok_per_s`` does not.

    ``ratio`` is the speed over the leader's, with the 95 % interval of the paired draws. ``standing`` is leader, open
    (may be faster by more than the tolerance), may be as fast, or out.
    """
    rows: list[Row] = []
    for load in sorted(at.races):
        race = at.races[load]
        entered = [(race.leader, None), *((rival.speed, rival) for rival in race.rivals)]
        entered.sort(key=lambda pair: (not pair[0].is_measured, -(pair[0].value or _high(pair[1]))))
        for rank, (speed, rival) in enumerate(entered, 1):
            low, high = interval(speed.draws)
            base = state.base_speed(speed.config.group, load)
            rows.append(
                {
                    "max_concurrency": load,
                    "rank": rank if speed.is_measured else None,
                    "config": speed.config.name,
                    "basis": speed.basis,
                    "tok_per_s": speed.value,
                    "low": float(low),
                    "high": float(high),
                    "measured_tok_per_s": speed.measured,
                    "speedup": speed.value / base if speed.value is not None and base else None,
                    "accept_length": None if speed.config.is_baseline else speed.length.value,
                    "visits": len(state.of(speed.config.name, load)),
                    "standing": _standing(rival),
                    **_ratios(rival),
                }
            )
    return typed(rows, _RANKING)


def _high(rival: Rival | None) -> float:
    return rival.high if rival is not None and np.isfinite(rival.high) else 0.0


def _ratios(rival: Rival | None) -> Row:
    if rival is None:
        return {"ratio": 1.0, "ratio_low": 1.0, "ratio_high": 1.0}
    return {"ratio": rival.ratio, "ratio_low": rival.low, "ratio_high": rival.high}


def _standing(rival: Rival | None) -> str:
    if rival is None:
        return _ORDER[0]
    if rival.is_open:
        return _ORDER[1]
    return _ORDER[2] if rival.may_lead else _ORDER[3]


# --- answers -----------------------------------------------------------------------------------------------------


def best_by_load(state: State, at: Position) -> list[Best]:
    """The leader of every load and how sure that is."""
    return [_best(state, at.races[load]) for load in sorted(at.races)]


def _best(state: State, race: Race) -> Best:
    leader = race.leader
    low, high = interval(leader.draws)
    base = state.base_speed(leader.config.group, race.load)
    rivals = tuple(rival.name for rival in race.rivals if rival.is_open)
    sure = UNDECIDED if rivals else DECIDED if is_confirmed(state, race) else NOT_CONFIRMED
    assert leader.value is not None
    speedup = leader.value / base if base else None
    ends = float(low), float(high)
    return Best(race.load, leader.config.name, leader.value, *ends, leader.measured, speedup, sure, rivals)


def one_for_all(at: Position) -> OneForAll | None:
    """Among those that were measured at every load; ``None`` where there is none."""
    regrets: dict[str, dict[int, float]] = {}
    for load, race in at.races.items():
        regrets.setdefault(race.leader.config.name, {})[load] = 0.0
        for rival in race.rivals:
            if rival.speed.is_measured and rival.ratio is not None:
                regrets.setdefault(rival.name, {})[load] = 1 - rival.ratio
    whole = {name: found for name, found in regrets.items() if len(found) == len(at.races)}
    if not whole:
        return None
    name = min(whole, key=lambda each: max(whole[each].values()))
    return OneForAll(name, dict(sorted(whole[name].items())))


def full_grid_s(state: State, passes: int, *, baseline_again: bool = True) -> float | None:
    """What every configuration at every load with all passes would take, by the mean times so far."""
    fixed = fixed_seconds(state)
    by_load = [pass_seconds(state, load) for load in state.loads]
    if fixed is None or None in by_load:
        return None
    starts = len(state.candidates) + baseline_again
    return starts * (fixed + passes * sum(seconds for seconds in by_load if seconds is not None))


# --- SGLang's adaptive mode --------------------------------------------------------------------------------------


def adaptive_config(state: State, at: Position) -> tuple[Config, dict[str, object]] | None:
    """The chain lengths by batch size for ``--speculative-adaptive-config``, and the configuration to start with.

    SGLang 0.5.14 (`speculative/adaptive_spec_params.py`) reads an object with batch sizes as keys; a batch uses the
    largest key that is not above it. ``candidate_steps`` with one value fixes the steps there, 0 turns speculation
    off. It serves chains of one drafter only, so this is the best of those at each load, and the drafter is the one
    whose chains lose least. ``None`` where one length serves all loads best, or no chain was measured at every load.
    """
    chosen: dict[str | None, dict[int, tuple[float, Config]]] = {}
    drafters = {config.drafter for config in state.candidates if config.is_chain}
    for drafter in drafters:
        for load, race in at.races.items():
            ratios = {race.leader.config.name: (1.0, race.leader.config)}
            ratios |= {
                rival.name: (rival.ratio, rival.speed.config)
                for rival in race.rivals
                if rival.ratio is not None and rival.speed.is_measured
            }
            fitting = [each for each in ratios.values() if _adaptive(each[1], drafter)]
            if fitting:
                chosen.setdefault(drafter, {})[load] = max(fitting, key=lambda each: each[0])
    whole = [found for found in chosen.values() if len(found) == len(at.races)]
    if not whole:
        return None
    best = max(whole, key=lambda found: min(ratio for ratio, _ in found.values()))
    first = max((config for _, config in best.values()), key=lambda config: config.steps)
    if len({config.steps for _, config in best.values()}) < 2:
        return None
    return first, {str(load): {"candidate_steps": [best[load][1].steps]} for load in sorted(best)}


def _adaptive(config: Config, drafter: str | None) -> bool:
    return config.group == "default" and (config.is_baseline or (config.is_chain and config.drafter == drafter))


# --- text --------------------------------------------------------------------------------------------------------


def summary(state: State, at: Position, passes: int, gpus: int, *, baseline_again: bool = True) -> list[str]:
    """The answers as sentences."""
    lines = [_sentence(best) for best in best_by_load(state, at)]
    single = one_for_all(at)
    if single is not None and len(at.races) > 1:
        losses = ", ".join(f"{regret:.1%} at {load}" for load, regret in single.regret.items())
        lines.append(f"One for all: {single.config}, which loses {losses}.")
    full = full_grid_s(state, passes, baseline_again=baseline_again)
    spent = f"{state.spent_s * gpus / 60:.1f} GPU minutes in {len(state.start_s)} starts"
    if full:
        spent += f"; the full grid of {len(state.candidates)} would take about {full * gpus / 60:.1f}"
        spent += f" ({state.spent_s / full:.0%})"
    lines += [f"Spent: {spent}."]
    lines += [f"Left out: {name} at {load}, {why}" for (name, load), why in state.given_up.items()]
    return lines


def _sentence(best: Best) -> str:
    gain = "" if best.speedup is None else f", {best.speedup:.2f}x the baseline"
    measured = "" if best.measured_tok_per_s is None else f", measured {best.measured_tok_per_s:.1f}"
    speed = f"{best.tok_per_s:.1f} tok/s ({best.low:.1f} to {best.high:.1f}{measured}){gain}"
    said = {
        DECIDED: f"nothing else is faster by more than {TOLERANCE:.0%}, confirmed by a second start",
        NOT_CONFIRMED: f"nothing else is faster by more than {TOLERANCE:.0%}, not confirmed by a second start",
        UNDECIDED: f"undecided, {_some(best.rivals)} may be faster",
    }[best.state]
    return f"At {best.load} at once: {best.config}, {speed}; {said}."


def _some(names: Sequence[str], shown: int = 3) -> str:
    more = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {more} more" if more > 0 else "")


def ranking_text(ranking: pd.DataFrame, shown: int = 8) -> str:
    """The ranking for a terminal: the first of each load, and how many are behind."""
    lines = []
    for load, rows in ranking.groupby("max_concurrency", sort=True):
        lines.append(f"{load} at once:")
        width = max(len(name) for name in rows["config"].head(shown))
        lines += [_row_text(row, width) for row in records(rows.head(shown))]
        if len(rows) > shown:
            lines.append(f"  and {len(rows) - shown} more, in tune.json")
    return "\n".join(lines)


def _row_text(row: Row, width: int) -> str:
    speed = "-" if row["tok_per_s"] is None else f"{row['tok_per_s']:.1f}"
    span = "" if row["low"] is None else f"{row['low']:.1f} to {row['high']:.1f}"
    rank = "-" if row["rank"] is None else row["rank"]
    return f"  {rank:>3} {row['config']:<{width}}  {speed:>9} tok/s  {span:>20}  {row['basis']:<13}  {row['standing']}"
