"""The curve of walks without a server, on drafters given by hand."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from analysis_tables import recorded
from answer_tables import costs_of
from scaling_tables import curve

from workbench.analysis.answers import Answer
from workbench.analysis.campaign import offline_fits, scaling_answer, scaling_fits
from workbench.analysis.scaling import fit_scaling, offline_points_df, point_columns
from workbench.spec import CampaignInfo
from workbench.table import Tables
from workbench.table.columns import DRAFTERS, OFFLINE, frame

SIZES = {500: 1.5, 1000: 1.6, 2000: 1.7}


def drafter(size: int, seed: int = 0, **values: object) -> dict[str, object]:
    own = {"campaign": "c", "drafter": f"n{size}-{seed}", "training_samples": size, "seed": seed, "drafter_target": "T"}
    return {**own, "response_tokens": 100 * size, "recipe": "r", "data_mix": "m", "epochs": 1.0, **values}


def walk(size: int, length: float, seed: int = 0, **values: object) -> dict[str, object]:
    own = {"campaign": "c", "drafter": f"n{size}-{seed}", "prompt_set": "mix", "num_steps": 3, "accept_length": length}
    return {**own, "low": length - 0.1, "high": length + 0.1, "num_prompts": 128, **values}


def study(offsets: tuple[float, ...] = (0.0,)) -> Tables:
    """A seed for each offset; only the first is served."""
    pairs = [(size, length, seed) for seed in range(len(offsets)) for size, length in SIZES.items()]
    run_table, request_table = curve(SIZES)
    return replace(
        recorded("h200_first_trial"),
        campaigns={"c": CampaignInfo(name="c", title="C", target="T", machine="m")},
        runs=run_table,
        requests=request_table,
        drafters=frame(DRAFTERS, [drafter(size, seed) for size, _, seed in pairs]),
        offline=frame(OFFLINE, [walk(size, length + offsets[seed], seed) for size, length, seed in pairs]),
    )


def points(tables: Tables) -> pd.DataFrame:
    return offline_points_df(tables.drafters, tables.offline, {"c": "T"}, point_columns(tables.runs))


def answer_of(tables: Tables) -> Answer:
    costs = costs_of(tables)
    return scaling_answer(tables, costs, scaling_fits(tables, costs), offline_fits(tables, costs))


def test_one_point_a_drafter_and_prompt_set_at_three_steps() -> None:
    tables = study()
    deeper = [walk(500, 1.2, num_steps=1), walk(500, 1.9, num_steps=7), walk(500, 1.3, prompt_set="mt", num_steps=2)]
    found = points(replace(tables, offline=pd.concat([tables.offline, frame(OFFLINE, deeper)], ignore_index=True)))
    told = found[["drafter", "prompt_set", "num_steps", "num_draft_tokens", "accept_length", "low", "high", "n"]]
    told = told.sort_values(["num_steps", "accept_length"], ascending=[False, True])
    assert [tuple(row) for row in told.to_numpy().tolist()] == [
        ("n500-0", "mix", 3, 4, 1.5, pytest.approx(1.4), pytest.approx(1.6), 128),
        ("n1000-0", "mix", 3, 4, 1.6, pytest.approx(1.5), pytest.approx(1.7), 128),
        ("n2000-0", "mix", 3, 4, 1.7, pytest.approx(1.6), pytest.approx(1.8), 128),
        ("n500-0", "mt", 2, 3, 1.3, pytest.approx(1.2), pytest.approx(1.4), 128),
    ]
    assert set(found["target"]) == {"T"} and set(found["fit_note"]) == {""}


@pytest.mark.parametrize("length", [0.5, 4.5, float("inf"), None])
def test_an_impossible_length_is_not_drawn(length: float | None) -> None:
    offline = frame(OFFLINE, [walk(500, 1.5) | {"accept_length": length}])
    (point,) = points(replace(study(), offline=offline)).to_dict("records")
    assert pd.isna(point["accept_length"]) and point["fit_note"] == "accept length not measured"


def test_a_walk_of_an_unknown_drafter_is_left_out() -> None:
    tables = study()
    assert points(replace(tables, drafters=tables.drafters.iloc[:0])).empty
    other = tables.drafters.assign(drafter_target="other")
    assert set(points(replace(tables, drafters=other))["fit_note"]) == {"made for other, served on T"}


def test_seeds_alone_give_an_interval_of_the_training() -> None:
    one = fit_scaling(points(study()))
    assert one.per_doubling == pytest.approx(0.1) and pd.isna(one.per_doubling_low)
    several = fit_scaling(points(study((-0.02, 0.0, 0.02))), n_boot=400)
    assert several.per_doubling == pytest.approx(0.1)
    # At most the whole spread over the two doublings, either way.
    assert 0.08 <= several.per_doubling_low < 0.1 < several.per_doubling_high <= 0.12
    assert several.interval_means == "training error only" and several.identified


def test_a_size_with_one_seed_takes_its_training_error_from_the_others() -> None:
    tables = study((-0.02, 0.0, 0.02))
    lone = tables.offline["drafter"].isin(["n2000-1", "n2000-2"])
    several = fit_scaling(points(replace(tables, offline=tables.offline[~lone])), n_boot=400)
    assert several.interval_means == "training error only, at 1 of 3 sizes taken from the others"
    assert several.per_doubling_low < several.per_doubling < several.per_doubling_high


def test_the_offline_curve_is_that_of_the_served_prompts_and_counts_its_seeds() -> None:
    tables = study((0.0, 0.03))
    served = tables.runs["prompt_set"].iloc[0]
    more = [
        walk(size, length + 0.2 * seed, seed, prompt_set="more") for size, length in SIZES.items() for seed in (0, 1)
    ]
    extra = walk(4000, 2.4, prompt_set="more")
    offline = pd.concat([tables.offline.assign(served_as=served), frame(OFFLINE, [*more, extra])], ignore_index=True)
    drafters = pd.concat([tables.drafters, frame(DRAFTERS, [drafter(4000)])], ignore_index=True)
    tables = replace(tables, offline=offline, drafters=drafters)
    answer = answer_of(tables)
    (said,) = [point for point in answer.points if point.startswith("Offline, over")]
    assert "over 6 drafters" in said and "(95 %" in said and "mix, 3 steps" in said
    assert said.endswith("There seeds of one size differ by 0.03 in the median, 0.03 at most.")
    assert not any("second and third seed" in action for action in answer.actions)


def test_another_training_on_the_largest_size_is_told_from_walks_too() -> None:
    tables = study((0.0, 0.03))
    longer = drafter(2000, 9, recipe="longer")
    offline = pd.concat([tables.offline, frame(OFFLINE, [walk(2000, 2.4, 9)])], ignore_index=True)
    tables = replace(tables, offline=offline, drafters=pd.concat([tables.drafters, frame(DRAFTERS, [longer])]))
    points_said = answer_of(tables).points
    (said,) = [point for point in points_said if point.startswith("Offline: Another training")]
    assert "n2000-9, reaches 2.40 against 1.7" in said and "beyond their intervals" in said


def test_the_page_says_the_offline_curve_where_it_stands_on_more_drafters() -> None:
    tables = study((-0.02, 0.0, 0.02))
    said = [point for point in answer_of(tables).points if "Offline" in point]
    assert len(said) == 1
    assert said[0].startswith("Offline, over 9 drafters: Each doubling of the training samples adds 0.10")
    few = study()
    assert not any("Offline, over" in point for point in answer_of(few).points)
    assert len(offline_fits(few, costs_of(few))) == 1
