"""The accept length of configurations that were not run, from the histograms of those that were.

A chain cut at n steps accepts the same first n drafts, so one long chain tells every shorter one: one plus the sum of
its survival up to n. It is not exact, for the steps of a long chain begin at other places: of recorded chains 2 to 5
steps were met within 2 % from 6 steps, one step alone accepted 2 to 4 % more than told.

For a tree nothing of the kind holds. What is known of it is a range, from the chain of its depth to the widest measured
tree cut at its depth. In between it lies by its width, the logarithm of its drafts a step: of 40 trees of two drafters
in ``data/recorded/h200_wide``, ``h200_grid`` and ``h200_tune``, each at two loads, told from the longest chain and the
widest tree alone, accept lengths are 3, 2 and 4 % off (root mean squares; `tests/tune/test_acceptance.py`). But breadth
may displace depth: SpecBundle's tree of 7 steps, topk 4 and 8 tokens accepts 2.9, its chain of 7 steps 3.6. So the low
end of the range is the chain of half the drafts. Such a range serves to choose what to measure, it is no prediction.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from workbench.analysis.frames import Floats, resample_weights
from workbench.tune.state import Config, State, Visit, histogram_matrix

MEASURED, FORCED, CHAIN, RANGE, UNKNOWN = "measured", "forced", "from a longer chain", "range", "not predicted"
_NARROW = 0.2  # of the way from the chain of its depth to the widest tree, where a tree has one draft for each step
_SPREAD = 0.15  # of that way, as a standard deviation
_UNLIKE = 0.2  # of that: how far two trees of one shape may still lie apart
_Tree = tuple[Config, list[Visit]]


@dataclass(frozen=True, slots=True)
class Length:
    """Accept length: ``value`` is missing where only a range is known, ``draws`` are for intervals and comparisons.

    Draw i of every configuration belongs to the same resample of the prompts.
    """

    basis: str
    value: float | None
    draws: Floats


def accept_length(state: State, config: Config, load: int, draws: int, seed: int = 0) -> Length:
    """What is known of a configuration's accept length at a load."""
    if config.is_baseline:
        return Length(MEASURED, 1.0, np.ones(draws))
    if config.forced is not None:
        forced = min(config.forced, config.steps + 1.0)
        return Length(FORCED, forced, np.full(draws, forced))
    own = _at(state.of(config.name), load)
    if own:
        return _measured(own, draws, seed)
    if config.is_chain:
        told = _cut(_longer(_chain_lengths(state, config), load, config.steps), config.steps, draws, seed)
        return Length(UNKNOWN, None, np.full(draws, np.nan)) if told is None else _length(CHAIN, told)
    return _tree(state, config, load, draws, seed)


@lru_cache(maxsize=64)
def survival(visits: tuple[Visit, ...], draws: int, seed: int) -> Floats | None:
    """Share of verify steps that accept at least 1, 2 ... drafts, (1 + draws, depth): of all prompts first, then of
    resamples over them.
    """
    prompts, counts = histogram_matrix(visits)
    if counts.sum() <= 0:
        return None
    at_least = np.flip(np.cumsum(np.flip(counts, axis=1), axis=1), axis=1)
    total = at_least.sum(axis=0)
    drawn = resample_weights(len(prompts), draws, seed) @ at_least
    # A resample may draw only prompts without a verify step.
    return np.vstack([total[1:] / total[0], drawn[:, 1:] / np.maximum(drawn[:, :1], 1.0)])


def _measured(own: Sequence[Visit], draws: int, seed: int) -> Length:
    found = survival(tuple(own), draws, seed)
    if found is not None:
        return _length(MEASURED, 1 + found.sum(axis=1))
    known = [visit.accept_length for visit in own if visit.accept_length is not None]
    if not known:
        return Length(UNKNOWN, None, np.full(draws, np.nan))
    return Length(MEASURED, float(np.mean(known)), np.full(draws, np.mean(known)))


def _length(basis: str, told: Floats) -> Length:
    """An accept length of all prompts first, then of the draws."""
    return Length(basis, float(told[0]), told[1:])


def _cut(visits: Sequence[Visit], steps: int, draws: int, seed: int) -> Floats | None:
    """Accept length of a chain cut at ``steps``: of all prompts, then of the draws."""
    found = survival(tuple(visits), draws, seed) if visits else None
    return None if found is None else np.asarray(1 + found[:, :steps].sum(axis=1), dtype=np.float64)


def _chain_lengths(state: State, config: Config) -> dict[int, list[Visit]]:
    """Visits of the drafter's chains that have histograms, by steps."""
    found: dict[int, list[Visit]] = {}
    for each in state.configs:
        if each.is_chain and each.drafter == config.drafter and each.forced is None and each.name != config.name:
            visits = [visit for visit in state.of(each.name) if visit.histograms]
            if visits:
                found.setdefault(each.steps, []).extend(visits)
    return found


def _tree(state: State, config: Config, load: int, draws: int, seed: int) -> Length:
    """Somewhere between its ends, as far up as its width says and as the trees that were measured lie."""
    trees = _measured_trees(state, config, load)
    ends = _ends(state, config, trees, load, draws, seed)
    if ends is None:
        return Length(UNKNOWN, None, np.full(draws, np.nan))
    place, spread = _place(state, config, trees, load)
    noise = np.random.default_rng([seed, config.seed]).standard_normal(draws)
    drawn = ends.at(np.clip(place + spread * noise, -_NARROW, max(1.0, place)))
    return Length(RANGE, None, np.minimum(drawn, _depth(config) + 1.0))


