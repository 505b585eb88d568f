"""Names from outside reach every figure as text, whatever they hold."""

import pandas as pd
import pytest
from figures import HOSTILE, costs, words

from workbench import plot, theme
from workbench.table.columns import RUNS, frame


@pytest.mark.parametrize("name", HOSTILE)
def test_figures_of_costs_draw_any_name(name: str) -> None:
    rows = costs(
        {"run_id": "one", "label": name, "drafter": name, "num_draft_tokens": 4, "prompt_set": name, "speedup": 0.9}
        | {"accept_length": 2.0, "tok_per_s": 80.0, "base_tok_per_s": 90.0, "break_even": 2.3, "gain_needed": 1.1},
        {"run_id": "two", "label": name, "drafter": name, "baseline_group": name, "prompt_set": "p", "origin": name},
    )
    speedups = rows.assign(low=0.8, high=1.0, verdict=name, n=20)
    drawn = {
        plot.plot_accept_length_vs_draft_tokens: rows,
        plot.plot_throughput_vs_draft_tokens: rows,
        plot.plot_break_even: rows,
        plot.plot_speedup: speedups,
    }
    for draw, table in drawn.items():
        figure, ax = theme.new_figure()
        draw(table, ax=ax)
        assert any(theme.safe_label(name)[:5] in text for text in words(figure))


@pytest.mark.parametrize("name", HOSTILE)
def test_figures_of_runs_and_requests_draw_any_name(name: str) -> None:
    rows = [
        {"campaign": "c", "run_id": "b", "role": "baseline", "baseline_group": name, "max_concurrency": 1},
        {"campaign": "c", "run_id": "s", "role": "speculative", "drafter": name, "baseline_group": name, "label": name}
        | {"max_concurrency": 1, "num_draft_tokens": 4, "accept_rate_printed": 0.4, "accept_rate_definition": name},
    ]
    runs = frame(RUNS, [{"output_tok_per_s": 90.0, "origin": "recorded", **row} for row in rows])
    survival = pd.DataFrame(
        {"campaign": "c", "run_id": "s", "label": name, "drafter": name, "position": [1, 2], "survival": [0.5, 0.2]}
        | {"low": [0.4, 0.1], "high": [0.6, 0.3], "num_verify_steps": 100}
    )
    spread = pd.DataFrame(
        {"campaign": "c", "run_id": "s", "label": name, "correct_drafts": [0, 1], "share": [0.5, 0.5]}
        | {"num_verify_steps": 100}
    )
    drawn = {
        plot.plot_throughput_vs_concurrency: runs,
        plot.plot_accept_rate_vs_draft_tokens: runs,
        plot.plot_survival: survival,
        plot.plot_spread: spread,
    }
    for draw, table in drawn.items():
        figure, ax = theme.new_figure()
        draw(table, ax=ax)
        assert len(words(figure)) > 2


EMPTY = {
    plot.plot_accept_length_vs_draft_tokens: "No run has an accept length.",
    plot.plot_throughput_vs_draft_tokens: "No run has a speed.",
    plot.plot_accept_rate_vs_draft_tokens: "No run has an accept rate",
    plot.plot_break_even: "No speculative run has a baseline beside it.",
    plot.plot_speedup: "No speculative run has a speed",
}


@pytest.mark.parametrize("draw", EMPTY, ids=lambda draw: draw.__name__)
def test_an_empty_table_draws_a_sentence(draw: object) -> None:
    figure, ax = theme.new_figure()
    draw(costs(), ax=ax)  # type: ignore[operator]
    assert any(text.startswith(EMPTY[draw]) for text in words(figure))  # type: ignore[index]


def test_no_runs_draw_a_sentence() -> None:
    figure, ax = theme.new_figure()
    plot.plot_throughput_vs_concurrency(frame(RUNS, []), ax=ax)
    assert words(figure) == ["No run has both a speed and a concurrency."]


@pytest.mark.parametrize("draw", [plot.plot_survival, plot.plot_spread])
def test_no_histograms_draw_a_sentence(draw: object) -> None:
    figure, ax = theme.new_figure()
    draw(pd.DataFrame(), ax=ax)  # type: ignore[operator]
    assert words(figure)[0].startswith("No run kept per-request histograms")
