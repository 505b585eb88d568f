"""Earlier measurements of the runs of a campaign, which a newer one put aside in ``_kept``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from workbench.errors import Problem
from workbench.paths import KEPT
from workbench.spec import Drafter, RunState
from workbench.store import RunFolder, read_head, try_run
from workbench.table.columns import REQUESTS, RUNS, frame
from workbench.table.reading import RunsReader

OLDEST, NEWEST = 5, 60
"""Finished measurements of one run that are looked at besides the one in place: the first ones, and the last ones.

The first stay in view however many follow, so that a bad level does not become good by outlasting the good nights.
"""
# What `workbench.recording` adds to the name of a run that it keeps aside.
_KEPT_NAME = re.compile(r"(.+)-(\d{8}T\d{12})")


@dataclass(frozen=True, slots=True)
class Measurements:
    """Finished measurements of one content, oldest first; the last one is in place, the others were kept aside.

    ``runs`` and ``requests`` are as in the tables, but ``run_id`` tells the measurements apart. ``versions`` are those
    of each. ``attempt`` says that a newer attempt did not finish, and why, or that one is dated after the newest.
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
        others = _first_and_last(paths, wanted)
        finished = sorted((run for run in others if _is_finished(run) and not _is_ahead(run, current)), key=_moment)
        said = [what for what in (_newer_attempt(current, others), _ahead(current, others)) if what]
        if said or finished:
            yield _measurements(folder.name, [*finished, current], drafters, "; ".join(said) or None)


def _first_and_last(paths: Sequence[Path], wanted: str) -> list[RunFolder]:
    """The runs of one content among those kept aside, as they were put there, without those in the middle."""
    last = _until(reversed(paths), wanted, NEWEST)
    reached = {run.path for run in last}
    first = _until((path for path in paths if path not in reached), wanted, OLDEST)
    return [*first, *reversed(last)]


def _until(paths: Iterable[Path], wanted: str, most: int) -> list[RunFolder]:
    found: list[RunFolder] = []
    finished = 0
    for path in paths:
        run = try_run(path, [])
        if run is None or run.spec.content_hash() != wanted:
            continue
        found.append(run)
        finished += _is_finished(run)
        if finished == most:
            break
    return found


def _is_finished(run: RunFolder) -> bool:
    return run.status.status is RunState.OK


def _is_ahead(run: RunFolder, current: RunFolder) -> bool:
    """Whether an older measurement says to be newer than the one in place."""
    return _moment(run) > _moment(current) != ""


def _ahead(current: RunFolder, others: Sequence[RunFolder]) -> str | None:
    dates = [_moment(run) for run in others if _is_finished(run) and _is_ahead(run, current)]
    if not dates:
        return None
    many = "an earlier measurement" if len(dates) == 1 else f"{len(dates)} earlier measurements"
    return f"{many} dated {max(dates)}, after the newest one of {_moment(current)}, not compared: a clock was ahead"


def _moment(run: RunFolder) -> str:
    return run.provenance.recorded_at or ""


def _newer_attempt(current: RunFolder, others: Sequence[RunFolder]) -> str | None:
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
