import pandas as pd
from figures import points, words

from workbench import plot, theme
from workbench.table.columns import RUNS, frame


def runs(*rows: dict[str, object]) -> pd.DataFrame:
    common = {"campaign": "c", "origin": "recorded", "baseline_group": "default"}
    return frame(RUNS, [{**common, "run_id": str(k), "label": f"run {k}", **row} for k, row in enumerate(rows)])


def base(concurrency: int, speed: float | None, **values: object) -> dict[str, object]:
    return {"role": "baseline", "max_concurrency": concurrency, "output_tok_per_s": speed, **values}


def spec(concurrency: int | None, speed: float, **values: object) -> dict[str, object]:
    return {"role": "speculative", "drafter": "d", "max_concurrency": concurrency, "output_tok_per_s": speed, **values}


def lines(ax: object) -> dict[str, list[float]]:
    return {
        line.get_color(): list(map(float, line.get_ydata()))
        for line in ax.lines
        if line.get_linestyle() not in ("None", "none")
    }


def test_baseline_and_drafter_by_concurrency() -> None:
    figure, ax = theme.new_figure()
    plot.plot_throughput_vs_concurrency(
        runs(base(1, 90.0), base(8, 500.0), spec(8, 400.0), spec(1, 120.0), spec(32, 900.0)), ax=ax
    )
    drawn = lines(ax)
    assert drawn.pop(theme.ROLES["baseline"]) == [90, 500]
    assert list(drawn.values()) == [[120, 400, 900]]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["1", "8", "32"]
    assert {"baseline 500 tok/s", "d 900 tok/s"} <= set(words(figure))


def test_decode_speed_counts_where_it_is_known() -> None:
    _, ax = theme.new_figure()
    plot.plot_throughput_vs_concurrency(runs(base(1, 90.0, decode_tok_per_s=99.0)), ax=ax)
    assert {y for _, y in points(ax)} == {99.0}


def test_a_range_of_output_speeds_is_no_bar_of_a_decode_speed() -> None:
    _, ax = theme.new_figure()
    ranged = {"output_tok_per_s_low": 80.0, "output_tok_per_s_high": 100.0}
    plot.plot_throughput_vs_concurrency(runs(base(1, 90.0, decode_tok_per_s=120.0, **ranged)), ax=ax)
    ends = {round(float(y)) for bars in ax.collections for segment in bars.get_segments() for _, y in segment}
    assert ends <= {120}
    _, ax = theme.new_figure()
    plot.plot_throughput_vs_concurrency(runs(base(1, 90.0, **ranged)), ax=ax)
    ends = {round(float(y)) for bars in ax.collections for segment in bars.get_segments() for _, y in segment}
    assert ends == {80, 100}


def test_simulated_and_recorded_runs_of_one_drafter_are_not_joined() -> None:
    _, ax = theme.new_figure()
    rows = [spec(level, 100.0 * level, origin=origin) for level in (1, 8) for origin in ("recorded", "simulated")]
    plot.plot_throughput_vs_concurrency(runs(*rows), ax=ax)
    joined = [line for line in ax.lines if line.get_linestyle() not in ("None", "none")]
    assert sorted(len(line.get_xdata()) for line in joined) == [2, 2]


def test_baseline_groups_are_told_apart() -> None:
    figure, ax = theme.new_figure()
    plot.plot_throughput_vs_concurrency(
        runs(
            base(1, 63.6, baseline_group="A"), base(128, 2370.0, baseline_group="A"), base(1, 90.0, baseline_group="B")
        ),
        ax=ax,
    )
    assert {"baseline A 2,370 tok/s", "baseline B 90 tok/s"} <= set(words(figure))


def test_runs_without_a_concurrency_are_named() -> None:
    figure, ax = theme.new_figure()
    plot.plot_throughput_vs_concurrency(runs(base(1, 90.0), spec(None, 600.0)), ax=ax)
    assert any("No speed or no concurrency: run 1." in text for text in words(figure))


def test_drafters_at_one_concurrency_are_grey_and_named() -> None:
    figure, ax = theme.new_figure()
    plot.plot_throughput_vs_concurrency(runs(base(1, 90.0), base(8, 500.0), spec(1, 80.0)), ax=ax)
    assert points(ax, theme.ROLES["published"]) == {(0.0, 80.0)}
    assert any("measured at one concurrency only (d)" in text for text in words(figure))


def test_a_drafter_that_nobody_names_beside_named_ones() -> None:
    figure, ax = theme.new_figure()
    plot.plot_throughput_vs_concurrency(runs(base(1, 90.0), spec(1, 120.0, drafter=None), spec(1, 130.0)), ax=ax)
    assert any("measured at one concurrency only (d)" in word for word in words(figure))


def test_trees_of_other_sizes_are_not_joined_and_one_drafter_is_named_once() -> None:
    figure, ax = theme.new_figure()
    tree = {"num_steps": 5, "eagle_topk": 8}
    rows = [
        spec(concurrency, speed, num_draft_tokens=tokens, **tree)
        for tokens, speeds in ((16, (100.0, 300.0)), (32, (200.0, 500.0)))
        for concurrency, speed in zip((1, 8), speeds, strict=True)
    ]
    plot.plot_throughput_vs_concurrency(runs(base(1, 90.0), base(8, 250.0), *rows), ax=ax)
    drawn = [list(map(float, line.get_ydata())) for line in ax.lines if line.get_linestyle() not in ("None", "none")]
    assert sorted(drawn) == [[90, 250], [100, 300], [200, 500]]
    assert {"tokens 16 300 tok/s", "tokens 32 500 tok/s", "baseline 250 tok/s"} <= set(words(figure))
    assert any("Drafter: d." in text for text in words(figure))


def test_a_log_scale_is_labelled_in_plain_numbers() -> None:
    figure, ax = theme.new_figure()
    plot.plot_throughput_vs_concurrency(runs(base(1, 500.0), spec(1, 700.0), base(8, 2400.0), spec(8, 3200.0)), ax=ax)
    figure.canvas.draw()
    said = {label.get_text() for label in ax.get_yticklabels()}
    assert {"500", "1,000", "2,000"} <= said and not any("$" in text for text in said)


def test_of_many_lines_those_without_a_name_are_faint_and_the_baseline_is_not() -> None:
    _, ax = theme.new_figure()
    many = [spec(level, 100.0 * level + step, num_steps=step) for step in range(1, 10) for level in (1, 8)]
    plot.plot_throughput_vs_concurrency(runs(base(1, 50.0), base(8, 400.0), *many), ax=ax)
    drawn = {
        max(line.get_ydata()): line.get_alpha() for line in ax.lines if line.get_linestyle() not in ("None", "none")
    }
    assert {speed for speed, alpha in drawn.items() if alpha == 1} == {400, *(800 + step for step in range(4, 10))}
