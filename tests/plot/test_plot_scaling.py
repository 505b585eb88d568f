import pandas as pd
import pytest
from analysis.scaling_tables import curve
from figures import points, words

from workbench import plot, theme
from workbench.analysis.scaling import fit_scaling, scaling_points_df
from workbench.plot.scaling import short_count

EXACT = {1000: 1.75, 4000: 2.5, 16000: 3.25}


def published(*rows: tuple[int, float, float, float]) -> pd.DataFrame:
    columns = ["training_samples", "accept_length", "num_steps", "eagle_topk"]
    return pd.DataFrame(rows, columns=columns).astype("float64")


def test_points_curve_and_band() -> None:
    figure, ax = theme.new_figure()
    run_table, request_table = curve(EXACT)
    fitted = scaling_points_df(run_table, request_table, n_boot=50)
    fit = fit_scaling(fitted, request_table, n_boot=100)
    plot.plot_accept_length_vs_data(fitted, ax=ax, fit=fit, break_even=2.9)
    assert ax.get_xscale() == "log"
    assert points(ax, theme.ROLES["speculative"]) == {(1000, 1.75), (4000, 2.5), (16000, 3.25)}
    (drawn,) = (line for line in ax.lines if len(line.get_xdata()) > 20)
    assert max(drawn.get_xdata()) == pytest.approx(16000)  # no line beyond the largest size
    assert max(
        band.get_paths()[0].vertices[:, 0].max() for band in ax.collections if band.get_hatch()
    ) == pytest.approx(64000)
    said = words(figure)
    assert {"break-even 2.90", "n1000", "n4000", "n16000", "fit, bounded logit"} <= set(said)
    assert any("n = 10 prompts a point" in text and "evaluation error only" in text for text in said)


def test_one_size_has_no_line() -> None:
    figure, ax = theme.new_figure()
    tables = curve({1000: 1.75})
    one = scaling_points_df(*tables)
    plot.plot_accept_length_vs_data(one, ax=ax, fit=fit_scaling(one, tables[1]))
    assert all(len(line.get_xdata()) < 3 for line in ax.lines)
    assert any("No curve: one training size." in text for text in words(figure))
    figure, ax = theme.new_figure()
    plot.plot_accept_length_vs_data(one, ax=ax)
    assert any("One training size is no curve." in text for text in words(figure))


def test_published_points_are_scatter_of_the_same_draft_shape() -> None:
    figure, ax = theme.new_figure()
    reference = published((300_000, 2.6, 3, 1), (600_000, 2.7, 3, 1), (532_000, 6.65, 7, 8), (100_000, 3.0, 5, 1))
    plot.plot_accept_length_vs_data(scaling_points_df(*curve(EXACT)), ax=ax, reference=reference)
    assert points(ax, theme.ROLES["published"]) == {(300_000, 2.6), (600_000, 2.7)}
    assert all(line.get_linestyle() in ("None", "none") for line in ax.lines if line.get_marker() == "x")
    assert any("2 of other draft shapes are not drawn" in text for text in words(figure))


def test_points_of_other_settings_are_counted_instead_of_drawn() -> None:
    figure, ax = theme.new_figure()
    run_table, request_table = curve(EXACT)
    other, more = curve({8000: 2.0}, num_steps=5, num_draft_tokens=6)
    recipe, same = curve({32000: 3.5}, recipe="another")
    everything = pd.concat([request_table, more, same], ignore_index=True)
    all_points = scaling_points_df(pd.concat([run_table, other, recipe], ignore_index=True), everything, n_boot=50)
    fit = fit_scaling(scaling_points_df(run_table, request_table, n_boot=50), everything, n_boot=100)
    plot.plot_accept_length_vs_data(all_points, ax=ax, fit=fit)
    assert (8000, 2.0) not in points(ax)
    assert points(ax, theme.ROLES["published"]) == {(32000, 3.5)}
    said = " ".join(words(figure))
    assert "1 points with other prompts or draft settings are not drawn" in said
    assert "another recipe or mix, not fitted" in said


def test_what_cannot_be_placed_is_named() -> None:
    figure, ax = theme.new_figure()
    run_table, request_table = curve(EXACT)
    run_table.loc[1, ["training_samples", "response_tokens"]] = pd.NA
    run_table.loc[2, "training_samples"] = 0
    plot.plot_accept_length_vs_data(scaling_points_df(run_table, request_table), ax=ax)
    said = " ".join(words(figure))
    assert "Training size not stated: n4000." in said
    assert "Not trained, so not drawn: n16000." in said


@pytest.mark.parametrize(("value", "text"), [(500, "500"), (10_000, "10k"), (1_400_000, "1.4M"), (2e9, "2G")])
def test_counts_on_the_axis(value: float, text: str) -> None:
    assert short_count(value) == text
