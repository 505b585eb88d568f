"""Earlier measurements of the runs of a campaign, which a newer one put aside in ``_kept``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from workbench.errors import Problem
from workbench.paths import KEPT
from workbench.spec import Drafter, RunState
from workbench.store import RunFolder, read_head, try_run
from workbench.table.columns import REQUESTS, RUNS, frame
from workbench.table.reading import RunsReader

MOST_EARLIER = 12
"""Newest measurements of one run that are looked at, besides the one in place."""
# What `workbench.recording` adds to the name of a run that it keeps aside.
_KEPT_NAME = re.compile(r"(.+)-(\d{8}T\d{12})")


@dataclass(frozen=True, slots=True)
class Measurements:
    """Finished measurements of one content, oldest first; the last one is in place, the others were kept aside.

    ``runs`` and ``requests`` are as in the tables, but ``run_id`` tells the measurements apart. ``versions`` are those
    of each. ``attempt`` says that a newer attempt did not finish, and why.
    """

    run_id: str
    runs: pd.DataFrame
    requests: pd.DataFrame
    versions: tuple[dict[str, str], ...]
    attempt: str | None = None


def earlier_measurements(folder: Path) -> Iterator[Measurements]:
    """Every run of a campaign folder that was measured more than once, by name."""
    kept: dict[str, list[Path]] = {}
    for path in sorted((folder / KEPT).glob("*")) if (folder / KEPT).is_dir() else ():
        if found := _KEPT_NAME.fullmatch(path.name):
            kept.setdefault(found[1], []).append(path)
    drafters = read_head(folder).drafters if kept else ()
    for run_id, paths in kept.items():
        unused: list[Problem] = []
        current = try_run(folder / run_id, unused)
        if current is None or current.status.status is not RunState.OK:
            continue
        wanted = current.spec.content_hash()
        others = [run for path in paths[-MOST_EARLIER:] if (run := try_run(path, unused)) is not None]
        others = [run for run in others if run.spec.content_hash() == wanted]
        finished = sorted((run for run in others if run.status.status is RunState.OK), key=_moment)
        if attempt := _newer_attempt(current, others):
            yield _measurements(folder.name, [*finished, current], drafters, attempt)
        elif finished:
            yield _measurements(folder.name, [*finished, current], drafters, None)


def _moment(run: RunFolder) -> str:
    return run.provenance.recorded_at or ""


def _newer_attempt(current: RunFolder, others: list[RunFolder]) -> str | None:
    newer = [run for run in others if run.status.status is not RunState.OK and _moment(run) > _moment(current)]
    if not newer:
        return None
    last = max(newer, key=_moment)
    reason = f": {last.status.reason}" if last.status.reason else ""
    return f"its figures are of {_moment(current)}; the attempt of {_moment(last)} {last.status.status}{reason}"


def _measurements(
    campaign: str, runs: list[RunFolder], drafters: Sequence[Drafter], attempt: str | None
) -> Measurements:
    read = RunsReader(campaign, drafters, {}).read(runs)
    rows = frame(RUNS, (run.row for run in read if run.row is not None)).assign(campaign=campaign)
    requests = frame(REQUESTS, (row for run in read for row in run.requests))
    return Measurements(
        runs[-1].spec.run_id, rows, requests, tuple(dict(run.provenance.versions) for run in runs), attempt
    )
