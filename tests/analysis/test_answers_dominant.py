"""What matters most, worked out by hand from small studies."""

from __future__ import annotations

import pandas as pd
from analysis.analysis_tables import recorded
from answer_tables import costs_of
from scaling_tables import drafters

from workbench.analysis.answers import dominates, gain_words
from workbench.analysis.campaign import offline_fits, scaling_answer, scaling_fits, scaling_points
from workbench.analysis.scaling import ScalingFit, fit_scaling, scaling_groups, scaling_points_df


def study(*more: dict[str, object]) -> tuple[pd.DataFrame, ScalingFit]:
    """Accept length 1.5, 1.6, 1.7 at 500, 1,000, 2,000 samples; ``more`` are further runs."""
    sizes: list[dict[str, object]] = [
        {"name": f"n{size}", "size": size, "length": length, "recipe": "2 epochs", "design": "fixed epochs"}
        for size, length in ((500, 1.5), (1000, 1.6), (2000, 1.7))
    ]
    run_table, request_table = drafters([*sizes, *more])
    points = scaling_points_df(run_table, request_table, n_boot=20)
    return points, fit_scaling(scaling_groups(points)[0][1], request_table, n_boot=50)


def deep(steps: int, length: float) -> dict[str, object]:
    own = {"drafter": "n2000", "num_steps": steps, "num_draft_tokens": steps + 1}
    return {"name": f"n2000-s{steps}", "size": 2000, "length": length, "recipe": "2 epochs", **own}


def test_the_largest_effect_comes_first() -> None:
    points, main = study(deep(1, 1.4), deep(7, 1.95))
    assert dominates(points, main) == (
        "What changes accept length most is the number of draft steps: from 1 draft step to 7 (n2000) +0.55; "
        "from 500 to 2,000 training samples +0.20."
    )


def test_designs_tell_the_length_of_training_from_the_data() -> None:
    longer = {"recipe": "6,000 steps", "design": "fixed steps", "optimizer_steps": 6000}
    points, main = study(
        {"name": "n500-long", "size": 500, "length": 1.75, **longer},
        {"name": "n2000-long", "size": 2000, "length": 1.8, **longer},
    )
    assert dominates(points, main) == (
        "What changes accept length most is the length of training: from 100 to 6,000 optimizer steps (at 500 "
        "training samples) +0.25; from 500 to 2,000 training samples +0.20."
    )
    # Nearly as many steps are another schedule, no longer training.
    points, main = study({"name": "n500-other", "size": 500, "length": 1.9, "recipe": "x", "optimizer_steps": 110})
    assert dominates(points, main) is None


def test_prompts_are_compared_over_the_same_drafters() -> None:
    other = [
        {"name": f"n{size}-mt", "size": size, "length": length, "drafter": f"n{size}", "prompt_set": "mt"}
        for size, length in ((500, 1.2), (1000, 1.3))
    ]
    points, main = study(*({**row, "recipe": "2 epochs", "design": "fixed epochs"} for row in other))
    # 1.5 and 1.6 against 1.2 and 1.3; n2000 was not asked.
    assert dominates(points, main) == (
        "What changes accept length most is what is asked: from mt to p +0.30; from 500 to 2,000 training samples "
        "+0.20."
    )


def test_one_thing_alone_dominates_nothing() -> None:
    assert dominates(*study()) is None


def test_the_first_trial() -> None:
    tables = recorded("h200_first_trial")
    costs = costs_of(tables)
    fits = scaling_fits(tables, costs)
    main = next(fit for _, fit in fits.values())
    said = str(dominates(scaling_points(fits), main))
    assert said.startswith(
        "What changes accept length most is the number of draft steps: from 1 draft step to 6 (n24000L)"
    )
    assert "from 500 to 22,383 training samples +0.37" in said and "optimizer steps" not in said
    answer = scaling_answer(tables, costs, fits, offline_fits(tables, costs))
    assert answer.points[0].startswith("Offline and served accept length agree within 0.07")
    assert answer.points[1] == said
    assert answer.headline["gain per doubling"] == gain_words(main) == "+0.08 (0.06-0.10)"


def test_designs_are_curves_of_their_own() -> None:
    longer = {"recipe": "r", "design": "fixed steps", "optimizer_steps": 6000}
    same = {"recipe": "r", "design": "fixed epochs"}
    run_table, request_table = drafters(
        [
            *({"name": f"e{size}", "size": size, "length": 1.5, **same} for size in (500, 1000)),
            *({"name": f"s{size}", "size": size, "length": 1.6, **longer} for size in (500, 1000)),
        ]
    )
    groups = scaling_groups(scaling_points_df(run_table, request_table, n_boot=20))
    assert sorted((name, sorted(group["drafter"])) for name, group in groups) == [
        ("fixed epochs", ["e1000", "e500"]),
        ("fixed steps", ["s1000", "s500"]),
    ]
