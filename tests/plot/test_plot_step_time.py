import pandas as pd
import pytest
from answer_tables import cost_rows
from figures import HOSTILE, points, words

from workbench import plot, theme
from workbench.analysis.step_time import StepTimeFit, step_time_fit


def fitted(*, drafter: str = "d", levels: tuple[int, ...] = (1,)) -> StepTimeFit:
    """Cycles of exactly 2 + 0.5 x steps + 0.1 x draft tokens at concurrency 1, more at others; a plain step is 1 ms."""
    rows = [
        {
            "drafter": drafter,
            "num_steps": steps,
            "num_draft_tokens": tokens,
            "t_cycle_ms": level + 1 + 0.5 * steps + 0.1 * tokens,
            "t_base_ms": 1.0,
            "break_even": level + 1 + 0.5 * steps + 0.1 * tokens,
            "max_concurrency": level,
            "origin": "simulated" if steps == 2 else "measured",
        }
        for level in levels
        for steps, tokens in ((1, 2), (3, 4), (2, 8), (3, 16))
    ]
    return step_time_fit(cost_rows(*rows))


def test_break_even_with_its_fit_above_the_residuals() -> None:
    figure, (top, bottom) = theme.new_figure(2, sharex=True)
    plot.plot_step_time(fitted().points, axes=[top, bottom])
    # 2 + 0.5 + 0.2, 2 + 1.5 + 0.4, 2 + 1 + 0.8, 2 + 1.5 + 1.6
    assert points(top) == {(2.0, 2.7), (4.0, 3.9), (8.0, 3.8), (16.0, 5.1)}
    assert {abs(y) for _, y in points(bottom)} == {0.0}
    lines = [[round(float(y), 6) for y in line.get_ydata()] for line in top.lines if line.get_linestyle() != "None"]
    assert [2.7, 3.9] in lines  # the chains
    said = words(figure)
    assert {"concurrency 1", theme.style.ORIGINS["simulated"].words} <= set(said)
    assert {"2", "3"} <= set(said)  # the steps of the trees
    figure.draw_without_rendering()


def test_every_concurrency_is_named() -> None:
    figure, axes = theme.new_figure(2, sharex=True)
    plot.plot_step_time(fitted(levels=(1, 8, 32)).points, axes=axes)
    assert {"concurrency 1", "concurrency 8", "concurrency 32"} <= set(words(figure))


def test_without_a_fit_it_says_so() -> None:
    figure, axes = theme.new_figure(2)
    plot.plot_step_time(fitted().points.assign(fitted_ms=float("nan")), axes=axes)
    assert any("enough shapes" in text for text in words(figure))


@pytest.mark.parametrize("name", HOSTILE)
def test_any_name_is_drawn(name: str) -> None:
    figure, axes = theme.new_figure(2, sharex=True)
    both = pd.concat([fitted(drafter=name).points, fitted(drafter="other").points], ignore_index=True)
    plot.plot_step_time(both, axes=axes)
    figure.draw_without_rendering()
