"""Requests that wait while others are prefilled: time that no drafter can win back."""

from __future__ import annotations

from collections.abc import Iterator

from workbench.analysis.diagnosis.model import Certainty, Finding
from workbench.analysis.diagnosis.reading import Case, Reading
from workbench.analysis.diagnosis.words import at_loads
from workbench.analysis.frames import Row
from workbench.analysis.prefills import MIN_LINES, NOTABLE
from workbench.analysis.wording import count

FINE_INTERVAL = 10


def prefills_interrupt(case: Case) -> Iterator[Finding]:
    """The load at which prefills take most, where that is a large part; of a pair also loads that do not tell."""
    here, there = case.log.prefills, case.baseline.prefills if case.is_pair and case.baseline is not None else {}
    large = [row for row in here.values() if (row["prefill_share"] or 0.0) >= NOTABLE]
    if large:
        yield _interrupted(case, max(large, key=lambda row: float(row["prefill_share"])), there)
    shared = [load for load in case.log.levels if load in here and load in there]
    mixed = [load for load in shared if here[load]["num_clean"] < MIN_LINES <= here[load]["num_windows"]]
    if mixed:
        yield _cannot_be_told(case.log, mixed)


def _interrupted(case: Case, worst: Row, there: dict[int, Row]) -> Finding:
    log, load = case.log, worst["running_req"]
    where = at_loads([load], [log.ranks_at(load)])
    step = "verify cycle" if log.is_speculative else "step"
    # How many steps lie between two lines is known from the server's arguments alone.
    each = f" of about {worst['prefill_ms']:.0f} ms" if log.facts.server_args else ""
    evidence = [
        f"{count(worst['prefills'], 'prefill')}{each} between {count(worst['num_windows'], 'decode line')} {where}; a "
        f"{step} takes {worst['clean_step_ms']:.2f} ms between them and {worst['step_ms']:.2f} ms over all time"
    ]
    base = there.get(load)
    if base is not None and base["clean_step_ms"] is not None:
        evidence.append(
            f"baseline: {base['prefill_share']:.0%} of the time, {base['clean_step_ms']:.2f} ms a step between them; "
            f"break-even accept length between prefills {worst['clean_step_ms'] / base['clean_step_ms']:.2f}"
        )
    return Finding(
        "prefills_interrupt",
        f"Prefills take {worst['prefill_share']:.0%} of the time {where}",
        Certainty.CERTAIN,
        tuple(evidence),
        _next(case),
        is_fault=False,
    )


def _next(case: Case) -> str:
    servers = "both servers" if case.is_pair else "the server"
    graphs = ""
    if case.log.arg("disable_prefill_cuda_graph") is True and not case.log.is_on_cpu:
        graphs = f"start {servers} without --disable-prefill-cuda-graph; "
    return (
        f"{graphs}measure with prompts and answers as long as in service, since both decide what prefills take: a "
        "drafter shortens only the time between them"
    )


def _cannot_be_told(log: Reading, loads: list[int]) -> Finding:
    where = at_loads(loads, [log.ranks_at(load) for load in loads])
    return Finding(
        "prefills_not_told",
        f"What prefills take {where} cannot be told: hardly a decode line without one before it",
        Certainty.CERTAIN,
        (f"fewer than {MIN_LINES} decode lines without a prefill {where}",),
        f"start the server with --decode-log-interval {FINE_INTERVAL}",
        is_fault=False,
    )
