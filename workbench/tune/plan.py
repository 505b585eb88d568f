"""Which server to start next, and why: a function of what is measured, so that a broken-off search goes on by itself.

First what tells most for its price: the baseline, the longest chain of each drafter (its histogram holds every shorter
chain), the shortest chain and the widest tree (with them the line of step times is known). Then, one at a time, the
configuration that may win most against the leader, at the loads where it may; then leader and rivals in turn until the
intervals part; last the leaders once more, so that each was measured before and after something else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from workbench.tune.predict import Speed, speeds
from workbench.tune.race import MAX_VISITS, Race, Rival, is_confirmed, races
from workbench.tune.state import Config, State

WORTH = 0.001
"""An expected gain below this share of the speed is left for another start, unless it is all there is."""


@dataclass(frozen=True, slots=True)
class Step:
    """One server start: a configuration, the loads to measure on it, and the reason."""

    config: Config
    loads: tuple[int, ...]
    why: str
    confirms: bool = False


@dataclass(frozen=True, slots=True)
class Position:
    """Where a search stands: all speeds, the race of each load, and the next step, ``None`` when it is over."""

    speeds: tuple[Speed, ...]
    races: Mapping[int, Race]
    step: Step | None


def position(state: State) -> Position:
    """Look at everything that is measured and choose the next start."""
    found = tuple(speeds(state))
    by_load = races(found)
    return Position(found, by_load, next(calibration(state), None) or _race_step(state, by_load))


def next_step(state: State) -> Step | None:
    """The next start alone, which needs no prediction as long as what tells most is missing."""
    return next(calibration(state), None) or _race_step(state, races(speeds(state)))


def estimated_s(state: State, step: Step, passes: int) -> float | None:
    """How long a step takes, by the mean of what starts and passes took; ``None`` before the first start."""
    parts = [cost for load in step.loads if (cost := pass_seconds(state, load)) is not None]
    fixed = fixed_seconds(state)
    return None if fixed is None else fixed + passes * sum(parts)


def fixed_seconds(state: State) -> float | None:
    """Mean time of a start without its passes."""
    if not state.start_s:
        return None
    of_passes = sum(visit.pass_s * len(visit.speeds) for visit in state.visits if visit.start in state.start_s)
    return max(0.0, state.spent_s - of_passes) / len(state.start_s)


def pass_seconds(state: State, load: int) -> float | None:
    """Mean time of a pass at a load."""
    known = [visit.pass_s for visit in state.visits if visit.load == load]
    return sum(known) / len(known) if known else None


# --- the stages --------------------------------------------------------------------------------------------------


def _race_step(state: State, by_load: Mapping[int, Race]) -> Step | None:
    return _explore(by_load) or _settle(state, by_load) or _confirm(state, by_load)


def calibration(state: State) -> Iterator[Step]:
    """What is still missing of the runs that tell most, in order."""
    reasons: dict[Config, str] = {}
    for config, why in _telling(state):
        reasons.setdefault(config, why)
    for config, why in reasons.items():
        missing = tuple(
            load for load in state.loads if not state.of(config.name, load) and state.can_visit(config, load)
        )
        if missing:
            yield Step(config, missing, why)


def _telling(state: State) -> Iterator[tuple[Config, str]]:
    """The runs that tell most, in order."""
    drafting = [config for config in state.candidates if not config.is_baseline]
    groups = list(dict.fromkeys(config.group for config in drafting)) or ["default"]
    for base in state.configs:
        if base.is_baseline and base.group in groups:
            yield base, "the baseline: everything is measured against it"
    usual = [config for config in drafting if config.group == groups[0]]
    for drafter in dict.fromkeys(config.drafter for config in usual):
        chains = [config for config in usual if config.drafter == drafter and config.is_chain]
        if chains and chains[0].forced is None:
            yield max(chains, key=_size), "the longest chain: its histogram tells every shorter one"
    for group in groups:
        yield from _shapes([config for config in drafting if config.group == group])


def _shapes(drafting: Sequence[Config]) -> Iterator[tuple[Config, str]]:
    """Two or three that fix the line of step times of a group."""
    chains = [config for config in drafting if config.is_chain]
    trees = [config for config in drafting if not config.is_chain]
    if chains:
        yield min(chains, key=_size), "the shortest chain: with the longest it tells what a step costs"
        yield max(chains, key=_size), "the longest chain: with the shortest it tells what a step costs"
    if trees:
        yield max(trees, key=_size), "the widest tree: it tells what draft tokens cost and the most a tree accepts"


def _size(config: Config) -> tuple[int, int, int]:
    return config.draft_tokens, config.topk, config.steps


def _explore(by_load: Mapping[int, Race]) -> Step | None:
    """The unmeasured configuration that may win most, at the loads where that is worth a pass."""
    waiting: dict[str, dict[int, Rival]] = {}
    for race in by_load.values():
        for rival in race.open_unmeasured:
            waiting.setdefault(rival.name, {})[race.load] = rival
    if not waiting:
        return None
    best = max(waiting.values(), key=lambda each: sum(rival.gain for rival in each.values()))
    most = max(rival.gain for rival in best.values())
    loads = tuple(load for load, rival in best.items() if rival.gain >= min(WORTH, most))
    return Step(best[loads[0]].speed.config, loads, "it may be the fastest")


def _settle(state: State, by_load: Mapping[int, Race]) -> Step | None:
    """Leader or rival once more, whichever was measured less: in turn, so that drift hits both."""
    for race in by_load.values():
        for rival in race.open_measured:
            both = race.leader.config, rival.speed.config
            arms = [each for each in both if _may_be_visited(state, each, race.load)]
            if arms:
                least = min(arms, key=lambda arm: (len(state.of(arm.name, race.load)), state.of(arm.name)[-1].at))
                loads = tuple(each.load for each in by_load.values() if _is_contested(each, least.name))
                why = f"{race.leader.config.name} and {rival.name} lie too near each other"
                return Step(least, loads, why, confirms=True)
    return None


def _is_contested(race: Race, name: str) -> bool:
    """Whether measuring this one again helps to decide a load."""
    rivals = race.open_measured
    return bool(rivals) and name in {race.leader.config.name, *(rival.name for rival in rivals)}


def _confirm(state: State, by_load: Mapping[int, Race]) -> Step | None:
    """A leader once more after its rivals; loads with the same leader share the start.

    Where the leader was measured last of all, something else comes first, so that the two are not one after the other.
    """
    waiting = [race for race in by_load.values() if not is_confirmed(state, race) and _can_confirm(state, race)]
    if not waiting:
        return None
    leader = waiting[0].leader.config
    loads = tuple(race.load for race in waiting if race.leader.config.name == leader.name)
    if max(state.visits, key=lambda visit: visit.at).config != leader.name:
        return Step(leader, loads, "the fastest once more, after its rivals (A-B-A)", confirms=True)
    measured = [rival.speed.config for rival in waiting[0].rivals if rival.speed.is_measured]
    other = next((each for each in measured if _may_be_visited(state, each, waiting[0].load)), None)
    if other is None:
        return None
    return Step(other, (waiting[0].load,), "between two starts of the fastest", confirms=True)


def _may_be_visited(state: State, config: Config, load: int) -> bool:
    return len(state.of(config.name, load)) < MAX_VISITS and state.can_visit(config, load)


def _can_confirm(state: State, race: Race) -> bool:
    return bool(race.rivals) and _may_be_visited(state, race.leader.config, race.load)
