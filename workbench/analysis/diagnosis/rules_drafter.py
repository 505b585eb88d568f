"""Is the drafter right for this target, and does it use what it drafts?"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from workbench.analysis.diagnosis.model import Certainty, Finding
from workbench.analysis.diagnosis.reading import MIN_LINES, NOTABLE_SHARE, Case, Reading
from workbench.analysis.diagnosis.words import at_line
from workbench.analysis.frames import means_by
from workbench.analysis.wording import count, one_of
from workbench.parse.records import RateDefinition
from workbench.table.lines import Lines

# Accept lengths of chains in data/reference_points.csv that were measured on benchmarks: 1.48 to 3.48, 46 of 59 of them
# 2.3 to 3.3.
PUBLISHED_STEPS = 3
PUBLISHED = f"published EAGLE-3 drafters reach 1.5 to 3.5 at {PUBLISHED_STEPS} steps, most of them 2.3 to 3.3"
LOW_ACCEPT_LENGTH = 2.0
WIDE = 8  # draft tokens from which a poor yield is worth a finding
WASTED = 4  # draft tokens per accepted token
CONTEXT_EDGES = (0, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 1 << 30)
_CONTEXTS = [f"{low:,} to {high:,}" for low, high in pairwise(CONTEXT_EDGES)]
_EAGLE_FAMILY = {None, "EAGLE", "EAGLE3", "NEXTN"}
_CHECK = "workbench check DRAFT_DIR --target TARGET_DIR"


def impossible_values(case: Case) -> Iterator[Finding]:
    """Accept lengths below 1 or beyond steps + 1: no server counts so, so nothing may be concluded from them."""
    log = case.log
    odd, sound = log.log.num_impossible, log.num_accept_lines
    if not odd:
        return
    steps = log.facts.num_steps
    most = "" if steps is None else f" or above {steps + 1} ({count(steps, 'step')} and the bonus token)"
    title = f"Impossible value: accept length below 1{most} in {count(odd, 'decode line')}"
    is_fault = odd >= NOTABLE_SHARE * (odd + sound)
    next_action = (
        "look at the accept len of the decode lines: a changed server or a damaged copy printed it; the figures leave "
        "these lines out"
    )
    yield Finding(
        "impossible_values",
        title,
        Certainty.CERTAIN,
        (f"{count(sound, 'decode line')} with an accept length that can be",),
        next_action,
        is_fault=is_fault,
        headline=f"{title}; {next_action}" if is_fault else "",
    )


def nothing_accepted(case: Case) -> Iterator[Finding]:
    """Accept length near 1: the flag and the drafter are the suspects, as far as the log leaves them open."""
    if not case.accepts_nothing or case.has_wrong_flag or _draft_is_broken(case):
        return
    if case.log.algorithm != "EAGLE3" and not case.log.is_vllm:
        yield _suspected_flag(case.log)
    yield _suspected_drafter(case.log)


def _draft_is_broken(case: Case) -> bool:
    return any(finding.certainty is Certainty.CERTAIN and finding.is_fault for finding in case.draft_findings)


def _accept_evidence(log: Reading) -> str:
    first = int(log.lines["line"][~np.isnan(log.lines["accept_len"])][0])
    lines = count(log.num_accept_lines, "decode line")
    return f"accept len {log.accept_length:.2f} over {lines}{_at_each_load(log)} (first: line {first})"


def _at_each_load(log: Reading) -> str:
    """``, all loads together; 1.79 at 1 running``, where they differ."""
    if not log.over_all_loads:
        return ""
    own = ((level, log.accept_length_at(level)) for level in log.levels)
    said = one_of(f"{length:.2f} at {level:,}" for level, length in own if length is not None)
    return f", all loads together, and {said} running"


def _suspected_flag(log: Reading) -> Finding:
    if log.algorithm is None:
        open_point = "the log does not show speculative_algorithm (server_args line)"
        if log.has_eagle3_class:
            open_point += f", the drafter is {log.draft_weights.type}" if log.draft_weights else ""
    else:
        open_point = f"server_args: speculative_algorithm='{log.algorithm}', the drafter's class is not in the log"
        if log.draft_weights is not None:
            open_point = f"server_args: speculative_algorithm='{log.algorithm}', drafter {log.draft_weights.type}"
    return Finding(
        "suspected_flag",
        f"Wrong flag, if the drafter is an EAGLE-3 one: nothing is accepted (accept length {log.accept_length:.2f})",
        Certainty.SUSPECTED,
        (_accept_evidence(log), open_point),
        "look at the start command: an EAGLE-3 checkpoint needs --speculative-algorithm EAGLE3; with EAGLE (or "
        "NEXTN) it starts without an error and accepts nothing",
        "sglang PR 21272",
        headline=f"Nothing is accepted: {_nothing(log)}; suspect a wrong flag (an EAGLE-3 drafter needs "
        "--speculative-algorithm EAGLE3) or a drafter that does not fit, in this order",
    )


def _suspected_drafter(log: Reading) -> Finding:
    right_flag = log.algorithm == "EAGLE3"
    return Finding(
        "suspected_drafter",
        f"Unfit drafter: nothing is accepted although the flag is right (accept length {log.accept_length:.2f})"
        if right_flag
        else f"Unfit drafter, if the flag is right: nothing is accepted (accept length {log.accept_length:.2f})",
        Certainty.SUSPECTED,
        (_accept_evidence(log), *_flag_evidence(log)),
        f"run {_CHECK} (capture layers, d2t table, vocabulary, shapes); if it passes compare training with serving: "
        "engine and precision of the hidden states (BF16 against a quantized target), chat template, tokenizer",
        "SpecForge PR 602",
        headline=f"Nothing is accepted although the flag is right: {_nothing(log)}; the drafter does not fit the "
        f"target as it is served, so run {_CHECK}",
    )


def _flag_evidence(log: Reading) -> list[str]:
    if log.algorithm != "EAGLE3":
        return []
    kind = f", drafter {log.draft_weights.type}" if log.draft_weights and log.draft_weights.type else ""
    return [at_line(log.facts.server_args_line, f"server_args: speculative_algorithm='EAGLE3'{kind}")]


def _nothing(log: Reading) -> str:
    drafted = log.facts.draft_tokens_effective
    width = f" with {drafted} draft tokens" if drafted else ""
    return f"accept length {log.accept_length:.2f}{width} in {count(log.num_accept_lines, 'decode line')}"


def rate_misread(case: Case) -> Iterator[Finding]:
    """Until 0.5.10 the printed rate counts the bonus token, so that it is above 0 when nothing is accepted."""
    log = case.log
    definition = log.facts.rate_definition
    printed = log.lines["accept_rate_printed"]
    printed = printed[~np.isnan(printed)]
    old = {RateDefinition.L_OVER_N: "draft tokens", RateDefinition.L_OVER_S_PLUS_1: "(steps + 1)"}
    if log.is_vllm or not len(printed) or definition not in old or log.accept_length is None:
        return
    if log.accept_rate is not None:
        own = f"the share of drafts accepted is {log.accept_rate:.2f}"
    else:
        own = f"the share of drafts accepted is {log.accept_length - 1:.2f} / steps, which the log does not state"
    yield Finding(
        "rate_misread",
        f"The printed accept rate {printed.mean():.2f} is accept length / {old[definition]}, not a share of accepted "
        "drafts",
        Certainty.CERTAIN,
        (f"printed as {definition}{_worked(log)}; {own}",),
        "compare accept lengths; this rate rises when fewer tokens are drafted, even when nothing is gained",
        "sglang PRs 11572, 13212, 23530",
        is_fault=False,
    )


def _worked(log: Reading) -> str:
    drafted, length = log.facts.draft_tokens_effective, log.accept_length
    if drafted is None or length is None:
        return ""
    return f": {length:.2f} / {drafted} = {length / drafted:.2f}"


def wasted_width(case: Case) -> Iterator[Finding]:
    """The target verifies every draft token, and most are thrown away."""
    log = case.log
    drafted, length = log.facts.draft_tokens_effective, log.accept_length
    if drafted is None or length is None or case.has_wrong_flag or case.accepts_nothing:
        return
    if drafted < WIDE or drafted < WASTED * length:
        return
    fewer = "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
    pays = _pays_everywhere(case)
    begin = "it pays as it is; whether fewer pay more: " if pays else ""
    yield Finding(
        "wasted_width",
        f"Each step verifies {drafted} tokens to keep {length:.1f}",
        Certainty.LIKELY,
        (f"{drafted} draft tokens (root included), {_accept_evidence(log)}",),
        f"{begin}measure {fewer} with nothing else changed: every verified token costs, most of all in a mixture of "
        "experts, where each one loads experts of its own",
        is_fault=not pays,
        headline=f"Each step verifies {drafted} tokens to keep {length:.2f}: measure 4 ({fewer}) before training more",
    )


def _pays_everywhere(case: Case) -> bool:
    """Whether a baseline log shows that speculation wins at a load and loses at none."""
    return any(item.wins for item in case.level_speeds) and not any(item.loses for item in case.level_speeds)


def low_accept_length(case: Case) -> Iterator[Finding]:
    """Accepting something, but less than published drafters do with as many steps."""
    log = case.log
    length, steps = log.accept_length, log.facts.num_steps
    chain = steps if steps is not None else (log.facts.draft_tokens_effective or 1) - 1
    if length is None or chain < 3 or log.algorithm not in _EAGLE_FAMILY or case.has_wrong_flag:
        return
    if case.accepts_nothing or length >= LOW_ACCEPT_LENGTH:
        return
    published = PUBLISHED if chain == PUBLISHED_STEPS else f"{PUBLISHED}; longer chains reach more"
    given = f"{steps} steps" if steps is not None else f"{log.facts.draft_tokens_effective} draft tokens"
    title = f"Accept length {length:.2f} at {given}{log.over_all_loads} is low"
    yield Finding(
        "low_accept_length",
        title,
        Certainty.SUSPECTED,
        (_accept_evidence(log), published),
        f"rule out a mismatch before collecting data: {_CHECK}, same chat template, precision and engine for hidden "
        "states as in serving, prompts like those trained on; then train on more data",
        headline=f"{title} ({published}): rule out a mismatch with {_CHECK} before training on more data",
    )


def decays_with_context(case: Case) -> Iterator[Finding]:
    """Accept length by tokens held per running request; a draft trained on short text falls on long text."""
    by_context = _by_context(case.log.lines)
    if len(by_context) < 2 or case.has_wrong_flag or case.accepts_nothing:
        return
    first, last = by_context[min(by_context)], by_context[max(by_context)]
    if last > 0.8 * first:
        return
    yield Finding(
        "decays_with_context",
        f"Accept length falls from {first:.2f} to {last:.2f} as the context grows",
        Certainty.SUSPECTED,
        (one_of([f"{length:.2f} at {_CONTEXTS[place]} tokens" for place, length in by_context.items()]),),
        "compare with the drafter's max_position_embeddings and rope settings; train on longer text, or serve long "
        "requests without speculation",
        "SpecForge 249, sglang 30763",
    )


def _by_context(lines: Lines) -> dict[int, float]:
    """Mean accept length by context bin, its place in `_CONTEXTS`, of bins with enough lines."""
    running, tokens, length = lines["running_req"], lines["tokens"], lines["accept_len"]
    known = (running > 0) & ~np.isnan(tokens) & ~np.isnan(length)
    place = np.searchsorted(CONTEXT_EDGES, tokens[known] / running[known], side="right") - 1
    enough = np.bincount(place[place >= 0], minlength=len(_CONTEXTS)) >= MIN_LINES
    within = (place >= 0) & (place < len(_CONTEXTS))
    within[within] = enough[place[within]]
    return means_by(place[within].astype(np.float64), length[known][within])
