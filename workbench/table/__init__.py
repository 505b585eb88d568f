"""Run folders and logs to tidy DataFrames with declared columns.

`load_tables` reads whole campaigns; `summarise_log` reads one log. Faults of single files are collected in
``problems`` and shown, they never stop the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench.errors import InputError, Problem
from workbench.files import as_text, read_chunks
from workbench.parse.metrics import accept_length_between
from workbench.parse.records import EventKind, StartupFacts
from workbench.paths import reference_points_csv
from workbench.spec import CampaignInfo, Drafter
from workbench.store import Campaign, RunFolder, read_campaign, read_gpu, read_metrics, read_requests
from workbench.table.agreement import disagreement, spans_beyond
from workbench.table.columns import (
    DRAFTERS,
    OFFLINE,
    REQUESTS,
    RUNS,
    SETTINGS,
    TABLES,
    WINDOWS,
    Column,
    describe,
    frame,
)
from workbench.table.logs import NO_LINES, LogSummary, log_figures_by, summarise_log
from workbench.table.requests import request_rows
from workbench.table.runs import run_row
from workbench.table.settings import setting_rows
from workbench.table.side_checks import SideChecks, read_side_checks
from workbench.table.telemetry import gpu_row

__all__ = ["TABLES", "Column", "LogSummary", "Tables", "describe", "load_tables", "reference_points", "summarise_log"]


@dataclass(frozen=True, slots=True)
class Tables:
    """Everything that was read of some campaigns.

    ``logs`` is keyed by (campaign, server_id); of a server that was started more than once it holds the last start.
    """

    campaigns: Mapping[str, CampaignInfo]
    runs: pd.DataFrame
    requests: pd.DataFrame
    windows: pd.DataFrame
    drafters: pd.DataFrame
    offline: pd.DataFrame
    logs: Mapping[tuple[str, str], LogSummary]
    problems: tuple[Problem, ...]
    settings: pd.DataFrame = field(default_factory=lambda: frame(SETTINGS, []))
    checks: Mapping[str, SideChecks] = field(default_factory=dict)


def load_tables(*folders: Path) -> Tables:
    """Read campaign folders into tables.

    Raises
    ------
    RunFolderError
        When a folder is no campaign at all.
    """
    return tables_of([read_campaign(folder) for folder in folders])


def tables_of(campaigns: list[Campaign]) -> Tables:
    """Tables of campaigns that were read already; of two with one name the first is used, which is reported."""
    reader = _Reader()
    named: dict[str, CampaignInfo] = {}
    for campaign in campaigns:
        if campaign.info.name in named:
            reader.problems.append(Problem(str(campaign.path), "a campaign of this name was read already; left out"))
            continue
        named[campaign.info.name] = campaign.info
        reader.read(campaign)
    windows = _windows(reader.parts)
    runs = frame(RUNS, _run_rows(reader.parts, windows, reader.problems))
    return Tables(
        campaigns=named,
        runs=runs,
        requests=frame(REQUESTS, (row for part in reader.parts for row in part.requests)),
        windows=windows,
        drafters=frame(DRAFTERS, reader.drafters),
        offline=frame(OFFLINE, reader.offline),
        settings=frame(SETTINGS, (row for part in reader.parts for row in setting_rows(part.run, _facts(part)))),
        logs=reader.logs,
        checks=reader.checks,
        problems=tuple(Problem(as_text(problem.where), as_text(problem.what)) for problem in reader.problems),
    )


def reference_points() -> pd.DataFrame:
    """Published accept lengths and speedups, each with its source: context for figures, never fitted."""
    return pd.read_csv(reference_points_csv())


@dataclass(frozen=True, slots=True)
class _Part:
    """What was read of one run."""

    campaign: str
    run: RunFolder
    drafter: Drafter | None
    requests: list[dict[str, object]]
    log: LogSummary | None
    accept_length_counters: float | None
    gpu: Mapping[str, object]


def _facts(part: _Part) -> StartupFacts:
    return StartupFacts() if part.log is None else part.log.facts


def _offline_rows(campaign: str, drafter: Drafter) -> Iterator[dict[str, object]]:
    for walk in drafter.offline:
        for steps, length in walk.accept_length_by_steps.items():
            ends = walk.interval_by_steps.get(steps)
            yield {
                "campaign": campaign,
                "drafter": drafter.name,
                "prompt_set": walk.prompt_set,
                "served_as": walk.served_as,
                "num_steps": steps,
                "accept_length": length,
                "low": ends and ends.low,
                "high": ends and ends.high,
                "num_prompts": walk.num_prompts,
                "without_repetitive": walk.without_repetitive_by_steps.get(steps),
            }


class _Reader:
    """Parts gathered over campaigns; each log file is read once, whatever the number of runs in it."""

    def __init__(self) -> None:
        self.parts: list[_Part] = []
        self.drafters: list[dict[str, object]] = []
        self.offline: list[dict[str, object]] = []
        self.logs: dict[tuple[str, str], LogSummary] = {}
        self.problems: list[Problem] = []
        self.checks: dict[str, SideChecks] = {}
        self._by_file: dict[Path, LogSummary | None] = {}
        self._last_start: dict[tuple[str, str], str] = {}

    def read(self, campaign: Campaign) -> None:
        self.problems += campaign.problems
        self.checks[campaign.info.name], problems = read_side_checks(campaign.path)
        self.problems += problems
        self._drafters(campaign)
        drafters = {drafter.name: drafter for drafter in campaign.drafters}
        for run in campaign.runs:
            name = run.spec.drafter
            if name and name not in drafters:
                self.problems.append(Problem(str(run.path), f"drafter {name!r} is not in drafters.json"))
            self.parts.append(
                _Part(
                    campaign.info.name,
                    run,
                    drafters.get(name or ""),
                    self._requests(campaign, run),
                    self._log(campaign, run),
                    self._counters(run),
                    self._gpu(run),
                )
            )

    def _drafters(self, campaign: Campaign) -> None:
        for drafter in campaign.drafters:
            self.drafters.append(
                {
                    "campaign": campaign.info.name,
                    "drafter": drafter.name,
                    "drafter_target": drafter.target,
                    **drafter.model_dump(
                        include={
                            "training_samples",
                            "response_tokens",
                            "optimizer_steps",
                            "epochs",
                            "seed",
                            "draft_vocab_size",
                            "data_mix",
                            "recipe",
                            "design",
                            "notes",
                        }
                    ),
                }
            )
            self.offline += _offline_rows(campaign.info.name, drafter)

    def _requests(self, campaign: Campaign, run: RunFolder) -> list[dict[str, object]]:
        try:
            records, problems = read_requests(run)
        except InputError as error:
            self._note(run, error)
            return []
        self.problems += problems
        rows, faults = request_rows(campaign.info.name, run.spec.run_id, run.spec.workload.prompt_set, records)
        self.problems += [Problem(str(run.path / "requests.jsonl"), fault) for fault in faults]
        return rows

    def _counters(self, run: RunFolder) -> float | None:
        try:
            pair = read_metrics(run)
        except InputError as error:
            self._note(run, error)
            return None
        value = None if pair is None else accept_length_between(*pair)
        return value if value is not None and math.isfinite(value) else None

    def _gpu(self, run: RunFolder) -> Mapping[str, object]:
        try:
            samples, problems = read_gpu(run)
        except InputError as error:
            self._note(run, error)
            return {}
        self.problems += problems
        server, alive = run.spec.server, run.provenance.servers_alive
        row, faults = gpu_row(
            samples,
            run.windows,
            # Replicas have GPUs of their own, unless they share attention alone.
            gpus_used={server.tp_size, server.tp_size * server.dp_size},
            shared=alive is not None and alive > 1,
        )
        self.problems += [Problem(str(run.path / "gpu.jsonl"), fault) for fault in faults]
        return row

    def _note(self, run: RunFolder, error: InputError) -> None:
        self.problems.append(Problem(error.where or str(run.path), f"{error.what}; the rest of the run is used"))

    def _log(self, campaign: Campaign, run: RunFolder) -> LogSummary | None:
        if run.log is None:
            return None
        if run.log not in self._by_file:
            self._by_file[run.log] = self._summarise(campaign, run, run.log)
        log = self._by_file[run.log]
        if log is not None:
            key, started = (campaign.info.name, run.spec.server_id), run.provenance.recorded_at or ""
            if started >= self._last_start.get(key, ""):
                self.logs[key], self._last_start[key] = log, started
            self._compare(run, log)
        return log

    def _compare(self, run: RunFolder, log: LogSummary) -> None:
        beyond = spans_beyond(run, log.counts.bytes)
        self.problems += [Problem(str(run.path / "status.json"), what) for what in beyond]
        if differing := disagreement(run.spec, log.facts):
            self.problems.append(Problem(str(run.path / "spec.json"), differing))

    def _summarise(self, campaign: Campaign, run: RunFolder, path: Path) -> LogSummary | None:
        name = f"{campaign.info.name}/{run.spec.server_id}"
        try:
            log = summarise_log(
                read_chunks(path, self.problems), name=name, campaign=campaign.info.name, server_id=run.spec.server_id
            )
        except InputError as error:
            self._note(run, error)
            return None
        if log.num_impossible:
            lines = f"{log.num_impossible:,} decode line{'s' if log.num_impossible > 1 else ''}"
            what = f"{lines} with an impossible accept length (below 1 or above steps + 1), which is not used"
            self.problems.append(Problem(str(path), what))
        return log


def _windows(parts: Sequence[_Part]) -> pd.DataFrame:
    """The windows of every run, taken log by log: a table of its own for each of many runs would take long."""
    by_log: dict[int, list[_Part]] = {}
    for part in parts:
        by_log.setdefault(id(part.log), []).append(part)
    taken = [_taken(sharing[0].log, sharing) for sharing in by_log.values() if sharing[0].log is not None]
    filled = [table for table in taken if not table.empty]
    return pd.concat(filled, ignore_index=True) if filled else frame(WINDOWS, [])


def _taken(log: LogSummary, sharing: Sequence[_Part]) -> pd.DataFrame:
    """The windows of the runs that share a log, run by run."""
    offsets = log.windows["offset"].to_numpy(dtype="int64")
    places = [np.flatnonzero(_in_spans(part.run, offsets)) for part in sharing]
    counts = [len(place) for place in places]
    table = log.windows.take(np.concatenate(places))
    names = {"run_id": [p.run.spec.run_id for p in sharing], "server_id": [p.run.spec.server_id for p in sharing]}
    return table.assign(**{name: np.repeat(np.array(values, dtype=object), counts) for name, values in names.items()})


def _run_rows(parts: Sequence[_Part], windows: pd.DataFrame, problems: list[Problem]) -> Iterator[dict[str, object]]:
    figures = log_figures_by(windows, ["campaign", "run_id"])
    for part in parts:
        own = figures.get((part.campaign, part.run.spec.run_id), NO_LINES)
        row, faults = run_row(
            part.run,
            drafter=part.drafter,
            requests=part.requests,
            log=part.log,
            log_row={} if part.log is None else {**own, "num_retractions": _num_retractions(part.run, part.log)},
            accept_length_counters=part.accept_length_counters,
            gpu=part.gpu,
        )
        problems += [Problem(str(part.run.path), fault) for fault in faults]
        yield row


def _num_retractions(run: RunFolder, log: LogSummary) -> int:
    retracted = [event.offset for event in log.events if event.kind is EventKind.RETRACTION]
    return int(_in_spans(run, np.array(retracted, dtype="int64")).sum())


def _in_spans(run: RunFolder, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Which byte offsets of the log belong to the run; a run without spans owns the whole log."""
    spans = run.status.log_spans
    inside = np.full(len(offsets), not spans)
    for start, end in spans:
        inside |= (start <= offsets) & (offsets < end)
    return inside
