import math

import numpy as np
import pandas as pd
import pytest
from analysis_tables import recorded, requests
from scaling_tables import curve, drafters

from workbench.analysis.scaling import ScalingFit, fit_scaling, forms_df, scaling_points_df, scaling_sentence
from workbench.errors import UsageError

# Of 3 drafts 1/4, 1/2 and 3/4: a straight line on the logit, ln 3 for a factor of 4.
EXACT = {1000: 1.75, 4000: 2.5, 16000: 3.25}


def fit(tables: tuple[pd.DataFrame, pd.DataFrame], **options: object) -> ScalingFit:
    run_table, request_table = tables
    points = scaling_points_df(run_table, request_table, n_boot=50)
    return fit_scaling(points, request_table, n_boot=400, **options)  # type: ignore[arg-type]


def test_one_size_is_no_curve() -> None:
    result = fit(curve({1000: 1.75}))
    assert not result.identified
    assert result.reason == "no curve: one training size"
    assert scaling_sentence(result) == "No curve: one training size."
    assert result.band.empty


def test_no_size_is_no_curve() -> None:
    result = fit(curve({1000: 1.75}, drafter_target="another"))
    assert result.reason == "no curve: no point with a known training size"
    assert result.notes == ("n1000 is left out of the fit: made for another, served on T",)


def test_two_sizes_give_a_slope_and_no_answer() -> None:
    result = fit(curve({1000: 1.5, 4000: 1.9}), break_even=2.0)
    assert result.per_doubling == pytest.approx(0.2)
    assert not result.identified
    assert result.data_needed is None
    assert result.data_needed_reason.startswith("not identified: two training sizes")


def test_data_needed_inside_the_measured_sizes() -> None:
    # logit halfway between those of 4000 and 16000, at 8000 samples: p = sqrt 3 / (1 + sqrt 3)
    level = 1 + 3 * math.sqrt(3) / (1 + math.sqrt(3))
    result = fit(curve(EXACT), break_even=level)
    assert result.identified
    assert result.main == "bounded logit"
    assert result.data_needed == pytest.approx(8000)
    assert result.data_needed_low < 8000 < result.data_needed_high
    assert result.data_needed_reason == "the measured points reach it from 16,000 training samples on"
    assert "about 8,000 training samples" in scaling_sentence(result)


def test_the_interval_of_break_even_widens_that_of_the_data() -> None:
    level = 2.9
    narrow = fit(curve(EXACT), break_even=level)
    wide = fit(curve(EXACT), break_even=level, break_even_interval=(2.8, 3.0))
    assert wide.data_needed == pytest.approx(narrow.data_needed)
    assert wide.data_needed_low < narrow.data_needed_low
    assert wide.data_needed_high > narrow.data_needed_high


def test_nothing_is_said_beyond_four_times_the_largest_size() -> None:
    # p = 27/28 has logit 3 ln 3: two factors of 4 beyond 16000, that is 256,000
    result = fit(curve(EXACT), break_even=1 + 3 * 27 / 28)
    assert result.data_needed is None
    assert result.data_needed_reason == (
        "beyond 4x the largest size (64,000 training samples): not reachable within the trusted range"
    )
    assert result.trusted_max == 64000
    assert result.band["x"].max() == pytest.approx(64000)
    assert result.band["extrapolated"].any()
    assert math.isinf(result.data_needed_high)


def test_break_even_above_what_the_steps_allow() -> None:
    result = fit(curve(EXACT), break_even=4.2)
    assert result.data_needed_reason == (
        "break-even 4.20 is not below the longest accept length that the draft steps allow, 4"
    )


def test_the_band_holds_the_points() -> None:
    band = fit(curve(EXACT)).band
    assert (band["low"] < band["fit"]).all()
    assert (band["fit"] < band["high"]).all()
    assert np.interp(np.log(4000), np.log(band["x"]), band["fit"]) == pytest.approx(2.5, abs=0.01)


def test_the_log_linear_slope_is_weighted_least_squares() -> None:
    lengths = {1000: 1.5, 2000: 1.62, 4000: 1.7, 8000: 1.84}
    run_table, request_table = curve(lengths)
    # every prompt but the first is left out of one drafter: its error grows, so its weight must fall
    few = request_table[(request_table["run_id"] != "n8000") | (request_table["prompt_index"] < 2)]
    points = scaling_points_df(run_table, few, n_boot=50)
    result = fit_scaling(points, few, n_boot=4000)
    even = np.polyfit(np.log2(list(lengths)), list(lengths.values()), 1)[0]
    without = np.polyfit(np.log2(list(lengths)[:3]), list(lengths.values())[:3], 1)[0]
    assert without < result.per_doubling < even


