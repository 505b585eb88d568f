"""Whole diagnoses: the recorded logs, the order of the rules, and how a diagnosis reads."""

from __future__ import annotations

import pandas as pd
import pytest
from diagnosis_logs import decode, diagnosed, only, plain, recorded, rules, said, speculative_args, started, summary

from workbench.analysis.diagnosis import RULES, Certainty, diagnose, loaded_dtypes, render_text
from workbench.files import read_chunks
from workbench.paths import recorded_dir
from workbench.preflight.result import CheckResult, Severity


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


def test_the_wrong_flag_is_named_within_the_first_windows() -> None:
    """A server started in spite of the refusal; its log as far as the third decode line."""
    lines: list[str] = []
    (path,) = (recorded_dir() / "h200_variants/_servers/eagle-smollm2-135m-eagle3-s3-k1-n4").iterdir()
    for line in b"".join(read_chunks(path)).decode().splitlines():
        lines.append(line)
        if sum("Decode batch" in seen for seen in lines[-3:]) == 3 or len(lines) > 200:
            break
    diagnosis = diagnosed(*lines)

    assert len(diagnosis.figures) > 0 and sum("Decode batch" in line for line in lines) < 20
    assert (diagnosis.findings[0].rule, diagnosis.findings[0].certainty) == ("wrong_flag", Certainty.CERTAIN)
    assert diagnosis.verdict.startswith("Wrong flag: LlamaForCausalLMEagle3 is an EAGLE-3 drafter")


def test_the_recorded_baseline_is_healthy(h200) -> None:
    diagnosis = diagnose(h200["base"])

    assert diagnosis.findings == ()
    assert diagnosis.verdict == (
        "Healthy baseline: no speculation, CUDA graphs on in all 314 decode lines, 889, 7,072 and 25,731 tok/s at 1, 8 "
        "and 32 running requests; nothing wrong found."
    )


def test_the_recorded_pair_loses_at_32_and_is_not_decidable_at_1_and_8(h200) -> None:
    diagnosis = diagnose(h200["sim25-s3"], baseline=h200["base"])

    assert not diagnosis.certain_fault
    evidence = {line.split(" ")[0]: line for line in only(diagnosis, "does_it_pay").evidence}
    assert "they disagree" in evidence["8"]
    assert "the median line alone is near even" in evidence["8"]
    assert diagnosis.verdict.startswith(
        "No fault found. Speculation loses at 32 running requests (0.55x over the whole log, 0.86x by the median line) "
        "and is not decidable from these two logs at 1 and 8 running requests (1.07x over the whole log, 1.03x by the "
        "median line; 0.48x, 0.97x); "
    )
    names = set(diagnosis.figures["name"])
    assert {f"speedup over the whole log (estimate) at {level} running" for level in (1, 8, 32)} < names
    assert {f"break-even accept length by median line at {level} running" for level in (1, 8, 32)} < names


def test_the_recorded_simulated_run_alone_has_no_fault(h200) -> None:
    diagnosis = diagnose(h200["sim25-s3"])

    assert rules(diagnosis) == ["no_baseline"]
    assert diagnosis.verdict.startswith("No fault found. Accept length 2.4")


def test_the_log_at_48_running_suspects_flag_and_drafter_and_sees_the_cap() -> None:
    diagnosis = diagnose(recorded("kimi_k25/custom-v1-n4-c48"))

    # By certainty: the cap is likely, the other two suspected. The verdict begins with what to look at first.
    assert rules(diagnosis)[:3] == ["capped_by_speculation", "suspected_flag", "suspected_drafter"]
    assert diagnosis.verdict.startswith("Nothing is accepted")
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


def test_findings_are_sorted_by_certainty_with_notes_last() -> None:
    checks = [CheckResult("dtype", Severity.WARNING, "dtypes differ", "config.json", "make them alike")]
    checks += [CheckResult("capture-layers", Severity.NOTE, "captures layers 1, 3, 5 of 9", "config.json", "compare")]
    checks += [CheckResult("norm-output", Severity.WARNING, "norm_output is on", "config.json", "ask")]
    checks += [CheckResult("missing", Severity.ERROR, "fc.weight is missing", "model.safetensors", "export again")]
    diagnosis = diagnosed(*started(), *[decode(accept=2.4, rate=0.47)] * 3, draft_checks=checks)

    assert rules(diagnosis) == [
        "draft_missing",
        "draft_dtype",
        "draft_norm_output",
        "draft_capture_layers",
        "no_baseline",
    ]
    assert [finding.is_fault for finding in diagnosis.findings] == [True, True, True, False, False]
    assert diagnosis.verdict.endswith("; 2 suspicions about the draft, see 2 and 3.")


def test_a_text_that_is_no_log_raises_no_questions_about_a_server() -> None:
    diagnosis = diagnosed("# A project", "", "Some words about it.")

    assert rules(diagnosis) == ["no_decode_lines"]
    assert diagnosis.not_known == ()


def test_what_target_and_draft_were_loaded_in() -> None:
    # Without a dtype in the weight lines (0.5.14) the KV caches say it: kv_cache_dtype is auto there.
    assert loaded_dtypes(recorded("h200_smollm2/_servers/sim25-s3")) == ("bfloat16", "bfloat16")
    assert loaded_dtypes(summary(*started())) == ("bfloat16", "bfloat16")
    assert loaded_dtypes(summary(speculative_args(dtype="float16"))) == ("float16", "float16")
    assert loaded_dtypes(summary(speculative_args(dtype="auto"))) == (None, None)
    cache = said("KV Cache is allocated. dtype: torch.bfloat16, #tokens: 131072, K size: 1.41 GB, V size: 1.41 GB")
    assert loaded_dtypes(summary(speculative_args(kv_cache_dtype="fp8_e4m3"), cache)) == (None, None)


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


def test_the_text_shows_the_most_useful_figures_and_how_many_more_there_are(h200) -> None:
    diagnosis = diagnose(h200["sim25-s3"], baseline=h200["base"])
    short, long = (render_text(diagnosis, all_figures=every) for every in (False, True))
    rows, every = (text.split("KEY FIGURES\n")[1].split("\n\n")[0].splitlines() for text in (short, long))

    assert len(every) == len(diagnosis.figures)
    assert len(rows) == 13
    assert rows[-1] == f"   and {len(every) - 12} more with --all"
    assert any(row.startswith("   accept length ") for row in rows)
    assert sum(row.startswith("   speedup ") for row in rows) == 6


def test_a_log_cannot_steer_the_terminal() -> None:
    hostile = said(
        "torch.OutOfMemoryError: CUDA out of memory \x1b]0;owned\x07 \u202egnp.exe <script>alert(1)</script>"
    )
    text = render_text(diagnosed(*started(), decode(accept=2.4, rate=0.47), hostile))

    assert not [character for character in text if ord(character) < 32 and character != "\n"]
    assert "\u202e" not in text
