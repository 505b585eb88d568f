"""Some runs of a campaign to what the tables hold of them; each log is read once, whatever the number of its runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench.errors import InputError, Problem
from workbench.files import read_chunks
from workbench.parse.metrics import accept_length_between
from workbench.parse.records import EventKind, StartupFacts
from workbench.spec import Drafter
from workbench.store import RunFolder, read_gpu, read_metrics, read_requests
from workbench.table.agreement import disagreement, spans_beyond
from workbench.table.columns import WINDOWS, frame
from workbench.table.lines import Floats
from workbench.table.logs import NO_LINES, LogSummary, log_figures_by, summarise_log
from workbench.table.requests import request_rows
from workbench.table.runs import run_row
from workbench.table.settings import setting_rows
from workbench.table.telemetry import gpu_row

Row = dict[str, object]
Spans = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class RunRead:
    """What the tables keep of a run folder; ``row`` is ``None`` where the run cannot be read.

    ``problems`` come from reading its files, ``doubts`` from the figures that followed.
    """

    run_id: str
    server_id: str
    recorded_at: str
    log: Path | None
    spans: Spans
    row: Row | None
    problems: tuple[Problem, ...]
    doubts: tuple[Problem, ...]
    requests: Sequence[Row]
    settings: Sequence[Row]


@dataclass(frozen=True, slots=True)
class LogRead:
    """A log file; ``summary`` is ``None`` where it cannot be read."""

    summary: LogSummary | None
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class _Part:
    run: RunFolder
    drafter: Drafter | None
    requests: list[Row]
    log: LogSummary | None
    accept_length_counters: float | None
    gpu: Mapping[str, object]
    problems: list[Problem] = field(default_factory=list)

    @property
    def facts(self) -> StartupFacts:
        return StartupFacts() if self.log is None else self.log.facts


class RunsReader:
    """Reads runs of one campaign; ``logs`` may hold logs that were read before and gains those read now."""

    def __init__(self, campaign: str, drafters: Sequence[Drafter], logs: dict[Path, LogRead]) -> None:
        self._campaign = campaign
        self._drafters = {drafter.name: drafter for drafter in drafters}
        self.logs = logs

    def read(self, runs: Sequence[RunFolder]) -> list[RunRead]:
        parts = [self._part(run) for run in runs]
        windows = windows_of(
            (part.log.windows, [(p.run.spec.run_id, p.run.spec.server_id, p.run.status.log_spans) for p in sharing])
            for sharing in _by_log(parts)
            if (part := sharing[0]).log is not None
        )
        figures = log_figures_by(windows, ["run_id"]) if len(windows) else {}
        return [_as_read(part, figures.get(part.run.spec.run_id, NO_LINES)) for part in parts]

    def _part(self, run: RunFolder) -> _Part:
        problems: list[Problem] = []
        name = run.spec.drafter
        if name and name not in self._drafters:
            problems.append(Problem(str(run.path), f"drafter {name!r} is not in drafters.json"))
        requests = _requests(self._campaign, run, problems)
        log = self._log(run, problems)
        counters, gpu = _counters(run, problems), _gpu(run, problems)
        return _Part(run, self._drafters.get(name or ""), requests, log, counters, gpu, problems)

    def _log(self, run: RunFolder, problems: list[Problem]) -> LogSummary | None:
        if run.log is None:
            return None
        if run.log not in self.logs:
            self.logs[run.log] = _summarise(self._campaign, run, run.log)
        log = self.logs[run.log].summary
        if log is not None:
            beyond = spans_beyond(run, log.counts.bytes)
            problems += [Problem(str(run.path / "status.json"), what) for what in beyond]
            if differing := disagreement(run.spec, log.facts):
                problems.append(Problem(str(run.path / "spec.json"), differing))
        return log


def _by_log(parts: Sequence[_Part]) -> Iterator[list[_Part]]:
    by_log: dict[int, list[_Part]] = {}
    for part in parts:
        by_log.setdefault(id(part.log), []).append(part)
    yield from by_log.values()


def _as_read(part: _Part, figures: Mapping[str, object]) -> RunRead:
    run, log = part.run, part.log
    row, faults = run_row(
        run,
        drafter=part.drafter,
        requests=part.requests,
        log=log,
        log_row={} if log is None else {**figures, "num_retractions": _num_retractions(run, log)},
        accept_length_counters=part.accept_length_counters,
        gpu=part.gpu,
    )
    return RunRead(
        run_id=run.spec.run_id,
        server_id=run.spec.server_id,
        recorded_at=run.provenance.recorded_at or "",
        log=run.log,
        spans=run.status.log_spans,
        row=row,
        problems=tuple(part.problems),
        doubts=tuple(Problem(str(run.path), fault) for fault in faults),
        requests=part.requests,
        settings=list(setting_rows(run, part.facts)),
    )


# --- the files of a run ------------------------------------------------------------------------------------------


def _requests(campaign: str, run: RunFolder, problems: list[Problem]) -> list[Row]:
    try:
        records, found = read_requests(run)
    except InputError as error:
        problems.append(_note(run, error))
        return []
    problems += found
    rows, faults = request_rows(campaign, run.spec.run_id, run.spec.workload.prompt_set, records)
    problems += [Problem(str(run.path / "requests.jsonl"), fault) for fault in faults]
    return rows


def _counters(run: RunFolder, problems: list[Problem]) -> float | None:
    try:
        pair = read_metrics(run)
    except InputError as error:
        problems.append(_note(run, error))
        return None
    value = None if pair is None else accept_length_between(*pair)
    return value if value is not None and math.isfinite(value) else None


def _gpu(run: RunFolder, problems: list[Problem]) -> Mapping[str, object]:
    try:
        samples, found = read_gpu(run)
    except InputError as error:
        problems.append(_note(run, error))
        return {}
    problems += found
    server, alive = run.spec.server, run.provenance.servers_alive
    row, faults = gpu_row(
        samples,
        run.windows,
        # Replicas have GPUs of their own, unless they share attention alone.
        gpus_used={server.tp_size, server.tp_size * server.dp_size},
        shared=alive is not None and alive > 1,
    )
    problems += [Problem(str(run.path / "gpu.jsonl"), fault) for fault in faults]
    return row


def _note(run: RunFolder, error: InputError) -> Problem:
    return Problem(error.where or str(run.path), f"{error.what}; the rest of the run is used")


def _summarise(campaign: str, run: RunFolder, path: Path) -> LogRead:
    problems: list[Problem] = []
    name, server = f"{campaign}/{run.spec.server_id}", run.spec.server_id
    try:
        log = summarise_log(read_chunks(path, problems), name=name, campaign=campaign, server_id=server)
    except InputError as error:
        return LogRead(None, (*problems, _note(run, error)))
    if log.num_impossible:
        lines = f"{log.num_impossible:,} decode line{'s' if log.num_impossible > 1 else ''}"
        what = f"{lines} with an impossible accept length (below 1 or above steps + 1), which is not used"
        problems.append(Problem(str(path), what))
    return LogRead(log, tuple(problems))


# --- lines of a log by run ---------------------------------------------------------------------------------------


def windows_of(logs: Iterator[tuple[pd.DataFrame, Sequence[tuple[str, str, Spans]]]]) -> pd.DataFrame:
    """The windows of runs, log by log: a table of its own for each of many runs would take long.

    A log is its windows and, of each of its runs, run_id, server_id and spans.
    """
    filled = [table for windows, runs in logs if not (table := _taken(windows, runs)).empty]
    return pd.concat(filled, ignore_index=True) if filled else frame(WINDOWS, [])


def _taken(windows: pd.DataFrame, runs: Sequence[tuple[str, str, Spans]]) -> pd.DataFrame:
    offsets = windows["offset"].to_numpy(dtype="int64")
    places = [np.flatnonzero(in_spans(spans, offsets)) for _, _, spans in runs]
    counts = [len(place) for place in places]
    names = {"run_id": [run_id for run_id, _, _ in runs], "server_id": [server_id for _, server_id, _ in runs]}
    columns = {name: np.repeat(np.array(values, dtype=object), counts) for name, values in names.items()}
    return windows.take(np.concatenate(places)).assign(**columns)


def _num_retractions(run: RunFolder, log: LogSummary) -> int:
    retracted = [event.offset for event in log.events if event.kind is EventKind.RETRACTION]
    return int(in_spans(run.status.log_spans, np.array(retracted, dtype="int64")).sum())


def in_spans(spans: Spans, offsets: npt.NDArray[np.int64] | Floats) -> npt.NDArray[np.bool_]:
    """Which byte offsets of the log belong to the run; a run without spans owns the whole log."""
    inside = np.full(len(offsets), not spans)
    for start, end in spans:
        inside |= (start <= offsets) & (offsets < end)
    return inside
