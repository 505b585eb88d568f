"""A whole campaign before anything is started: every finding once, with the starts that it holds for."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from workbench.preflight.result import CheckResult, Severity
from workbench.preflight.start import check_start
from workbench.preflight.start_case import Machine, reader, this_machine
from workbench.sglang_rules import at_least
from workbench.sweep import CampaignSpec, Plan

_ORDER = (Severity.ERROR, Severity.WARNING, Severity.NOTE)


@dataclass(frozen=True, slots=True)
class Finding:
    """A result and the ids of the starts that it holds for; none for what concerns points that are not started."""

    result: CheckResult
    starts: tuple[str, ...] = ()


def check_campaign(plan: Plan, *, machine: Machine | None = None) -> tuple[Finding, ...]:
    """Findings of all starts, errors first. Nothing is started, fetched or written."""
    machine, read = machine or this_machine(), reader()
    holders: dict[CheckResult, list[str]] = {}
    for start in plan.starts:
        for result in check_start(start, plan.campaign, machine=machine, read=read):
            holders.setdefault(result, []).append(start.server_id)
    found = [Finding(result, tuple(starts)) for result, starts in holders.items()]
    found += [Finding(result) for result in (*_rewritten(plan.campaign), *_left_out(plan))]
    return tuple(sorted(found, key=lambda finding: _ORDER.index(finding.result.severity)))


def refusals(findings: Sequence[Finding]) -> dict[str, str]:
    """Starts with an error, each with the first one in words."""
    first: dict[str, str] = {}
    for finding in findings:
        if finding.result.severity is Severity.ERROR:
            for start in finding.starts:
                first.setdefault(start, f"{finding.result.what} ({finding.result.next_step})")
    return first


def _rewritten(campaign: CampaignSpec) -> Iterator[CheckResult]:
    """Draft tokens that the server replaces at topk 1, with nothing but a line in its log (SGLang 0.4.6 and later)."""
    if campaign.engine == "sglang" and not at_least(campaign.sglang_version, "0.4.6"):
        return
    asked = {
        (steps, tokens)
        for block in campaign.sweep
        if 1 in block.speculative_eagle_topk
        for steps, tokens in itertools.product(block.speculative_num_steps, block.speculative_num_draft_tokens)
        if tokens not in (None, steps + 1)
    }
    for steps, tokens in sorted(asked):
        yield CheckResult(
            "draft-tokens",
            Severity.WARNING,
            f"speculative_num_draft_tokens {tokens} is served as {steps + 1}: at topk 1 it is always steps + 1",
            "sweep: speculative_num_draft_tokens",
            f"leave it out, set speculative_num_steps to {(tokens or 1) - 1}, or use speculative_eagle_topk 2 or more",
            "the run measures another point than it was asked for",
        )


def _left_out(plan: Plan) -> Iterator[CheckResult]:
    for point in plan.refused:
        what = f"{point.point} is not started: {point.why}"
        yield CheckResult("refused", Severity.WARNING, what, "sweep", "leave this point out, or change it")
    for point in plan.merged:
        what = f"{point.point} is measured once: {point.why}"
        yield CheckResult("merged", Severity.NOTE, what, "sweep", "nothing, or leave it out")
