"""What the run notebook and ``workbench run`` say: the plan before, progress meanwhile, what came of it."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

import pandas as pd

from workbench import show
from workbench.launch.argv import server_argv, server_env
from workbench.measure import Ended, checks_of, located
from workbench.paths import runs_dir
from workbench.spec import RunState
from workbench.sweep import Plan

PROGRESS = "progress.log"
EXAMPLE_PORT = 30000


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
    """The plan as text: starts with their exact command lines, merged and refused points, cost."""
    placed = located(planned)
    lines = []
    for number, start in enumerate(placed.starts, 1):
        loads = ", ".join(str(run.workload.max_concurrency) for run in start.runs)
        variables = [
            f"{name}={value}" for name, value in server_env(start, version=placed.campaign.sglang_version).items()
        ]
        argv = server_argv(start, placed.campaign, port=EXAMPLE_PORT)
        lines.append(f"{number}. {start.server_id}  (concurrency {loads})")
        lines.append("   " + shlex.join([*variables, *argv]))
        lines += [
            f"   {r.severity.value}: {r.what}\n     next: {r.next_step}" for r in checks_of(start, placed.campaign)
        ]
    lines += [f"merged: {point.point}: {point.why}" for point in planned.merged]
    lines += [f"refused: {point.point}: {point.why}" for point in planned.refused]
    return "\n".join([*lines, _cost(planned)])


def _cost(planned: Plan) -> str:
    runs = sum(len(start.runs) for start in planned.starts)
    requests = runs * planned.campaign.repeats * planned.campaign.workload.num_prompts
    said = f"{len(planned.starts)} starts, {runs} runs, {requests:,} requests, about {requests * 2_000 / 1e6:.0f} MB"
    hours, price = planned.gpu_hours, planned.campaign.price_per_gpu_hour
    if hours is None:
        return f"{said}; GPU-hours not estimated (give expected_tok_per_s)"
    return f"{said}, about {hours:.1f} GPU-hours" + (
        "" if price is None else f" ({hours * price:,.2f} at {price:g} an hour)"
    )


def progress(campaign: str) -> Callable[[str], None]:
    """A function that prints a line and keeps it, with the time, beside the campaign."""
    path = runs_dir() / campaign / PROGRESS
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("", encoding="utf-8")

    def say(text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{datetime.now():%H:%M:%S}  {text}\n")

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


def progress_file(campaign: str) -> Path:
    return runs_dir() / campaign / PROGRESS
