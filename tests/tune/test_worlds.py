"""Searches in simulated worlds: what share finds a configuration within 2 % of the best, at a quarter of the price.

Reached on 200 worlds: see `test_a_quarter_of_the_price_finds_the_best`.
"""

from __future__ import annotations

import numpy as np
import pytest
from tuning_worlds import LARGE, SMALL, full_s, grid, random_world, search

from workbench.table.tuned import DECIDED
from workbench.tune.outcome import best_by_load
from workbench.tune.plan import position
from workbench.tune.predict import speeds
from workbench.tune.race import races
from workbench.tune.state import Config


def regret_and_price(seed: int, configs: tuple[Config, ...], share: float) -> tuple[float, float]:
    """The larger loss of two loads, and what was spent of the full grid's price."""
    world = random_world(seed, configs)
    state = search(world, share * full_s(world))
    leaders = {load: race.leader.config.name for load, race in races(speeds(state)).items()}
    assert set(leaders) == {1, 16}
    return max(world.regret(name, load) for load, name in leaders.items()), state.spent_s / full_s(world)


@pytest.mark.slow
def test_the_budget_holds_and_little_is_lost() -> None:
    found = np.array([regret_and_price(seed, grid(), 0.25) for seed in range(6)])
    assert found[:, 1].max() <= 0.25
    assert found[:, 0].max() < 0.05


def test_without_a_budget_a_search_ends_by_itself_and_says_how_sure_it_is() -> None:
    world = random_world(4)
    state = search(world, np.inf)
    at = position(state)
    assert at.step is None
    for best in best_by_load(state, at):
        assert best.state == DECIDED
        assert world.regret(best.config, best.load) <= 0.02
    assert state.spent_s < 0.6 * full_s(world)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("trees", "within"),
    # 36 configurations: 96.5 % were reached. 24: 91 %, for a quarter of these buys 8 or 9 starts, of which 4 go into
    # what predicts the rest; what is missed is missed by 2 to 6 %.
    [(LARGE, 0.95), (SMALL, 0.90)],
)
def test_a_quarter_of_the_price_finds_the_best(trees: tuple[tuple[int, int], ...], within: float) -> None:
    found = np.array([regret_and_price(seed, grid(trees), 0.25) for seed in range(200)])
    assert found[:, 1].max() <= 0.25
    assert (found[:, 0] <= 0.02).mean() >= within
    assert (found[:, 0] <= 0.03).mean() >= 0.95
