"""The one sentence that a reader takes away."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.analysis.diagnosis.model import Certainty, Finding
from workbench.analysis.diagnosis.reading import Case, Reading
from workbench.analysis.diagnosis.words import at_loads
from workbench.analysis.wording import count, number, one_of

# Findings that answer the question rather than name a fault: without other faults the verdict says so first.
_ANSWERS = {"does_it_pay", "no_baseline"}


def verdict_of(case: Case, findings: Sequence[Finding], *, shown: Sequence[Finding]) -> str:
    """The headline of the first finding that has one; of a log without any, what it holds.

    ``findings`` are in the order of the rules, ``shown`` the same ones in the order in which the reader sees them.
    """
    lead = next((finding for finding in findings if finding.headline), None)
    if lead is None:
        return f"{_state(case.log, findings)}."
    return f"{_led_by(lead, findings)}{_suspicions(shown)}."


def _led_by(lead: Finding, findings: Sequence[Finding]) -> str:
    has_other_faults = any(finding.is_fault and finding.rule != lead.rule for finding in findings)
    if lead.rule in _ANSWERS and not has_other_faults:
        return f"No fault found. {lead.headline}"
    return lead.headline


def _suspicions(shown: Sequence[Finding]) -> str:
    """Where to read what the checks of the draft checkpoint suspect."""
    places = [
        str(place)
        for place, finding in enumerate(shown, 1)
        if finding.rule.startswith("draft_") and finding.is_fault and finding.certainty is Certainty.SUSPECTED
    ]
    return f"; {count(len(places), 'suspicion')} about the draft, see {one_of(places)}" if places else ""


def _state(log: Reading, findings: Sequence[Finding]) -> str:
    faults = sum(finding.is_fault for finding in findings)
    found = "nothing wrong found" if faults == 0 else f"see {count(faults, 'finding')}"
    parts = [_graphs(log)]
    if log.levels:
        speeds = one_of(number(log.speed_at(level) or 0.0) for level in log.levels)
        parts.append(f"{speeds} tok/s {at_loads(log.levels, [log.ranks_at(level) for level in log.levels])}")
    elif len(log.lines):
        parts.append("no usable speed")
    role = "Healthy baseline" if faults == 0 else "Baseline"
    who = f"{role}: no speculation" if log.is_speculative is False else "Speculative server"
    return f"{who}, {', '.join(parts)}; {found}"


def _graphs(log: Reading) -> str:
    lines = count(len(log.graph_on), "decode line")
    if not len(log.graph_on):
        return count(len(log.lines), "decode line")
    return f"CUDA graphs on in {'all' if log.graph_on.all() else f'{log.graph_on.mean():.0%} of'} {lines}"
