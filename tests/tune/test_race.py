"""Who leads, who is out: by hand-made speeds."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.tune.acceptance import Length
from workbench.tune.predict import Speed
from workbench.tune.race import is_confirmed, races
from workbench.tune.state import Config, State, Visit

WAVE = 1 + 0.05 * np.sin(np.arange(1000))


def speed(name: str, value: float | None, draws: np.ndarray, basis: str = "measured", load: int = 1) -> Speed:
    return Speed(Config(name, steps=1), load, basis, Length("measured", 1.0, draws), value, draws, draws)


def test_paired_draws_decide_what_unpaired_ones_could_not() -> None:
    # Both vary by 5 % with the prompts, one is 3 % slower on every resample of them: together that is certain.
    race = races([speed("a", 100.0, 100 * WAVE), speed("b", 97.0, 97 * WAVE)])[1]
    (rival,) = race.rivals
    assert race.leader.config.name == "a"
    assert (rival.ratio, rival.low, rival.high) == pytest.approx((0.97, 0.97, 0.97))
    assert not rival.is_open and not rival.may_lead

    unpaired = races([speed("a", 100.0, 100 * WAVE), speed("b", 97.0, 97 * WAVE[::-1])])[1].rivals[0]
    assert unpaired.is_open


def test_within_the_tolerance_is_out_but_may_lead() -> None:
    rival = races([speed("a", 100.0, 100 * WAVE), speed("b", None, 101 * WAVE, "range")])[1].rivals[0]
    assert rival.may_lead and not rival.is_open
    assert rival.gain == pytest.approx(0.01)


def test_only_what_was_measured_leads_and_the_unknown_comes_first() -> None:
    nothing = np.full(1000, np.nan)
    found = [
        speed("slow", 50.0, 50 * WAVE),
        speed("promising", 80.0, 80 * WAVE, "predicted"),
        speed("unknown", None, nothing, "not predicted"),
    ]
    race = races(found)[1]
    assert race.leader.config.name == "slow"
    assert [rival.name for rival in race.rivals] == ["unknown", "promising"]
    assert [rival.name for rival in race.open_unmeasured] == ["unknown", "promising"]
    assert race.rivals[1].gain == pytest.approx(0.6)


def test_loads_are_raced_apart() -> None:
    found = [
        speed(name, value, value * WAVE, load=load)
        for load in (1, 8)
        for name, value in (("a", 9.0 + load), ("b", 12.0))
    ]
    assert {load: race.leader.config.name for load, race in races(found).items()} == {1: "b", 8: "a"}
    assert races([speed("a", None, WAVE, "predicted")]) == {}


def test_a_leader_is_confirmed_by_a_visit_after_something_else() -> None:
    race = races([speed("a", 100.0, 100 * WAVE), speed("b", 97.0, 97 * WAVE)])[1]
    configs = (Config("a", steps=1), Config("b", steps=1))

    def confirmed(*order: str) -> bool:
        visits = tuple(Visit(name, 1, (1.0,), at=str(place)) for place, name in enumerate(order))
        return is_confirmed(State(configs, (1,), visits), race)

    assert confirmed("a", "b", "a")
    elsewhere = tuple(
        Visit(name, load, (1.0,), at=str(at)) for at, (name, load) in enumerate((("a", 1), ("b", 8), ("a", 1)))
    )
    assert is_confirmed(State(configs, (1, 8), elsewhere), race)
    assert not confirmed("b", "a")
    assert not confirmed("b", "a", "a")
