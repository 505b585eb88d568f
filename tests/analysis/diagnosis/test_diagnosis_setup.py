from __future__ import annotations

from diagnosis_logs import (
    capacity,
    decode,
    diagnosed,
    only,
    plain,
    rules,
    said,
    server_args,
    speculative_args,
    started,
    weights,
)

from workbench.analysis.diagnosis import Certainty
from workbench.preflight.result import CheckResult, Severity

GOOD = [decode(accept=2.4, rate=0.47)] * 3
NOTHING = [decode(accept=1.0, rate=0.0)] * 3


def test_the_wrong_flag_is_certain_from_its_two_lines() -> None:
    diagnosis = diagnosed(*started(speculative_args(speculative_algorithm="EAGLE")), *NOTHING)

    finding = only(diagnosis, "wrong_flag")
    assert finding.certainty is Certainty.CERTAIN
    assert finding.evidence[:2] == (
        "line 1: server_args: speculative_algorithm='EAGLE'",
        "line 3: second weight block (the drafter): type=LlamaForCausalLMEagle3",
    )
    assert "--speculative-algorithm EAGLE3" in finding.next_action
    assert diagnosis.verdict == (
        "Wrong flag: LlamaForCausalLMEagle3 is an EAGLE-3 drafter but runs under --speculative-algorithm EAGLE, so "
        "almost nothing is accepted: accept length 1.00 of at most 4; restart with --speculative-algorithm EAGLE3."
    )


def test_the_wrong_flag_explains_what_follows_from_it() -> None:
    found = rules(diagnosed(*started(speculative_args(speculative_algorithm="EAGLE")), *NOTHING))

    assert not {"suspected_flag", "suspected_drafter", "low_accept_length", "no_baseline"} & set(found)


def test_the_wrong_flag_is_found_before_any_decode_line() -> None:
    diagnosis = diagnosed(*started(speculative_args(speculative_algorithm="NEXTN")))

    assert "wrong_flag" in rules(diagnosis)


def test_an_eagle_1_drafter_under_eagle_is_no_wrong_flag() -> None:
    args = speculative_args(speculative_algorithm="EAGLE")

    assert "wrong_flag" not in rules(diagnosed(*started(args, draft="LlamaForCausalLMEagle"), *GOOD))
    assert "wrong_flag" not in rules(diagnosed(args, weights("LlamaForCausalLM"), capacity(), *GOOD))
    assert "wrong_flag" not in rules(diagnosed(*started(), *GOOD))


def test_eagle3_with_another_class_is_likely_the_wrong_checkpoint() -> None:
    finding = only(diagnosed(*started(draft="LlamaForCausalLM"), *GOOD), "wrong_draft_class")

    assert finding.certainty is Certainty.LIKELY
    assert "--speculative-draft-model-path" in finding.next_action


ERROR = CheckResult(
    "d2t", Severity.ERROR, "d2t is missing", "draft/model.safetensors: d2t", "export d2t", "ids are off"
)
WARNING = CheckResult("rope", Severity.WARNING, "rope_theta differs", "draft/config.json: rope_theta", "compare it")
NOTE = CheckResult("mla", Severity.NOTE, "partly checked", "draft/config.json", "nothing")


def test_errors_of_the_draft_checks_are_certain_and_lead() -> None:
    diagnosis = diagnosed(*started(), *NOTHING, draft_checks=[NOTE, WARNING, ERROR])

    finding = diagnosis.findings[0]
    assert (finding.rule, finding.certainty) == ("draft_d2t", Certainty.CERTAIN)
    assert finding.evidence == ("draft/model.safetensors: d2t", "ids are off")
    assert "d2t is missing" in diagnosis.verdict
    assert "suspected_drafter" not in rules(diagnosis)


def test_warnings_and_notes_of_the_draft_checks_do_not_condemn() -> None:
    diagnosis = diagnosed(*started(), *GOOD, draft_checks=[WARNING, NOTE])

    assert only(diagnosis, "draft_rope").certainty is Certainty.SUSPECTED
    assert not only(diagnosis, "draft_mla").is_fault
    assert not diagnosis.certain_fault


