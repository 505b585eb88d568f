from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import pandas as pd
import pytest
from analysis_tables import recorded
from answer_tables import costs_of, with_drafters

from workbench.analysis.answers import curve_name, curve_notes, curve_sentence, next_training, same_data
from workbench.analysis.campaign import scaling_fits, scaling_points
from workbench.analysis.scaling import ScalingFit
from workbench.table import Tables

FIRST = "h200_first_trial"
LARGEST = ("n24000", "n24000L")
NAN = float("nan")


def fits_of(tables: Tables) -> dict[str, tuple[pd.DataFrame, ScalingFit]]:
    return scaling_fits(tables, costs_of(tables))


@lru_cache
def first_fits() -> dict[str, tuple[pd.DataFrame, ScalingFit]]:
    return fits_of(recorded(FIRST))


def curves(tables: Tables) -> list[ScalingFit]:
    return [fit for _, fit in fits_of(tables).values() if fit.num_sizes > 1]


def main() -> ScalingFit:
    return next(iter(first_fits().values()))[1]


def fit(**values: object) -> ScalingFit:
    """A curve over 1,000 and 4,000 samples that gains 0.1 a doubling, with break-even known to lie at 2.5."""
    points = pd.DataFrame(
        {
            "drafter": ["a", "b"],
            "training_samples": [1000, 4000],
            "accept_length": [1.5, 1.7],
            "prompt_set": ["p", "p"],
            "num_steps": [3, 3],
            "design": [None, None],
            "epochs": [2.0, 2.0],
            "seed": [0, 0],
        }
    )
    given: dict[str, object] = {
        "x": "training_samples",
        "num_points": 2,
        "num_sizes": 2,
        "identified": True,
        "reason": "",
        "break_even": 2.5,
        "per_doubling": 0.1,
        "trusted_max": 16_000.0,
        "points": points,
    }
    return ScalingFit(**(given | values))  # type: ignore[arg-type]


# --- the sentence ------------------------------------------------------------------------------------------------


def test_first_trial_gain_flat_end_and_data_needed() -> None:
    assert curve_sentence(main()) == (
        "Each doubling of the training samples adds 0.08 to accept length (95 % 0.06-0.10; mix_heldout, 3 steps, 500 "
        "to 22,383 in 4 sizes), but from 8,000 to 22,383 it changed by +0.00; how much would reach break-even (2.39) "
        "is not identified."
    )


def test_another_training_size_changes_the_curve() -> None:
    # Three doublings more in the largest size flatten the slope.
    more = with_drafters(recorded(FIRST), {name: {"training_samples": 179_064} for name in LARGEST})
    said = curve_sentence(curves(more)[0])
    assert "500 to 179,064 in 4 sizes), but from 8,000 to 179,064 it changed by +0.00" in said
    assert "adds 0.05 to accept length" in said


def test_a_gain_without_interval_or_flat_end() -> None:
    assert curve_sentence(fit(break_even=None)) == (
        "Each doubling of the training samples adds 0.10 to accept length (p, 3 steps, 1,000 to 4,000 in 2 sizes); "
        "break-even is not known here."
    )


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"data_needed": 9_000.0, "data_needed_low": 7_000.0, "data_needed_high": 12_000.0},
         "break-even (2.50) would take about 9,000 (95 % 7,000 to 12,000)."),
        ({"data_needed": 9_000.0, "data_needed_low": 7_000.0, "data_needed_high": float("inf")},
         "break-even (2.50) would take about 9,000 (95 % 7,000 to beyond 16,000)."),
        ({"data_needed_reason": "beyond 4x the largest size"},
         "break-even (2.50) lies beyond 16,000, 4x the largest size."),
        ({"identified": False, "reason": "not identified: two sizes"},
         "how much would reach break-even (2.50) is not identified."),
        ({"data_needed_reason": "break-even 4.20 is not below the longest accept length"},
         "no amount is known to reach break-even (2.50)."),
    ],
)  # fmt: skip
def test_the_data_needed_end_the_sentence(values: dict[str, object], said: str) -> None:
    assert curve_sentence(fit(**values)).endswith(f"; {said}")


def test_a_loss_is_not_called_a_gain() -> None:
    said = curve_sentence(fit(per_doubling=-0.07, per_doubling_low=-0.12, per_doubling_high=0.01))
    assert said.startswith(
        "Each doubling of the training samples changes accept length by -0.07 (95 % -0.12 to 0.01; p, 3 steps, "
    )


