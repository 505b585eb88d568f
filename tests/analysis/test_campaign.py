"""What the pages say of the recorded campaigns, that it follows the data, and that no table breaks it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import pandas as pd
import pytest
from analysis_tables import baseline, recorded, runs, speculative
from answer_tables import costs_of, exactly, speedups_of, with_drafters, with_runs
from random_tables import HOSTILE, SEEDS, random_tables

from workbench.analysis.answers import Answer
from workbench.analysis.campaign import (
    campaign_answer,
    compare_answer,
    diagnose_logs,
    draft_tokens_answer,
    offline_fits,
    scaling_answer,
    scaling_fits,
    throughput_answer,
)
from workbench.analysis.diagnosis import Diagnosis
from workbench.paths import recorded_dir
from workbench.spec import CampaignInfo
from workbench.table import Tables, load_tables
from workbench.table.columns import DRAFTERS, OFFLINE, REQUESTS, WINDOWS, frame

KIMI, SMOLLM, FIRST = "kimi_k25", "h200_smollm2", "h200_first_trial"


def campaign_page(tables: Tables) -> Answer:
    return campaign_answer(tables, costs_of(tables), speedups_of(tables), _diagnoses(tables))


# By the identity of the logs (which are kept alive here): changed figures of runs leave them as they are.
_DIAGNOSED: dict[int, tuple[object, dict[tuple[str, str], Diagnosis]]] = {}


def _diagnoses(tables: Tables) -> dict[tuple[str, str], Diagnosis]:
    key = id(tables.logs)
    if key not in _DIAGNOSED:
        _DIAGNOSED[key] = tables.logs, diagnose_logs(tables)
    return _DIAGNOSED[key][1]


def draft_page(tables: Tables) -> Answer:
    return draft_tokens_answer(tables, costs_of(tables), speedups_of(tables))


def scaling_page(tables: Tables) -> Answer:
    costs = costs_of(tables)
    return scaling_answer(tables, costs, scaling_fits(tables, costs), offline_fits(tables, costs))


def throughput_page(tables: Tables) -> Answer:
    return throughput_answer(tables, costs_of(tables), speedups_of(tables))


def compare_page(tables: Tables) -> Answer:
    return compare_answer(tables, costs_of(tables), speedups_of(tables))


PAGES = (campaign_page, draft_page, scaling_page, throughput_page, compare_page)


@lru_cache
def page(name: str, make: Callable[[Tables], Answer]) -> Answer:
    return make(recorded(name))


def tables_of(run_rows: pd.DataFrame, **parts: object) -> Tables:
    info = CampaignInfo(name="c", title="C", target="T", machine="M")
    empty = {
        "requests": frame(REQUESTS, []),
        "windows": frame(WINDOWS, []),
        "drafters": frame(DRAFTERS, []),
        "offline": frame(OFFLINE, []),
        "logs": {},
        "problems": (),
    }
    return Tables(campaigns={"c": info}, runs=run_rows, **{**empty, **parts})  # type: ignore[arg-type]


def starting(answer: Answer, start: str) -> str:
    (found,) = [point for point in (*answer.points, *answer.actions) if point.startswith(start)]
    return found


# --- kimi_k25 ----------------------------------------------------------------------------------------------------


def test_kimi_says_what_was_missed() -> None:
    answer = page(KIMI, campaign_page)
    assert answer.sentence == (
        "Nothing beat the baseline. The best of 7 runs (aq-medai-k2, 4 draft tokens) reached 62.9 output tok/s against "
        "63.6, 0.99x (one figure an arm). The run to make next: custom-v3 at 4-5 draft tokens with CUDA graphs on, "
        "0.9x to 1.3x expected, depending on whether the time of a cycle (0.9x) or its ratio to a plain step (1.3x) "
        "carries over from baseline A to B."
    )
    assert answer.headline == {"best speedup": "0.99x", "best accept length": "2.00-2.50", "break-even": "1.56-3.97"}
    assert starting(answer, "custom-v3-n5-nograph: CUDA graphs are off in every decode line (2). Certain: ")
    for start in (
        "With CUDA graphs off break-even is 3.17-3.97",
        "Break-even accept length is 1.56-1.67 at 4 draft tokens",
        "From 16 to 5 draft tokens",
        "custom-v1 accepted nothing although aq-medai-k2 reached 1.65",
        "32 requests waited while 48 ran",
        "One training size (10,000 samples) is no curve",
        "Measure custom-v3 at 4-5 draft tokens with CUDA graphs on before collecting more training data",
    ):
        assert starting(answer, start)


def test_kimi_pages_lead_with_the_same_run_to_make() -> None:
    for make in (draft_page, scaling_page, throughput_page):
        assert starting(page(KIMI, make), "Measure custom-v3 at 4-5 draft tokens with CUDA graphs on")
    assert page(KIMI, scaling_page).sentence == (
        "One training size (10,000 samples) is no curve: nothing here says what more data would bring."
    )
    assert "The run to make next: custom-v3 at 4-5 draft tokens" in page(KIMI, draft_page).sentence


def test_kimi_a_run_more_changes_the_answer() -> None:
    made = with_runs(
        recorded(KIMI),
        {
            "custom-v3-graph-later": {
                "num_draft_tokens": 4,
                **exactly("output_tok_per_s", 117.0),
                **exactly("accept_length", 2.1),
            }
        },
    )
    answer = campaign_page(made)
    # 117 / 90; break-even 2.1 x 90 / 117 = 1.615 joins the two of baseline A
    assert "custom-v3, graphs, later) reached 117 output tok/s against 90, 1.30x" in answer.sentence
    assert "The run to make next" not in answer.sentence
    assert not [action for action in answer.actions if action.startswith("Measure custom-v3")]
    assert answer.headline["best speedup"] == "1.30x"


def test_kimi_two_training_sizes_are_not_called_one() -> None:
    more = with_drafters(recorded(KIMI), {"custom-v1": {"training_samples": 83_000}})
    assert not [point for point in campaign_page(more).points if "is no curve" in point]


# --- h200_smollm2 ------------------------------------------------------------------------------------------------


def test_smollm_names_the_wrong_flag_with_its_two_lines() -> None:
    answer = page(SMOLLM, campaign_page)
    assert answer.sentence == (
        "Wrong flag on eagle-flag: an EAGLE-3 drafter is served with --speculative-algorithm EAGLE. Whether "
        "speculation pays was not measured: the acceptance of every sound speculative run is simulated (1.06x at "
        "concurrency 1, 0.55x at concurrency 8 and 0.63x at concurrency 32)."
    )
    fault = starting(answer, "eagle-flag: Wrong flag: an EAGLE-3 drafter is served with --speculative-algorithm EAGLE.")
    assert "Certain: line 3: server_args: speculative_algorithm='EAGLE'; line 24: " in fault
    assert "type=LlamaForCausalLMEagle3" in fault
    assert answer.actions[0].startswith(
        "eagle-flag: restart with --speculative-algorithm EAGLE3 and nothing else changed"
    )


def test_smollm_runs_of_the_wrong_flag_lead_nowhere() -> None:
    for make in (campaign_page, throughput_page, draft_page, compare_page):
        answer = page(SMOLLM, make)
        said = " ".join((answer.sentence, *answer.points))
        assert "0.45x" not in said  # 342 / 768 under the wrong flag
        assert "The best accept length measured" not in said
        # What a step costs is told by the runs with simulated acceptance: 2.50 x 767.6 / 811.5 and so on.
        assert answer.headline == (
            {} if make is compare_page else {"break-even": "2.37 (simulated)", "at concurrency": "1"}
        )
    assert starting(page(SMOLLM, throughput_page), "eagle-flag does not count: Wrong flag")
    assert starting(page(SMOLLM, campaign_page), "Runs with simulated acceptance tell what a cycle costs")


def test_smollm_with_the_right_flag_the_runs_count() -> None:
    tables = recorded(SMOLLM)
    key = (SMOLLM, "eagle-flag")
    facts = tables.logs[key].facts
    right = replace(facts, server_args={**facts.server_args, "speculative_algorithm": "EAGLE3"})
    mended = replace(tables, logs={**tables.logs, key: replace(tables.logs[key], facts=right)})
    answer = campaign_page(mended)
    assert "Wrong flag" not in answer.sentence
    assert answer.sentence.startswith(
        "Do not enable speculation here: nothing beat the baseline at concurrency 1, 8 or 32."
    )
    assert answer.headline["best speedup"] == "0.45x"


# --- h200_first_trial --------------------------------------------------------------------------------------------


def test_first_trial_says_do_not_enable_and_why() -> None:
    answer = page(FIRST, campaign_page)
    assert answer.sentence.startswith(
        "Do not enable speculation here: nothing beat the baseline at concurrency 1, 8 or 32."
    )
    assert answer.headline == {
        "best speedup": "0.89x",
        "best accept length": "2.03",
        "break-even": "near 2.39",
        "at concurrency": "1",
    }
    for start in (
        "Break-even accept length is near 2.39 at every number of steps from 1 to 6 ",
        "Offline and served accept length agree within 0.07",
        "Timing intervals are wide, ",
        "Profile one verify cycle ",
    ):
        assert starting(answer, start)


def test_first_trial_speed_and_length_change_the_answer() -> None:
    tables = recorded(FIRST)
    run = "eagle3-n24000L-s6-mix_heldout-c1"
    faster = with_runs(tables, {run: {**exactly("output_tok_per_s", 2000.0), **exactly("accept_length", 3.5)}})
    own = faster.requests["run_id"] == run
    requests = faster.requests.assign(
        latency_s=faster.requests["latency_s"].where(~own, faster.requests["latency_s"] / 3)
    )
    answer = campaign_page(replace(faster, requests=requests))
    assert answer.sentence.startswith(
        "Speculation pays at concurrency 1: the only winning run (n24000L, 6 steps) reached 2,015 output tok/s "
        "against 754, 2.67x"
    )
    assert not [action for action in answer.actions if action.startswith("Profile one verify cycle")]
    assert answer.headline["best accept length"] == "3.50"


def test_first_trial_training_page() -> None:
    answer = page(FIRST, scaling_page)
    assert answer.sentence.startswith("Each doubling of the training samples adds 0.08 to accept length (95 % ")
    assert len(answer.sentence) < 260
    assert starting(answer, "Epochs fall from 104 at 500 to 3 at 22,383 training samples")
    assert starting(answer, "Another training on the same 22,383 training samples, n24000L, ")
    assert [action.split(" (")[0] for action in answer.actions] == [
        "Profile one verify cycle",
        "Before collecting more data train n24000 longer",
    ]


def test_break_even_is_the_same_on_every_page_of_a_campaign() -> None:
    said = {page(FIRST, make).headline["break-even"] for make in PAGES[:4]}
    assert said == {"near 2.39"}
    assert "break-even (2.39)" in page(FIRST, scaling_page).sentence


# --- several campaigns -------------------------------------------------------------------------------------------


def test_campaigns_side_by_side() -> None:
    tables = load_tables(*(recorded_dir() / name for name in (KIMI, SMOLLM, FIRST)))
    answer = compare_page(tables)
    assert answer.sentence == "Speculation beats its baseline beyond noise in none of 3 campaigns."
    assert [point.split(":")[0] for point in answer.points] == [KIMI, SMOLLM, FIRST]
    assert answer.points[1].startswith("h200_smollm2: Wrong flag on eagle-flag: an EAGLE-3 drafter is served")


def test_a_campaign_that_wins_is_counted_and_named() -> None:
    requests = [
        {
            "run_id": run,
            "prompt_index": k,
            "repeat": r,
            "completion_tokens": 100,
            "latency_s": s,
            "ok": True,
            "campaign": "c",
        }
        for run, s in (("base", 1.0), ("spec", 0.5))
        for r in (0, 1)
        for k in range(8)
    ]
    table = runs(baseline(output_tok_per_s=100.0), speculative(output_tok_per_s=200.0))
    answer = compare_page(tables_of(table, requests=frame(REQUESTS, requests)))
    assert answer.sentence == "Speculation beats its baseline beyond noise in 1 of 1 campaign: c."


# --- h200_scaling and h200_best_drafter ----------------------------------------------------------------------------


def test_the_curve_of_real_drafters() -> None:
    """The log of the training says 1.189 to 1.683 for 80 to 3,410 steps; six sizes were served."""
    answer = scaling_page(recorded("h200_scaling"))
    assert answer.sentence.startswith(
        "Each doubling of the training samples adds 0.14 to accept length (95 % 0.12-0.16;"
    )
    assert "498 to 15,909 in 6 sizes" in answer.sentence
    assert any("agree within 0.02 over 6 pairs" in point for point in answer.points)


def test_one_size_that_was_served_among_many_that_were_trained() -> None:
    answer = scaling_page(recorded("h200_best_drafter"))
    assert answer.sentence == "One training size was served (nall-9minutes-seed0-0ddeca): there is no curve."
    assert any(point.startswith("Offline, over ") for point in answer.points)


def test_the_best_drafter_pays_at_one_request_at_a_time() -> None:
    """Seven steps: 1,026 output tok/s over both passes where the baseline made 652 at first and 779 later."""
    answer = throughput_page(recorded("h200_best_drafter"))
    assert "Speculation pays at concurrency 1" in answer.sentence
    assert "s7-k1-n8" in answer.sentence


# --- any input ---------------------------------------------------------------------------------------------------


def test_an_empty_campaign_says_so() -> None:
    nothing = tables_of(runs())
    assert campaign_page(nothing).sentence == "This campaign holds no run that can be read."
    assert throughput_page(nothing).sentence.startswith("Whether speculation pays was not measured")
    assert draft_page(nothing).sentence.startswith("Which number of draft tokens is best was not measured")
    assert scaling_page(nothing).sentence == "No drafter of this campaign states its training size: there is no curve."
    assert compare_page(nothing).sentence == "Speculation beats its baseline beyond noise in none of 1 campaign."
    assert compare_page(replace(nothing, campaigns={})).sentence == "No campaign was given."


@pytest.mark.parametrize("make", PAGES)
def test_a_single_run_and_runs_without_a_baseline(make: Callable[[Tables], Answer]) -> None:
    for table in (
        runs(baseline(output_tok_per_s=90.0)),
        runs(speculative(accept_length=2.0, output_tok_per_s=60.0)),
        runs(speculative(), speculative("b")),
    ):
        assert make(tables_of(table)).sentence


@pytest.mark.parametrize("make", PAGES)
def test_columns_without_any_value(make: Callable[[Tables], Answer]) -> None:
    tables = recorded(KIMI)
    keep = {"campaign", "run_id", "server_id", "label", "role", "drafter", "origin", "baseline_group"}
    assert make(replace(tables, runs=frame_like(tables.runs, keep))).sentence


def frame_like(table: pd.DataFrame, keep: set[str]) -> pd.DataFrame:
    """The rows with everything unknown but these columns."""
    missing = {name: pd.Series([None] * len(table), dtype=table[name].dtype) for name in table if name not in keep}
    return table.assign(**missing)


def test_names_with_markup_and_line_breaks_stay_on_one_line() -> None:
    hostile = with_runs(recorded(KIMI), {run: {"label": HOSTILE} for run in recorded(KIMI).runs["run_id"]})
    hostile = replace(
        hostile,
        runs=hostile.runs.assign(drafter=hostile.runs["drafter"].where(hostile.runs["drafter"].isna(), HOSTILE)),
    )
    for make in PAGES:
        answer = make(hostile)
        assert "\n" not in "".join((answer.sentence, *answer.points, *answer.actions))


@pytest.mark.slow
def test_thousands_of_runs() -> None:
    tables = recorded(KIMI)
    many = pd.concat(
        [
            tables.runs.assign(run_id=tables.runs["run_id"] + f" {k}", label=tables.runs["label"] + f" {k}")
            for k in range(84)
        ],
        ignore_index=True,
    )
    answer = campaign_page(replace(tables, runs=many))
    assert answer.sentence.startswith("Nothing beat the baseline. The best of 588 runs (")  # 7 x 84
    assert max(map(len, (answer.sentence, *answer.points, *answer.actions))) < 600


@pytest.mark.parametrize("seed", SEEDS)
def test_no_table_breaks_a_page(seed: int) -> None:
    check_pages(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5, 25))
def test_no_table_breaks_a_page_many(seed: int) -> None:
    check_pages(seed)


def check_pages(seed: int) -> None:
    tables = random_tables(seed)
    for make in PAGES:
        answer = make(tables)
        sentences = (answer.sentence, *answer.points, *answer.actions)
        assert all(sentence and sentence == " ".join(sentence.split()) for sentence in sentences)
        assert not any(word in sentence.split() for sentence in sentences for word in ("None", "nan", "<NA>"))
    labels = pd.Series([f"run-{number:02d}." for number in range(len(tables.runs))], dtype="str")
    named = replace(tables, runs=tables.runs.assign(label=labels))
    forced = labels[tables.runs["origin"] == "simulated"]
    sentences = [make(named).sentence for make in PAGES]
    assert not any(label in sentence for sentence in sentences for label in forced)


def test_the_page_on_campaigns_says_of_one_what_its_own_page_does() -> None:
    # h200_kimi_shape has a control without graphs on both arms, which gains more than anything that would be served.
    own, beside = page("h200_kimi_shape", campaign_page), page("h200_kimi_shape", compare_page)
    assert "0.22x to 1.07x at concurrency 1" in own.sentence
    assert beside.points[0] == f"h200_kimi_shape: {own.sentence}"
