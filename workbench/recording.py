"""What a measurement leaves behind: one folder a run, whatever comes of it, and never less than was there before."""

from __future__ import annotations

import contextlib
import errno
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from workbench.errors import InputError, RunFolderError
from workbench.files import as_text, require_own, require_space, sync, write_advice
from workbench.gpu import open_gpus
from workbench.launch.process import Server
from workbench.launch.redaction import HIDDEN, shown_argv
from workbench.launch.sharing import Company, inherited, listed, my_cpus
from workbench.launch.state import count_servers
from workbench.load import Windows
from workbench.paths import KEPT, LOCK, RUN_NOTEBOOKS
from workbench.provenance import code_version, redact, versions, without_secrets
from workbench.sglang_rules.flags import flag_key
from workbench.spec import (
    SECRET_FLAGS,
    CampaignInfo,
    LoadWindow,
    Origin,
    Provenance,
    RunSpec,
    RunState,
    RunStatus,
    is_secret_variable,
)
from workbench.store import SERVERS, read_run, write_atomic, write_json, write_run
from workbench.sweep import CampaignSpec

_OWN_SETTINGS = frozenset({"host", "port", "model_path", "speculative_draft_model_path", "enable_metrics"})


@dataclass(frozen=True, slots=True)
class Ended:
    """What came of one run."""

    run_id: str
    state: RunState
    reason: str | None = None
    reused: bool = False


@dataclass(frozen=True, slots=True)
class Served:
    """A server while it is measured: its command line (empty when somebody else runs it) and its GPUs.

    ``log_size`` tells the size of its log so far, ``None`` when there is none; ``log_faults`` grows by what was found
    to be missing from it. ``company`` is who works on the machine meanwhile, ``weights`` as in `Provenance`.
    """

    server: Server
    argv: tuple[str, ...] = ()
    gpus: tuple[int, ...] = ()
    log_size: Callable[[], int] | None = None
    log_faults: Sequence[str] = ()
    company: Company = field(default_factory=Company)
    weights: Mapping[str, str] = field(default_factory=dict)


@contextlib.contextmanager
def alone(folder: Path, name: str = LOCK) -> Iterator[None]:
    """Hold a campaign folder for the time of the block.

    Raises
    ------
    RunFolderError
        When another command measures this campaign, or something in the folder leads out of it or is no file.
    InputError
        When nothing can be written there.
    """
    lock = FileLock(folder / name, thread_local=False)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for written in (folder, folder / SERVERS, folder / RUN_NOTEBOOKS):
            require_own(written)  # before the lock, which may be a link itself: opening it empties its target
        lock.acquire(timeout=0)
    except Timeout as error:
        raise RunFolderError(
            "another command measures this campaign now", where=folder, next_step="wait for it, or stop it"
        ) from error
    except OSError as error:
        raise not_written(folder, error) from error
    try:
        yield
    finally:
        lock.release()


def not_written(where: Path, error: OSError) -> InputError:
    """A failure to write as an error that says what to do."""
    path = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else where
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    advice = write_advice(error) if full else "make the folder writable, or set WORKBENCH_ROOT to a project of yours"
    return InputError(f"cannot be written ({error.strerror or error})", where=path, next_step=advice)


def check_space(folder: Path) -> None:
    """See that there is room for anything, before a server loads for an hour.

    Raises
    ------
    InputError
        When the disk is full.
    """
    try:
        require_space(folder)
    except OSError as error:
        raise not_written(folder, error) from error


def write_campaign(folder: Path, campaign: CampaignSpec) -> None:
    info = CampaignInfo(
        name=campaign.name,
        title=campaign.title,
        target=campaign.target.name,
        machine=campaign.machine,
        question=campaign.question,
        source="measured here",
        num_experts=campaign.target.num_experts,
        num_experts_per_tok=campaign.target.num_experts_per_tok,
        notes=campaign.notes,
    )
    write_json(folder / "campaign.json", info)
    write_json(folder / "drafters.json", [d.model_dump(mode="json", exclude_none=True) for d in campaign.drafters])


# --- one run -----------------------------------------------------------------------------------------------------


