"""Whole diagnoses: the recorded logs, the order of the rules, and how a diagnosis reads."""

from __future__ import annotations

import pandas as pd
import pytest
from diagnosis_logs import decode, diagnosed, only, plain, recorded, rules, said, speculative_args, started, summary

from workbench.analysis.diagnosis import RULES, Certainty, diagnose, render_text


@pytest.fixture(scope="module")
def h200() -> dict[str, object]:
    return {name: recorded(f"h200_smollm2/_servers/{name}") for name in ("base", "eagle-flag", "sim25-s3")}


def test_every_rule_is_listed_once() -> None:
    assert len({rule.__name__ for rule in RULES}) == len(RULES)


# --- recorded logs -----------------------------------------------------------------------------------------------
def test_the_recorded_wrong_flag_is_certain(h200) -> None:
    diagnosis = diagnose(h200["eagle-flag"])

    finding = diagnosis.findings[0]
    assert (finding.rule, finding.certainty) == ("wrong_flag", Certainty.CERTAIN)
    assert finding.evidence[:2] == (
        "line 3: server_args: speculative_algorithm='EAGLE'",
        "line 24: second weight block (the drafter): type=LlamaForCausalLMEagle3",
    )
    assert diagnosis.verdict == (
        "Wrong flag: LlamaForCausalLMEagle3 is an EAGLE-3 drafter but runs under --speculative-algorithm EAGLE, so "
        "almost nothing is accepted: accept length 1.02 of at most 4; restart with --speculative-algorithm EAGLE3."
    )
    assert [finding.rule for finding in diagnosis.findings if finding.is_fault] == ["wrong_flag"]


def test_the_recorded_baseline_is_healthy(h200) -> None:
    diagnosis = diagnose(h200["base"])

    assert diagnosis.findings == ()
    assert diagnosis.verdict == (
        "Healthy baseline: no speculation, CUDA graphs on in all 314 decode lines, 889, 7,072 and 25,731 tok/s at 1, 8 "
        "and 32 running requests; nothing wrong found."
    )


def test_the_recorded_pair_is_not_decidable_at_8(h200) -> None:
    diagnosis = diagnose(h200["sim25-s3"], baseline=h200["base"])

    assert not diagnosis.certain_fault
    evidence = {line.split(" ")[0]: line for line in only(diagnosis, "does_it_pay").evidence}
    assert "they disagree" in evidence["8"]
    assert "not decidable from these two logs at 1, 8 and 32 running requests" in diagnosis.verdict


def test_the_recorded_simulated_run_alone_has_no_fault(h200) -> None:
    diagnosis = diagnose(h200["sim25-s3"])

    assert rules(diagnosis) == ["no_baseline"]
    assert diagnosis.verdict.startswith("No fault found. Accept length 2.4")


def test_the_log_at_48_running_suspects_flag_and_drafter_and_sees_the_cap() -> None:
    diagnosis = diagnose(recorded("kimi_k25/custom-v1-n4-c48"))

    assert rules(diagnosis)[:3] == ["suspected_flag", "suspected_drafter", "capped_by_speculation"]
    assert only(diagnosis, "rate_misread").certainty is Certainty.CERTAIN
    assert not diagnosis.certain_fault


def test_the_log_without_graphs_names_them_before_the_drafter() -> None:
    diagnosis = diagnose(recorded("kimi_k25/custom-v3-n5-nograph"))

    assert rules(diagnosis)[0] == "graph_off"
    assert diagnosis.verdict.startswith("CUDA graphs are off in every decode line (2)")


def test_the_log_of_16_draft_tokens_shows_the_waste() -> None:
    diagnosis = diagnose(recorded("kimi_k25/custom-v3-n16-graph"))

    assert rules(diagnosis)[0] == "wasted_width"
    assert "graph_off" not in rules(diagnosis)


# --- figures and what is not known -------------------------------------------------------------------------------
def figure(figures: pd.DataFrame, name: str) -> tuple[float, str, str]:
    row = figures[figures["name"] == name].iloc[0]
    return row["value"], row["text"], row["unit"]


