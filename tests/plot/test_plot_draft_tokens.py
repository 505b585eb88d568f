import numpy as np
import pandas as pd
import pytest
from figures import collisions, costs, points, words

from workbench import plot, theme
from workbench.table.columns import RUNS, frame

SWEEP = [
    {"run_id": f"s{steps}", "num_steps": steps, "eagle_topk": 1, "num_draft_tokens": steps + 1, "accept_length": length}
    for steps, length in ((1, 1.5), (2, 1.7), (4, 1.9))
]


def joined(ax: object) -> list[list[tuple[float, float]]]:
    """Coordinates of the lines that join points."""
    lines = [line for line in ax.lines if line.get_linestyle() not in ("None", "none") and len(line.get_xdata()) > 2]
    return [[(float(x), float(y)) for x, y in line.get_xydata()] for line in lines]


def test_a_chain_of_known_steps_is_joined_in_order() -> None:
    _, ax = theme.new_figure()
    plot.plot_accept_length_vs_draft_tokens(costs(*reversed(SWEEP)), ax=ax)
    assert points(ax) == {(0, 1.5), (1, 1.7), (2, 1.9)}
    assert joined(ax) == [[(0, 1.5), (1, 1.7), (2, 1.9)]]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["2", "3", "5"]


def test_runs_of_unknown_steps_are_not_joined() -> None:
    # from 16 to 5 draft tokens the steps changed too, so a line would show one cause for two
    _, ax = theme.new_figure()
    rows = [{**row, "num_steps": None} for row in SWEEP]
    plot.plot_accept_length_vs_draft_tokens(costs(*rows), ax=ax)
    assert len(points(ax)) == 3
    assert joined(ax) == []


def test_drafters_and_settings_are_not_joined_with_each_other() -> None:
    _, ax = theme.new_figure()
    other = [{**row, "run_id": f"p{row['run_id']}", "prompt_set": "q"} for row in SWEEP]
    plot.plot_accept_length_vs_draft_tokens(costs(*SWEEP, *other), ax=ax)
    assert len(joined(ax)) == 2


def test_what_is_missing_is_named_and_what_is_not_stated_has_its_place() -> None:
    figure, ax = theme.new_figure()
    rows = costs(
        {"run_id": "known", "num_draft_tokens": 4, "accept_length": 2.0},
        {"run_id": "no tokens", "accept_length": 1.9},
        {"run_id": "no length", "num_draft_tokens": 4},
    )
    plot.plot_accept_length_vs_draft_tokens(rows, ax=ax)
    assert points(ax) == {(0, 2.0), (1, 1.9)}
    assert [label.get_text() for label in ax.get_xticklabels()] == ["4", "not stated"]
    assert "n = 2 runs. Not measured: no length." in words(figure)


def test_ranges_are_bars() -> None:
    _, ax = theme.new_figure()
    ranged = {"accept_length": 2.25, "accept_length_low": 2.0, "accept_length_high": 2.5}
    plot.plot_accept_length_vs_draft_tokens(costs({"run_id": "r", "num_draft_tokens": 16, **ranged}), ax=ax)
    (bars,) = (container[2][0] for container in ax.containers)
    assert bars.get_segments()[0][:, 1] == pytest.approx([2.0, 2.5])


def test_what_one_long_chain_predicts() -> None:
    _, ax = theme.new_figure()
    expected = pd.DataFrame({"num_steps": [1, 2, 4], "accept_length": [1.4, 1.6, 1.8]})
    plot.plot_accept_length_vs_draft_tokens(costs(*SWEEP), ax=ax, expected=expected)
    assert [(0, 1.4), (1, 1.6), (2, 1.8)] in joined(ax)


def test_origins_have_their_own_markers() -> None:
    figure, ax = theme.new_figure()
    rows = [
        {"run_id": origin, "origin": origin, "num_draft_tokens": 4, "accept_length": 2.0} for origin in theme.ORIGINS
    ]
    plot.plot_accept_length_vs_draft_tokens(costs(*rows), ax=ax)
    assert {line.get_marker() for line in ax.lines} >= {mark.marker for mark in theme.ORIGINS.values()}
    assert {mark.words for mark in theme.ORIGINS.values()} <= set(words(figure))


