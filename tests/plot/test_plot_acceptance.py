import matplotlib.pyplot as plt
import pandas as pd
import pytest
from figures import words

from workbench import plot, theme


def survival(run: str, shares: list[float], **values: object) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "campaign": "c",
            "run_id": run,
            "label": run,
            "position": range(1, len(shares) + 1),
            "survival": shares,
            "low": [share - 0.1 for share in shares],
            "high": [share + 0.1 for share in shares],
            "num_verify_steps": 1000,
            **values,
        }
    )


def test_survival_line_and_band() -> None:
    figure, ax = theme.new_figure()
    plot.plot_survival(survival("one", [0.6, 0.3]), ax=ax)
    (line,) = ax.lines
    assert [(x, y) for x, y in line.get_xydata()] == [(1, 0.6), (2, 0.3)]
    edges = ax.collections[0].get_paths()[0].vertices
    assert {(1.0, 0.5), (1.0, 0.7)} <= {(round(x, 3), round(y, 3)) for x, y in edges}
    assert any("n = 1,000 verify steps" in text for text in words(figure))


def test_the_longest_chain_of_a_drafter_stands_for_the_shorter_ones() -> None:
    figure, ax = theme.new_figure()
    table = pd.concat(
        [
            survival("short", [0.6], drafter="d", prompt_set="p"),
            survival("long", [0.6, 0.3, 0.1], drafter="d", prompt_set="p"),
            survival("other", [0.2, 0.1], drafter="e", prompt_set="p"),
            survival("elsewhere", [0.9, 0.8], drafter="d", prompt_set="q"),
        ]
    )
    plot.plot_survival(table, ax=ax)
    assert sorted(len(line.get_xdata()) for line in ax.lines) == [2, 3]
    said = " ".join(words(figure))
    assert "Only p." in said
    assert "2 more runs" in said


def test_spread_is_a_row_a_run() -> None:
    figure, ax = theme.new_figure()
    table = pd.DataFrame(
        {
            "campaign": "c",
            "run_id": ["a", "a", "b", "b", "b"],
            "label": ["a", "a", "b", "b", "b"],
            "correct_drafts": [0, 1, 0, 1, 2],
            "share": [0.4, 0.6, 0.5, 0.25, 0.25],
            "num_verify_steps": [10, 10, 2000, 2000, 2000],
        }
    )
    plot.plot_spread(table, ax=ax)
    assert plt.get_fignums() == []
    said = words(figure)
    assert {"40%", "60%", "50%", "25%"} <= set(said)
    assert {"a, n = 10", "b, n = 2,000"} <= {text.replace("\u00a0", " ") for text in said}
    assert ax.collections[0].get_array().compressed() == pytest.approx([0.4, 0.6, 0.5, 0.25, 0.25])
