"""A campaign measured: starts in order, one run folder a run whatever happens, resumed by content.

`run_campaign` is the main flow; with several ``places`` the starts are handed to ``packing``. Servers come from
``launch``, loads from ``load``; what stays behind are run folders.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from workbench.attached import Attachment, attached_plan
from workbench.cluster import Cluster, on_ray
from workbench.cluster.unpack import unpacked
from workbench.errors import InputError, LaunchError, UsageError
from workbench.files import require_space, require_there
from workbench.launch.failure import LaunchFailure
from workbench.launch.process import Server
from workbench.launch.ready import answers
from workbench.launch.resident import Resident
from workbench.launch.sharing import Company
from workbench.launch.telemetry import sampled
from workbench.load import RequestRecord, Windows, measure_window
from workbench.load.records import NOT_SENT
from workbench.models import located, prompts_of, require_same_weights, texts_of
from workbench.packing import Job, Task, side_by_side
from workbench.paths import runs_dir
from workbench.preflight import check_campaign, refusals
from workbench.progress import Progress, Say, announcement, titled
from workbench.prompts import Prompt
from workbench.provenance import redact
from workbench.recording import (
    Ended,
    Served,
    alone,
    begin,
    bring_back,
    check_space,
    commit_missing,
    interrupt,
    is_measured,
    make_last,
    not_written,
    now,
    settle,
    write_campaign,
    write_measured,
)
from workbench.serving import Servers, served_by
from workbench.spec import RunSpec, RunState, RunStatus
from workbench.store import SERVERS
from workbench.sweep import CampaignSpec, Plan, Start, expand, with_control

DEATH_S = 5.0
"""Within so long a server whose connections break is found dead, or answers again."""
_POLL_S = 0.05


def plan_of(campaign: CampaignSpec, place: Attachment | None = None) -> Plan:
    """The starts of a campaign; of a server that somebody else runs, its loads on that one.

    Raises
    ------
    LaunchError, UsageError
        When no server is there.
    """
    return with_control(expand(campaign)) if place is None else attached_plan(campaign, place)


def run_campaign(
    campaign: CampaignSpec,
    *,
    force: bool = False,
    allow_refused: bool = False,
    place: Attachment | None = None,
    plan: Plan | None = None,
    ray: str = "",
    resident: Resident | None = None,
    say: Say,
) -> list[Ended]:
    """Measure every run of a campaign that is not measured already; one that fails never stops the others.

    Parameters
    ----------
    allow_refused
        Start also what preflight refuses, as a control.
    place
        A server that somebody else runs; without it servers are started.
    plan
        Starts of this campaign, instead of all of its own.
    ray
        Address of a Ray cluster whose nodes measure, each what its models and its preflight allow; `cluster.LOCAL`
        starts one here. Empty: this machine measures.
    resident
        Serves all starts without starting a server again for each; only the embedded engine can.

    Raises
    ------
    SpecError
        When a model folder is missing, there are too few prompts, or as `to_measure`.
    RunFolderError
        When another command measures this campaign now.
    InputError
        When nothing can be written any more: no space, no permission.
    """
    if ray and place is not None:
        raise UsageError("a server that runs already is at no node of a cluster", next_step="leave one of them out")
    folder = runs_dir() / campaign.name
    with alone(folder):
        plan = plan or plan_of(campaign, place)
        plan = plan if ray else located(plan)
        todo = to_measure(folder, plan, force=force or place is not None)
        write_campaign(folder, plan.campaign)
        refused = {} if allow_refused or place or ray else refusals(check_campaign(plan))
        waiting = [start for start in todo if start.runs and start.server_id not in refused]
        progress = Progress(waiting, plan.campaign.repeats, say)
        prompts = texts_of(plan.campaign) if ray else prompts_of(plan.campaign)
        work = _Work(folder, plan.campaign, prompts, Servers(plan.campaign, place, resident), progress, say)
        cluster = Cluster(ray, prompts, allow_refused) if ray else None
        if cluster is not None or (plan.campaign.places > 1 and place is None):
            done = _taken_up_together(work, todo, refused, cluster)
        else:
            done = [_take_up(work, title, start, refused.get(start.server_id)) for title, start in titled(todo)]
    ended: list[Ended] = []
    for whole, start, new in zip(plan.starts, todo, done, strict=True):
        ended += [Ended(run.run_id, RunState.OK, reused=True) for run in whole.runs if run not in start.runs] + new
    return ended


def measure_job(job: Job, *, say: Say, company: Company) -> list[Ended]:
    """One start in this process, beside other places that `run_campaign` has begun in theirs."""
    plan = Plan(job.campaign, (job.start,), (), ())
    if job.brought is None:
        prompts: Mapping[str, Sequence[Prompt]] = prompts_of(job.campaign)
    else:
        plan, prompts, refused = unpacked(plan, job.brought)
        if refused is not None:
            say(f"    refused, {refused}")
            return commit_missing(job.folder, job.campaign, job.start.runs, RunState.SKIPPED, refused)
    progress = Progress(plan.starts, plan.campaign.repeats, say)
    servers = Servers(plan.campaign, company=company)
    work = _Work(job.folder, plan.campaign, prompts, servers, progress, say)
    return _measure_start(work, plan.starts[0])


# --- one start ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Work:
    """What all starts of a campaign share."""

    folder: Path
    campaign: CampaignSpec
    prompts: Mapping[str, Sequence[Prompt]]
    servers: Servers
    progress: Progress
    say: Say


def to_measure(folder: Path, plan: Plan, *, force: bool) -> list[Start]:
    """The starts with the runs that are still to be measured; a finished run that was kept aside comes back.

    Raises
    ------
    SpecError
        When finished runs, which would stay, were measured with other weights than lie there now.
    """
    if force:
        return list(plan.starts)
    todo = []
    for start in plan.starts:
        for run in start.runs:
            bring_back(folder / run.run_id, run)
        left = (run for run in start.runs if not is_measured(folder / run.run_id, run, alone=start.alone))
        todo.append(replace(start, runs=tuple(left)))
    require_same_weights(folder, plan, anew={run.run_id for start in todo for run in start.runs})
    return todo


def _taken_up_together(
    work: _Work, todo: Sequence[Start], refused: Mapping[str, str], cluster: Cluster | None
) -> list[list[Ended]]:
    passed = {
        start.server_id: _passed_over(work, title, start, refused.get(start.server_id)) for title, start in titled(todo)
    }
    tasks = [
        Task(start, announcement(f"{title}, alone" if start.alone else title, start))
        for title, start in titled(todo)
        if passed[start.server_id] is None
    ]
    if not tasks:
        done: dict[str, list[Ended]] = {}
    elif cluster is not None:
        done = on_ray(work.folder, work.campaign, tasks, work.say, cluster)
    else:
        done = side_by_side(work.folder, work.campaign, tasks, work.say)
    return [passed[start.server_id] or done.get(start.server_id, []) for start in todo]


def _take_up(work: _Work, title: str, start: Start, refused: str | None) -> list[Ended]:
    passed = _passed_over(work, title, start, refused)
    if passed is not None:
        return passed
    for line in announcement(title, start):
        work.say(line)
    return _measure_start(work, start)


def _passed_over(work: _Work, title: str, start: Start, refused: str | None) -> list[Ended] | None:
    """What becomes of a start that is not taken up; ``None`` for one that is."""
    if not start.runs:
        work.say(f"{title}: measured already")
        return []
    if refused is not None:
        work.say(f"{title}: refused, {refused}")
        return commit_missing(work.folder, work.campaign, start.runs, RunState.SKIPPED, refused)
    return None


def _measure_start(work: _Work, start: Start) -> list[Ended]:
    """All runs of a start. A server that dies takes the run in flight with it; the rest gets another one."""
    ended: list[Ended] = []
    left = list(start.runs)
    while left:
        log = work.folder / SERVERS / start.server_id / f"server-{datetime.now(UTC):%Y%m%dT%H%M%S%f}.log"
        require_there(work.folder)
        check_space(work.folder)
        try:
            with work.progress.starting() as is_ready, served_by(work.servers, start, log, work.say) as served:
                is_ready()
                ended += _measure_while_alive(work, left, served)
        except LaunchError as error:
            require_there(work.folder)
            work.say(f"    failed: {error.what}")
            work.progress.given_up(left)
            return ended + commit_missing(work.folder, work.campaign, left, RunState.FAILED, error.what, log=log)
        except KeyboardInterrupt:
            if work.folder.is_dir():
                reason = "stopped before it was measured"
                commit_missing(work.folder, work.campaign, left, RunState.INTERRUPTED, reason, log=log)
            raise
        except OSError as error:  # of the copy of a log, say
            raise not_written(work.folder, error) from error
        if left:
            work.say(f"    the server has ended; another one is started for the {len(left)} runs that are left")
    return ended


def _measure_while_alive(work: _Work, left: list[RunSpec], served: Served) -> list[Ended]:
    """Take runs off the list and measure them, until none is left or the server has ended."""
    ended: list[Ended] = []
    while left and served.server.failure() is None:
        ended.append(_measure_run(work, left.pop(0), served))
    return ended


# --- one run -----------------------------------------------------------------------------------------------------


def _measure_run(work: _Work, run: RunSpec, served: Served) -> Ended:
    """Measure a run and commit its folder, whatever comes of it."""
    path = work.folder / run.run_id
    log_file = os.path.relpath(served.server.log, path) if served.server.log else None
    began = time.monotonic()
    try:
        status, told = _measured(work, path, run, served)
        make_last(path, served.server.log)
        settle(path, run, status.model_copy(update={"finished_at": now(), "log_file": log_file}))
    except KeyboardInterrupt:
        if work.folder.is_dir():
            interrupt(path, run, work.campaign, served, log_file)
        raise
    except (OSError, InputError) as error:
        full = not_written(path, error) if isinstance(error, OSError) else error
        with contextlib.suppress(OSError, InputError):
            require_there(path)
            settle(path, run, RunStatus(status=RunState.FAILED, reason=redact(f"{full.where}: {full.what}")))
        raise full from error
    reason = None if status.status is RunState.OK else status.reason
    said = f"{told}, {time.monotonic() - began:.0f} s" + (f", {reason}" if reason else "")
    work.say(f"    {run.run_id}: {status.status}{said}")
    return Ended(run.run_id, status.status, reason)


def _measured(work: _Work, path: Path, run: RunSpec, served: Served) -> tuple[RunStatus, str]:
    """How the run ended, and its figures in a few words; only what concerns all runs is raised."""
    try:
        begin(path, run, work.campaign, served)
        faults = len(served.log_faults)
        since = time.monotonic()
        with work.progress.measuring(run), sampled(path / "gpu.jsonl", served.gpus or None, since=since) as unsampled:
            windows = _windows(work, path, run, served)
        require_there(path)
        write_measured(path, windows, served, since=since)
        missing = (*served.log_faults[faults:], *(problem.what for problem in unsampled))
        return _judged(windows, served.server, missing), _told(windows)
    except (OSError, InputError):
        raise
    except Exception as error:  # noqa: BLE001 - one run that fails must not stop the others
        return RunStatus(status=RunState.FAILED, reason=redact(f"{type(error).__name__}: {error}")), ""


def _windows(work: _Work, path: Path, run: RunSpec, served: Served) -> Windows:
    alone_at_a_time = run.workload.max_concurrency == 1

    def keep(record: RequestRecord) -> None:
        require_there(path)
        if not record.ok:
            require_space(path)  # on a full disk servers hang rather than say so
        _append_line(lines, record)
        work.progress.answered()

    # What a server sends may hold halves of characters; their escapes are JSON's own.
    with (path / "requests.jsonl").open("w", encoding="utf-8", errors="backslashreplace") as lines:
        return measure_window(
            served.server.url,
            work.prompts[run.workload.prompt_set],
            run.workload,
            repeats=work.campaign.repeats,
            timeout_s=work.campaign.request_timeout_s,
            # One stream needs the time to the first token; many at once would pay for decoding every event.
            stream=alone_at_a_time,
            # Greedy answers of the arms are compared token by token.
            return_token_ids=alone_at_a_time and run.workload.temperature == 0,
            log_size=served.log_size,
            on_record=keep,
        )


def _append_line(file: TextIO, record: RequestRecord) -> None:
    """Append one JSON line and hand it to the system, so that a crash loses at most the line in flight."""
    file.write(json.dumps(record.as_json(), ensure_ascii=False) + "\n")
    file.flush()


def _judged(windows: Windows, server: Server, missing: Sequence[str] = ()) -> RunStatus:
    """Single requests may fail; a server that died, or a pass of which half failed, is no measurement."""
    kinds = {kind for result in windows.windows for kind in result.failures}
    death = _death(server) if kinds else None
    half_failed = (2 * sum(result.failures.values()) >= len(result.records) for result in windows.windows)
    broken = any(result.gave_up for result in windows.windows) or any(half_failed)
    reasons = list(dict.fromkeys([*windows.problems, *missing]))
    state = RunState.OK
    if death is not None:
        state = RunState.FAILED
        reasons.insert(0, f"the server ended while it was measured: {death.sentence}")
    elif broken:
        if server.pid is None and not answers(server.url, 1.0):
            reasons.insert(0, "the server that somebody else runs no longer answers")
        state = RunState.TIMED_OUT if kinds <= {"timeout", NOT_SENT} else RunState.FAILED
    spans = tuple((start, end) for start, end in windows.log_spans if start < end)
    return RunStatus(status=state, reason=redact("; ".join(reasons)) or None, log_spans=spans)


def _death(server: Server) -> LaunchFailure | None:
    """Why the server has ended. Its connections break a moment before it is gone."""
    deadline = time.monotonic() + DEATH_S
    while (failure := server.failure()) is None and server.pid is not None and time.monotonic() < deadline:
        if answers(server.url, 1.0):
            return None
        time.sleep(_POLL_S)
    return failure


def _told(windows: Windows) -> str:
    speeds = [result.decode_tok_per_s for result in windows.windows if result.decode_tok_per_s is not None]
    failed = sum(not record.ok for result in windows.windows for record in result.records)
    speed = f"{statistics.median(speeds):.1f} tok/s" if speeds else "speed not measured"
    return f", {speed}" + (f", {failed} failed requests" if failed else "")