def test_a_flat_end_is_not_hidden_by_a_curve() -> None:
    result = fit(curve({1000: 1.5, 4000: 2.0, 16000: 2.0}), break_even=2.4)
    assert not result.identified
    assert result.reason == "not identified: the points do not follow the curve within their error"
    assert "from 4,000 to 16,000 training samples accept length changed by +0.00 (95 % +0.00 to +0.00)" in result.notes
    assert any(note.startswith("n4000 (4,000 training samples) lies") and "above" in note for note in result.notes)


def test_a_slope_that_may_be_zero_is_not_identified() -> None:
    # every other drafter does well on even prompts where the rest does on odd ones: the order is chance
    run_table, request_table = curve({1000: 1.5, 4000: 1.52, 16000: 1.5}, spread=40)
    flipped = request_table["prompt_index"].where(request_table["run_id"] != "n4000", request_table["prompt_index"] ^ 1)
    result = fit((run_table, request_table.assign(prompt_index=flipped)), break_even=2.0)
    assert result.reason.startswith("not identified: the gain per doubling may be zero")


def test_without_requests_there_is_no_interval() -> None:
    run_table, request_table = curve(EXACT)
    result = fit_scaling(scaling_points_df(run_table, request_table), break_even=2.9)
    assert result.interval_means == "no interval: no per-request data of several prompts"
    assert result.reason.startswith("not identified: no per-request data")
    assert math.isnan(result.per_doubling_low)
    assert result.band["low"].isna().all()
    assert len(result.band) > 0


def test_mixed_settings_are_refused_by_name() -> None:
    run_table, request_table = drafters(
        [
            {"name": "a", "size": 1000, "length": 1.5},
            {"name": "b", "size": 4000, "length": 2.0, "num_steps": 5, "num_draft_tokens": 6},
        ]
    )
    with pytest.raises(UsageError, match="must share num_steps, num_draft_tokens"):
        fit((run_table, request_table))


def test_unknown_steps_leave_the_unbounded_form() -> None:
    result = fit(curve(EXACT, num_steps=None, num_draft_tokens=None))
    assert result.main == "log-linear"
    table = forms_df(result).set_index("form")
    assert table.loc["bounded logit", "reason"].startswith("not fitted: the draft steps are not stated")
    assert list(table["drawn"]) == [True, False, False]


def test_a_drafter_that_accepts_nothing_leaves_the_unbounded_form() -> None:
    run_table, request_table = curve({1000: 1.0, 4000: 2.0, 16000: 3.0}, spread=0)
    result = fit((run_table, request_table))
    assert result.main == "log-linear"
    assert "bounded logit: not fitted: a point lies on or outside its bounds 1 and 4" in result.notes


def test_a_plateau_needs_six_sizes_and_is_found_then() -> None:
    sizes = [100 * 4**k for k in range(6)]
    saturating = {size: round(3 - 15 * size**-0.5, 2) for size in sizes}
    result = fit(curve(saturating, spread=3))
    assert result.main == "power law with plateau"
    (plateau,) = (form for form in result.forms if form.name == result.main)
    assert plateau.parameters["p"] == pytest.approx(3.0, abs=0.02)
    assert plateau.intervals["p"][1] < 4
    fewer = fit(curve(dict(list(saturating.items())[:5])))
    assert any("5 sizes over 2.4 decades, at least 6 over 1.5 are needed" in note for note in fewer.notes)


def test_a_plateau_that_is_only_a_straight_line_is_not_identified() -> None:
    rising = {100 * 4**k: 1.2 + 0.2 * k for k in range(6)}
    plateau = fit(curve(rising)).forms[2]
    assert plateau.reason.startswith("not identified")


def test_several_seeds_widen_the_interval() -> None:
    rows = [
        {"name": f"n{size}-{seed}", "size": size, "length": length + (0.1 if seed else -0.1), "seed": seed}
        for size, length in EXACT.items()
        for seed in (0, 1)
    ]
    several, single = fit(drafters(rows)), fit(curve(EXACT))
    assert several.interval_means == "evaluation and training error"
    assert single.interval_means == "evaluation error only"
    assert several.per_doubling == pytest.approx(single.per_doubling, abs=0.01)
    several_width = several.per_doubling_high - several.per_doubling_low
    assert several_width > 3 * (single.per_doubling_high - single.per_doubling_low)
    assert any(note.startswith("fewer than three seeds at 1,000, 4,000, 16,000") for note in several.notes)