def is_measured(path: Path, run: RunSpec, *, kept_aside: bool = False, alone: bool = False) -> bool:
    """Whether a finished run of the same content and as many passes lies there, served from the same places.

    From where it is kept aside its log cannot be found. With ``alone`` one that had neighbours does not count.
    """
    try:
        found = read_run(path, [] if kept_aside else None)
    except InputError:
        return False
    same = found.spec.content_hash() == run.content_hash() and len(found.windows) >= (run.repeats or 0)
    places = (found.spec.drafter_path, found.spec.launch_prefix) == (run.drafter_path, run.launch_prefix)
    had_neighbours = (found.provenance.places or 1) > 1
    return found.status.status is RunState.OK and same and places and not (alone and had_neighbours)


def begin(path: Path, run: RunSpec, campaign: CampaignSpec, served: Served) -> None:
    """Make the folder of a run, ``running``; what was there is kept aside."""
    _keep_aside(path)
    served.company.begin()
    write_run(path, run, _provenance(run, campaign, served), RunStatus(status=RunState.RUNNING))


def interrupt(path: Path, run: RunSpec, campaign: CampaignSpec, served: Served, log_file: str | None) -> None:
    """Mark a run that was stopped at any point, unless its end was written already. What it has so far stays."""
    if not is_measured(path, run):
        reason = "stopped while it was measured"
        status = RunStatus(status=RunState.INTERRUPTED, reason=reason, finished_at=now(), log_file=log_file)
        write_run(path, run, _provenance(run, campaign, served), status)
        bring_back(path, run)


def make_last(path: Path, log: Path | None) -> None:
    """What was measured outlasts a loss of power before it is said to be whole: the files that grew, then the folder.

    Those that are written at once have seen to that themselves.
    """
    for grown in (path / "requests.jsonl", path / "gpu.jsonl", log):
        if grown is not None and grown.is_file():
            sync(grown)
    sync(path)


def settle(path: Path, run: RunSpec, status: RunStatus) -> None:
    """Write how a run that was begun has ended, last of all. A finished run that it was to replace comes back."""
    write_json(path / "status.json", status)
    if status.status is not RunState.OK:
        bring_back(path, run)


def commit_missing(
    folder: Path,
    campaign: CampaignSpec,
    runs: Sequence[RunSpec],
    state: RunState,
    reason: str,
    *,
    log: Path | None = None,
) -> list[Ended]:
    """A folder with the reason for each run that never began; a finished run of the same content stays as it is."""
    ended = []
    for run in runs:
        path = folder / run.run_id
        ended.append(Ended(run.run_id, state, reason))
        if is_measured(path, run):
            continue
        _keep_aside(path)
        log_file = os.path.relpath(log, path) if log is not None and log.is_file() else None
        status = RunStatus(status=state, reason=redact(reason), finished_at=now(), log_file=log_file)
        write_run(path, run, _provenance(run, campaign, None), status)
    return ended


def bring_back(path: Path, run: RunSpec) -> None:
    """Put the newest finished run of the same content, if one was kept aside, in place of one that is not finished."""
    if is_measured(path, run):
        return
    kept = sorted((path.parent / KEPT).glob(f"{path.name}-*"), reverse=True)
    finished = next((folder for folder in kept if is_measured(folder, run, kept_aside=True)), None)
    if finished is not None:
        _keep_aside(path)
        finished.rename(path)


def put_in_place(path: Path, made: Path, run: RunSpec) -> None:
    """A run's folder that was made elsewhere becomes the run; a finished one comes back when the new one is not.

    Before it has its name, all that is in it would outlast a loss of power.
    """
    for file in made.iterdir():
        sync(file)
    _keep_aside(path)
    made.rename(path)
    bring_back(path, run)


def write_measured(path: Path, windows: Windows, served: Served, *, since: float) -> None:
    """Everything that was measured but the requests, which were written as they came.

    ``since`` is the value of `time.monotonic` from which the clock of ``gpu.jsonl`` counts.
    """
    began = [round(at - since, 4) for at in windows.started_at]
    passes = [_window(windows, number, at) for number, at in enumerate(began)]
    write_json(path / "windows.json", [window.model_dump(mode="json") for window in passes])
    if windows.server_info is not None:
        write_json(path / "resolved.json", resolved(windows.server_info, served.argv))
    _note_afterwards(path, windows.server_info or {}, served)
    for name, text in (("before", windows.metrics_before), ("after", windows.metrics_after)):
        if text is not None:
            write_atomic(path / f"metrics.{name}.prom", without_secrets(text))  # labels name paths


