"""Fits worked out by hand: means of an orthogonal design, sums of squares, and the t quantile of 1 degree, 12.7062."""

from __future__ import annotations

import pandas as pd
import pytest
from analysis_tables import recorded
from answer_tables import cost_rows

from workbench.analysis.answers import step_time
from workbench.analysis.cost import cost_df
from workbench.analysis.step_time import CHAINS, FULL, TOKENS, step_time_by_length_df, step_time_fit
from workbench.analysis.views import step_time_view


def shape(steps: int, tokens: int, cycle: float, **more: object) -> dict[str, object]:
    topk = 1 if tokens == steps + 1 else 4
    known = {"num_steps": steps, "eagle_topk": topk, "num_draft_tokens": tokens, "t_cycle_ms": cycle, "t_base_ms": 1.0}
    return {**known, "break_even": cycle, **more}


# Steps 1 and 3 crossed with 4 and 8 draft tokens.
# b = (mean at 3 steps - mean at 1) / 2 = (2.9 - 2.2) / 2, c = (2.8 - 2.3) / 4, a = 2.55 - 2 b - 6 c.
# Every residual is 0.05, with 1 degree of freedom: s = 0.1; s.e. of b = 0.1 / sqrt(4), of c = 0.1 / sqrt(64 / 4).
CROSSED = (shape(1, 4, 2.0), shape(1, 8, 2.4), shape(3, 4, 2.6), shape(3, 8, 3.2))


def test_steps_and_draft_tokens_apart() -> None:
    fit = step_time_fit(cost_rows(*CROSSED))
    row = fit.fits.iloc[0]
    assert (row["form"], row["identified"], row["num_points"], row["num_shapes"]) == (FULL, True, 4, 4)
    assert (row["a"], row["b"], row["c"]) == pytest.approx((1.1, 0.35, 0.125))
    assert (row["b_low"], row["b_high"]) == pytest.approx((0.35 - 12.7062 * 0.05, 0.35 + 12.7062 * 0.05), abs=1e-4)
    assert (row["c_low"], row["c_high"]) == pytest.approx((0.125 - 12.7062 * 0.025, 0.125 + 12.7062 * 0.025), abs=1e-4)
    assert row["residual_ms"] == pytest.approx(0.1)
    assert fit.points["residual_ms"].tolist() == pytest.approx([0.05, -0.05, -0.05, 0.05])
    assert fit.points["fitted_ms"].tolist() == pytest.approx([1.95, 2.45, 2.65, 3.15])


def test_break_even_by_the_fit_is_the_fitted_time_over_a_plain_step() -> None:
    fit = step_time_fit(cost_rows(*(dict(row, t_base_ms=0.5) for row in CROSSED)))
    assert fit.points["fitted_break_even"].tolist() == pytest.approx([3.9, 4.9, 5.3, 6.3])


def test_chains_cannot_tell_a_step_from_its_draft_token() -> None:
    # Steps 1, 2, 3 at 1, 2, 3.2 ms: slope 1.1, intercept -2/15; residuals 1/30, -1/15, 1/30, so s^2 = 1/150 and the
    # s.e. of the slope sqrt(1/300).
    row = step_time_fit(cost_rows(shape(1, 2, 1.0), shape(2, 3, 2.0), shape(3, 4, 3.2))).fits.iloc[0]
    assert row["form"] == CHAINS
    assert (row["a"], row["b"]) == pytest.approx((-2 / 15, 1.1))
    assert row["b_high"] - row["b"] == pytest.approx(12.7062 * 0.0577350, abs=1e-3)
    assert pd.isna(row["c"])


def test_intervals_wider_than_the_cycle_identify_nothing() -> None:
    # As before with 4 ms at 3 steps: the half width of b is 12.7062 sqrt(1/12) = 3.67 ms a step, over two steps more
    # than the mean cycle of 2.33 ms.
    fit = step_time_fit(cost_rows(shape(1, 2, 1.0), shape(2, 3, 2.0), shape(3, 4, 4.0)))
    row = fit.fits.iloc[0]
    assert not row["identified"] and row["reason"].startswith("not identified: an interval is wider than the cycle")
    assert pd.isna(row["b"]) and fit.points["fitted_ms"].isna().all()


def test_trees_of_one_depth_tell_the_draft_tokens_alone() -> None:
    row = step_time_fit(cost_rows(shape(3, 4, 2.0), shape(3, 8, 2.4), shape(3, 16, 3.2))).fits.iloc[0]
    assert row["form"] == TOKENS
    assert (row["a"], row["c"]) == pytest.approx((1.6, 0.1))
    assert pd.isna(row["b"])


def test_repeated_shapes_are_runs_and_no_further_shapes() -> None:
    fit = step_time_fit(cost_rows(*CROSSED[:3], *CROSSED[:3]))
    row = fit.fits.iloc[0]
    assert (row["identified"], row["num_points"], row["num_shapes"]) == (False, 6, 3)
    assert row["reason"] == f"not identified: 3 shapes were measured, {FULL} needs 4"
    assert fit.identified.empty
    assert fit.points["fitted_ms"].isna().all()
    assert step_time_view(fit).empty
    assert step_time(fit, step_time_by_length_df(cost_rows(*CROSSED))) == []