@dataclass(frozen=True, slots=True)
class _Ends:
    """What a tree accepts at the places -`_NARROW` (the chain of half its drafts), 0 (the chain of its depth) and 1
    (the widest measured tree, cut at its depth): of all prompts first, then of the draws.
    """

    half: Floats
    chain: Floats
    wide: Floats

    def at(self, place: Floats) -> Floats:
        half, chain, wide = self.half[1:], self.chain[1:], self.wide[1:]
        return np.where(place < 0, chain + place / _NARROW * (chain - half), chain + place * (wide - chain))

    def place(self, length: float) -> float:
        """Where this length of all prompts lies; 1 where there is no room between the ends."""
        half, chain, wide = float(self.half[0]), float(self.chain[0]), float(self.wide[0])
        if length < chain and chain > half:
            return -_NARROW * (chain - length) / (chain - half)
        return (length - chain) / (wide - chain) if wide > chain else 1.0


def _ends(state: State, config: Config, trees: Sequence[_Tree], load: int, draws: int, seed: int) -> _Ends | None:
    chains = _chain_lengths(state, config)
    reach = min(max(chains, default=1), _depth(config))
    half, chain = (
        _cut(_longer(chains, load, depth), depth, draws, seed)
        for depth in (max(1, min(reach, (config.draft_tokens - 1) // 2)), reach)
    )
    if half is None or chain is None:
        return None
    if not trees:
        return _Ends(half, chain, np.full(draws + 1, _depth(config) + 1.0))
    wide = 1 + _deepened(_widest(trees), _depth(config), draws, seed).sum(axis=1)
    return _Ends(half, chain, np.maximum(wide, chain))


def _depth(config: Config) -> int:
    """The most drafts that can be accepted."""
    return max(1, min(config.steps, config.draft_tokens - 1))


def _place(state: State, config: Config, trees: Sequence[_Tree], load: int) -> tuple[float, float]:
    """Mean and standard deviation of where a tree lies between its ends.

    Before any is measured, as its width is to the widest's (logarithms); each measured one draws those like it along.
    """
    if not trees:
        return 0.5, 0.5
    widest = _width(_widest(trees)[0])
    known = [each for each, _ in trees]
    apart = []
    for each, visits in trees:
        ends, length = _ends(state, each, trees, load, 1, 0), _measured(visits, 1, 0).value
        seen = 1.0 if ends is None or length is None else ends.place(length)
        apart.append(min(max(seen, -_NARROW), 1.5) - _share(each, widest))
    between = np.array([[_likeness(one, other) for other in known] for one in known])
    across = np.array([_likeness(config, other) for other in known])
    weights = np.linalg.solve(between + _UNLIKE**2 * np.eye(len(known)), across)
    left = max(1.0 - float(weights @ across), _UNLIKE)
    return _share(config, widest) + float(weights @ np.array(apart)), _SPREAD * math.sqrt(left)


def _share(config: Config, widest: float) -> float:
    return _NARROW + (1 - _NARROW) * _width(config) / widest if widest > 0 else 1.0


def _likeness(one: Config, other: Config) -> float:
    """1 for the same shape, falling with the doublings of width, steps and topk between two."""
    apart = (
        (_width(one) - _width(other)) / math.log(2),
        math.log2(one.steps / other.steps),
        math.log2(one.topk / other.topk),
    )
    return math.exp(-sum(each**2 for each in apart) / 2)


def _deepened(wide: _Tree, steps: int, draws: int, seed: int) -> Floats:
    """Survival of a measured tree by depth, cut or carried on to ``steps``: at its last depth's own rate.

    Of all prompts first, then of the draws.
    """
    found = survival(tuple(wide[1]), draws, seed)
    assert found is not None
    drawn = found[:, :steps]
    if not drawn.shape[1]:  # no draft was ever accepted
        return np.zeros((draws + 1, steps))
    while drawn.shape[1] < steps:
        last = drawn[:, -1]
        before = drawn[:, -2] if drawn.shape[1] > 1 else np.ones(draws + 1)
        drawn = np.column_stack([drawn, last * np.divide(last, before, out=np.zeros(draws + 1), where=before > 0)])
    return np.asarray(drawn, dtype=np.float64)


def _width(config: Config) -> float:
    """Logarithm of the drafts for each step: 0 for a chain."""
    return math.log(max(1.0, (config.draft_tokens - 1) / config.steps))


def _measured_trees(state: State, config: Config, load: int) -> list[_Tree]:
    """The other trees of the drafter whose histograms hold a verify step."""
    return [
        (each, visits)
        for each in state.configs
        if each.drafter == config.drafter and each.topk > 1 and each.forced is None and each.name != config.name
        if (visits := [visit for visit in _at(state.of(each.name), load) if visit.histograms])
        and survival(tuple(visits), 1, 0) is not None
    ]


def _widest(trees: Sequence[_Tree]) -> _Tree:
    return max(trees, key=lambda found: (found[0].draft_tokens, found[0].topk, found[0].steps))


def _longer(chains: Mapping[int, list[Visit]], load: int, steps: int) -> list[Visit]:
    """Visits of the shortest of the chains with at least so many steps."""
    longer = min((each for each in chains if each >= steps), default=None)
    return [] if longer is None else _at(chains[longer], load)


def _at(visits: Sequence[Visit], load: int) -> list[Visit]:
    """Those at this load; where there are none, those at all loads, for acceptance hardly depends on it."""
    return [visit for visit in visits if visit.load == load] or list(visits)
