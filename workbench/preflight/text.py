"""Findings for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from workbench.preflight.campaign import Finding
from workbench.preflight.case import listing
from workbench.preflight.result import CheckResult, Severity

_SHOWN = 3


def render_result(result: CheckResult, *, holds_for: str = "") -> str:
    """One block: what, where, why, next step, and the starts it holds for."""
    lines = [f"{result.severity.value.upper()}  {result.what}", f"  where: {result.where}"]
    lines += [f"  why:   {result.why}"] if result.why else []
    lines += [f"  next:  {result.next_step}"]
    lines += [f"  for:   {holds_for}"] if holds_for else []
    return "\n".join(lines)


def render_findings(findings: Sequence[Finding], *, starts: int) -> str:
    """A block a finding; what holds for several of the ``starts`` is said once."""
    return "\n".join(render_result(finding.result, holds_for=_holders(finding, starts)) for finding in findings)


def counted(findings: Sequence[Finding]) -> str:
    """``1 error, 2 warnings, 0 notes``."""
    counts = Counter(finding.result.severity for finding in findings)
    return ", ".join(
        f"{counts[severity]} {severity.value}{'' if counts[severity] == 1 else 's'}" for severity in Severity
    )


def _holders(finding: Finding, starts: int) -> str:
    count = len(finding.starts)
    if not count:
        return ""
    if count == starts:
        return f"all {starts} starts" if starts > 1 else "the only start"
    named = listing(finding.starts, limit=_SHOWN)
    return named if count == 1 else f"{count} of {starts} starts: {named}"