def test_figures_carry_value_text_unit_and_source() -> None:
    lines = [decode(2, speed=120.0, accept=2.4, rate=0.47)] * 4
    figures = diagnosed(*started(), *lines).figures

    assert list(figures.columns) == ["name", "value", "text", "unit", "source"]
    assert figure(figures, "accept length") == (pytest.approx(2.4), "2.40", "tokens/step")
    assert figure(figures, "accept rate") == (pytest.approx(1.4 / 3), "0.47", "")
    assert figure(figures, "speed at 2 running") == (120.0, "120", "tok/s")
    # 2.4 tokens a step for each of 2 requests at 120 tok/s
    assert figure(figures, "time of a step at 2 running") == (pytest.approx(40.0), "40.0", "ms")
    assert figure(figures, "decode lines in a CUDA graph")[1] == "100%"
    assert not figures["source"].eq("").any()


def test_accept_length_is_pooled_over_requests_not_lines() -> None:
    lines = [decode(1, accept=3.0, rate=0.67), decode(9, accept=2.0, rate=0.33)]

    # (1 x 3 + 9 x 2) / 10
    assert figure(diagnosed(*started(), *lines).figures, "accept length")[0] == pytest.approx(2.1)


def test_what_a_cut_log_does_not_say_is_listed_with_the_way_to_find_out() -> None:
    points = diagnosed(*[decode(accept=2.4, rate=0.47)] * 3).not_known

    text = "\n".join(points)
    for open_point in ("start arguments", "exact SGLang version", "drafter's class", "--draft DRAFT_DIR", "--baseline"):
        assert open_point in text


def test_a_whole_log_with_checks_and_baseline_leaves_little_open() -> None:
    diagnosis = diagnosed(
        *started(), *[decode(accept=2.4, rate=0.47, speed=120.0)] * 8, baseline=(*plain(), *[decode(speed=80.0)] * 8)
    )

    text = "\n".join(diagnosis.not_known)
    assert "start arguments" not in text
    assert "whether speculation pays" not in text
    assert "draft tokens" not in text


def test_lines_that_were_cut_are_counted() -> None:
    cut = said("Decode batch, #running-req: 1, #token: 403, token usage: 0.00, accept len: 1.95, accept ra...")
    figures = diagnosed(*started(), decode(accept=2.0, rate=0.33), cut).figures

    assert figure(figures, "lines cut off")[0] == 1


def test_an_empty_log_still_gives_a_diagnosis() -> None:
    diagnosis = diagnose(summary())

    assert diagnosis.verdict.startswith("Nothing to judge")
    assert len(diagnosis.figures)


# --- text --------------------------------------------------------------------------------------------------------
def test_the_text_has_verdict_findings_figures_and_open_points_in_order() -> None:
    text = render_text(
        diagnosed(*started(speculative_args(speculative_algorithm="EAGLE")), decode(accept=1.0, rate=0.0))
    )

    places = [
        text.index(part) for part in ("VERDICT", "1. [CERTAIN] Wrong flag", "next: restart", "KEY FIGURES", "NOT KNOWN")
    ]
    assert places == sorted(places)
    assert text.startswith("VERDICT")
    assert "   - line 1: server_args: speculative_algorithm='EAGLE'\n" in text


def test_the_text_keeps_to_its_width_but_for_words_and_figures() -> None:
    text = render_text(diagnosed(*started(), decode(accept=1.5, rate=0.17)), width=60)

    prose = text[: text.index("KEY FIGURES")].splitlines()
    assert all(len(line) <= 60 or len(line.split()) <= 2 for line in prose)


def test_a_log_cannot_steer_the_terminal() -> None:
    hostile = said(
        "torch.OutOfMemoryError: CUDA out of memory \x1b]0;owned\x07 \u202egnp.exe <script>alert(1)</script>"
    )
    text = render_text(diagnosed(*started(), decode(accept=2.4, rate=0.47), hostile))

    assert not [character for character in text if ord(character) < 32 and character != "\n"]
    assert "\u202e" not in text
