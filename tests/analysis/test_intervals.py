import math

import numpy as np
import pytest
from analysis_tables import requests, timed

from workbench.analysis.intervals import by_passes, by_prompts
from workbench.analysis.passes import Arm, PassSpread, arm_of, timings_by_run

NO_REPEATS = PassSpread(float("nan"), 0)


def _arm(*passes: list[float]) -> Arm:
    rows = [row for repeat, seconds in enumerate(passes) for row in timed("a", seconds, repeat=repeat)]
    arm = arm_of(list(timings_by_run(requests(*rows)).values()), "output")
    assert arm is not None
    return arm


def test_pairing_takes_what_prompts_share_out_of_the_interval() -> None:
    # Prompts differ by a factor of 30, but every one is exactly twice as fast under speculation.
    seconds = [0.1, 0.3, 1.0, 3.0]
    row = by_prompts(_arm([s / 2 for s in seconds]), _arm(seconds), PassSpread(1e-9, 3), 2000, 0)
    assert (row["low"], row["speedup"], row["high"]) == pytest.approx((2.0, 2.0, 2.0), rel=1e-6)
    assert (row["verdict"], row["n"]) == ("win", 4)


def test_interval_covers_the_ratios_that_two_prompts_can_give() -> None:
    # Prompt 0: 1 s against 1 s; prompt 1: 1 s against 3 s. Drawn twice: 1.0 or 3.0; drawn once each: 4 s / 2 s.
    row = by_prompts(_arm([1.0, 1.0]), _arm([1.0, 3.0]), PassSpread(1e-9, 3), 2000, 0)
    assert (row["low"], row["speedup"], row["high"]) == pytest.approx((1.0, 2.0, 3.0), rel=1e-6)


@pytest.mark.parametrize(("factor", "verdict"), [(0.8, "win"), (1.25, "loss"), (1.0, "noise")])
def test_verdict_follows_the_interval(factor: float, verdict: str) -> None:
    base = [1.0, 1.1, 0.9, 1.05]
    spec = [s * factor * jitter for s, jitter in zip(base, (1.01, 0.99, 1.02, 0.98), strict=True)]
    assert by_prompts(_arm(spec), _arm(base), PassSpread(0.01, 20), 2000, 0)["verdict"] == verdict


def test_spread_between_passes_widens_the_interval_by_students_t() -> None:
    # Equal prompts leave only the passes: half width of the log is t(0.975, 6) s sqrt(1 / 1 + 1 / 2), t = 2.4469.
    spread = PassSpread(0.07, 6)
    row = by_prompts(_arm([1.0] * 4), _arm([1.0] * 4, [1.0] * 4), spread, 40_000, 0)
    expected = 2.4469 * 0.07 * math.sqrt(1.5)
    assert math.log(row["high"]) == pytest.approx(expected, rel=0.04)
    assert math.log(row["low"]) == pytest.approx(-expected, rel=0.04)
    assert row["verdict"] == "noise"


def test_without_any_repeated_pass_there_is_an_interval_but_no_verdict() -> None:
    row = by_prompts(_arm([1.0, 1.0]), _arm([2.0, 2.0]), NO_REPEATS, 2000, 0)
    assert (row["low"], row["high"]) == (2.0, 2.0)
    assert row["verdict"] == "not decidable"
    assert "measure the baseline again" in row["reason"]


def test_an_arm_that_changed_its_speed_in_the_middle_decides_nothing() -> None:
    slowed = _arm([1.0, 1.1], [1.0, 1.1], [10.0, 11.0])
    row = by_prompts(_arm(*([0.5, 0.55] for _ in range(3))), slowed, PassSpread(0.01, 4), 2000, 0)
    assert row["verdict"] == "not decidable"
    assert "the fastest plain pass is 10.0 times as fast as the slowest" in row["reason"]


def test_one_prompt_gives_a_figure_but_no_interval() -> None:
    row = by_prompts(_arm([1.0]), _arm([2.0]), PassSpread(0.1, 3), 2000, 0)
    assert row["speedup"] == 2.0
    assert "low" not in row
    assert row["verdict"] == "not decidable"


def test_passes_that_drift_more_than_prompts_explain_are_named() -> None:
    row = by_prompts(_arm([1.0, 1.0]), _arm([1.0, 1.0], [1.5, 1.5]), PassSpread(0.2, 1), 2000, 0)
    assert "plain passes lie 50% apart, more than prompts explain" in row["reason"]


def test_failed_requests_are_counted() -> None:
    arm = _arm([1.0, 1.0])
    failing = Arm(arm.passes, arm.prompts, arm.tokens, arm.seconds, failed=3)
    assert "3 failed requests of the speculative arm left out" in by_prompts(failing, arm, NO_REPEATS, 10, 0)["reason"]


def test_the_same_seed_gives_the_same_interval() -> None:
    arms = _arm([1.0, 1.2, 0.7]), _arm([1.1, 1.9, 1.0])
    first, again = (by_prompts(*arms, PassSpread(0.1, 4), 500, 7) for _ in range(2))
    assert first == again


def test_passes_above_concurrency_one() -> None:
    # 8 in flight, one request at 100 or 50 tok/s: 800 against 400 in total.
    row = by_passes(_arm(*[[1.0]] * 5), _arm(*[[2.0]] * 6), 8, 2000, 0)
    assert (row["tok_per_s"], row["base_tok_per_s"], row["speedup"]) == (800.0, 400.0, 2.0)
    assert (row["low"], row["high"], row["verdict"], row["n"]) == (2.0, 2.0, "win", 5)


def test_passes_that_overlap_are_noise() -> None:
    rng = np.random.default_rng(3)
    arms = [_arm(*[[s] for s in rng.uniform(0.8, 1.2, 6)]) for _ in range(2)]
    assert by_passes(*arms, 8, 2000, 0)["verdict"] == "noise"


def test_four_passes_are_too_few() -> None:
    row = by_passes(_arm(*[[1.0]] * 4), _arm(*[[2.0]] * 9), 8, 2000, 0)
    assert (row["speedup"], row["verdict"]) == (2.0, "not decidable")
    assert row["reason"].startswith("4 passes against 9; 5 of each are needed")