# --- what it cannot separate -------------------------------------------------------------------------------------


def test_first_trial_notes_name_the_short_training() -> None:
    notes = curve_notes([fit for _, fit in first_fits().values() if fit.num_sizes > 1])
    assert (
        "Epochs fall from 104 at 500 to 3 at 22,383 training samples: more data was seen less often, so a flat end may "
        "come from short training instead of from the data."
    ) in notes
    assert any(note.startswith("Data needed to break even: not identified: ") for note in notes)
    # What holds for one curve only carries its name; names of drafters keep their case.
    assert any(note.startswith("n24000 (22,383 training samples) lies ") for note in notes)
    assert any(note.endswith("(mix_heldout, 3 steps).") for note in notes)
    assert len(notes) == len(set(notes))


def test_equal_epochs_are_no_confound() -> None:
    drafters = recorded(FIRST).drafters["drafter"]
    equal = with_drafters(recorded(FIRST), {name: {"epochs": 10.0} for name in drafters})
    found = curves(equal)
    assert not any(note.startswith("Epochs") for note in curve_notes(found))
    assert "longer" not in str(next_training(found[0]))


def test_forms_that_were_not_tried_are_left_to_their_table() -> None:
    assert not any("plateau" in note for note in curve_notes([main()]))


# --- the same data, trained otherwise ----------------------------------------------------------------------------


def test_first_trial_another_training_on_the_same_samples() -> None:
    assert same_data(scaling_points(first_fits()), main()) == (
        "Another training on the same 22,383 training samples, n24000L, reaches 1.91 against 1.87 "
        "(mix_heldout, 3 steps), within their intervals."
    )


def test_beyond_the_intervals_training_matters() -> None:
    points = scaling_points(first_fits())
    better = points["drafter"] == "n24000L"
    moved = points.assign(low=points["low"].mask(better, 2.5), high=points["high"].mask(better, 2.7))
    assert "beyond their intervals: training matters, not only data" in str(same_data(moved, main()))


def test_another_seed_is_no_other_training() -> None:
    points = scaling_points(first_fits())
    other = points["drafter"] == "n24000L"
    recipe = points.loc[points["drafter"] == "n24000", "recipe"].iloc[0]
    alike = points.assign(recipe=points["recipe"].mask(other, recipe))
    assert same_data(alike, main()) is not None
    assert same_data(alike.assign(seed=points["seed"].mask(other, 1)), main()) is None


def test_break_even_that_measured_points_reach_is_said_also_where_the_curve_is_not_trusted() -> None:
    reason = "not identified: the points do not follow the curve within their error"
    reached = f"{reason}; the measured points reach it from 4,000 training samples on"
    said = curve_sentence(fit(identified=False, reason=reason, data_needed_reason=reached))
    assert said.endswith("; the measured points reach break-even (2.50) from 4,000 training samples on.")


def test_a_design_is_part_of_a_curve_s_name() -> None:
    told = fit(points=fit().points.assign(design="fixed steps"))
    assert curve_name(told.points) == "p, 3 steps, fixed steps"
    assert curve_name(fit().points) == "p, 3 steps"


def test_no_other_training_no_sentence() -> None:
    points = scaling_points(first_fits())
    assert same_data(points[points["drafter"] != "n24000L"], main()) is None
    assert same_data(points.iloc[:0], main()) is None


# --- the training to do next -------------------------------------------------------------------------------------


def test_first_trial_what_to_train_next() -> None:
    assert next_training(main()) == (
        "Before collecting more data train n24000 longer (3 epochs against 104 of n500) and train a second and third "
        "seed of one size: that tells the data's effect from the training's."
    )


def test_with_equal_epochs_and_several_seeds_there_is_nothing_to_add() -> None:
    seeds = pd.concat([fit().points, fit().points.assign(seed=1)], ignore_index=True)
    assert next_training(fit(points=seeds)) is None
    assert str(next_training(fit())).startswith("Before collecting more data train a second and third seed")


def test_curves_without_prompts_or_steps_say_so() -> None:
    points = fit().points.astype({"num_steps": "Int64"}).assign(prompt_set=None, num_steps=pd.NA)
    assert curve_name(points) == "prompts not stated, steps not stated"
    assert curve_name(fit().points.assign(num_steps=1)) == "p, 1 step"
    assert "prompts not stated, steps not stated" in curve_sentence(replace(fit(), points=points))
