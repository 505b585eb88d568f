"""What a diagnosis is made of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import pandas as pd


class Certainty(StrEnum):
    """How far the log itself proves a finding."""

    CERTAIN = "certain"
    LIKELY = "likely"
    SUSPECTED = "suspected"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a rule found.

    ``certainty`` is that of the cause named in ``title``, ``evidence`` are lines or counts of the log. ``doc`` names
    the upstream report or source behind the rule. ``is_fault`` is false for what is good to know but not to be mended.
    ``headline`` is the sentence for the verdict when no earlier finding has one; empty for findings that never lead.
    """

    rule: str
    title: str
    certainty: Certainty
    evidence: tuple[str, ...]
    next_action: str
    doc: str | None = None
    is_fault: bool = True
    headline: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The answer for one log: ``findings`` are certain, likely and suspected faults, then what is good to know.

    ``figures`` has the columns name, value (NaN where it is text), text, unit, source.
    """

    verdict: str
    findings: tuple[Finding, ...]
    figures: pd.DataFrame
    not_known: tuple[str, ...]

    @property
    def certain_fault(self) -> bool:
        """Whether something is wrong beyond doubt; the command then exits with 1."""
        return any(finding.is_fault and finding.certainty is Certainty.CERTAIN for finding in self.findings)
