"""Run folders and logs to tidy DataFrames with declared columns.

`load_tables` reads whole campaigns; `summarise_log` reads one log. Faults of single files are collected in
``problems`` and shown, they never stop the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pandas as pd

from workbench.errors import Problem
from workbench.files import as_text
from workbench.paths import reference_points_csv
from workbench.spec import CampaignInfo, Drafter
from workbench.store import Campaign, no_run, read_campaign, read_head
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
from workbench.table.kept import Held, HeldLog, hold
from workbench.table.lazy import LogEntry, Logs, OfRuns, Piece
from workbench.table.logs import LogSummary, summarise_log
from workbench.table.put_off import Lazy
from workbench.table.reading import LogRead, RunRead, RunsReader, windows_of
from workbench.table.side_checks import SideChecks, read_side_checks

__all__ = ["TABLES", "Column", "LogSummary", "Tables", "describe", "load_tables", "reference_points", "summarise_log"]


@dataclass(frozen=True)
class Tables(Lazy):
    """Everything that was read of some campaigns.

    ``logs`` is keyed by (campaign, server_id); of a server that was started more than once it holds the last start.
    ``pieces`` are the windows log by log, for what need not have all of them in memory; empty where only ``windows``
    holds them. ``of_runs`` are the requests campaign by campaign, likewise: see `requests_of`.
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
    pieces: tuple[Piece, ...] = ()
    of_runs: Mapping[str, OfRuns] = field(default_factory=dict)

    def requests_of(self, runs: pd.DataFrame, columns: Sequence[str], *, having: str | None = None) -> pd.DataFrame:
        """The requests of some runs, of some columns: of thousands of runs all of them take much time and memory.

        ``having`` is one of the columns; requests without a value in it are left out.
        """
        if not (self.of_runs and self.reads("requests")):
            own = pd.MultiIndex.from_frame(self.requests[["campaign", "run_id"]])
            rows = own.isin(pd.MultiIndex.from_frame(runs[["campaign", "run_id"]]))
            held = self.requests.loc[rows, list(columns)]
            return held if having is None else held[held[having].notna()]
        kept = [column for column in REQUESTS if column.name in columns]
        names = [column.name for column in kept]
        parts = [
            partial(self.of_runs[str(campaign)].read, own["run_id"].tolist(), names, having)
            for campaign, own in runs.groupby("campaign", sort=False)
        ]
        return _joined(kept, parts)[list(columns)]

    def requests_made_from(self, campaign: str, run_id: str) -> str | None:
        """What identifies the requests of a run, where that is known."""
        of_runs = self.of_runs.get(campaign) if self.reads("requests") else None
        return None if of_runs is None else of_runs.made_from.get(run_id)


def load_tables(*folders: Path, workers: int = 1, announce: Callable[[int], None] | None = None) -> Tables:
    """Read campaign folders into tables; of campaigns of this project only what changed since they were last read.

    Parameters
    ----------
    workers
        Processes that read at once.
    announce
        Told how many runs of a campaign are read, before they are.

    Raises
    ------
    RunFolderError
        When a folder is no campaign at all.
    """
    return _tables(_loaded(folder, workers, announce) for folder in folders)


def _loaded(folder: Path, workers: int, announce: Callable[[int], None] | None) -> tuple[Campaign, Held]:
    held = hold(folder, workers=workers, announce=announce)
    if held is not None:
        return read_head(folder), held
    campaign = read_campaign(folder)
    return campaign, _of(campaign)


def tables_of(campaigns: list[Campaign]) -> Tables:
    """Tables of campaigns that were read already; of two with one name the first is used, which is reported."""
    return _tables((campaign, _of(campaign)) for campaign in campaigns)


def reference_points() -> pd.DataFrame:
    """Published accept lengths and speedups, each with its source: context for figures, never fitted."""
    return pd.read_csv(reference_points_csv())


