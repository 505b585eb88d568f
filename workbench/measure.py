"""A campaign measured: starts in order, one run folder a run whatever happens, resumed by content.

`run_campaign` is the main flow. Servers come from ``launch``, loads from ``load``; what stays behind are run folders.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from workbench.chat import load_chat
from workbench.checkpoint import read_checkpoint
from workbench.errors import InputError, LaunchError, RunFolderError, SpecError
from workbench.launch.argv import server_argv, server_env
from workbench.launch.places import claim, reserved_port
from workbench.launch.process import Server, serve
from workbench.launch.telemetry import sampled
from workbench.load import LoadResult, Windows, measure_window
from workbench.paths import project_root, runs_dir
from workbench.preflight import CheckResult, Severity, check_draft
from workbench.prompts import Prompt, prompt_set, with_token_ids
from workbench.provenance import code_version, redact, versions
from workbench.spec import CampaignInfo, LoadWindow, Origin, Provenance, RunSpec, RunState, RunStatus
from workbench.store import SERVERS, read_run, write_json, write_run
from workbench.sweep import CampaignSpec, Plan, Start, expand

READY_TIMEOUT_S = {"reference": 300.0, "sglang": 3600.0}
KEPT = "_kept"
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Ended:
    """What came of one run."""

    run_id: str
    state: RunState
    reason: str | None = None
    reused: bool = False


def run_campaign(campaign: CampaignSpec, *, force: bool = False, allow_refused: bool = False, say: Say) -> list[Ended]:
    """Measure every run of a campaign that is not measured already; one that fails never stops the others.

    Raises
    ------
    SpecError
        When preflight finds an error that ``allow_refused`` does not allow, or a model folder is missing.
    RunFolderError
        When another command measures this campaign now.
    """
    plan = located(expand(campaign))
    folder = runs_dir() / campaign.name
    with _alone(folder):
        _write_campaign(folder, plan.campaign)
        refused = {} if allow_refused else refusals(plan)
        prompts = _prompts(plan.campaign)
        ended: list[Ended] = []
        for number, start in enumerate(plan.starts, 1):
            todo = [run for run in start.runs if force or not _is_measured(folder / run.run_id, run)]
            ended += [Ended(run.run_id, RunState.OK, reused=True) for run in start.runs if run not in todo]
            if not todo:
                say(f"[{number}/{len(plan.starts)}] {start.server_id}: measured already")
            elif start.server_id in refused:
                ended += _all(folder, plan, todo, RunState.SKIPPED, refused[start.server_id])
                say(f"[{number}/{len(plan.starts)}] {start.server_id}: refused, {refused[start.server_id]}")
            else:
                say(f"[{number}/{len(plan.starts)}] {start.server_id}: {len(todo)} runs")
                ended += _measure_start(folder, plan, replace(start, runs=tuple(todo)), prompts, say)
    return ended


def refusals(plan: Plan) -> dict[str, str]:
    """Starts whose draft checkpoint has an error that files show, with the first such error."""
    found: dict[str, str] = {}
    for start in plan.starts:
        errors = [result for result in checks_of(start, plan.campaign) if result.severity is Severity.ERROR]
        if errors:
            found[start.server_id] = f"{errors[0].what} ({errors[0].next_step})"
    return found


def checks_of(start: Start, campaign: CampaignSpec) -> Sequence[CheckResult]:
    """Preflight of one start; empty for a baseline and where a model folder is not on this machine."""
    draft = start.drafter.model_path if start.drafter else None
    target = campaign.target.model_path
    if start.decode is None or draft is None or not Path(draft).is_dir():
        return ()
    return check_draft(
        read_checkpoint(Path(draft)),
        read_checkpoint(Path(target), weights=False) if target and Path(target).is_dir() else None,
        speculative_algorithm=start.decode.speculative_algorithm,
        context_len=start.server.context_length,
        sglang_version=campaign.sglang_version,
        tp_size=start.server.tp_size,
        env={**os.environ, **start.server.env},
    )


def located(plan: Plan) -> Plan:
    """The plan with model paths that a server can open: relative ones are under the project's folder.

    Raises
    ------
    SpecError
        When the embedded engine's target is no folder and no name that it knows.
    """
    campaign = plan.campaign
    target = campaign.target.model_copy(update={"model_path": _model_folder(campaign)})
    drafters = {
        drafter.name: drafter.model_copy(update={"model_path": _under_root(drafter.model_path)})
        for drafter in campaign.drafters
    }
    starts = [replace(start, drafter=drafters[start.drafter.name] if start.drafter else None) for start in plan.starts]
    campaign = campaign.model_copy(update={"target": target, "drafters": tuple(drafters.values())})
    return replace(plan, campaign=campaign, starts=tuple(starts))


# --- one start ---------------------------------------------------------------------------------------------------


def _measure_start(folder: Path, plan: Plan, start: Start, prompts: Sequence[Prompt], say: Say) -> list[Ended]:
    log = folder / SERVERS / start.server_id / f"server-{datetime.now(UTC):%Y%m%dT%H%M%S}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    ended: list[Ended] = []
    try:
        with _served(plan.campaign, start, log, say) as server:
            for run in start.runs:
                ended.append(_measure_run(folder, plan, run, server, prompts, say))
                failure = server.failure()
                if failure is not None:
                    raise failure.error(log)
    except LaunchError as error:
        missing = [run for run in start.runs if run.run_id not in {done.run_id for done in ended}]
        say(f"    failed: {error.what}")
        ended += _all(folder, plan, missing, RunState.FAILED, error.what, log=log)
    except KeyboardInterrupt:
        missing = [run for run in start.runs if run.run_id not in {done.run_id for done in ended}]
        _all(folder, plan, missing, RunState.INTERRUPTED, "stopped by the user", log=log)
        raise
    return ended


@contextlib.contextmanager
def _served(campaign: CampaignSpec, start: Start, log: Path, say: Say) -> Iterator[Server]:
    gpus_needed = start.server.tp_size * start.server.dp_size if campaign.engine == "sglang" else 0
    with claim(gpus_needed, on_wait=say) as gpus, reserved_port() as port:
        argv = server_argv(start, campaign, port=port, gpus=gpus or None)
        with serve(
            argv,
            env=server_env(start, version=campaign.sglang_version),
            log=log,
            url=f"http://127.0.0.1:{port}",
            ready_timeout_s=READY_TIMEOUT_S[campaign.engine],
            gpus=gpus or None,
            on_phase=lambda phase: say(f"    {phase}"),
            cwd=project_root(),
        ) as server:
            yield server


def _measure_run(folder: Path, plan: Plan, run: RunSpec, server: Server, prompts: Sequence[Prompt], say: Say) -> Ended:
    path = folder / run.run_id
    _keep_aside(path)
    provenance = _provenance(plan.campaign, server)
    write_run(path, run, provenance, RunStatus(status=RunState.RUNNING))
    log_file = os.path.relpath(server.log, path) if server.log else None
    began = time.monotonic()
    with (path / "requests.jsonl").open("w", encoding="utf-8") as lines, sampled(path / "gpu.jsonl"):
        windows = measure_window(
            server.url,
            prompts,
            run.workload,
            repeats=plan.campaign.repeats,
            # One stream needs the time to the first token; many at once would pay for decoding every event.
            stream=run.workload.max_concurrency == 1,
            log_size=lambda: server.log.stat().st_size if server.log else 0,
            on_record=lambda record: print_line(lines, record.as_json()),
        )
    _write_measured(path, windows)
    failed = sum(not record.ok for result in windows.windows for record in result.records)
    gave_up = any(result.gave_up for result in windows.windows)
    state = RunState.FAILED if gave_up else RunState.OK
    reason = "; ".join(windows.problems) or None
    status = RunStatus(status=state, reason=reason, finished_at=_now(), log_file=log_file, log_spans=windows.log_spans)
    write_json(path / "status.json", status)
    speed = windows.windows[-1].decode_tok_per_s if windows.windows else None
    told = "speed not measured" if speed is None else f"{speed:.1f} tok/s"
    say(f"    {run.run_id}: {state}, {told}, {failed} failed requests, {time.monotonic() - began:.0f} s")
    return Ended(run.run_id, state, reason if gave_up else None)


def print_line(file: object, record: dict[str, object]) -> None:
    """Append one JSON line and hand it to the system, so that a crash loses at most the line in flight."""
    file.write(json.dumps(record, ensure_ascii=False) + "\n")  # type: ignore[attr-defined]
    file.flush()  # type: ignore[attr-defined]


def _write_measured(path: Path, windows: Windows) -> None:
    passes = [_window(result, number) for number, result in enumerate(windows.windows)]
    write_json(path / "windows.json", [window.model_dump(mode="json") for window in passes])
    if windows.server_info is not None:
        write_json(path / "resolved.json", windows.server_info)
    for name, text in (("before", windows.metrics_before), ("after", windows.metrics_after)):
        if text is not None:
            (path / f"metrics.{name}.prom").write_text(text, encoding="utf-8")


def _window(result: LoadResult, repeat: int) -> LoadWindow:
    good = [record for record in result.records if record.ok]
    return LoadWindow(
        repeat=repeat,
        wall_s=result.wall_s,
        busy_window_s=result.busy_window_s,
        decode_tok_per_s=result.decode_tok_per_s,
        output_tok_per_s=result.output_tok_per_s,
        completion_tokens=sum(record.completion_tokens or 0 for record in good),
        failed=len(result.records) - len(good),
        client_cpu_share=result.client_cpu_share,
    )


# --- folders -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / "_lock", thread_local=False)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise RunFolderError(
            "another command measures this campaign now", where=folder, next_step="wait for it, or stop it"
        ) from error
    try:
        yield
    finally:
        lock.release()


def _write_campaign(folder: Path, campaign: CampaignSpec) -> None:
    info = CampaignInfo(
        name=campaign.name,
        title=campaign.title,
        target=campaign.target.name,
        machine=campaign.machine,
        question=campaign.question,
        source="measured here",
        notes=campaign.notes,
    )
    write_json(folder / "campaign.json", info)
    write_json(folder / "drafters.json", [d.model_dump(mode="json", exclude_none=True) for d in campaign.drafters])


def _is_measured(path: Path, run: RunSpec) -> bool:
    """Whether a finished run of the same content lies there."""
    try:
        found = read_run(path)
    except InputError:
        return False
    return found.status.status is RunState.OK and found.spec.content_hash() == run.content_hash()


def _keep_aside(path: Path) -> None:
    if path.exists():
        kept = path.parent / KEPT / f"{path.name}-{datetime.now(UTC):%Y%m%dT%H%M%S%f}"
        kept.parent.mkdir(exist_ok=True)
        path.rename(kept)


def _all(
    folder: Path, plan: Plan, runs: Sequence[RunSpec], state: RunState, reason: str, *, log: Path | None = None
) -> list[Ended]:
    """Commit a folder for each run that was not measured, with the reason."""
    for run in runs:
        path = folder / run.run_id
        _keep_aside(path)
        log_file = os.path.relpath(log, path) if log is not None and log.is_file() else None
        status = RunStatus(status=state, reason=redact(reason), finished_at=_now(), log_file=log_file)
        write_run(path, run, _provenance(plan.campaign, None), status)
    return [Ended(run.run_id, state, reason) for run in runs]


def _provenance(campaign: CampaignSpec, server: Server | None) -> Provenance:
    return Provenance(
        origin=Origin.MEASURED,
        source=f"campaign {campaign.name}, {campaign.engine} engine",
        recorded_at=server.started_at if server else _now(),
        machine=campaign.machine if campaign.machine != "this machine" else platform.machine(),
        servers_alive=1 if server else None,
        versions=versions(),
        git_sha=code_version(),
    )


def _prompts(campaign: CampaignSpec) -> Sequence[Prompt]:
    """The campaign's prompts with the token ids of their chat template where the target's tokenizer is here."""
    found = prompt_set(campaign.workload.prompt_set).prompts
    wanted = campaign.workload.num_prompts
    if wanted > len(found):
        raise SpecError(
            f"{wanted} prompts are asked for, {campaign.workload.prompt_set} has {len(found)}",
            where="workload.num_prompts",
        )
    folder = Path(campaign.target.model_path or "")
    if not (folder / "tokenizer.json").is_file():
        return found
    chat = load_chat(folder)
    return with_token_ids(found, lambda text: chat.prompt_ids([{"role": "user", "content": text}]))


def _model_folder(campaign: CampaignSpec) -> str | None:
    path = campaign.target.model_path
    if campaign.engine == "reference" and path is not None and not Path(_under_root(path) or "").is_dir():
        from workbench.reference import smollm2

        if path != smollm2.NAME:
            raise SpecError(
                f"no folder {path!r}",
                where="target.model_path",
                next_step=f"name a Llama-type folder or {smollm2.NAME}",
            )
        return str(smollm2.smollm2_folder())
    return _under_root(path)


def _under_root(path: str | None) -> str | None:
    if path is None or Path(path).is_absolute():
        return path
    inside = project_root() / path
    return str(inside) if inside.exists() else path


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
