import pytest
from figures import costs, points, words

from workbench import plot, theme
from workbench.plot.names import row_names


def test_break_even_beside_what_was_measured() -> None:
    figure, ax = theme.new_figure()
    rows = costs(
        {"run_id": "loses", "accept_length": 2.1, "break_even": 2.52, "gain_needed": 1.2},
        {"run_id": "pays", "accept_length": 2.5, "break_even": 2.0, "gain_needed": 0.8},
        {"run_id": "fast?", "gain_needed": 1.094},
        {"run_id": "slow?", "accept_length": 1.0},
    )
    plot.plot_break_even(rows, ax=ax)
    assert points(ax, theme.ROLES["break-even"]) >= {(2.52, 0.0), (2.0, 1.0)}
    assert points(ax, theme.ROLES["speculative"]) == {(2.1, 0.0), (2.5, 1.0), (1.0, 3.0)}
    said = words(figure)
    assert {"loses", "pays", "fast?", "slow?"} <= set(said)
    assert {"x1.20 needed", "speed not measured", "x1.09 needed; accept length not measured"} <= set(said)
    assert any(text.startswith("n = 4 runs.") for text in said)


def test_ranges_of_break_even_are_bars() -> None:
    _, ax = theme.new_figure()
    ranged = {"accept_length": 2.25, "accept_length_low": 2.0, "accept_length_high": 2.5}
    need = {"break_even": 3.57, "break_even_low": 3.17, "break_even_high": 3.97, "gain_needed": 1.59}
    plot.plot_break_even(costs({"run_id": "r", **ranged, **need}), ax=ax)
    segments = [segment for lines in ax.collections for segment in lines.get_segments()]
    ends = {tuple(round(x, 2) for x in segment[:, 0]) for segment in segments}
    assert {(3.17, 3.97), (2.0, 2.5)} <= ends


def test_speedups_best_first_with_intervals_and_verdicts() -> None:
    figure, ax = theme.new_figure()
    rows = costs({"run_id": "low", "speedup": 0.8}, {"run_id": "high", "speedup": 1.3}, {"run_id": "none"})
    rows = rows.assign(low=[0.7, 1.1, None], high=[0.95, 1.5, None], verdict=["loss", "win", "not decidable"], n=20)
    plot.plot_speedup(rows.astype({"low": "float64", "high": "float64"}), ax=ax)
    assert points(ax, theme.ROLES["win"]) == {(1.3, 0.0)}
    assert points(ax, theme.ROLES["loss"]) == {(0.8, 1.0)}
    said = words(figure)
    assert {"1.30 (1.10-1.50) win", "0.80 (0.70-0.95) loss", "not measured"} <= set(said)
    assert said.index("high") < said.index("low") < said.index("none")
    assert any("n = 20 prompts or passes a row." in text for text in said)
    assert 1.0 in [line.get_xdata()[0] for line in ax.lines if line.get_color() == theme.ROLES["baseline"]]


def test_intervals_that_nothing_bounds_do_not_stretch_the_axis() -> None:
    figure, ax = theme.new_figure()
    rows = costs(*({"run_id": name, "speedup": 1.1} for name in ("wild", "endless", "kept")))
    rows = rows.assign(low=[0.01, 0.5, 0.9], high=[94_000.0, float("inf"), 1.3], verdict="noise", n=4)
    plot.plot_speedup(rows.assign(method="paired bootstrap over prompts"), ax=ax)
    assert ax.get_xlim()[1] < 2
    assert {"1.10 noise", "1.10 (0.90-1.30) noise"} <= set(words(figure))
    figure.draw_without_rendering()


def test_a_simulated_win_is_called_simulated() -> None:
    figure, ax = theme.new_figure()
    rows = costs({"run_id": "forced", "speedup": 1.3, "origin": "simulated"})
    plot.plot_speedup(rows.assign(low=1.2, high=1.4, verdict="win", n=20), ax=ax)
    assert points(ax, theme.ROLES["win"]) == set()
    assert "1.30 (1.20-1.40) simulated" in words(figure)


def test_rows_of_one_label_name_what_sets_them_apart() -> None:
    figure, ax = theme.new_figure()
    rows = costs(
        {"run_id": "a", "label": "d, 3 steps", "prompt_set": "p", "speedup": 0.9},
        {"run_id": "b", "label": "d, 3 steps", "prompt_set": "q", "speedup": 0.8, "max_concurrency": 8},
        {"run_id": "c", "label": "d, 3 steps", "prompt_set": "q", "speedup": 0.7, "max_concurrency": 1},
    ).assign(low=float("nan"), high=float("nan"), verdict="loss", n=None)
    plot.plot_speedup(rows, ax=ax)
    assert {"d, 3 steps, p", "d, 3 steps, q, concurrency 8", "d, 3 steps, q, concurrency 1"} <= set(words(figure))


@pytest.mark.parametrize("rows", [3, 40])
def test_the_figure_grows_with_its_rows_and_says_what_it_leaves_out(rows: int) -> None:
    figure, ax = theme.new_figure()
    table = [{"run_id": f"r{k}", "accept_length": 2.0, "break_even": 2.2, "gain_needed": 1.1} for k in range(rows)]
    plot.plot_break_even(costs(*table), ax=ax)
    shown = min(rows, 28)
    assert figure.get_figheight() > 0.5 * shown
    assert any("12 more rows in the table." in text for text in words(figure)) == (rows == 40)


def test_simulated_acceptance_never_pays() -> None:
    figure, ax = theme.new_figure()
    forced = {"origin": "simulated", "accept_length": 2.5, "break_even": 1.219, "gain_needed": 0.49}
    plot.plot_break_even(costs({"run_id": "forced", **forced}), ax=ax)
    assert "would pay from 1.22" in words(figure)
    assert not {"pays", "x0.49 needed"} & set(words(figure))
    assert theme.ROLES["win"] not in {text.get_color() for text in ax.texts}


def test_long_labels_keep_what_tells_them_apart() -> None:
    names = [f"eagle3-smollm2-135m-eagle3-s{s}-k1-n4-sim2.5, {c} at once (simulated)" for s in (1, 3) for c in (8, 32)]
    assert row_names(costs(*({"run_id": name} for name in names))) == [
        f"…s{s}-k1-n4-sim2.5, {c} at once (simulated)" for s in (1, 3) for c in (8, 32)
    ]
    # Labels that differ in the middle of what is cut out, and in their ends.
    middle = [f"{'a' * k}{'x' * 60}-{k}-{'y' * 9}" for k in (1, 2)]
    assert len(set(row_names(costs(*({"run_id": name} for name in middle))))) == 2
    assert row_names(costs({"run_id": "custom-v1"}, {"run_id": "custom-v3"})) == ["custom-v1", "custom-v3"]