def test_a_size_with_one_seed_borrows_the_training_error_of_the_others() -> None:
    rows = [{"name": f"n{size}-0", "size": size, "length": length} for size, length in EXACT.items()]
    smallest = min(EXACT)
    # The seeds of the smallest size lie 0.1 either side of their mean; widened by the square root of 2, 0.14.
    rows[0]["length"] = EXACT[smallest] - 0.1
    mixed = fit(drafters([*rows, {"name": "b", "size": smallest, "length": EXACT[smallest] + 0.1, "seed": 1}]))
    single = fit(curve(EXACT))
    assert mixed.interval_means == "evaluation and training error, the latter at 2 of 3 sizes taken from the others"
    # Four doublings from end to end, both ends 0.14 off the wrong way: 0.06 a doubling, and nothing beyond.
    slack = 2 * 0.1 * 2**0.5 / 4 + (single.per_doubling_high - single.per_doubling_low)
    assert 0.03 < mixed.per_doubling_high - single.per_doubling < slack
    assert 0.03 < single.per_doubling - mixed.per_doubling_low < slack


def test_one_size_and_seed_twice_is_not_two_seeds() -> None:
    rows = [{"name": f"n{size}", "size": size, "length": length} for size, length in EXACT.items()]
    result = fit(drafters([*rows, {"name": "again", "size": 16000, "length": 3.2}]))
    assert result.interval_means == "evaluation error only"
    assert "again and n16000 share 16,000 training samples and seed 0: they are not two seeds" in result.notes


def test_confounds_are_named_only_where_they_are() -> None:
    rows = [
        {"name": "a", "size": 1000, "length": 1.75, "optimizer_steps": 800, "epochs": 100.0},
        {"name": "b", "size": 4000, "length": 2.5, "optimizer_steps": 900, "epochs": 30.0},
        {"name": "c", "size": 16000, "length": 3.25, "optimizer_steps": 850, "epochs": 3.0},
    ]
    notes = fit(drafters(rows)).notes
    assert "optimizer steps differ between the points: 800 to 900" in notes
    assert any(note.startswith("epochs fall from 100 at 1,000 to 3 at 16,000 training samples") for note in notes)
    alike = fit(curve(EXACT)).notes
    assert not any("epochs" in note or "optimizer steps" in note for note in alike)


def test_what_is_not_stated_is_said() -> None:
    notes = fit(curve(EXACT, recipe=None, seed=None)).notes
    assert "training recipe not stated for n1000, n4000, n16000" in notes
    assert "seed not stated for n1000, n4000, n16000" in notes


def test_answers_of_different_length_are_a_confound() -> None:
    run_table, request_table = curve(EXACT)
    run_table.loc[2, "response_tokens"] = 16000 * 150
    notes = fit((run_table, request_table)).notes
    assert any(note.startswith("answers differ in length: 100 to 150 response tokens a sample") for note in notes)


def test_size_in_response_tokens() -> None:
    result = fit(curve(EXACT), x="response_tokens", break_even=2.9)
    assert result.trusted_max == 6_400_000
    assert "response tokens" in scaling_sentence(result)


def test_every_point_over_break_even_already() -> None:
    result = fit(curve({1000: 1.75, 4000: 2.5}), break_even=1.5)
    assert result.data_needed_reason.endswith("the measured points reach it from 1,000 training samples on")


def test_the_first_trial() -> None:
    tables = recorded("h200_first_trial")
    points = scaling_points_df(tables.runs, tables.requests)
    held_out = points[
        (points["prompt_set"] == "mix_heldout") & (points["num_steps"] == 3) & (points["ignore_eos"] == False)  # noqa: E712
    ]
    group = held_out[held_out["recipe"] == held_out.set_index("drafter").loc["n500", "recipe"]]
    result = fit_scaling(group, tables.requests, break_even=2.35)
    # accept lengths read from the histograms by hand: 1.505, 1.716, 1.871, 1.871
    assert group["accept_length"].tolist() == pytest.approx([1.505, 1.716, 1.871, 1.871], abs=6e-4)
    assert (result.num_sizes, result.identified) == (4, False)
    assert result.per_doubling_low < 0.076 < result.per_doubling_high
    assert "not identified" in result.data_needed_reason
    assert any("epochs fall from 104 at 500 to 3 at 22,383 training samples" in note for note in result.notes)
    assert "one training seed at every size: the band holds the evaluation error only" in result.notes


def test_one_prompt_has_no_interval_and_few_are_named() -> None:
    run_table, request_table = curve(EXACT)
    few = fit((run_table, request_table[request_table["prompt_index"] < 4]))
    assert "a point stands on 4 prompts only: its interval is too narrow" in few.notes
    one = fit((run_table, request_table[request_table["prompt_index"] < 1]))
    assert one.reason.startswith("not identified: no per-request data")


def test_requests_of_other_runs_do_not_matter() -> None:
    run_table, request_table = curve(EXACT)
    more = pd.concat([request_table, requests({"run_id": "stranger", "steps_histogram": [5]})], ignore_index=True)
    points = scaling_points_df(run_table, request_table)
    first, second = (fit_scaling(points, table, n_boot=100) for table in (request_table, more))
    assert first.per_doubling_low == second.per_doubling_low
