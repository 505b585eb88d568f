"""Cycle times as multiples of a plain step, against worlds whose line is known."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.tune.cycle import measured_cycles, predict_cycles, with_misfit
from workbench.tune.noise import Noise, noise_of
from workbench.tune.state import Config, State, Visit

QUIET = Noise({1: 0.001, 8: 0.001}, 0.001, 3)
BASE = Config("base")


def chain(steps: int, forced: float = 2.0) -> Config:
    return Config(f"s{steps}", drafter="d", steps=steps, draft_tokens=steps + 1, forced=forced)


def tree(steps: int, topk: int, tokens: int) -> Config:
    return Config(f"s{steps}-k{topk}-n{tokens}", drafter="d", steps=steps, topk=topk, draft_tokens=tokens, forced=2.0)


def true_r(config: Config, load: int) -> float:
    return 1.2 + 0.1 * config.steps + (0.02 + 0.002 * load) * config.draft_tokens


def world(*measured: Config, asked: tuple[Config, ...] = (), loads: tuple[int, ...] = (1, 8)) -> State:
    """The baseline makes 100 tok/s a slot, a configuration 100 x 2 / R."""
    visits = [Visit("base", load, (100.0 * load,)) for load in loads]
    visits += [Visit(each.name, load, (200.0 * load / true_r(each, load),), 2.0) for each in measured for load in loads]
    return State((BASE, *measured, *asked), loads, tuple(visits))


def test_r_is_accept_length_times_baseline_over_speed() -> None:
    state = State((BASE, chain(3)), (1,), (Visit("base", 1, (100.0,)), Visit("s3", 1, (80.0,), 2.0)))
    cells, values, deviations = measured_cycles(state, QUIET, "default")
    assert [(config.name, load) for config, load in cells] == [("s3", 1)]
    # 2 tokens a cycle, at 80 tok/s a cycle takes 25 ms; a plain step takes 10 ms.
    assert values.tolist() == [pytest.approx(2.5)]
    assert deviations == pytest.approx([np.sqrt(2) * 0.001])


def test_between_measured_shapes_the_line_is_found_and_beyond_it_the_interval_grows() -> None:
    asked = (chain(3), tree(3, 1, 8), chain(14))
    state = world(chain(1), chain(5), tree(5, 1, 16), asked=asked)
    found = predict_cycles(state, QUIET, [(config, 1) for config in asked], 2000)
    true = np.array([true_r(config, 1) for config in asked])
    assert found.mean[:2] == pytest.approx(true[:2], rel=0.02)
    spread = found.draws.std(axis=1) / true
    assert spread[0] < 0.1
    assert spread[2] > 1.5 * spread[0]
    assert (np.abs(found.mean - true) < 3 * found.draws.std(axis=1)).all()


def test_a_load_in_between_is_interpolated() -> None:
    ends = world(chain(1), chain(5), tree(5, 1, 16), loads=(1, 16))
    state = State(ends.configs, (1, 4, 16), (*ends.visits, Visit("base", 4, (400.0,))))
    found = predict_cycles(state, Noise(dict.fromkeys((1, 4, 16), 0.001), 0.001, 3), [(chain(5), 4)], 2000)
    assert found.mean[0] == pytest.approx(true_r(chain(5), 4), rel=0.1)


def test_of_a_group_without_a_measured_shape_nothing_is_known() -> None:
    other = Config("nograph", "nograph", "d", 3, 1, 4, 2.0)
    state = world(chain(1), asked=(Config("base-nograph", "nograph"), other))
    assert np.isnan(predict_cycles(state, QUIET, [(other, 1)], 10).draws).all()


def test_noise_of_passes_is_not_moved_by_one_cold_pass() -> None:
    steady = tuple(100 * np.exp(sign * 0.01) for sign in (-1, 1, -1, 1, 0))
    state = State((BASE,), (1,), tuple(Visit("base", 1, (*steady, 40.0)) for _ in range(10)))
    assert noise_of(state).by_pass[1] < 0.03


def test_noise_of_starts_comes_from_visits_that_were_repeated() -> None:
    # Four starts of two configurations lie 20 % apart, their passes do not: ((0.1^2 + 0.1^2) x 2) over 2 degrees, with
    # 2 degrees of 0.01: passes are known to 0.0059, from 32 degrees of 0 and 3 of 0.02.
    visits = [Visit(name, 1, (100 * np.exp(sign * 0.1),) * 9) for name in ("base", "s3") for sign in (-1, 1)]
    noise = noise_of(State((BASE, chain(3)), (1,), tuple(visits)))
    assert noise.degrees == 4
    assert noise.start == pytest.approx(np.sqrt((0.04 + 2 * 0.01**2) / 4), rel=0.02)


def test_where_nothing_is_asked_for_the_noise_is_the_expected_one() -> None:
    assert noise_of(State((BASE,), ())).start == pytest.approx(0.01)


def test_starts_are_expected_to_differ_as_passes_do() -> None:
    # Each pass 10 % off the visit's median, in 20 visits: the 3 degrees of the prior's 2 % do not count for much.
    visits = [Visit(f"s{number}", 1, (90.0, 100.0, 111.1)) for number in range(20)]
    state = State(tuple(Config(visit.config) for visit in visits), (1,), tuple(visits))
    assert 0.1 < noise_of(state).by_pass[1] < 0.2
    assert noise_of(state).start == pytest.approx(noise_of(state).by_pass[1])


SHAPES = (chain(1), chain(3), chain(7), tree(7, 8, 32), tree(5, 8, 32), tree(5, 4, 16), tree(7, 8, 16), tree(6, 8, 32))


def test_starts_that_lie_on_the_line_leave_their_noise_as_it_is() -> None:
    state = world(*SHAPES)
    assert with_misfit(state, Noise({1: 0.01, 8: 0.01}, 0.01, 3)).start < 0.015


def test_starts_that_lie_off_the_line_tell_their_noise_though_none_was_repeated() -> None:
    # Each start 12 % faster or slower than the line, at both loads, in turn.
    found = []
    for size in (0.03, 0.12):
        apart = {each.name: np.exp(size * (-1) ** place) for place, each in enumerate(SHAPES)}
        visits = [
            Visit(each.config, each.load, tuple(speed * apart.get(each.config, 1.0) for speed in each.speeds), 2.0)
            for each in world(*SHAPES).visits
        ]
        state = State((BASE, *SHAPES), (1, 8), tuple(visits))
        found.append(with_misfit(state, Noise({1: 0.01, 8: 0.01}, 0.01, 3)).start)
    assert found[0] < 0.05
    assert 0.08 < found[1] < 0.2


def test_draft_tokens_that_cost_much_are_no_noise() -> None:
    def steep(config: Config, load: int) -> float:
        return 1.0 + 0.1 * config.steps + 0.015 * load * config.draft_tokens

    base = [Visit("base", load, (100.0 * load,)) for load in (1, 32)]
    rest = [Visit(c.name, load, (200.0 * load / steep(c, load),), 2.0) for c in SHAPES for load in (1, 32)]
    state = State((BASE, *SHAPES), (1, 32), (*base, *rest))
    assert with_misfit(state, Noise({1: 0.01, 32: 0.01}, 0.01, 3)).start < 0.02
