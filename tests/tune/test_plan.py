"""Which start comes next, on small states."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tuning_worlds import grid, measure, random_world, search

from workbench.tune.plan import calibration, estimated_s, next_step, position
from workbench.tune.state import Config, State, Visit

EMPTY = State(grid(), (1, 16))


def names(state: State) -> list[str]:
    return [step.config.name for step in calibration(state)]


def test_what_tells_most_comes_first() -> None:
    assert names(EMPTY) == ["baseline", "s8-k1-n9", "s1-k1-n2", "s7-k4-n16"]
    assert next_step(EMPTY) == next(calibration(EMPTY))
    assert {step.loads for step in calibration(EMPTY)} == {(1, 16)}


def test_every_drafter_shows_its_longest_chain_and_forced_shapes_win_nothing() -> None:
    configs = (
        Config("baseline"),
        *(Config(f"{drafter}-s{n}", drafter=drafter, steps=n, draft_tokens=n + 1) for drafter in "de" for n in (2, 4)),
        Config("forced", drafter="d", steps=9, draft_tokens=10, forced=2.0),
    )
    assert names(State(configs, (1,))) == ["baseline", "d-s4", "e-s4", "d-s2"]


def test_a_grid_of_forced_shapes_is_searched_as_it_is() -> None:
    shapes = tuple(Config(f"s{n}", drafter="d", steps=n, draft_tokens=n + 1, forced=2.0) for n in (1, 2, 3))
    assert names(State((Config("baseline"), *shapes), (1,))) == ["baseline", "s1", "s3"]


def test_what_failed_or_is_not_asked_for_is_left_out() -> None:
    failed = replace(EMPTY, given_up={("s8-k1-n9", load): "out of memory" for load in (1, 16)})
    assert names(failed) == ["baseline", "s1-k1-n2", "s7-k4-n16"]
    once = replace(EMPTY, outside=frozenset({("s1-k1-n2", 16)}))
    assert [step.loads for step in calibration(once)][2] == (1,)


def test_the_next_start_follows_from_what_is_measured_alone() -> None:
    world = random_world(3)
    stopped = search(world, budget_s=400)
    again = replace(stopped, visits=tuple(reversed(stopped.visits)))
    assert next_step(stopped) is not None
    assert next_step(stopped) == next_step(again) == position(stopped).step


def test_a_leader_is_measured_once_more_after_its_rivals() -> None:
    fast, slow = (Config(name, drafter="d", steps=n, draft_tokens=n + 1) for name, n in (("fast", 2), ("slow", 1)))
    counts = {prompt: (1.0, 1.0, 1.0) for prompt in range(9)}
    visits = (
        Visit("baseline", 1, (100.0, 100.1), at="1"),
        Visit("fast", 1, (150.0, 150.1), 2.0, counts, at="2"),
        Visit("slow", 1, (110.0, 110.1), 1.5, {0: (1.0, 1.0)}, at="3"),
    )
    state = State((Config("baseline"), fast, slow), (1,), visits)
    step = next_step(state)
    assert step is not None and (step.config, step.loads, step.confirms) == (fast, (1,), True)
    done = replace(state, visits=(*visits, Visit("fast", 1, (150.0,), 2.0, counts, at="4")))
    assert next_step(done) is None


def test_a_leader_that_was_measured_last_is_not_started_twice_in_a_row() -> None:
    only = Config("only", drafter="d", steps=2, draft_tokens=3)
    counts = {prompt: (1.0, 1.0, 1.0) for prompt in range(9)}
    visits = [Visit("baseline", 1, (100.0, 100.1), at="1"), Visit("only", 1, (150.0, 150.1), 2.0, counts, at="2")]
    order = []
    for at in "345":
        step = next_step(State((Config("baseline"), only), (1,), tuple(visits)))
        if step is not None:
            order.append(step.config.name)
            speed, length = (100.0, None) if step.config.is_baseline else (150.0, 2.0)
            visits.append(Visit(step.config.name, 1, (speed, speed + 0.1), length, counts if length else {}, at=at))
    assert order == ["baseline", "only"]


def test_near_rivals_are_measured_in_turn() -> None:
    one, two = (Config(name, drafter="d", steps=n, draft_tokens=n + 1) for name, n in (("one", 1), ("two", 2)))
    counts = {prompt: (1.0, 1.0) for prompt in range(9)}
    visits = [
        Visit("baseline", 1, (100.0,), at="1"),
        Visit("two", 1, (150.0, 152.0), 1.5, counts, at="2"),
        Visit("one", 1, (151.0, 150.0), 1.5, counts, at="3"),
    ]
    order = []
    for at in "456":
        step = next_step(State((Config("baseline"), one, two), (1,), tuple(visits)))
        assert step is not None and step.confirms
        order.append(step.config.name)
        visits.append(Visit(step.config.name, 1, (150.0, 151.5), 1.5, counts, at=at))
    assert order == ["two", "one", "two"]


def test_a_step_costs_a_mean_start_and_its_passes() -> None:
    world = random_world(0)
    state = measure(world, State(world.configs, world.loads), next(calibration(EMPTY)), passes=2)
    step = next_step(state)
    assert step is not None
    # 60 s to start, half a pass of warm-up at each of two loads, and 3 passes of 5 s at each.
    assert estimated_s(state, step, 3) == pytest.approx(60 + 5 + 2 * 3 * 5)
    assert estimated_s(EMPTY, step, 3) is None
