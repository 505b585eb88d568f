from __future__ import annotations

import pandas as pd
import pytest
from analysis_tables import recorded, runs, speculative
from answer_tables import cost_rows, costs_of, exactly, speedup_rows, speedups_of, with_runs

from workbench.analysis.answers import best_shape, confounded, rate_misleads, same_points
from workbench.analysis.speedup import same_points_df

KIMI, FIRST = "kimi_k25", "h200_first_trial"


def chain(steps: int, speedup: float | None, **more: object) -> dict[str, object]:
    return {"num_steps": steps, "num_draft_tokens": steps + 1, "eagle_topk": 1, "speedup": speedup, **more}


# --- the best number of draft tokens -----------------------------------------------------------------------------


def test_first_trial_comes_nearest_with_the_longest_chain() -> None:
    tables = recorded(FIRST)
    assert best_shape(costs_of(tables), speedups_of(tables)) == (
        "Nearest to the baseline, and still below it: 7 draft tokens (6 steps). n24000L on mix_heldout reaches 0.48x "
        "at 2, 0.61x at 3, 0.83x at 5, 0.85x at 6 and 0.89x at 7 draft tokens; the intervals of the "
        "speedups at 3, 5 and 6 draft tokens overlap that at 7."
    )


def test_a_faster_shorter_chain_becomes_the_best() -> None:
    faster = with_runs(recorded(FIRST), {"eagle3-n24000L-s2-mix_heldout-c1": exactly("output_tok_per_s", 1500.0)})
    said = best_shape(costs_of(faster), speedups_of(faster))
    assert said.startswith(
        "Best measured: 3 draft tokens (2 steps). n24000L on mix_heldout reaches 0.48x at 2, 1.99x at 3"
    )


def test_kimi_has_no_two_runs_that_differ_in_draft_tokens_alone() -> None:
    tables = recorded(KIMI)
    assert best_shape(costs_of(tables), speedups_of(tables)) == (
        "Which number of draft tokens is best is not known: no two runs differ in draft tokens alone. "
        "Nearest to its baseline came aq-medai-k2, 4 draft tokens, 0.99x."
    )


@pytest.mark.parametrize(
    "apart",
    [
        {"cuda_graph": False},
        {"drafter": "other"},
        {"prompt_set": "other"},
        {"baseline_group": "B"},
        {"eagle_topk": 4},
        {"num_steps": None},
    ],
)
def test_runs_that_differ_in_more_are_not_compared(apart: dict[str, object]) -> None:
    said = best_shape(cost_rows(chain(1, 0.5), chain(3, 0.9, **apart)), speedup_rows())
    assert said.startswith("Which number of draft tokens is best is not known")


def test_a_wider_sweep_goes_before_a_faster_one() -> None:
    rows = [chain(1, 0.5), chain(2, 0.6), chain(3, 0.7), chain(1, 0.8, drafter="e"), chain(2, 0.9, drafter="e")]
    assert best_shape(cost_rows(*rows), speedup_rows()) == (
        "Nearest to the baseline, and still below it: 4 draft tokens (3 steps). d on p reaches 0.50x at 2, 0.60x at 3 "
        "and 0.70x at 4 draft tokens."
    )


def test_a_tree_that_is_faster_than_the_chains_comes_first() -> None:
    tree = {"num_steps": 6, "eagle_topk": 8, "num_draft_tokens": 32, "speedup": 1.5, "drafter": "d"}
    said = best_shape(cost_rows(chain(1, 0.9), chain(2, 1.1), tree), speedup_rows())
    assert said == (
        "Best measured: 32 draft tokens (6 steps), 1.50x (run 2). Among chains d on p reaches 0.90x at 2 "
        "and 1.10x at 3 draft tokens."
    )


def test_of_the_fastest_it_says_how_many_may_be_as_fast() -> None:
    tree = {"num_steps": 6, "eagle_topk": 8, "num_draft_tokens": 32, "speedup": 1.5, "drafter": "d"}
    ends = [{"low": 0.8, "high": 1.0}, {"low": 0.9, "high": 1.3}, {"low": 1.2, "high": 1.8}]
    said = best_shape(cost_rows(chain(1, 0.9), chain(2, 1.1), tree), speedup_rows(*ends))
    assert "1.50x (run 2); 1 of 2 other runs may be as fast, by the intervals of the speedups. Among chains" in said


def test_trees_of_one_depth_may_differ_in_draft_tokens() -> None:
    rows = [{"num_steps": 3, "eagle_topk": 4, "num_draft_tokens": n, "speedup": s} for n, s in ((8, 1.2), (16, 1.1))]
    said = best_shape(cost_rows(*rows), speedup_rows())
    assert said.startswith("Best measured: 8 draft tokens (3 steps).")


def test_one_interval_that_overlaps() -> None:
    ends = [{"low": 0.4, "high": 0.6}, {"low": 0.55, "high": 0.9}]
    said = best_shape(cost_rows(chain(1, 0.5), chain(2, 0.7)), speedup_rows(*ends))
    assert said.endswith("0.70x at 3 draft tokens; the interval of the speedup at 2 draft tokens overlaps that at 3.")


def test_simulated_runs_are_no_shape_to_recommend() -> None:
    forced = {"origin": "simulated", "simulated_accept_length": 2.5}
    said = best_shape(cost_rows(chain(1, 3.0, **forced), chain(2, 3.5, **forced)), speedup_rows())
    assert said.startswith("Which number of draft tokens is best was not measured: acceptance is simulated in every")


