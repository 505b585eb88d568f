"""What can be known before a GPU is used: each finding with its place, its consequence and what to do."""

from workbench.preflight.draft import check_draft
from workbench.preflight.result import CheckResult, Severity

__all__ = ["CheckResult", "Severity", "check_draft"]
