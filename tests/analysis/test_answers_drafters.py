from __future__ import annotations

import pytest
from analysis_tables import baseline, recorded, runs, speculative
from answer_tables import exactly, with_runs

from workbench.analysis.answers import (
    accepts_nothing,
    offline_against_served,
    offline_agrees,
    offline_gap,
    offline_gaps,
    queued,
    training_sizes,
    wrong_flag,
)
from workbench.table.columns import DRAFTERS, OFFLINE, frame

KIMI, FIRST = "kimi_k25", "h200_first_trial"


# --- the flag ----------------------------------------------------------------------------------------------------


def test_kimi_the_flag_was_wrong_and_not_the_drafter() -> None:
    assert wrong_flag(recorded(KIMI).runs) == (
        "custom-v3 accepted nothing when served with EAGLE and 2.00-2.50 tokens a step with EAGLE3: the flag was "
        "wrong, not the drafter."
    )


def test_a_drafter_that_accepts_under_either_flag_is_not_accused() -> None:
    fine = with_runs(recorded(KIMI), {"custom-v3-eagle-flag": exactly("accept_length", 1.5)})
    assert wrong_flag(fine.runs) is None


def test_forced_acceptance_says_nothing_of_the_flag() -> None:
    # The simulated server accepts 2.5 by decree; the drafter is untrained.
    assert wrong_flag(recorded("h200_smollm2").runs) is None


# --- a drafter that never accepts --------------------------------------------------------------------------------


def test_kimi_one_drafter_accepts_nothing_where_another_does() -> None:
    assert accepts_nothing(recorded(KIMI).runs) == (
        "custom-v1 accepted nothing although aq-medai-k2 reached 1.65 in group A: suspect a mismatch between training "
        "and serving (capture layers, precision, engine) before its data."
    )


def test_a_drafter_that_accepts_somewhere_is_not_accused() -> None:
    fine = with_runs(recorded(KIMI), {"custom-v1-n4-c1": exactly("accept_length", 1.3)})
    assert accepts_nothing(fine.runs) is None


def test_without_another_drafter_there_is_no_comparison() -> None:
    table = runs(
        speculative("a", accept_length=1.0), speculative("b", drafter="e", origin="simulated", accept_length=2.5)
    )
    assert accepts_nothing(table) is None


def test_campaigns_are_not_mixed() -> None:
    table = runs(speculative("a", accept_length=1.0), speculative("b", drafter="e", campaign="x", accept_length=2.5))
    assert accepts_nothing(table) is None


# --- queues ------------------------------------------------------------------------------------------------------


def test_kimi_speculation_capped_what_ran() -> None:
    assert queued(recorded(KIMI).runs) == (
        "32 requests waited while 48 ran (custom-v1, 4 draft tokens, 48 running; 48 is what SGLang sets under "
        "speculation by default): state --max-running-requests on both sides, or the comparison is unfair."
    )


@pytest.mark.parametrize(
    ("running", "waiting", "said"),
    [(40, 1, "1 request waited while 40 ran (x): "), (48, 2, "2 requests waited while 48 ran (x; 48 is what ")],
)
def test_the_default_limit_is_named_only_where_it_is_reached(running: int, waiting: int, said: str) -> None:
    table = runs(speculative("r", label="x", peak_running_req=running, peak_queue_req=waiting))
    assert str(queued(table)).startswith(said)


def test_no_queue_no_sentence() -> None:
    table = runs(
        speculative(peak_running_req=8, peak_queue_req=0),
        baseline(peak_running_req=8, peak_queue_req=9),
        speculative("c", peak_queue_req=9),
    )
    assert queued(table) is None


# --- offline and served ------------------------------------------------------------------------------------------


def test_first_trial_offline_and_served_agree() -> None:
    tables = recorded(FIRST)
    said = str(offline_agrees(tables.runs, tables.offline))
    assert said.startswith("Offline and served accept length agree within 0.07 over 22 pairs, 0.03 in the median (")
    pairs = offline_against_served(tables.runs, tables.offline)
    # The notes: offline predicts served within 0.04 at 3 steps.
    assert pairs.loc[pairs["num_steps"] == 3, "difference"].abs().max() < 0.04


def test_a_larger_gap_is_no_agreement() -> None:
    tables = recorded(FIRST)
    moved = tables.offline.assign(accept_length=tables.offline["accept_length"] + 0.3)
    said = str(offline_agrees(tables.runs, moved))
    assert said.startswith("Offline and served accept length differ by up to 0.36 over 22 pairs, 0.2")


def test_only_the_same_prompts_steps_and_ending_are_compared() -> None:
    served = speculative("r", num_steps=3, eagle_topk=1, ignore_eos=False, accept_length=1.8)
    walk = {
        "campaign": "c",
        "drafter": "d",
        "prompt_set": "p20",
        "served_as": "p",
        "num_steps": 3,
        "accept_length": 1.7,
    }
    said = offline_agrees(runs(served), frame(OFFLINE, [walk]))
    assert said == "Offline and served accept length agree within 0.10 over 1 pair (largest: d, 3 steps, p)."
    for apart in (
        {"ignore_eos": True},
        {"num_steps": 2},
        {"eagle_topk": 4},
        {"prompt_set": "q"},
        {"accept_length": None},
    ):
        assert offline_agrees(runs({**served, **apart}), frame(OFFLINE, [walk])) is None
    assert offline_agrees(runs(served), frame(OFFLINE, [{**walk, "served_as": None}])) is None


def test_a_gap_over_5_percent_is_a_finding_that_names_drafters_and_causes() -> None:
    tables = recorded(FIRST)
    assert offline_gap(tables.runs, tables.offline) is None
    own = tables.offline["drafter"].isin(["n500", "n8000"]) & (tables.offline["num_steps"] == 3)
    moved = tables.offline.assign(accept_length=tables.offline["accept_length"].where(~own, 2.0))
    said = str(offline_gap(tables.runs, moved))
    # Served 1.39 of 2.00 is 30 % less.
    assert said.startswith(
        "Served accept length lies more than 5% off the offline walk for n500 and n8000 (largest: n500, 3 steps, "
        "mt_bench_first_turn: 1.39 served, 2.00 offline, -30%): before the data suspect the capture layers, "
        "max_position_embeddings, the chat template"
    )
    gaps = offline_gaps(offline_against_served(tables.runs, moved))
    assert set(gaps["drafter"]) == {"n500", "n8000"} and len(gaps) == 4


# --- training sizes ----------------------------------------------------------------------------------------------


def test_kimi_one_training_size_is_no_curve() -> None:
    said = "One training size (10,000 samples) is no curve: nothing here says what more data would bring."
    assert training_sizes(recorded(KIMI).drafters, "Kimi-K2.5") == said


def test_a_second_size_for_the_same_target_is_a_curve() -> None:
    drafters = recorded(KIMI).drafters
    more = drafters.assign(
        training_samples=drafters["training_samples"].where(drafters["drafter"] != "custom-v1", 83_000)
    )
    assert training_sizes(more, "Kimi-K2.5") is None


def test_a_drafter_for_another_target_is_no_second_size() -> None:
    rows = [
        {"campaign": "c", "drafter": "a", "drafter_target": "T", "training_samples": 10},
        {"campaign": "c", "drafter": "b", "drafter_target": "other", "training_samples": 20},
    ]
    assert str(training_sizes(frame(DRAFTERS, rows), "T")).startswith("One training size (10 samples)")
    assert training_sizes(frame(DRAFTERS, []), "T") is None
    assert training_sizes(frame(DRAFTERS, [{**rows[0], "training_samples": None}]), "T") is None
