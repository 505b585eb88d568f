"""What the server changed on its own, and what it left slow."""

from __future__ import annotations

from collections.abc import Iterator

from workbench.analysis.diagnosis.model import Certainty, Finding
from workbench.analysis.diagnosis.reading import Case
from workbench.analysis.diagnosis.words import at_line


def rewritten_settings(case: Case) -> Iterator[Finding]:
    """Steps, topk or draft tokens that the server replaced without stopping."""
    log = case.log
    event = log.adjustment("speculative_num_draft_tokens is adjusted", "speculative_eagle_topk is adjusted")
    asked, used = log.int_arg("speculative_num_draft_tokens"), log.facts.draft_tokens_effective
    differs = asked is not None and used is not None and asked != used
    if event is None and not differs:
        return
    evidence = [] if event is None else [at_line(event.line, event.text)]
    if differs:
        evidence.append(f"asked for {asked} draft tokens, in use: {used}")
    yield Finding(
        "rewritten_settings",
        "The server replaced speculative settings" + (f": it verifies {used} tokens a step" if used else ""),
        Certainty.CERTAIN,
        tuple(evidence),
        "ask for what is used: with --speculative-eagle-topk 1, --speculative-num-draft-tokens is always steps + 1; "
        "runs that differ only in it are the same run",
        is_fault=False,
    )


def adaptive_speculation(case: Case) -> Iterator[Finding]:
    """Steps and draft tokens change while serving (0.5.11 and later), and a window may mix several."""
    log = case.log
    event = log.adjustment("Switch adaptive runtime state")
    if event is None and log.arg("speculative_adaptive") is not True:
        return
    stated = at_line(log.facts.server_args_line, "server_args: speculative_adaptive=True")
    yield Finding(
        "adaptive_speculation",
        "Steps and draft tokens change while serving",
        Certainty.CERTAIN,
        (stated if event is None else at_line(event.line, event.text),),
        "compare accept lengths and speeds, not printed rates; remove --speculative-adaptive to judge one setting",
        is_fault=False,
    )


def synchronous_scheduling(case: Case) -> Iterator[Finding]:
    """Speculation without overlapped scheduling pays host time that the plain baseline hides."""
    log = case.log
    if not log.is_speculative:
        return
    event = log.adjustment("Overlap scheduler is disabled", "Spec v1 is used", "Non-overlap (synchronous) spec")
    is_disabled = log.arg("disable_overlap_schedule") is True
    if event is None and not is_disabled:
        return
    evidence = [] if event is None else [at_line(event.line, event.text)]
    if is_disabled:
        evidence.append(at_line(log.facts.server_args_line, "server_args: disable_overlap_schedule=True"))
    yield Finding(
        "synchronous_scheduling",
        "Scheduling is not overlapped under speculation: every step waits for the host",
        Certainty.LIKELY,
        tuple(evidence),
        "remove --disable-overlap-schedule; from 0.5.4.post1 to 0.5.10 set SGLANG_ENABLE_SPEC_V2=1 with "
        "--speculative-eagle-topk 1, from 0.5.14 on it is overlapped by default",
    )


def inherited_quantization(case: Case) -> Iterator[Finding]:
    """A draft of plain weights is loaded with the target's quantization unless told otherwise (0.5.7 and later)."""
    log = case.log
    if not log.is_speculative or log.arg("speculative_draft_model_quantization") == "unquant":
        return
    blocks = log.facts.weights
    shared = blocks[0].quant if len(blocks) > 1 and blocks[0].quant and blocks[0].quant == blocks[1].quant else None
    stated = log.arg("quantization")
    if shared:
        evidence = at_line(blocks[1].line, f"target and drafter were loaded with quant={shared}")
    elif isinstance(stated, str) and log.arg("speculative_draft_model_quantization") in (None, stated):
        evidence = at_line(log.facts.server_args_line, f"server_args: quantization='{stated}', none for the drafter")
    else:
        return
    yield Finding(
        "inherited_quantization",
        "The drafter is loaded with the target's quantization",
        Certainty.SUSPECTED,
        (evidence,),
        "if the draft checkpoint holds plain BF16 weights, add --speculative-draft-model-quantization unquant",
        "sglang PR 28196",
    )


def stretched_context(case: Case) -> Iterator[Finding]:
    """The draft was trained for a shorter context than it serves."""
    event = case.log.adjustment("Overriding the draft model's max_position_embeddings")
    if event is None:
        return
    yield Finding(
        "stretched_context",
        "The drafter serves a longer context than it was made for",
        Certainty.LIKELY,
        (at_line(event.line, event.text),),
        "compare accept length below and above the drafter's own max_position_embeddings; lower --context-length to "
        "it, or retrain on longer text",
        "SpecForge 249",
    )


def custom_all_reduce_off(case: Case) -> Iterator[Finding]:
    """On PCIe-only machines every step pays for NCCL all-reduces, verify steps and plain ones alike."""
    event = case.log.adjustment("Custom allreduce is disabled")
    if event is None:
        return
    yield Finding(
        "custom_all_reduce_off",
        "Custom all-reduce is off, so every layer pays for an NCCL all-reduce",
        Certainty.LIKELY,
        (at_line(event.line, event.text),),
        "tune NCCL before the drafter (baseline and candidate alike), and measure the baseline again after each change",
        is_fault=False,
    )
