"""Results of the draft checkpoint checks as findings."""

from __future__ import annotations

from collections.abc import Iterable

from workbench.analysis.diagnosis.model import Certainty, Finding
from workbench.preflight.result import CheckResult, Severity

_CERTAINTY = {
    Severity.ERROR: Certainty.CERTAIN,
    # A warning depends on something that the files do not show.
    Severity.WARNING: Certainty.SUSPECTED,
    Severity.NOTE: Certainty.CERTAIN,
}


def findings_of_checks(results: Iterable[CheckResult]) -> tuple[Finding, ...]:
    """Findings named ``draft_<rule>``: errors are certain faults, warnings suspected ones, notes no faults."""
    return tuple(_finding(result) for result in results)


def _finding(result: CheckResult) -> Finding:
    is_error = result.severity == Severity.ERROR
    return Finding(
        rule=f"draft_{result.rule.replace('-', '_')}",
        title=f"Draft checkpoint: {result.what}",
        certainty=_CERTAINTY[Severity(result.severity)],
        evidence=tuple(part for part in (result.where, result.why) if part),
        next_action=result.next_step,
        is_fault=result.severity != Severity.NOTE,
        headline=f"The draft checkpoint is faulty: {result.what}; {result.next_step}" if is_error else "",
    )