def test_the_flag_is_not_reported_twice() -> None:
    check = CheckResult("algorithm", Severity.ERROR, "EAGLE with EAGLE-3", "--speculative-algorithm", "use EAGLE3")
    diagnosis = diagnosed(*started(speculative_args(speculative_algorithm="EAGLE")), *NOTHING, draft_checks=[check])

    assert "draft_algorithm" not in rules(diagnosis)


def test_random_weights_are_named() -> None:
    diagnosis = diagnosed(*started(speculative_args(speculative_draft_load_format="dummy")), *GOOD)

    assert "--speculative-draft-load-format dummy" in only(diagnosis, "dummy_weights").title
    assert "Random weights" in diagnosis.verdict


def test_lossy_acceptance_is_noted() -> None:
    diagnosis = diagnosed(*started(speculative_args(speculative_accept_threshold_single=0.6)), *GOOD)

    assert "0.6" in only(diagnosis, "lossy_acceptance").title


def test_rewritten_draft_tokens_are_shown_with_what_is_used() -> None:
    adjusted = "speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when speculative_eagle_topk == 1"
    finding = only(diagnosed(said(adjusted), *started(), *GOOD), "rewritten_settings")

    assert "verifies 4 tokens" in finding.title
    assert finding.evidence == (f"line 1: {adjusted}",)
    assert not finding.is_fault


def test_synchronous_scheduling_is_likely_to_cost() -> None:
    by_flag = diagnosed(*started(speculative_args(disable_overlap_schedule=True)), *GOOD)
    by_line = diagnosed(
        said("Overlap scheduler is disabled because of using eagle speculative decoding."), *started(), *GOOD
    )

    assert only(by_flag, "synchronous_scheduling").evidence == ("line 1: server_args: disable_overlap_schedule=True",)
    assert "line 1" in only(by_line, "synchronous_scheduling").evidence[0]
    assert "synchronous_scheduling" not in rules(
        diagnosed(*plain(server_args(disable_overlap_schedule=True)), decode())
    )


def test_inherited_quantization_is_suspected_unless_opted_out() -> None:
    inherits = speculative_args(quantization="awq", speculative_draft_model_quantization=None)
    opted_out = speculative_args(quantization="awq", speculative_draft_model_quantization="unquant")

    assert "unquant" in only(diagnosed(*started(inherits), *GOOD), "inherited_quantization").next_action
    assert "inherited_quantization" not in rules(diagnosed(*started(opted_out), *GOOD))


def test_a_stretched_context_is_likely_harmful() -> None:
    line = said("Overriding the draft model's max_position_embeddings to 8192.")

    assert "8192" in only(diagnosed(line, *started(), *GOOD), "stretched_context").evidence[0]


def test_custom_all_reduce_off_is_a_note() -> None:
    line = said("Custom allreduce is disabled because it's not supported on more than two PCIe-only GPUs.")

    assert not only(diagnosed(line, *started(), *GOOD), "custom_all_reduce_off").is_fault


def test_acceptance_that_contradicts_the_flag_lowers_its_certainty() -> None:
    diagnosis = diagnosed(*started(speculative_args(speculative_algorithm="EAGLE")), *GOOD)

    assert only(diagnosis, "wrong_flag").certainty is Certainty.LIKELY
    assert "2.40 is more than this flag allows" in diagnosis.verdict


def test_adaptive_speculation_is_a_note() -> None:
    finding = only(diagnosed(*started(speculative_args(speculative_adaptive=True)), *GOOD), "adaptive_speculation")

    assert not finding.is_fault


def test_simulated_acceptance_is_seen_only_where_the_log_says_so() -> None:
    line = said("Scheduler hit an exception: bad value of SGLANG_SIMULATE_ACC_LEN")

    assert "simulated_acceptance" in rules(diagnosed(*started(), line, *GOOD))
    assert "simulated_acceptance" not in rules(diagnosed(*started(), *[decode(accept=2.5, rate=0.5)] * 30))
