import numpy as np
import pytest

from workbench.analysis.scaling.forms import BOUNDED, LOG_LINEAR, PLATEAU, Form, aicc, leave_one_out, weighted_line

NONE = float("nan")


def fitted(form: Form, x: list[float], y: list[float], ceiling: float = 4.0) -> np.ndarray:
    return form.fit(np.array(x), np.array([y]), np.ones((1, len(x))), ceiling)


def test_weighted_line_by_hand() -> None:
    # weights 1, 2, 1: means 1 and (0 + 2 + 5) / 4 = 1.75; Sxx = 2, Sxy = 1.75 + 0 + 3.25 = 5
    line = weighted_line(np.array([0.0, 1.0, 2.0]), np.array([[0.0, 1.0, 5.0]]), np.array([[1.0, 2.0, 1.0]]))
    assert line[0] == pytest.approx([-0.75, 2.5])


def test_weighted_line_needs_two_places() -> None:
    line = weighted_line(np.array([1.0, 1.0]), np.array([[0.0, 1.0]]), np.ones((1, 2)))
    assert np.isnan(line).all()


def test_log_linear_goes_through_exact_points_and_back() -> None:
    # 1.2 at 1000 samples and 0.15 more with each doubling: 1.5 after two doublings
    line = fitted(LOG_LINEAR, [1000, 2000, 8000], [1.2, 1.35, 1.65])
    assert line[0, 1] * np.log(2) == pytest.approx(0.15)
    assert LOG_LINEAR.predict(line, np.array([4000.0]), 4.0)[0, 0] == pytest.approx(1.5)
    assert LOG_LINEAR.solve(line, np.array([1.5]), 4.0)[0] == pytest.approx(4000)


def test_bounded_goes_through_exact_points_and_back() -> None:
    # of 3 drafts a quarter at 1000 samples and half at 4000: logits -ln 3 and 0, so ln 3 (three quarters) at 16000
    line = fitted(BOUNDED, [1000, 4000], [1.75, 2.5])
    assert BOUNDED.predict(line, np.array([16000.0]), 4.0)[0, 0] == pytest.approx(3.25)
    assert BOUNDED.solve(line, np.array([3.25]), 4.0)[0] == pytest.approx(16000)
    assert BOUNDED.predict(line, np.array([1e30]), 4.0)[0, 0] <= 4
    assert BOUNDED.solve(line, np.array([4.0]), 4.0)[0] == np.inf


def test_bounded_weighs_points_by_what_their_error_means_on_the_logit() -> None:
    # p = 1/2, 3/4, 1/2 at ln D = 0, 1, 2: weights (p (1 - p))^2 = 16, 9, 16 over 256; flat by symmetry
    line = fitted(BOUNDED, [1.0, np.e, np.e**2], [2.5, 3.25, 2.5])
    assert line[0] == pytest.approx([9 * np.log(3) / 41, 0.0], abs=1e-12)


@pytest.mark.parametrize("outside", [1.0, 4.0, 0.9])
def test_bounded_has_no_parameters_for_points_on_or_outside_the_bounds(outside: float) -> None:
    assert np.isnan(fitted(BOUNDED, [1000, 4000], [outside, 2.5])).all()


def test_plateau_finds_the_curve_that_made_the_points() -> None:
    # L = 3 - 15 D^-0.5, on the grid of exponents; 2.9 where D = 150^2
    sizes = [100.0 * 4**k for k in range(6)]
    curve = fitted(PLATEAU, sizes, [3 - 15 * size**-0.5 for size in sizes])
    assert curve[0] == pytest.approx([3, 15, 0.5], rel=1e-6)
    assert PLATEAU.solve(curve, np.array([2.9]), 4.0)[0] == pytest.approx(22500)
    assert PLATEAU.solve(curve, np.array([3.0]), 4.0)[0] == np.inf


def test_plateau_stays_under_the_ceiling() -> None:
    sizes = [100.0 * 4**k for k in range(6)]
    curve = fitted(PLATEAU, sizes, [1 + 0.5 * k for k in range(6)], ceiling=4.0)
    assert curve[0, 0] <= 4.0


def test_a_falling_curve_is_never_solved() -> None:
    line = fitted(LOG_LINEAR, [1000, 2000], [2.0, 1.9])
    assert LOG_LINEAR.solve(line, np.array([2.5]), 4.0)[0] == np.inf


def test_replicates_are_fitted_one_by_one() -> None:
    y = np.array([[1.0, 2.0], [1.0, 1.0]])
    lines = LOG_LINEAR.fit(np.array([1.0, np.e]), y, np.ones_like(y), NONE)
    assert lines == pytest.approx(np.array([[1.0, 1.0], [1.0, 0.0]]))


def test_aicc_of_a_perfect_fit_is_its_penalty() -> None:
    # 2 parameters, 4 points: 2 x 2 + 2 x 2 x 3 / (4 - 2 - 1) = 16
    x, y = np.array([1000.0, 2000, 4000, 8000]), np.array([1.1, 1.2, 1.3, 1.4])
    line = LOG_LINEAR.fit(x, y[None, :], np.ones((1, 4)), NONE)
    assert aicc(LOG_LINEAR, line[0], x, y, np.ones(4), NONE) == pytest.approx(16)
    assert np.isnan(aicc(LOG_LINEAR, line[0], x[:3], y[:3], np.ones(3), NONE))


def test_leave_one_out_by_hand() -> None:
    # ln D = 0, 1, 2 and L = 0, 1, 3: the others predict -1, 1.5 and 2
    x, y = np.array([1.0, np.e, np.e**2]), np.array([0.0, 1.0, 3.0])
    assert leave_one_out(LOG_LINEAR, x, y, np.ones(3), NONE) == pytest.approx(np.sqrt((1 + 0.25 + 1) / 3))
    assert np.isnan(leave_one_out(LOG_LINEAR, x[:2], y[:2], np.ones(2), NONE))
