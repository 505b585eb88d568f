from __future__ import annotations

import pytest
from diagnosis_logs import decode, diagnosed, only, plain, rules, speculative_args, started, weights

from workbench.analysis.diagnosis import Certainty, Diagnosis
from workbench.analysis.diagnosis.rules_drafter import PUBLISHED_STEPS
from workbench.table import reference_points


def test_nothing_accepted_without_start_up_suspects_flag_and_drafter() -> None:
    diagnosis = diagnosed(*[decode(accept=1.0, rate=0.25)] * 2)

    flag, drafter = only(diagnosis, "suspected_flag"), only(diagnosis, "suspected_drafter")
    assert {flag.certainty, drafter.certainty} == {Certainty.SUSPECTED}
    assert "--speculative-algorithm EAGLE3" in flag.next_action
    assert "workbench check DRAFT_DIR --target TARGET_DIR" in drafter.next_action
    assert diagnosis.verdict.startswith("Nothing is accepted: accept length 1.00")
    assert not diagnosis.certain_fault


def test_nothing_accepted_under_the_right_flag_suspects_the_drafter_alone() -> None:
    diagnosis = diagnosed(*started(), *[decode(accept=1.0, rate=0.0)] * 3)

    assert "suspected_flag" not in rules(diagnosis)
    finding = only(diagnosis, "suspected_drafter")
    assert "although the flag is right" in finding.title
    for suspect in ("capture layers", "d2t", "precision", "chat template"):
        assert suspect in finding.next_action


def test_eagle_with_a_class_that_is_not_shown_is_only_suspected() -> None:
    args = speculative_args(speculative_algorithm="EAGLE")
    diagnosis = diagnosed(args, weights("LlamaForCausalLM"), *[decode(accept=1.0, rate=0.0)] * 3)

    finding = only(diagnosis, "suspected_flag")
    assert finding.certainty is Certainty.SUSPECTED
    assert "class is not in the log" in finding.evidence[1]


@pytest.mark.parametrize(("length", "found"), [(1.04, True), (1.06, False)])
def test_the_border_of_nothing(length: float, found: bool) -> None:
    diagnosis = diagnosed(*started(), *[decode(accept=length, rate=0.0)] * 3)

    assert ("suspected_drafter" in rules(diagnosis)) is found


def test_the_printed_rate_of_old_versions_is_explained() -> None:
    finding = only(diagnosed(*[decode(accept=1.0, rate=0.25)] * 2), "rate_misread")

    assert "0.25" in finding.title
    assert "the share of drafts accepted is 0.00" in finding.evidence[0]
    assert not finding.is_fault


def test_the_rate_of_new_versions_needs_no_word() -> None:
    assert "rate_misread" not in rules(diagnosed(*started(), *[decode(accept=2.4, rate=0.47)] * 3))


def test_a_wide_verification_for_a_short_gain_is_likely_wasted() -> None:
    diagnosis = diagnosed(decode(accept=2.15, rate=0.13), decode(accept=2.12, rate=0.13))

    finding = only(diagnosis, "wasted_width")
    assert finding.title == "Each step verifies 16 tokens to keep 2.1"
    assert "--speculative-num-draft-tokens 4" in finding.next_action
    assert diagnosis.verdict.startswith("Each step verifies 16 tokens to keep 2.13")


@pytest.mark.parametrize(("plain_speed", "is_fault"), [(40.0, False), (80.0, True)])
def test_a_wide_verification_that_pays_is_no_fault(plain_speed: float, is_fault: bool) -> None:
    # 60 tok/s with 16 draft tokens: 1.5x a plain server of 40, 0.75x one of 80.
    wide = [decode(accept=2.15, rate=0.13, speed=60.0)] * 8
    diagnosis = diagnosed(
        *started(speculative_args(speculative_num_steps=15, speculative_num_draft_tokens=16)),
        *wide,
        baseline=(*plain(), *[decode(speed=plain_speed)] * 8),
    )
    finding = only(diagnosis, "wasted_width")
    assert finding.is_fault is is_fault
    assert ("it pays as it is" in finding.next_action) is not is_fault


def test_four_draft_tokens_are_not_wide() -> None:
    assert "wasted_width" not in rules(diagnosed(*started(), *[decode(accept=1.5, rate=0.17)] * 3))


