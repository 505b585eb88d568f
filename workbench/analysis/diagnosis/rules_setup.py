"""Is the deployment what was meant? Flags, checkpoint and what the server changed on its own."""

from __future__ import annotations

from collections.abc import Iterator

from workbench.analysis.diagnosis.model import Certainty, Finding
from workbench.analysis.diagnosis.reading import Case
from workbench.analysis.diagnosis.words import at_line
from workbench.analysis.wording import count

_EAGLE3_SWITCH = "--speculative-algorithm EAGLE3"
UNDER_WRONG_FLAG = 1.3  # accept length beyond what an EAGLE-3 drafter reaches under EAGLE (1.00 to 1.02 seen)


def wrong_flag(case: Case) -> Iterator[Finding]:
    """EAGLE with an EAGLE-3 checkpoint starts without an error and accepts nothing."""
    log = case.log
    block = log.draft_weights
    if not case.has_wrong_flag or block is None:
        return
    length = log.accept_length
    # Acceptance that cannot be under this flag: some version or plugin must have corrected it.
    is_contradicted = length is not None and length > UNDER_WRONG_FLAG
    evidence = [
        at_line(log.facts.server_args_line, f"server_args: speculative_algorithm='{log.algorithm}'"),
        at_line(block.line, f"second weight block (the drafter): type={block.type}"),
    ]
    if length is not None:
        evidence.append(f"accept length {length:.2f} in {count(log.num_accept_lines, 'decode line')}")
    yield Finding(
        "wrong_flag",
        f"Wrong flag: an EAGLE-3 drafter is served with --speculative-algorithm {log.algorithm}",
        Certainty.LIKELY if is_contradicted else Certainty.CERTAIN,
        tuple(evidence),
        f"restart with {_EAGLE3_SWITCH} and nothing else changed, then diagnose the new log; SGLang prints no error "
        "for this, it skips the drafter's fc layer and its d2t table",
        "sglang PR 21272",
        headline=f"Wrong flag: {block.type} is an EAGLE-3 drafter but runs under --speculative-algorithm "
        f"{log.algorithm}{_outcome(length, log.facts.num_steps)}; restart with {_EAGLE3_SWITCH}",
    )


def _outcome(length: float | None, steps: int | None) -> str:
    if length is None:
        return ", under which nothing is accepted"
    if length > UNDER_WRONG_FLAG:
        return f" (accept length {length:.2f} is more than this flag allows)"
    limit = "" if steps is None else f" of at most {steps + 1}"
    return f", so almost nothing is accepted: accept length {length:.2f}{limit}"


def wrong_draft_class(case: Case) -> Iterator[Finding]:
    """EAGLE3 with a second model that is no EAGLE-3 drafter (without a draft path, SGLang loads the target twice)."""
    log = case.log
    block = log.draft_weights
    if log.algorithm != "EAGLE3" or log.has_eagle3_class is not False or block is None:
        return
    yield Finding(
        "wrong_draft_class",
        f"EAGLE3 is asked for, but the draft model is a {block.type}",
        Certainty.LIKELY,
        (
            at_line(log.facts.server_args_line, "server_args: speculative_algorithm='EAGLE3'"),
            at_line(block.line, f"second weight block (the drafter): type={block.type}"),
        ),
        "give an EAGLE-3 checkpoint with --speculative-draft-model-path (its config.json names an Eagle3 class)",
        "sglang 36528",
        headline=f"EAGLE3 is asked for, but the draft model is a {block.type}; give an EAGLE-3 checkpoint with "
        "--speculative-draft-model-path",
    )


def draft_checkpoint_faults(case: Case) -> Iterator[Finding]:
    """What the checks of the draft checkpoint found to be broken."""
    for finding in case.draft_findings:
        # The wrong flag is already named, with the log's own lines.
        if finding.certainty is Certainty.CERTAIN and finding.is_fault and not _is_known_flag(case, finding):
            yield finding


def draft_checkpoint_remarks(case: Case) -> Iterator[Finding]:
    """What the checks of the draft checkpoint only warn of."""
    for finding in case.draft_findings:
        if finding.certainty is not Certainty.CERTAIN or not finding.is_fault:
            yield finding


def _is_known_flag(case: Case, finding: Finding) -> bool:
    return case.has_wrong_flag and finding.rule == "draft_algorithm"


def dummy_weights(case: Case) -> Iterator[Finding]:
    """Random weights, meant for measuring cost: acceptance then says nothing of any drafter."""
    for flag in ("load_format", "speculative_draft_load_format"):
        if case.log.arg(flag) == "dummy":
            option = f"--{flag.replace('_', '-')} dummy"
            yield Finding(
                "dummy_weights",
                f"Random weights ({option}): acceptance in this log means nothing",
                Certainty.CERTAIN,
                (at_line(case.log.facts.server_args_line, f"server_args: {flag}='dummy'"),),
                f"use this log for the cost of a step only; remove {option} to judge the drafter",
                is_fault=False,
                headline=f"Random weights ({option}): this log shows what a step costs, not what a drafter is worth",
            )


def simulated_acceptance(case: Case) -> Iterator[Finding]:
    """Acceptance that is forced says nothing of the drafter."""
    line, length = case.simulation, case.simulated_length
    if line is None and length is None:
        return
    evidence = at_line(line.line, line.text) if line is not None else f"started with an accept length of {length:g}"
    yield Finding(
        "simulated_acceptance",
        "Acceptance is simulated (SGLANG_SIMULATE_ACC_LEN)",
        Certainty.CERTAIN,
        (evidence,),
        "use this log for the cost of a step only; unset SGLANG_SIMULATE_ACC_LEN to judge the drafter",
        is_fault=False,
        headline="Acceptance is simulated (SGLANG_SIMULATE_ACC_LEN): this log shows what a step costs, not "
        "what the drafter is worth",
    )


def lossy_acceptance(case: Case) -> Iterator[Finding]:
    """Thresholds below 1 accept tokens that the target would not have chosen."""
    for flag in ("speculative_accept_threshold_single", "speculative_accept_threshold_acc"):
        value = case.log.arg(flag)
        if isinstance(value, float) and value < 1 and case.log.is_speculative:
            option = f"--{flag.replace('_', '-')}"
            yield Finding(
                "lossy_acceptance",
                f"Acceptance is lossy: {option} is {value:g}",
                Certainty.CERTAIN,
                (at_line(case.log.facts.server_args_line, f"server_args: {flag}={value:g}"),),
                f"remove {option} before comparing accept length or output with anything",
                is_fault=False,
            )
