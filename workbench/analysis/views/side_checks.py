"""Checks made beside the runs: the peer's client, where a step's time goes, whether a router spread its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import pandas as pd

from workbench.analysis.experts import COLLAPSED, NOT_COUNTED, routing
from workbench.analysis.wording import count
from workbench.table import Tables
from workbench.table.side_checks import ClientPass, CrossPass, Share, StepProfile

AGREES = 0.03
"""Output tok/s of two clients count as the same within this."""
_SHOWN = 8


def cross_check_view(tables: Tables) -> pd.DataFrame:
    """Medians over the passes of both clients, one row a load; accept length counted as the server counts it."""
    rows = []
    for name, checks in tables.checks.items():
        if checks.cross_check is not None:
            for load, passes in _by_load(checks.cross_check.passes):
                rows.append({"campaign": name, **_compared(load, passes)})
    return pd.DataFrame(rows)


def cross_check_words(tables: Tables) -> str:
    """How far the two clients differ, or that they were not compared."""
    said = []
    for checks in tables.checks.values():
        if checks.cross_check is None:
            continue
        for load, passes in _by_load(checks.cross_check.passes):
            ratio = _ratio(passes)
            verdict = "agree" if abs(ratio - 1) <= AGREES else "do not agree"
            length = median(each.workbench.duration_s for each in passes)
            said.append(
                f"At {load} at once the two {verdict} within {AGREES:.0%}: ours reads {ratio - 1:+.1%} in the median "
                f"of {len(passes)} passes of {length:.1f} s."
            )
    if said or not tables.runs["origin"].isin(["measured", "recorded"]).any():
        return " ".join(said) or "None of these runs was measured by the workbench's own client."
    return "sglang.bench_serving was not run against these servers."


def step_profile_view(tables: Tables) -> pd.DataFrame:
    """What took most time in a profiled step, by kind, one row a kernel, call or function."""
    rows: list[dict[str, object]] = []
    for checks in tables.checks.values():
        profile = checks.step_profile
        for kind, shares in _kinds(profile) if profile is not None else ():
            for share in shares[:_SHOWN]:
                rows.append({"what": kind, "name": share.name, "ms a step": share.ms_a_step, "a step": share.a_step})
    return pd.DataFrame(rows)


def step_profile_words(tables: Tables) -> str:
    """Which part of a step the GPU worked, or that no step was profiled."""
    said = [
        f"In {count(profile.steps, 'profiled step')} the GPU worked {profile.gpu_busy_ms:.2f} ms a step, in "
        f"{profile.kernels_a_step:.0f} kernels; the profiler stretched the step itself to {profile.cycle_ms:.2f} ms. "
        "What a cycle takes beyond the GPU's part, without the profiler, is the host's."
        for checks in tables.checks.values()
        if (profile := checks.step_profile) is not None
    ]
    return " ".join(said) or "No step was profiled."


def routing_words(tables: Tables) -> str:
    """Whether tokens spread over experts as independent choices would; empty for targets without experts."""
    said = []
    for name in tables.campaigns:
        found = routing(tables, name)
        if found is None:
            continue
        if found.state == NOT_COUNTED:
            said.append("How many experts a pass reached was not counted.")
        elif found.state == COLLAPSED:
            said.append(
                f"Routing collapsed: a pass reached {found.worst:.0%} of the experts that independent choices would; "
                "what a draft token costs cannot be concluded from these runs."
            )
        else:
            said.append(
                f"Tokens spread as independent choices would, within {abs(found.worst - 1):.1%} "
                f"({found.passes:,} passes counted)."
            )
    return " ".join(said)


def _by_load(passes: Sequence[CrossPass]) -> list[tuple[int, list[CrossPass]]]:
    loads = sorted({each.max_concurrency for each in passes})
    return [(load, [each for each in passes if each.max_concurrency == load]) for load in loads]


def _ratio(passes: Sequence[CrossPass]) -> float:
    """Median over the passes, each a pair in turn: what drifts slowly cancels."""
    return median(each.workbench.output_tok_per_s / each.bench_serving.output_tok_per_s for each in passes)


def _compared(load: int, passes: Sequence[CrossPass]) -> dict[str, object]:
    ours, theirs = [each.workbench for each in passes], [each.bench_serving for each in passes]
    lengths = [
        (each.total_output_tokens / verified, each.server_accept_length)
        for each in ours
        if each.accept_length and (verified := (each.total_output_tokens - each.completed) / each.accept_length)
    ]
    counted, server = (
        ([value for value in values if value is not None] for values in zip(*lengths, strict=True))
        if (lengths)
        else ([], [])
    )
    return {
        "concurrency": load,
        "passes": len(passes),
        "our output tok/s": median(each.output_tok_per_s for each in ours),
        "bench_serving output tok/s": median(each.output_tok_per_s for each in theirs),
        "ours, not streaming": _median([each.workbench_not_streaming for each in passes]),
        "ratio, pass by pass": _ratio(passes),
        "our tokens": median(each.total_output_tokens for each in ours),
        "bench_serving tokens": median(each.total_output_tokens for each in theirs),
        "accept length by requests": median(counted) if counted else None,
        "by /server_info": median(server) if server else None,
        "by bench_serving": median([each.accept_length for each in theirs if each.accept_length] or [float("nan")]),
    }


def _median(passes: Sequence[ClientPass | None]) -> float | None:
    speeds = [each.output_tok_per_s for each in passes if each is not None]
    return median(speeds) if speeds else None


def _kinds(profile: StepProfile) -> list[tuple[str, Sequence[Share]]]:
    # Of the Python functions only those of the speculative worker: the outer loops hold all of them.
    inside = [share for share in profile.python if "speculative/" in share.name]
    return [("kernel", profile.kernels), ("runtime call", profile.runtime_calls), ("host function", inside)]
