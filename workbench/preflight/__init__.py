"""What can be known before a GPU is used: each finding with its place, its consequence and what to do."""

from workbench.preflight.campaign import Finding, check_campaign, refusals
from workbench.preflight.draft import check_draft
from workbench.preflight.result import CheckResult, Severity
from workbench.preflight.start import check_start
from workbench.preflight.start_case import Machine, this_machine

__all__ = [
    "CheckResult",
    "Finding",
    "Machine",
    "Severity",
    "check_campaign",
    "check_draft",
    "check_start",
    "refusals",
    "this_machine",
]