def test_speed_at_one_concurrency_with_the_baselines_line() -> None:
    figure, ax = theme.new_figure()
    rows = costs(
        {"run_id": "a", "num_draft_tokens": 4, "tok_per_s": 74.9, "base_tok_per_s": 90.0, "baseline_group": "B"},
        {"run_id": "b", "num_draft_tokens": 5, "tok_per_s": 53.2, "base_tok_per_s": 90.0, "baseline_group": "B"},
        {"run_id": "c", "num_draft_tokens": 5, "tok_per_s": 600.0, "base_tok_per_s": 900.0, "max_concurrency": 8},
    )
    plot.plot_throughput_vs_draft_tokens(rows, ax=ax)
    assert points(ax, theme.ROLES["baseline"]) == set()
    levels = [line.get_ydata()[0] for line in ax.lines if line.get_color() == theme.ROLES["baseline"]]
    assert levels == [90.0]
    assert "baseline B 90 tok/s" in words(figure)
    assert {y for _, y in points(ax)} == {74.9, 53.2}
    assert any("At concurrency 1; measured also at 8." in text for text in words(figure))


def test_many_baselines_become_one_range() -> None:
    figure, ax = theme.new_figure()
    rows = costs(
        *(
            {"run_id": f"r{k}", "num_draft_tokens": 4, "tok_per_s": 500.0, "base_tok_per_s": 700.0 + 10 * k}
            | {"baseline_run_id": f"b{k}"}
            for k in range(5)
        )
    )
    plot.plot_throughput_vs_draft_tokens(rows, ax=ax)
    assert "5 baselines 700-740 tok/s" in words(figure)


def rates(*rows: dict[str, object]) -> pd.DataFrame:
    common = {"campaign": "c", "role": "speculative", "drafter": "d", "origin": "recorded"}
    return frame(RUNS, [{**common, "label": row["run_id"], **row} for row in rows])


def test_printed_rates_stand_beside_ours_by_what_they_mean() -> None:
    figure, ax = theme.new_figure()
    runs = rates(
        {"run_id": "a", "num_draft_tokens": 4, "num_steps": 3, "accept_rate": 0.47, "accept_rate_printed": 0.6}
        | {"accept_rate_definition": "L/N"},
        {"run_id": "b", "num_draft_tokens": 16, "accept_rate_printed": 0.13, "accept_rate_definition": "L/N"},
        {"run_id": "c", "num_draft_tokens": 16, "accept_rate_printed": 0.15},
        {"run_id": "none", "num_draft_tokens": 16},
    )
    plot.plot_accept_rate_vs_draft_tokens(runs, ax=ax)
    assert {y for _, y in points(ax)} == {0.47, 0.6, 0.13, 0.15}
    assert "as the log prints it: L/N" in words(figure)
    assert "as the log prints it: meaning unknown" in words(figure)
    assert any("No accept rate: none." in text for text in words(figure))


def test_tokens_that_the_server_rewrote_are_said() -> None:
    figure, ax = theme.new_figure()
    runs = rates(
        {"run_id": "a", "num_draft_tokens": 4, "asked_num_draft_tokens": 16, "accept_rate": 0.4},
        {"run_id": "b", "num_draft_tokens": 4, "asked_num_draft_tokens": 5, "accept_rate": 0.4},
        {"run_id": "c", "num_draft_tokens": 4, "asked_num_draft_tokens": 4, "accept_rate": 0.4},
    )
    plot.plot_accept_rate_vs_draft_tokens(runs, ax=ax)
    said = next(text for text in words(figure) if "rewrites" in text)
    assert "16 was asked and 4 run; 5 was asked and 4 run" in said


def test_points_of_one_place_stand_beside_each_other() -> None:
    _, ax = theme.new_figure()
    rows = [{"run_id": f"r{k}", "num_draft_tokens": 4, "accept_length": 2.0, "drafter": f"d{k}"} for k in range(3)]
    plot.plot_accept_length_vs_draft_tokens(costs(*rows), ax=ax)
    assert len(points(ax)) == 3
    assert np.mean([x for x, _ in points(ax)]) == pytest.approx(0)


LONG = "nall-14minutes-seed0-0b0eda"


def trees(*topks: int, value: str = "accept_length") -> list[dict[str, object]]:
    """For each topk two trees of 16 and two of 32 draft tokens, and chains, all at concurrency 1 and 8."""
    shapes = [(topk, steps, 16 if steps < 6 else 32) for topk in topks for steps in (4, 5, 6, 7)]
    shapes += [(1, steps, steps + 1) for steps in (2, 3, 4)]
    return [
        {"run_id": f"{topk}-{steps}-{load}", "drafter": LONG, "eagle_topk": topk, "num_steps": steps}
        | {"num_draft_tokens": tokens, "max_concurrency": load, value: 2 + topk / 10 + steps / 20 + load / 100}
        for topk, steps, tokens in shapes
        for load in (1, 8)
    ]


def marked(ax: object, marker: str) -> list[float]:
    """Values of the points with this marker, lowest first."""
    return sorted(float(y) for line in ax.lines if line.get_marker() == marker for y in line.get_ydata())


