"""What the run notebook and ``workbench run`` say: the plan before, progress meanwhile, what came of it."""

from __future__ import annotations

import contextlib
import shlex
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from statistics import median

import pandas as pd

from workbench import show
from workbench.analysis.frames import records
from workbench.analysis.interference import interference_df
from workbench.errors import InputError
from workbench.launch.argv import server_argv, server_env
from workbench.models import located
from workbench.paths import PROGRESS, runs_dir
from workbench.preflight import check_campaign, refusals
from workbench.preflight.text import render_findings
from workbench.progress import OVERWRITE
from workbench.recording import Ended, is_measured
from workbench.spec import RunState
from workbench.store import RunFolder, read_run
from workbench.sweep import Plan

PASSING = "~"
"""Stands behind the time of a line that only says how far a run is."""
NEWLINE = "\n"
EXAMPLE_PORT = 30000
REQUEST_BYTES = 2_000
"""A request's record and its share of the log, about."""
REASON_LENGTH = 300
_SPEEDS = ("decode_tok_per_s", "output_tok_per_s")


def plan(planned: Plan) -> None:
    """Starts in order, what is merged and what is refused."""
    show.table(plan_df(planned), caption="Server starts, in order.", name="starts")
    for heading, points in (("Merged", planned.merged), ("Refused", planned.refused)):
        for point in points:
            show.note(f"{heading}: {point.point}: {point.why}")


def plan_df(planned: Plan) -> pd.DataFrame:
    """One row a start: what it is, its loads."""
    return pd.DataFrame(
        {
            "start": start.server_id,
            "role": start.role,
            "loads": ", ".join(str(run.workload.max_concurrency) for run in start.runs),
        }
        for start in planned.starts
    )


def dry_run(planned: Plan) -> str:
    """The plan as text: starts with their exact command lines, merged and refused points, findings, cost."""
    placed = located(planned)
    findings = [finding for finding in check_campaign(placed) if finding.starts]
    refused = refusals(findings)
    lines = []
    for number, start in enumerate(placed.starts, 1):
        loads = ", ".join(str(run.workload.max_concurrency) for run in start.runs)
        variables = [
            f"{name}={value}" for name, value in server_env(start, version=placed.campaign.sglang_version).items()
        ]
        argv = server_argv(start, placed.campaign, port=EXAMPLE_PORT)
        alone = ", alone" if start.alone and placed.campaign.places > 1 else ""
        lines.append(f"{number}. {start.server_id}  (concurrency {loads}{alone})")
        lines.append("   " + shlex.join([*variables, *argv]))
        if start.server_id in refused:
            lines.append(f"   refused unless allowed: {refused[start.server_id]}")
    lines += [f"merged: {point.point}: {point.why}" for point in planned.merged]
    lines += [f"refused: {point.point}: {point.why}" for point in planned.refused]
    lines += [render_findings(findings, starts=len(placed.starts))] if findings else []
    return "\n".join([*lines, _cost(planned)])


def attached_run(planned: Plan, url: str) -> str:
    """The plan for a server that already runs, as text."""
    (start,) = planned.starts
    loads = ", ".join(str(run.workload.max_concurrency) for run in start.runs)
    notes = [f"   {note}" for note in dict.fromkeys(run.notes for run in start.runs) if note]
    return "\n".join([f"1. {start.server_id}  (concurrency {loads}), the server at {url}; nothing is started", *notes])


def _cost(planned: Plan) -> str:
    runs = [run for start in planned.starts for run in start.runs]
    requests = sum(run.workload.num_prompts or 0 for run in runs) * planned.campaign.repeats
    size_mb = requests * REQUEST_BYTES / 1e6
    size = f"about {size_mb:.0f} MB" if size_mb >= 1 else "less than 1 MB"
    said = f"{len(planned.starts)} starts, {len(runs)} runs, {requests:,} requests, {size}"
    hours, price = planned.gpu_hours, planned.campaign.price_per_gpu_hour
    if hours is None:
        return f"{said}; GPU-hours not estimated (give expected_tok_per_s)"
    return f"{said}, about {hours:.1f} GPU-hours" + (
        "" if price is None else f" ({hours * price:,.2f} at {price:g} an hour)"
    )


def progress(campaign: str) -> Callable[[str], None]:
    """A function that prints a line and adds it, with the time, to the campaign's `PROGRESS` file.

    A line that begins with `OVERWRITE` is replaced by the next one where it is printed, and marked in the file.
    """
    path = progress_file(campaign)
    standing = ""

    def say(text: str) -> None:
        nonlocal standing
        passing, text = text.startswith(OVERWRITE), text.removeprefix(OVERWRITE)
        before = "\r" if standing or passing else ""
        sys.stdout.write(f"{before}{text.ljust(len(standing))}{'' if passing else NEWLINE}")
        sys.stdout.flush()
        standing = text if passing else ""
        # Progress that cannot be written must not end a measurement.
        with contextlib.suppress(OSError), path.open("a", encoding="utf-8") as file:
            file.write(f"{datetime.now():%H:%M:%S}{PASSING if passing else ' '} {text}{NEWLINE}")

    return say