def resolved(info: Mapping[str, object], argv: Sequence[str]) -> dict[str, object]:
    """The server's own account, secrets hidden, with the settings of its command line that it uses otherwise.

    These are under ``asked_differently``: a list of ``{"setting", "asked", "used"}``.
    """
    shown = {as_text(name): _shown(name, value) for name, value in info.items()}
    differing = [
        {"setting": name, "asked": asked, "used": shown[name]}
        for name, asked in _asked(argv).items()
        if name in shown and name not in _OWN_SETTINGS and not _same(asked, shown[name])
    ]
    return {**shown, "asked_differently": differing}


def _shown(name: str, value: object) -> object:
    """A setting without secrets, by its name and by what a text looks like; also those further in."""
    if isinstance(value, Mapping):
        return {as_text(str(key)): _shown(str(key), each) for key, each in value.items()}
    if isinstance(value, list):
        return [_shown(name, each) for each in value]
    if value and (is_secret_variable(name) or name in SECRET_FLAGS):
        return HIDDEN
    return without_secrets(as_text(value)) if isinstance(value, str) else value


def _asked(argv: Sequence[str]) -> dict[str, object]:
    """Flags of a command line by name; several values of one flag become one text."""
    found: dict[str, list[str]] = {}
    values: list[str] = []
    for argument in argv[argv.index("--model-path") :] if "--model-path" in argv else ():
        if argument.startswith("--"):
            values = found.setdefault(flag_key(argument), [])
        else:
            values.append(argument)
    return {name: " ".join(texts) if texts else True for name, texts in found.items()}


def _same(asked: object, used: object) -> bool:
    if isinstance(used, int | float) and not isinstance(used, bool) and isinstance(asked, str):
        with contextlib.suppress(ValueError):
            return float(asked) == used
    if isinstance(used, list):
        used = " ".join(map(str, used))
    return str(asked).casefold() == str(used).casefold()


# --- small parts -------------------------------------------------------------------------------------------------


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _keep_aside(path: Path) -> None:
    if path.exists():
        kept = path.parent / KEPT / f"{path.name}-{datetime.now(UTC):%Y%m%dT%H%M%S%f}"
        kept.parent.mkdir(exist_ok=True)
        path.rename(kept)


def _window(windows: Windows, repeat: int, started_s: float) -> LoadWindow:
    result = windows.windows[repeat]
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
        started_s=started_s,
    )


def _provenance(run: RunSpec, campaign: CampaignSpec, served: Served | None) -> Provenance:
    forced = run.spec_decode is not None and run.spec_decode.simulated_accept_length is not None
    names = _gpu_names(served.gpus if served else ())
    attached = served is not None and not served.argv
    return Provenance(
        origin=Origin.SIMULATED if forced else Origin.MEASURED,
        source=f"campaign {campaign.name}, {'attached server' if attached else f'{campaign.engine} engine'}",
        recorded_at=served.server.started_at if served else now(),
        machine=campaign.machine if campaign.machine != "this machine" else platform.machine(),
        gpu_name=names[0] if names else None,
        gpu_count=len(names) or None,
        servers_alive=None if served is None or attached else count_servers(served.gpus),
        places=None if served is None or attached else served.company.most,
        cpus=listed(my_cpus()) if served and not attached and inherited(campaign.launch_prefix) else None,
        weights=dict(served.weights) or None if served else None,
        versions=versions(),
        git_sha=code_version(),
        argv=tuple(shown_argv(served.argv)) if served else (),
    )


def _note_afterwards(path: Path, info: Mapping[str, object], served: Served) -> None:
    """Add the server's own version, which only a server that runs can tell, and who else worked meanwhile."""
    provenance = read_run(path).provenance
    changes: dict[str, object] = {}
    version = info.get("version")
    if isinstance(version, str) and version:
        changes["versions"] = {**provenance.versions, "sglang": version}
    if provenance.places is not None:
        changes["places"] = served.company.most
    write_json(path / "provenance.json", provenance.model_copy(update=changes))


def _gpu_names(gpus: Sequence[int]) -> list[str]:
    if not gpus:
        return []
    with open_gpus() as found:
        names = found.names() if found is not None else ()
    return [names[gpu] for gpu in gpus if gpu < len(names)]