DRAWN = {
    "accept_length": (plot.plot_accept_length_vs_draft_tokens, costs),
    "tok_per_s": (plot.plot_throughput_vs_draft_tokens, costs),
    "accept_rate": (plot.plot_accept_rate_vs_draft_tokens, rates),
}


@pytest.mark.parametrize("value", DRAWN)
def test_labels_of_a_dozen_trees_at_two_concurrencies_do_not_overlap(value: str) -> None:
    draw, table = DRAWN[value]
    figure, ax = theme.new_figure()
    draw(table(*trees(2, 4, 8, value=value)), ax=ax)
    assert collisions(figure) == []
    assert sum("nall-14minutes-" in text for text in words(figure)) == 1  # in the note, where it may be broken


def test_chains_differ_in_the_line_however_many_trees_there_are() -> None:
    _, ax = theme.new_figure()
    plot.plot_accept_length_vs_draft_tokens(costs(*trees(2, 4, 8)), ax=ax)
    first, second = (line for line in ax.lines if line.get_marker() == "None" and len(line.get_xdata()) == 3)
    assert first._unscaled_dash_pattern != second._unscaled_dash_pattern


def test_many_trees_have_a_marker_for_each_setting() -> None:
    figure, ax = theme.new_figure()
    plot.plot_accept_length_vs_draft_tokens(costs(*trees(4, 8)), ax=ax)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "recorded",
        "concurrency 1, topk 4",
        "concurrency 1, topk 8",
        "concurrency 8, topk 4",
        "concurrency 8, topk 8",
    ]
    # 2 + 4 / 10 + steps / 20 + 1 / 100 for 4, 5, 6 and 7 steps
    assert marked(ax, ">") == pytest.approx([2.61, 2.66, 2.71, 2.76])
    assert marked(ax, "*") == pytest.approx([3.08, 3.13, 3.18, 3.23])


def test_trees_without_a_marker_left_are_grey_and_counted() -> None:
    figure, ax = theme.new_figure()
    plot.plot_accept_length_vs_draft_tokens(costs(*trees(2, 4, 6, 8)), ax=ax)
    # without the two of topk 2: 2 + 2 / 10 + steps / 20, and 1 or 8 / 100
    grey = {2.41, 2.46, 2.51, 2.56, 2.48, 2.53, 2.58, 2.63}
    assert {y for _, y in points(ax, theme.ROLES["published"])} == grey
    assert any("Of 8 series of points the 6 highest are named; the others are grey." in text for text in words(figure))
    assert collisions(figure) == []


def test_a_single_point_keeps_its_name_among_series_with_markers() -> None:
    figure, ax = theme.new_figure()
    single = {"run_id": "single", "drafter": LONG, "eagle_topk": 2, "num_steps": 3, "num_draft_tokens": 8}
    plot.plot_accept_length_vs_draft_tokens(costs(*trees(4, 8), {**single, "accept_length": 2.9}), ax=ax)
    named = {" ".join(text.get_text().split()): text.xy for text in ax.texts}
    assert named["concurrency 1, topk 2"] == (3, 2.9)
    assert collisions(figure) == []


def test_repeats_are_named_once_at_the_highest() -> None:
    figure, ax = theme.new_figure()
    tree = {"num_draft_tokens": 16, "num_steps": 4, "eagle_topk": 4}
    rows = [{**tree, "run_id": f"r{k}", "accept_length": length} for k, length in enumerate((3.0, 3.4, 3.2))]
    chain = {"run_id": "chain", "num_draft_tokens": 5, "num_steps": 4, "eagle_topk": 1, "accept_length": 2.8}
    plot.plot_accept_length_vs_draft_tokens(costs(*rows, chain), ax=ax)
    figure.draw_without_rendering()
    labels = {" ".join(text.get_text().split()): text.xy[1] for text in ax.texts if text.get_text()}
    assert labels == {"topk 1": 2.8, "topk 4": 3.4}
    assert len([text for text in words(figure) if text == "topk 4"]) == 1


@pytest.mark.parametrize("absurd", [1e308, -1e308, float("inf"), 1e16])
def test_values_that_no_axis_can_hold_are_named_instead(absurd: float) -> None:
    figure, ax = theme.new_figure()
    rows = costs(
        {"run_id": "sound", "num_draft_tokens": 4, "num_steps": 3, "accept_length": 2.0},
        {"run_id": "absurd", "num_draft_tokens": 8, "num_steps": 7, "accept_length": absurd},
    )
    plot.plot_accept_length_vs_draft_tokens(rows, ax=ax)
    figure.draw_without_rendering()
    assert {y for _, y in points(ax)} == {2.0}
    assert any("Not measured: absurd." in text for text in words(figure))
