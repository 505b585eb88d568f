import numpy as np
import pandas as pd
import pytest

from workbench.analysis.scaling.fit import FormFit, _main_form
from workbench.analysis.scaling.forms import BOUNDED, LOG_LINEAR, PLATEAU, Form
from workbench.analysis.scaling.notes import confounds, last_gain, misfit, signed

POINTS = pd.DataFrame(
    {
        "drafter": ["a", "b", "c", "d", "e"],
        "training_samples": [1000, 2000, 4000, 8000, 16000],
        "response_tokens": [10_000, 20_000, 40_000, 80_000, 160_000],
        "accept_length": [1.5, 1.6, 1.7, 1.8, 1.9],
        "n": [20] * 5,
        "seed": pd.Series([0] * 5, dtype="Int64"),
        "optimizer_steps": [100] * 5,
        "epochs": [1.0] * 5,
        "recipe": ["r"] * 5,
        "data_mix": ["m"] * 5,
        "origin": ["recorded"] * 5,
    }
)


def notes(**columns: object) -> list[str]:
    return confounds(POINTS.assign(**columns), "training_samples", 4.0)


def test_like_points_have_one_note_for_their_one_seed() -> None:
    assert notes() == ["one training seed at every size: the band holds the evaluation error only"]


def test_epochs_that_do_not_fall_are_only_said_to_differ() -> None:
    said = notes(epochs=[1.0, 2.0, 1.0, 3.0, 2.0])
    assert "epochs differ between the points, from 1 at 1,000 to 2 at 16,000 training samples" in said
    falling = notes(epochs=[16.0, 8.0, 4.0, 2.0, 1.0])
    assert any(note.startswith("epochs fall from 16 at 1,000 to 1 at 16,000") for note in falling)


@pytest.mark.parametrize(
    ("columns", "note"),
    [
        ({"origin": ["recorded", "noted"] + ["recorded"] * 3}, "the points differ in their origins: recorded, noted"),
        ({"draft_vocab_size": [8192] + [16384] * 4}, "the points differ in their draft vocabularies: 8192, 16384"),
        ({"accept_length": [1.5, 2.0, 2.5, 3.0, 3.8]}, "accept length 3.80 is near its bound 4"),
        ({"optimizer_steps": [100, 100, 100, 100, 90]}, "optimizer steps differ between the points: 90 to 100"),
        ({"data_mix": ["m"] * 4 + [None]}, "data mix not stated for e"),
    ],
)
def test_each_confound_has_its_sentence(columns: dict[str, object], note: str) -> None:
    assert any(said.startswith(note) for said in notes(**columns))


def test_a_residual_counts_against_its_share_of_the_five_percent() -> None:
    # five points, so 0.5 % at each end: 2 % of the resamples on the other side of zero are error, none are not
    resampled = np.linspace(-0.02, 0.98, 1001)[:, None] * np.ones((1, 5))
    clear = resampled.copy()
    clear[:, 4] += 0.1
    fitted = np.zeros((1002, 5))
    assert misfit(POINTS, "training_samples", np.vstack([np.full((1, 5), 0.5), resampled]), fitted, "f") == ()
    (note,) = misfit(POINTS, "training_samples", np.vstack([np.full((1, 5), 0.5), clear]), fitted, "f")
    assert note.startswith("e (16,000 training samples) lies 0.50 above the f curve (99 % +0.085 to +1.075)")


def test_a_residual_too_small_to_be_read_is_no_misfit() -> None:
    assert misfit(POINTS, "training_samples", np.full((100, 5), 0.004), np.zeros((100, 5)), "f") == ()


def test_what_the_last_increase_brought() -> None:
    x = np.array([1000.0, 4000.0, 4000.0])
    y = np.array([[1.5, 1.8, 1.9]])
    assert last_gain("training_samples", x, y) == (
        "from 1,000 to 4,000 training samples accept length changed by +0.35",
    )
    assert last_gain("training_samples", x[:1], y[:, :1]) == ()


@pytest.mark.parametrize(("value", "text"), [(-0.001, "+0.00"), (0.126, "+0.13"), (-0.5, "-0.50")])
def test_signed(value: float, text: str) -> None:
    assert signed(value) == text


@pytest.mark.parametrize(
    ("reasons", "criteria", "form"),
    [
        (("", "", ""), (10, 10, 7.9), PLATEAU),
        (("", "", ""), (10, 10, 8.1), BOUNDED),  # not clearly better
        (("", "", "not identified"), (10, 10, 0), BOUNDED),
        (("", "not fitted", "not fitted"), (10, 0, 0), LOG_LINEAR),
    ],
)
def test_which_form_is_drawn(reasons: tuple[str, ...], criteria: tuple[float, ...], form: Form) -> None:
    forms = tuple(FormFit(str(k), "", aicc=criteria[k], reason=reasons[k]) for k in range(3))
    assert _main_form(forms) is form