def test_no_run_at_all_is_no_shape() -> None:
    said = best_shape(cost_rows(), speedup_rows())
    assert said == "Which number of draft tokens is best was not measured: no run has both its shape and a speed."


def test_shapes_without_a_baseline_say_so() -> None:
    alone = {"baseline_run_id": None}
    said = best_shape(cost_rows(chain(1, None, **alone), chain(3, None, **alone)), speedup_rows())
    assert said == (
        "Which number of draft tokens is best was not measured: there is no baseline beside the 2 runs of known shape."
    )


# --- confounded --------------------------------------------------------------------------------------------------


def test_kimi_draft_tokens_and_steps_changed_together() -> None:
    assert confounded(costs_of(recorded(KIMI))) == (
        "From 16 to 5 draft tokens (custom-v3, CUDA graphs off) the number of steps changed too or is not stated, so "
        "the two causes cannot be separated."
    )


def test_trees_that_tell_a_step_from_a_draft_token_are_not_confounded() -> None:
    wide = [{"num_steps": 5, "eagle_topk": 8, "num_draft_tokens": n, "drafter": "d"} for n in (16, 32)]
    assert confounded(cost_rows(wide[0], wide[1], {**wide[0], "num_steps": 3})) is None
    said = confounded(cost_rows(wide[1], {**wide[0], "num_steps": 3}))
    assert said is not None and "the two causes cannot be separated" in said


def test_stated_equal_steps_are_not_confounded() -> None:
    equal = {"custom-v3-n16-nograph": {"num_steps": 3}, "custom-v3-n5-nograph": {"num_steps": 3}}
    assert confounded(costs_of(with_runs(recorded(KIMI), equal))) is None
    differ = {"custom-v3-n16-nograph": {"num_steps": 5}, "custom-v3-n5-nograph": {"num_steps": 3}}
    said = str(confounded(costs_of(with_runs(recorded(KIMI), differ))))
    assert "the number of steps changed too, so" in said


def test_chains_are_not_confounded() -> None:
    assert confounded(costs_of(recorded(FIRST))) is None


def test_unknown_graphs_are_named_as_such() -> None:
    rows = [{"num_draft_tokens": tokens, "cuda_graph": None} for tokens in (4, 1)]
    assert str(confounded(cost_rows(*rows))).startswith("From 4 to 1 draft token (d, CUDA graphs not stated) ")


# --- the printed rate --------------------------------------------------------------------------------------------


def test_kimi_the_printed_rate_rose_while_the_length_did_not() -> None:
    tables = recorded(KIMI)
    assert rate_misleads(costs_of(tables), tables.runs) == (
        "A higher printed accept rate is no longer accept length: from 16 to 5 draft tokens the rate of custom-v3 "
        "rises from 0.13 to 0.41, because it is divided by fewer drafts, while accept length goes from 2.10 to "
        "2.00-2.20."
    )


def test_a_rate_that_rises_with_the_length_does_not_mislead() -> None:
    longer = with_runs(recorded(KIMI), {"custom-v3-n5-nograph": exactly("accept_length", 2.9)})
    assert rate_misleads(costs_of(longer), longer.runs) is None


def test_rates_on_other_prompts_are_not_compared() -> None:
    table = runs(
        speculative("a", num_draft_tokens=4, accept_rate_printed=0.2),
        speculative("b", num_draft_tokens=2, accept_rate_printed=0.6),
    )
    rows = [
        {"run_id": "a", "num_draft_tokens": 4, "accept_length": 2.0},
        {"run_id": "b", "num_draft_tokens": 2, "accept_length": 1.5},
    ]
    assert rate_misleads(cost_rows(*rows), table) is not None
    assert rate_misleads(cost_rows(rows[0], {**rows[1], "prompt_set": "q"}), table) is None


# --- one point asked for in several ways -------------------------------------------------------------------------


def test_shapes_that_the_server_makes_one_are_named() -> None:
    used = {"num_steps": 3, "eagle_topk": 1, "num_draft_tokens": 4, "asked_num_steps": 3, "asked_eagle_topk": 1}
    table = runs(
        speculative("a", label="16 asked", asked_num_draft_tokens=16, **used),
        speculative("b", label="5 asked", asked_num_draft_tokens=5, **used),
    )
    assert same_points(same_points_df(table)) == (
        "Different shapes were asked for and the server made them one, 3 steps, topk 1, 4 draft tokens: "
        "16 asked; 5 asked are one point."
    )
    assert same_points(same_points_df(table.head(1))) is None


def test_more_groups_of_one_shape_are_counted() -> None:
    used = {"num_steps": 3, "eagle_topk": 1, "num_draft_tokens": 4, "asked_num_steps": 3, "asked_eagle_topk": 1}
    rows = [
        speculative(f"{drafter}{asked}", drafter=drafter, asked_num_draft_tokens=asked, **used)
        for drafter in "xyz"
        for asked in (5, 16)
    ]
    assert str(same_points(same_points_df(runs(*rows)))).endswith("are one point (2 more such groups).")


def test_empty_tables_have_no_shape() -> None:
    nothing = cost_rows()
    assert confounded(nothing) is None
    assert rate_misleads(nothing, runs()) is None
    assert isinstance(best_shape(nothing, speedup_rows()), str)
    assert same_points(pd.DataFrame()) is None