def ended(runs: Sequence[Ended]) -> None:
    """How many runs there are of each state, and what is missing and why."""
    show.plain(ended_sentence(runs))
    show.table(ended_df(runs), caption="Runs.", name="ended", empty="No run.")


def ended_sentence(runs: Sequence[Ended]) -> str:
    """One sentence: measured, reused, missing."""
    reused = sum(run.reused for run in runs)
    states = Counter(run.state for run in runs if not run.reused)
    said = [f"{states.pop(RunState.OK, 0)} runs measured", f"{reused} kept from before"]
    said += [f"{count} {state.value}" for state, count in sorted(states.items())]
    return f"Of {len(runs)} runs: {', '.join(said)}."


def ended_df(runs: Sequence[Ended]) -> pd.DataFrame:
    """One row a run: state and reason."""
    return pd.DataFrame(
        {"run": run.run_id, "state": "kept" if run.reused else run.state.value, "reason": run.reason} for run in runs
    )


def neighbours(planned: Plan) -> None:
    """What measuring side by side costs, where that was asked for."""
    if planned.campaign.interference:
        found, why = neighbours_df(planned), "No start was measured both with neighbours and without."
        show.table(found, caption="Speed with neighbours over speed alone.", name="interference", empty=why)


def neighbours_text(planned: Plan) -> str:
    """The same, a line a load; empty where it was not asked for."""
    if not planned.campaign.interference:
        return ""
    lines = [
        f"  {row['server_id']}, {row['prompt_set']}, {row['max_concurrency']} at once: {row['ratio']:.2f} "
        f"({row['packed_tok_per_s']:.1f} of {row['alone_tok_per_s']:.1f} tok/s, {row['places']} starts at once)"
        for row in records(neighbours_df(planned))
    ]
    if not lines:
        return "what neighbours cost is not known: no start was measured both with them and without"
    return NEWLINE.join(["speed with neighbours over speed alone:", *lines])


def neighbours_df(planned: Plan) -> pd.DataFrame:
    """`interference_df` of the runs of a plan that are there."""
    folder = runs_dir() / planned.campaign.name
    rows = []
    for run in (run for start in planned.starts for run in start.runs):
        with contextlib.suppress(InputError):
            found = read_run(folder / run.run_id)
            rows.append(_speed_row(found))
    columns = ("campaign", "server_id", "run_id", "status", "places", "prompt_set", "max_concurrency")
    return interference_df(pd.DataFrame(rows, columns=[*columns, *_SPEEDS]))


def _speed_row(run: RunFolder) -> dict[str, object]:
    speeds = {name: [getattr(window, name) for window in run.windows] for name in _SPEEDS}
    return {
        **run.spec.model_dump(include={"campaign", "server_id", "run_id"}),
        **run.spec.workload.model_dump(include={"prompt_set", "max_concurrency"}),
        "status": run.status.status.value,
        "places": run.provenance.places,
        **{name: median(known) if (known := [s for s in each if s]) else None for name, each in speeds.items()},
    }


def missing(planned: Plan) -> list[Ended]:
    """Runs of a plan that are not measured, with what is known of them."""
    folder = runs_dir() / planned.campaign.name
    runs = [(start, run) for start in planned.starts for run in start.runs]
    left = [run for start, run in runs if not is_measured(folder / run.run_id, run, alone=start.alone)]
    return [_missing(folder / run.run_id) for run in left]


def _missing(path: Path) -> Ended:
    try:
        status = read_run(path).status
    except InputError:
        return Ended(path.name, RunState.PENDING, "not begun")
    if status.status is RunState.OK:
        return Ended(path.name, RunState.PENDING, "measured with neighbours; it is to be measured alone")
    unfinished = "what measured it is gone; it will be measured again"
    return Ended(path.name, status.status, unfinished if status.status is RunState.RUNNING else status.reason)


def missing_text(runs: Sequence[Ended]) -> str:
    """A line a run: name, state, the beginning of its reason."""
    width = max((len(run.run_id) for run in runs), default=0)
    return "\n".join(
        f"  {run.run_id:<{width}}  {run.state.value:<11}  {textwrap.shorten(run.reason or '', REASON_LENGTH)}".rstrip()
        for run in runs
    )


def progress_file(campaign: str) -> Path:
    return runs_dir() / campaign / PROGRESS