def test_every_load_has_a_fit_of_its_own_and_simulated_runs_count() -> None:
    slow = [dict(row, max_concurrency=8, t_cycle_ms=2 * float(str(row["t_cycle_ms"]))) for row in CROSSED]
    costs = cost_rows(*CROSSED[:2], *(dict(row, origin="simulated") for row in CROSSED[2:]), *slow)
    fit = step_time_fit(costs)
    assert fit.identified["max_concurrency"].tolist() == [1, 8]
    assert fit.identified["b"].tolist() == pytest.approx([0.35, 0.7])
    assert fit.identified["num_simulated"].tolist() == [2, 0]
    (said,) = step_time(fit, step_time_by_length_df(costs))
    assert said == (
        "A verify cycle at concurrency 1 takes 1.10 ms + 0.350 ms a step (95 % -0.285 to 0.985) + 0.125 ms a draft "
        "token (95 % -0.193 to 0.443) (n = 4 runs of 4 shapes, 2 with simulated acceptance; residuals of 0.100 ms). "
        "It does not visibly depend on steps or draft tokens. Fits of 2 groups are in the table."
    )
    view = step_time_view(fit)
    assert view["b (ms a step)"].tolist()[0] == "0.35 (-0.285\u00a0to\u00a00.985)"
    assert len(view) == 2


def test_runs_that_do_not_state_their_shape_or_cost_are_left_out() -> None:
    fit = step_time_fit(cost_rows(*CROSSED, shape(3, 4, 9.0, num_steps=None), shape(3, 4, 9.0, t_cycle_ms=None)))
    assert fit.fits["num_points"].tolist() == [4]


# --- does it depend on what is accepted --------------------------------------------------------------------------


def forced(*cycles: tuple[float, float]) -> pd.DataFrame:
    """Runs of one shape with these simulated accept lengths and cycle times."""
    rows = [shape(3, 4, cycle, origin="simulated", simulated_accept_length=length) for length, cycle in cycles]
    return step_time_by_length_df(cost_rows(*rows))


def test_a_cycle_that_takes_the_same_at_every_accept_length() -> None:
    row = forced((1.5, 3.00), (2.5, 3.06), (3.5, 3.03)).iloc[0]
    assert (row["num_lengths"], row["num_points"]) == (3, 3)
    assert row["spread"] == pytest.approx(0.02)  # 3.06 / 3.00 - 1
    assert row["slope_ms"] == pytest.approx(0.015)  # (3.03 - 3.00) / 2
    assert row["verdict"] == "does not depend on it"


@pytest.mark.parametrize(
    ("cycles", "verdict"),
    [
        (((1.5, 3.0), (2.5, 4.0), (3.5, 5.001)), "rises with it"),
        (((1.5, 5.0), (2.5, 4.0), (3.5, 3.001)), "falls with it"),
        (((1.5, 3.0), (2.5, 4.0), (3.5, 3.1)), "not decidable"),
        (((1.5, 3.0), (2.5, 4.0)), "not decidable"),  # two runs give no interval
    ],
)
def test_a_cycle_that_does_not(cycles: tuple[tuple[float, float], ...], verdict: str) -> None:
    assert forced(*cycles)["verdict"].tolist() == [verdict]


def test_one_length_and_measured_runs_test_nothing() -> None:
    assert forced((2.5, 3.0), (2.5, 3.1)).empty
    measured = cost_rows(shape(3, 4, 3.0, simulated_accept_length=1.5), shape(3, 4, 3.0, simulated_accept_length=2.5))
    assert step_time_by_length_df(measured).empty


def test_the_sentence_on_the_accept_length() -> None:
    found = forced((1.5, 3.00), (2.5, 3.06), (3.5, 3.03))
    fit = step_time_fit(cost_rows())
    assert step_time(fit, found) == [
        "The cycle time does not depend on what is accepted: from 1.5 to 3.5 simulated tokens a step it lies within "
        "2.0% (3 steps and 4 draft tokens at concurrency 1)."
    ]
    (unsure,) = step_time(fit, forced((1.5, 3.0), (2.5, 4.0)))
    assert unsure.startswith(
        "Whether the cycle time depends on what is accepted: from 1.5 to 2.5 simulated tokens a step"
    )
    assert unsure.endswith("it differs by 33.3% (3 steps and 4 draft tokens at concurrency 1; not decidable).")


def _said(*rows: dict[str, object]) -> str:
    (said,) = step_time(step_time_fit(cost_rows(*rows)), step_time_by_length_df(cost_rows()))
    return said


def test_a_cost_below_zero_is_none() -> None:
    # 5 - 0.5 ms a step, residuals of 0.01 ms: the interval is far below 0
    chains = [shape(n, n + 1, 5 - 0.5 * n + odd) for n, odd in ((1, 0.01), (2, -0.01), (3, -0.01), (4, 0.01))]
    assert _said(*chains).endswith("It falls with steps, which a cost cannot: drift between servers, or confounding.")
    rising = [shape(n, n + 1, 5 + 0.5 * n + odd) for n, odd in ((1, 0.01), (2, -0.01), (3, -0.01), (4, 0.01))]
    assert _said(*rising).endswith("ms).")


def test_a_cost_that_may_be_none_is_said() -> None:
    flat = [shape(n, n + 1, cycle) for n, cycle in ((1, 5.0), (2, 5.4), (3, 5.0), (4, 5.4))]
    assert _said(*flat).endswith("It does not visibly depend on steps.")


def test_the_recorded_trial_falls_with_steps() -> None:
    (said, *_) = step_time(
        step_time_fit(cost_df(recorded("h200_first_trial").runs)), step_time_by_length_df(cost_rows())
    )
    assert "- 0.228 ms a step (95 % -0.362 to -0.093)" in said
    assert "It falls with steps, which a cost cannot" in said