@pytest.mark.parametrize(
    ("length", "steps", "found"), [(1.6, 3, True), (1.6, 5, True), (2.1, 3, False), (1.6, 2, False)]
)
def test_a_low_accept_length_is_compared_with_published_ones(length: float, steps: int, found: bool) -> None:
    args = speculative_args(speculative_num_steps=steps, speculative_num_draft_tokens=steps + 1)
    diagnosis = diagnosed(*started(args), *[decode(accept=length, rate=(length - 1) / steps)] * 3)

    assert ("low_accept_length" in rules(diagnosis)) is found
    if found:
        assert "published EAGLE-3 drafters reach 1.5 to 3.5 at 3 steps, most of them 2.3 to 3.3" in diagnosis.verdict
        assert ("longer chains reach more" in diagnosis.verdict) is (steps > 3)
        assert only(diagnosis, "low_accept_length").certainty is Certainty.SUSPECTED


def test_an_accept_length_over_all_loads_is_told_from_that_of_one() -> None:
    lines = [decode(1, accept=1.5, rate=0.17)] * 8 + [decode(3, accept=1.9, rate=0.3)] * 8
    diagnosis = diagnosed(*started(), *lines)

    # Weighted by running requests: (1 x 1.5 + 3 x 1.9) / 4
    finding = only(diagnosis, "low_accept_length")
    assert finding.title == "Accept length 1.80 at 3 steps, over all loads, is low"
    assert (
        "accept len 1.80 over 16 decode lines, all loads together, and 1.50 at 1 and 1.90 at 3 running"
        in (finding.evidence[0])
    )
    assert "Accept length 1.80 at 3 steps, over all loads; whether" in _sentences(diagnosis)
    assert "over all loads" not in _sentences(diagnosed(*started(), *lines[:8]))


def _sentences(diagnosis: Diagnosis) -> str:
    return diagnosis.verdict + "".join(f"{finding.title} {finding.headline}" for finding in diagnosis.findings)


def test_acceptance_that_falls_with_the_context_is_suspected() -> None:
    short = [decode(2, accept=2.6, rate=0.53, tokens=1000)] * 5
    long = [decode(2, accept=1.5, rate=0.17, tokens=9000)] * 5
    finding = only(diagnosed(*started(), *short, *long), "decays_with_context")

    assert finding.title == "Accept length falls from 2.60 to 1.50 as the context grows"
    assert finding.evidence == ("2.60 at 0 to 1,024 tokens and 1.50 at 4,096 to 8,192 tokens",)


def test_acceptance_that_holds_with_the_context_is_fine() -> None:
    lines = [decode(2, accept=2.5, rate=0.5, tokens=tokens) for tokens in (1000, 9000) for _ in range(5)]

    assert "decays_with_context" not in rules(diagnosed(*started(), *lines))


@pytest.mark.parametrize("accept", [0.0, -3.0, 5.0])
def test_an_impossible_accept_length_is_named_and_not_judged(accept: float) -> None:
    # 3 steps and the bonus token give at most 4.
    diagnosis = diagnosed(*started(), *[decode(accept=accept, rate=0.3)] * 6)

    assert only(diagnosis, "impossible_values").title == (
        "Impossible value: accept length below 1 or above 4 (3 steps and the bonus token) in 6 decode lines"
    )
    assert diagnosis.verdict.startswith("Impossible value")
    assert not {"suspected_flag", "suspected_drafter", "low_accept_length"} & set(rules(diagnosis))
    assert not {"accept length", "accept rate"} & set(diagnosis.figures["name"])


def test_a_passing_impossible_value_does_not_lead() -> None:
    diagnosis = diagnosed(*started(), *[decode(accept=2.5, rate=0.5)] * 20, decode(accept=0.0, rate=0.0))

    assert not only(diagnosis, "impossible_values").is_fault
    assert "Impossible" not in diagnosis.verdict


def test_the_published_range_is_that_of_the_reference_points() -> None:
    points = reference_points()
    chains = points[(points["num_steps"] == PUBLISHED_STEPS) & ~points["tree"].fillna(False).astype(bool)]
    # A tally, a load chosen for its acceptance, and values that simulations are forced to are no benchmarks.
    odd = chains["benchmark"].eq("load of high acceptance") | chains["notes"].str.contains("tally|simulated", na=False)
    lengths = chains.loc[~odd, "accept_length"].dropna()
    assert (round(lengths.min(), 1), round(lengths.max(), 1)) == (1.5, 3.5)
    assert (lengths.between(2.3, 3.3).sum(), len(lengths)) == (46, 59)
