"""The draft checkpoint checks: what the log tells them, and their results as findings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from workbench.analysis.diagnosis.model import Certainty, Finding
from workbench.parse.records import EventKind
from workbench.preflight.result import CheckResult, Severity
from workbench.table.logs import LogSummary

_CERTAINTY = {
    Severity.ERROR: Certainty.CERTAIN,
    # A warning depends on something that the files do not show.
    Severity.WARNING: Certainty.SUSPECTED,
    Severity.NOTE: Certainty.CERTAIN,
}
_FLOATS = ("bfloat16", "float16", "float32")


def loaded_dtypes(log: LogSummary) -> tuple[str | None, str | None]:
    """What target and draft run in by the log itself; ``None`` where it does not say.

    From the weight lines, else ``--dtype``, else the KV cache's: with ``--kv-cache-dtype auto`` that is the model's.
    """
    facts = log.facts
    by_weights = [block.dtype for block in facts.weights[:2]]
    asked = facts.server_args.get("dtype")
    by_flag = [asked if asked != "auto" else None] * 2
    caches = [event for event in log.events if event.kind is EventKind.KV_CACHE]
    first_rank = [event.fields.get("dtype") for event in caches if event.ranks == caches[0].ranks]
    by_cache = first_rank if facts.server_args.get("kv_cache_dtype") == "auto" else []
    target, draft = (
        next((name for stated in (by_weights, by_flag, by_cache) if (name := _float(stated, place))), None)
        for place in (0, 1)
    )
    return target, draft


def _float(stated: Sequence[object], place: int) -> str | None:
    name = stated[place] if place < len(stated) else None
    name = name.removeprefix("torch.") if isinstance(name, str) else None
    return name if name in _FLOATS else None


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
