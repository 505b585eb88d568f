"""From one server log to a verdict: is the deployment right, is the drafter right, does speculation pay, what next.

`diagnose` asks each rule of `RULES` in turn. A rule is one small function that yields findings with their evidence.
Their order decides which finding leads the verdict, because a later figure means little before an earlier fault is
mended. Findings are shown by certainty, what is only good to know last, and in the order of the rules within that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from workbench.analysis.diagnosis import (
    rules_adjusted,
    rules_baseline,
    rules_drafter,
    rules_load,
    rules_pays,
    rules_prefills,
    rules_server,
    rules_setup,
)
from workbench.analysis.diagnosis.draft import findings_of_checks, loaded_dtypes
from workbench.analysis.diagnosis.figures import figures_df, not_known
from workbench.analysis.diagnosis.model import Certainty, Diagnosis, Finding
from workbench.analysis.diagnosis.reading import Case, Reading
from workbench.analysis.diagnosis.text import render_text
from workbench.analysis.diagnosis.verdict import verdict_of
from workbench.preflight.result import CheckResult
from workbench.table.logs import LogSummary

__all__ = ["RULES", "Certainty", "Diagnosis", "Finding", "diagnose", "diagnose_case", "loaded_dtypes", "render_text"]

Rule = Callable[[Case], Iterator[Finding]]

RULES: tuple[Rule, ...] = (
    rules_server.server_died,
    rules_server.no_decode_lines,
    rules_server.unreadable_lines,
    rules_baseline.unusable_baseline,
    rules_setup.wrong_flag,
    rules_setup.wrong_draft_class,
    rules_setup.draft_checkpoint_faults,
    rules_drafter.impossible_values,
    rules_drafter.nothing_accepted,
    rules_setup.dummy_weights,
    rules_setup.simulated_acceptance,
    rules_load.graph_off,
    rules_load.requests_queue,
    rules_load.retractions,
    rules_baseline.not_comparable,
    rules_pays.does_it_pay,
    rules_drafter.wasted_width,
    rules_drafter.low_accept_length,
    rules_drafter.decays_with_context,
    rules_load.unequal_ranks,
    rules_prefills.prefills_interrupt,
    rules_adjusted.stretched_context,
    rules_adjusted.inherited_quantization,
    rules_setup.draft_checkpoint_remarks,
    rules_adjusted.synchronous_scheduling,
    rules_baseline.other_backend,
    rules_baseline.unfair_comparison,
    rules_setup.lossy_acceptance,
    rules_adjusted.rewritten_settings,
    rules_load.speculative_cap_unused,
    rules_adjusted.adaptive_speculation,
    rules_adjusted.custom_all_reduce_off,
    rules_server.incomplete_file,
    rules_server.several_starts,
    rules_server.failed_requests,
    rules_drafter.rate_misread,
    rules_server.vllm_log,
    rules_pays.no_baseline,
)
# What they say of the drafter and of its gain means nothing under simulated acceptance.
_JUDGE_ACCEPTANCE = {
    rules_drafter.nothing_accepted,
    rules_drafter.wasted_width,
    rules_drafter.low_accept_length,
    rules_drafter.decays_with_context,
    rules_pays.does_it_pay,
}
_PLACES = {Certainty.CERTAIN: 0, Certainty.LIKELY: 1, Certainty.SUSPECTED: 2}


def diagnose(
    log: LogSummary,
    *,
    baseline: LogSummary | None = None,
    draft_checks: Sequence[CheckResult] | None = None,
    simulated_length: float | None = None,
) -> Diagnosis:
    """The diagnosis of one server log.

    Parameters
    ----------
    log
        The log to judge; a plain server's log is judged as a baseline.
    baseline
        The log of the same server without speculation, under the same load.
    draft_checks
        What `workbench.preflight` found in the draft checkpoint; ``None`` when it was not checked.
    simulated_length
        The accept length that the server was told to pretend; logs do not tell.
    """
    base = None if baseline is None else Reading(baseline)
    case = Case(Reading(log), base, findings_of_checks(draft_checks or ()), simulated_length)
    return diagnose_case(case, has_draft_checks=draft_checks is not None)


def diagnose_case(case: Case, *, has_draft_checks: bool = False) -> Diagnosis:
    """The same of logs of which the figures may be known already: one baseline stands beside many logs."""
    simulated = case.simulated_length is not None or case.simulation is not None
    rules = [rule for rule in RULES if not (simulated and rule in _JUDGE_ACCEPTANCE)]
    by_rule = [finding for rule in rules for finding in rule(case)]
    findings = tuple(sorted(by_rule, key=lambda finding: (not finding.is_fault, _PLACES[finding.certainty])))
    return Diagnosis(
        verdict=verdict_of(case, by_rule, shown=findings),
        findings=findings,
        figures=figures_df(case),
        not_known=not_known(case, has_draft_checks=has_draft_checks),
    )