def _tables(read: Iterator[tuple[Campaign, Held]]) -> Tables:
    """``read`` are campaigns (their runs do not matter) and what was read of each."""
    heads: list[Campaign] = []
    held: list[Held] = []
    problems: list[Problem] = []
    doubts: list[Problem] = []
    checks: dict[str, SideChecks] = {}
    for head, own in read:
        name = head.info.name
        if name in checks:
            problems.append(Problem(str(head.path), "a campaign of this name was read already; left out"))
            continue
        heads.append(head)
        held.append(own)
        checks[name], unusable = read_side_checks(head.path)
        none = () if own.runs or head.problems[-1:] == (no_run(head.path),) else (no_run(head.path),)
        problems += [*head.problems, *own.found, *none, *unusable, *_in_order(own)]
        doubts += [doubt for run in own.runs for doubt in run.doubts]
    none_yet = pd.DataFrame()
    tables = Tables(
        campaigns={head.info.name: head.info for head in heads},
        runs=frame(RUNS, (row for own in held for run in own.runs if (row := run.row) is not None)),
        requests=none_yet,
        windows=none_yet,
        drafters=frame(DRAFTERS, (row for head in heads for row in _drafter_rows(head))),
        offline=frame(
            OFFLINE, (row for head in heads for d in head.drafters for row in _offline_rows(head.info.name, d))
        ),
        settings=none_yet,
        logs=Logs(
            {key: entry for head, own in zip(heads, held, strict=True) for key, entry in _last(head, own).items()}
        ),
        checks=checks,
        pieces=tuple(piece for own in held for piece in own.pieces) if all(own.pieces for own in held) else (),
        of_runs={head.info.name: own.of_runs for head, own in zip(heads, held, strict=True) if own.of_runs is not None}
        if all(own.of_runs is not None for own in held)
        else {},
        problems=tuple(Problem(as_text(problem.where), as_text(problem.what)) for problem in (*problems, *doubts)),
    )
    return tables.put_off(
        {
            "requests": partial(_joined, REQUESTS, [own.requests for own in held]),
            "windows": partial(_joined, WINDOWS, [own.windows for own in held]),
            "settings": partial(_joined, SETTINGS, [own.settings for own in held]),
        }
    )


def _joined(columns: Sequence[Column], parts: Sequence[Callable[[], pd.DataFrame]]) -> pd.DataFrame:
    filled = [table for part in parts if len(table := part())]
    if len(filled) == 1:
        return filled[0]
    return pd.concat(filled, ignore_index=True) if filled else frame(tuple(columns), [])


def _in_order(own: Held) -> Iterator[Problem]:
    """The problems of each run, those of a log with the first run that shares it."""
    told: set[Path] = set()
    for run in own.runs:
        log = None if run.log is None or run.log in told else own.logs.get(run.log)
        yield from run.problems
        if log is not None and run.log is not None:
            told.add(run.log)
            yield from log.problems


def _last(head: Campaign, own: Held) -> dict[tuple[str, str], LogEntry]:
    """The log of the last start of each server."""
    logs: dict[tuple[str, str], LogEntry] = {}
    started: dict[tuple[str, str], str] = {}
    for run in own.runs:
        entry = None if run.log is None else own.logs[run.log].entry
        key = (head.info.name, run.server_id)
        if entry is not None and run.recorded_at >= started.get(key, ""):
            logs[key], started[key] = entry, run.recorded_at
    return logs


def _of(campaign: Campaign) -> Held:
    """The same of a campaign that was read already, in memory."""
    logs: dict[Path, LogRead] = {}
    read = RunsReader(campaign.info.name, campaign.drafters, logs).read(campaign.runs)
    requests = frame(REQUESTS, (row for run in read for row in run.requests))
    settings = frame(SETTINGS, (row for run in read for row in run.settings))
    runs = [replace(run, requests=(), settings=()) for run in read]
    return Held(
        found=(),
        runs=runs,
        logs={path: HeldLog(log.problems, _entry(log.summary)) for path, log in logs.items()},
        requests=lambda: requests,
        settings=lambda: settings,
        windows=lambda: windows_of(_sharing(runs, logs)),
    )


def _entry(log: LogSummary | None) -> LogEntry | None:
    if log is None:
        return None
    return LogEntry(lambda: log, len(log.windows), bool(log.windows["accept_len"].notna().any()))


def _sharing(
    runs: Sequence[RunRead], logs: Mapping[Path, LogRead]
) -> Iterator[tuple[pd.DataFrame, list[tuple[str, str, Sequence[tuple[int, int]]]]]]:
    """The windows of each log and the runs that share it."""
    by_log: dict[Path, list[RunRead]] = {}
    for run in runs:
        if run.log is not None:
            by_log.setdefault(run.log, []).append(run)
    for path, sharing in by_log.items():
        if (log := logs[path].summary) is not None:
            yield log.windows, [(run.run_id, run.server_id, run.spans) for run in sharing]


_TRAINED = frozenset(
    {
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
)


def _drafter_rows(head: Campaign) -> Iterator[dict[str, object]]:
    for drafter in head.drafters:
        named = {"campaign": head.info.name, "drafter": drafter.name, "drafter_target": drafter.target}
        yield named | drafter.model_dump(include=set(_TRAINED))


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
