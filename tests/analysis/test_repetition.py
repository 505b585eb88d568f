"""The curve without answers that repeat themselves."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from analysis.analysis_tables import baseline, recorded, requests, runs
from answer_tables import costs_of
from scaling_tables import PROMPTS, curve

from workbench.analysis.answers import repetition
from workbench.analysis.campaign import repetition_sentence, same_curve, scaling_fits, varied_fits
from workbench.analysis.repetition import without_repetitive
from workbench.table import Tables

LOOP, VARIED = 2 / 17, 1.0  # distinct-4 of 1 2 1 2 ... and of 1 2 3 ... over 20 tokens


def tables(loops: tuple[int, ...] = (0, 2), *, answers: bool = True, **values: object) -> Tables:
    """Three sizes on ten prompts, of which ``loops`` are answered by repetition; even ones accept more."""
    run_table, request_table = curve({500: 1.5, 1000: 1.6, 2000: 1.7}, spread=20, **values)
    ids = [LOOP if prompt % PROMPTS in loops else VARIED for prompt in range(len(request_table))]
    return replace(
        recorded("h200_first_trial"),
        runs=run_table,
        requests=request_table.assign(distinct_4=pd.Series(ids if answers else [None] * len(ids), dtype="float64")),
    )


def test_prompts_that_are_answered_by_repetition_go_from_every_run() -> None:
    whole = tables()
    # One drafter's server answers prompt 5 in a loop, the others do not: it goes as well.
    odd = whole.requests.index[(whole.requests["run_id"] == "n1000") & (whole.requests["prompt_index"] == 5)][0]
    whole.requests.at[odd, "distinct_4"] = LOOP
    varied = without_repetitive(whole)
    assert varied is not None and (varied.dropped, varied.known) == (3, 10)
    left = varied.tables.requests.groupby("run_id")["prompt_index"].unique().map(sorted)
    assert left.tolist() == [[1, 3, 4, 6, 7, 8, 9]] * 3


def test_of_answers_that_were_not_kept_nothing_is_known() -> None:
    assert without_repetitive(tables(answers=False)) is None
    assert without_repetitive(recorded("h200_first_trial")) is None


def test_other_ways_of_asking_are_other_answers() -> None:
    warm = tables()
    warm.runs["temperature"] = pd.Series([0.0, 0.0, 0.7], dtype="float64")
    warm.requests["distinct_4"] = pd.Series(
        [LOOP if run == "n2000" and prompt == 1 else VARIED for run, prompt in
         zip(warm.requests["run_id"], warm.requests["prompt_index"], strict=True)],
        dtype="float64",
    )  # fmt: skip
    varied = without_repetitive(warm)
    assert varied is not None and (varied.dropped, varied.known) == (1, 20)
    assert varied.tables.requests.groupby("run_id").size().to_dict() == {"n1000": 10, "n2000": 9, "n500": 10}


def test_a_run_without_any_answer_left_goes_too() -> None:
    varied = without_repetitive(tables(tuple(range(PROMPTS))))
    assert varied is not None and varied.tables.runs.empty and varied.dropped == 10


def test_the_curve_beside_the_whole() -> None:
    whole = tables()
    costs = costs_of(whole)
    fits, varied = scaling_fits(whole, costs), without_repetitive(whole)
    again = varied_fits(varied, costs)
    main = next(fit for _, fit in fits.values())
    other = same_curve(again, main)
    assert other is not None
    # Even prompts accept 0.2 more than the mean, odd ones 0.2 less: of five and five two even ones go.
    assert other.points["accept_length"].tolist() == pytest.approx([1.5 - 0.05, 1.6 - 0.05, 1.7 - 0.05])
    said = repetition_sentence(fits, varied, costs)
    assert said is not None and said.startswith(
        "2 of 10 prompts are answered by repetition (distinct-4 below 0.5); without them accept length changes by "
        "-0.05 in the mean of the curve's drafters, and a doubling brings +0.10"
    )


def test_what_else_is_said() -> None:
    whole = tables(())
    fits = scaling_fits(whole, costs_of(whole))
    main = next(fit for _, fit in fits.values())
    none = without_repetitive(whole)
    assert repetition(main, None, none) == "None of 10 prompts is answered by repetition (distinct-4 below 0.5)."
    assert str(repetition(main, None, None)).startswith("Whether answers that repeat themselves")
    all_loop = without_repetitive(tables(tuple(range(PROMPTS))))
    assert str(repetition(main, None, all_loop)).endswith("without them no curve is left.")
    nothing = replace(whole, runs=runs(baseline()), requests=requests())
    assert repetition_sentence(scaling_fits(nothing, costs_of(nothing)), none, costs_of(nothing)) is None
