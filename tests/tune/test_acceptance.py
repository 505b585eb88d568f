"""Accept lengths of what was not run, against sums by hand and against what recorded runs measured."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from workbench.paths import recorded_dir
from workbench.tune.acceptance import CHAIN, FORCED, MEASURED, RANGE, UNKNOWN, accept_length
from workbench.tune.state import Config, State, Visit, read_recorded

LONG = Config("long", drafter="d", steps=3, draft_tokens=4)
SHORT = Config("short", drafter="d", steps=1, draft_tokens=2)
TWO = Config("two", drafter="d", steps=2, draft_tokens=3)
OTHER = Config("other", drafter="e", steps=1, draft_tokens=2)
TREE = Config("tree", drafter="d", steps=2, topk=2, draft_tokens=6)
WIDE = Config("wide", drafter="d", steps=3, topk=4, draft_tokens=16)
GRID = (Config("base"), LONG, TWO, SHORT, OTHER, TREE, WIDE)
# 10 verify steps: 2 accept nothing, 3 one draft, 4 two, 1 three. Survival 0.8, 0.5, 0.1.
CHAINED = {0: (2.0, 0.0, 1.0, 0.0), 1: (0.0, 3.0, 3.0, 1.0)}
# Survival 0.9, 0.8, 0.4.
TREED = {0: (1.0, 1.0, 4.0, 4.0)}


def state(*visits: Visit) -> State:
    return State(GRID, (1, 8), visits)


def test_one_long_chain_tells_every_shorter_one() -> None:
    known = state(Visit("long", 1, (1.0,), 2.4, CHAINED))
    found = [accept_length(known, config, 1, 200) for config in (LONG, TWO, SHORT)]
    assert [each.basis for each in found] == [MEASURED, CHAIN, CHAIN]
    assert [each.value for each in found] == pytest.approx([2.4, 2.3, 1.8])


def test_draws_are_resamples_of_the_prompts_and_paired() -> None:
    known = state(Visit("long", 1, (1.0,), 2.4, CHAINED))
    long, short = (accept_length(known, config, 1, 500).draws for config in (LONG, SHORT))
    # Of two prompts a resample holds one twice or both: prompt 0 accepts (1.67, 1.33), prompt 1 (2.71, 2).
    assert sorted(set(short.round(2))) == [1.33, 1.8, 2.0]
    assert set(zip(long.round(2), short.round(2), strict=True)) == {(1.67, 1.33), (2.4, 1.8), (2.71, 2.0)}


def test_the_nearest_longer_chain_tells() -> None:
    known = state(Visit("long", 1, (1.0,), 2.4, CHAINED), Visit("two", 1, (1.0,), 2.0, {0: (1.0, 1.0, 1.0)}))
    assert accept_length(known, SHORT, 1, 10).value == pytest.approx(1 + 2 / 3)


def test_what_no_run_tells_is_not_predicted() -> None:
    known = state(Visit("two", 1, (1.0,), 2.0, {0: (1.0, 1.0, 1.0)}))
    for config in (LONG, OTHER):
        found = accept_length(known, config, 1, 10)
        assert (found.basis, found.value) == (UNKNOWN, None)
        assert np.isnan(found.draws).all()


def test_a_load_that_was_not_visited_takes_the_acceptance_of_another() -> None:
    known = state(Visit("long", 8, (1.0,), 2.4, CHAINED))
    assert accept_length(known, SHORT, 1, 10).value == pytest.approx(1.8)


def test_forced_acceptance_is_what_was_asked_for_and_predicts_nothing_else() -> None:
    forced = Config("forced", drafter="d", steps=3, draft_tokens=4, forced=2.5)
    grid = State((*GRID, forced), (1,), (Visit("forced", 1, (1.0,), 2.49, CHAINED),))
    assert accept_length(grid, forced, 1, 3).draws.tolist() == [2.5] * 3
    assert accept_length(grid, forced, 1, 3).basis == FORCED
    assert accept_length(grid, SHORT, 1, 3).value is None


def test_a_tree_has_a_range_between_the_chain_and_the_widest_tree() -> None:
    known = state(Visit("long", 1, (1.0,), 2.4, CHAINED), Visit("wide", 1, (1.0,), 3.1, TREED))
    found = accept_length(known, TREE, 1, 2000)
    assert (found.basis, found.value) == (RANGE, None)
    # 6 draft tokens hold at least a chain of 2 (2.3 in all, 1.67 to 2.71 by prompt); the wide tree cut at 2 has 2.7.
    assert found.draws.min() >= 1 + 0.67 - 0.01
    assert found.draws.max() <= 2.72


def test_breadth_may_displace_depth() -> None:
    known = state(Visit("long", 1, (1.0,), 2.4, CHAINED), Visit("wide", 1, (1.0,), 3.1, TREED))
    # 3 drafts in 3 steps: the chain of 3 steps has 2.4, that of 1 step 1.8 (1.33 and 2.0 by prompt), the wide tree 3.1.
    narrow = Config("narrow", drafter="d", steps=3, topk=2, draft_tokens=4)
    found = accept_length(known, narrow, 1, 4000).draws
    assert found.min() >= 1.33
    assert 0.02 < (found < 1.67).mean() < 0.2  # less than a chain of 3 steps has with any prompt
    assert 2.4 < np.median(found) < 2.8


def test_a_tree_deeper_than_every_chain_has_a_range_too() -> None:
    known = state(Visit("two", 1, (1.0,), 2.0, {0: (1.0, 1.0, 1.0)}), Visit("wide", 1, (1.0,), 3.1, TREED))
    deep = Config("deep", drafter="d", steps=3, topk=2, draft_tokens=10)
    found = accept_length(known, deep, 1, 2000)
    assert found.basis == RANGE
    assert 1.5 <= found.draws.min() < found.draws.max() <= 3.2


def test_a_drafter_that_is_never_accepted_and_an_answer_without_a_step() -> None:
    useless, nothing = {0: (3.0,), 1: (5.0,)}, {0: (0.0, 0.0)}
    for trees in (useless, nothing):
        known = state(Visit("long", 1, (1.0,), 1.0, useless), Visit("wide", 1, (1.0,), 1.0, trees))
        found = accept_length(known, TREE, 1, 50)
        assert found.basis == RANGE
        assert 1.0 <= found.draws.min() <= found.draws.max() <= 3.0


def test_a_tree_is_told_no_more_than_it_can_accept() -> None:
    few = Config("few", drafter="d", steps=3, topk=2, draft_tokens=3)
    for visits in ([], [Visit("wide", 1, (1.0,), 3.9, {0: (0.0, 0.0, 0.0, 9.0)})]):
        known = state(Visit("long", 1, (1.0,), 3.9, {0: (0.0, 0.0, 0.0, 9.0)}), *visits)
        assert accept_length(known, few, 1, 200).draws.max() <= 3.0


def test_a_tree_without_a_measured_one_may_accept_everything() -> None:
    found = accept_length(state(Visit("long", 1, (1.0,), 2.4, CHAINED)), TREE, 1, 2000)
    assert found.basis == RANGE
    assert found.draws.max() == pytest.approx(3.0)


@lru_cache
def recorded(prompts: str) -> State:
    return read_recorded(recorded_dir() / "h200_first_trial", prompt_set=prompts)


@pytest.mark.parametrize(
    ("prompts", "steps", "measured", "off"),
    # What the recorded runs of these lengths accepted (data/recorded/h200_first_trial), predicted from 6 steps.
    [
        ("mix_heldout", 1, 1.538, 0.045),
        ("mix_heldout", 2, 1.708, 0.02),
        ("mix_heldout", 4, 1.993, 0.02),
        ("mix_heldout", 5, 2.020, 0.02),
        ("mt_bench_first_turn", 1, 1.459, 0.045),
        ("mt_bench_first_turn", 2, 1.606, 0.02),
        ("mt_bench_first_turn", 4, 1.706, 0.02),
        ("mt_bench_first_turn", 5, 1.739, 0.02),
    ],
)
def test_recorded_chains_are_predicted_by_the_longest(prompts: str, steps: int, measured: float, off: float) -> None:
    whole = recorded(prompts)
    longest = tuple(visit for visit in whole.visits if visit.config.startswith("n24000L-s6-"))
    assert len(longest) == 1
    config = Config("asked", drafter="n24000L", steps=steps, draft_tokens=steps + 1)
    found = accept_length(State(whole.configs, whole.loads, longest), config, 1, 2000)
    assert found.value == pytest.approx(measured, rel=off)
    low, high = np.percentile(found.draws, [2.5, 97.5])
    assert low < measured < high


@pytest.mark.parametrize(
    ("campaign", "trees", "off"), [("h200_wide", 16, 0.035), ("h200_grid", 15, 0.03), ("h200_tune", 9, 0.05)]
)
def test_recorded_trees_lie_near_where_their_width_puts_them(campaign: str, trees: int, off: float) -> None:
    whole = read_recorded(recorded_dir() / campaign)
    wide = max((each for each in whole.configs if each.topk > 1), key=lambda each: (each.draft_tokens, each.steps))
    longest = max((each for each in whole.configs if each.is_chain), key=lambda each: each.steps)
    known = replace(whole, visits=tuple(each for each in whole.visits if each.config in (wide.name, longest.name)))
    errors, inside = [], []
    for visit in whole.visits:
        config = next(each for each in whole.configs if each.name == visit.config)
        if config.topk > 1 and config != wide and visit.accept_length is not None:
            told = accept_length(known, config, visit.load, 2000)
            low, high = np.percentile(told.draws, [2.5, 97.5])
            errors.append(told.draws.mean() / visit.accept_length - 1)
            inside.append(low <= visit.accept_length <= high)
    assert len(errors) == 2 * trees
    assert np.sqrt(np.mean(np.square(errors))) < off
    assert np.mean(inside) > 0.85
