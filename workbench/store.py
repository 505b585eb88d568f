"""Run folders and campaign folders: written atomically, read with every problem collected.

Layout (a campaign folder lies in ``data/recorded`` or ``data/runs``)::

    <campaign>/campaign.json      CampaignInfo          drafters.json   list of Drafter (optional)
               _servers/<server_id>/server.log[.gz]     one log a server start
               <run_id>/spec.json       RunSpec         provenance.json   Provenance
                        status.json     RunStatus, written last
                        reported.json   ReportedFigures (optional)
                        requests.jsonl[.gz]  one line a request (optional)
                        metrics.{before,after}.prom  the server's counters (optional)
                        resolved.json   what the server says it uses (optional)
                        server.log[.gz] a log of this run alone (optional)
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import TypeVar, cast

from pydantic import BaseModel, TypeAdapter, ValidationError

from workbench.errors import InputError, LogError, RunFolderError
from workbench.spec import CampaignInfo, Drafter, Provenance, ReportedFigures, RunSpec, RunStatus

SERVERS = "_servers"
CHUNK_BYTES = 1 << 18
_MAX_JSON_BYTES = 64 << 20
_Model = TypeVar("_Model", bound=BaseModel)
_DRAFTERS = TypeAdapter(tuple[Drafter, ...])


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that could not be read; the rest is still used."""

    where: str
    what: str


@dataclass(frozen=True, slots=True)
class RunFolder:
    """One readable run. ``log`` is the log file's path, ``None`` when the run has none."""

    path: Path
    spec: RunSpec
    provenance: Provenance
    status: RunStatus
    reported: ReportedFigures | None
    resolved: Mapping[str, object] | None
    log: Path | None

    def in_spans(self, offset: int) -> bool:
        """Whether a byte offset of the log belongs to this run; a run without spans owns the whole log."""
        spans = self.status.log_spans
        return not spans or any(start <= offset < end for start, end in spans)


@dataclass(frozen=True, slots=True)
class Campaign:
    """A campaign folder: what could be read of it, and what could not."""

    path: Path
    info: CampaignInfo
    drafters: tuple[Drafter, ...]
    runs: tuple[RunFolder, ...]
    problems: tuple[Problem, ...]


# --- writing -----------------------------------------------------------------------------------------------------


def write_atomic(path: Path, text: str) -> None:
    """Write ``text`` under a temporary name, flush it to disk, then rename: readers see the old file or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: BaseModel | object) -> None:
    plain = value.model_dump(mode="json", exclude_none=True) if isinstance(value, BaseModel) else value
    write_atomic(path, json.dumps(plain, indent=2, ensure_ascii=False) + "\n")


def write_run(
    folder: Path,
    spec: RunSpec,
    provenance: Provenance,
    status: RunStatus,
    *,
    reported: ReportedFigures | None = None,
) -> None:
    """Write a run's small files into ``folder``, ``status.json`` last."""
    write_json(folder / "spec.json", spec)
    write_json(folder / "provenance.json", provenance)
    if reported is not None:
        write_json(folder / "reported.json", reported)
    write_json(folder / "status.json", status)


# --- reading -----------------------------------------------------------------------------------------------------


def find_campaigns(*roots: Path) -> list[Path]:
    """Folders below ``roots`` that hold a campaign, sorted by name, in the order of the roots."""
    found: list[Path] = []
    for root in roots:
        if root.is_dir():
            found += sorted(p for p in root.iterdir() if p.is_dir() and not p.name.startswith((".", "_")))
    return found


def read_campaign(folder: Path) -> Campaign:
    """Read everything readable in a campaign folder.

    Raises
    ------
    RunFolderError
        When the folder is missing, empty or has no usable ``campaign.json``. Faults of single runs are collected in
        ``problems`` instead.
    """
    if not folder.is_dir():
        raise RunFolderError(
            "no such campaign folder", where=folder, next_step="`workbench report --list` names the campaigns"
        )
    info = _read_model(folder / "campaign.json", CampaignInfo)
    problems: list[Problem] = []
    if info.name != folder.name:
        problems.append(Problem(str(folder), f"campaign.json says name {info.name!r}; the folder's name is used"))
        info = info.model_copy(update={"name": folder.name})
    drafters = _read_drafters(folder / "drafters.json", problems)
    runs = [
        run
        for path in sorted(folder.iterdir())
        if path.is_dir() and not path.name.startswith((".", "_"))
        for run in _try_run(path, problems)
    ]
    return Campaign(folder, info, drafters, tuple(runs), tuple(problems))


def read_run(folder: Path) -> RunFolder:
    """Read one run folder.

    Raises
    ------
    RunFolderError
        When a file that every run has is missing or invalid.
    """
    spec = _read_model(folder / "spec.json", RunSpec)
    status = _read_model(folder / "status.json", RunStatus)
    provenance = _read_model(folder / "provenance.json", Provenance)
    reported_file, resolved_file = folder / "reported.json", folder / "resolved.json"
    reported = _read_model(reported_file, ReportedFigures) if reported_file.exists() else None
    resolved = _read_object(resolved_file) if resolved_file.exists() else None
    return RunFolder(folder, spec, provenance, status, reported, resolved, _find_log(folder, status))


def read_requests(run: RunFolder) -> tuple[list[dict[str, object]], list[Problem]]:
    """The request records of a run, and the lines that are not JSON objects (a cut last line, say)."""
    records: list[dict[str, object]] = []
    problems: list[Problem] = []
    path = _first_existing(run.path / "requests.jsonl", run.path / "requests.jsonl.gz")
    if path is None:
        return records, problems
    text = b"".join(read_chunks(path)).decode("utf-8", errors="replace")
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            records.append(value)
        else:
            problems.append(Problem(f"{path}:{number}", "not a JSON object; this request is left out"))
    return records, problems


def read_metrics(run: RunFolder) -> tuple[str, str] | None:
    """The server's Prometheus text before and after the load, ``None`` when either is missing."""
    before, after = run.path / "metrics.before.prom", run.path / "metrics.after.prom"
    if not (before.is_file() and after.is_file()):
        return None
    return _read_bytes(before).decode("utf-8", "replace"), _read_bytes(after).decode("utf-8", "replace")


def read_chunks(path: Path | str) -> Iterator[bytes]:
    """Decompressed bytes of a log in chunks; gzip is told by its first bytes, ``-`` is standard input.

    Raises
    ------
    LogError
        When the file is missing, unreadable or a broken gzip (what came before the break is delivered first).
    """
    try:
        with _open_binary(path) as raw:
            gzipped = raw.peek(2)[:2] == b"\x1f\x8b"
            file = gzip.GzipFile(fileobj=raw) if gzipped else raw
            while chunk := file.read1(CHUNK_BYTES):
                yield chunk
    except EOFError:
        # A gzip that ends early is a log that was copied while it was written: what is there has been delivered.
        return
    except (gzip.BadGzipFile, zlib.error) as error:
        raise LogError(f"broken gzip ({error})", where=path, next_step="copy the file again") from error
    except OSError as error:
        raise LogError(f"cannot be read ({error.strerror or error})", where=path) from error


def _open_binary(path: Path | str) -> BufferedReader:
    return cast(BufferedReader, sys.stdin.buffer) if str(path) == "-" else Path(path).open("rb")


def _try_run(path: Path, problems: list[Problem]) -> list[RunFolder]:
    try:
        run = read_run(path)
    except InputError as error:
        problems.append(Problem(str(path), error.what if error.where is None else str(error)))
        return []
    if run.spec.run_id != path.name:
        problems.append(Problem(str(path), f"spec.json says run_id {run.spec.run_id!r}; the folder's name is used"))
        run = RunFolder(
            run.path,
            run.spec.model_copy(update={"run_id": path.name}),
            run.provenance,
            run.status,
            run.reported,
            run.resolved,
            run.log,
        )
    return [run]


def _find_log(folder: Path, status: RunStatus) -> Path | None:
    if status.log_file is None:
        return _first_existing(folder / "server.log", folder / "server.log.gz")
    path = (folder / status.log_file).resolve()
    if not path.is_relative_to(folder.parent.resolve()):
        raise RunFolderError("log_file leads out of the campaign folder", where=folder / "status.json")
    if not path.is_file():
        raise RunFolderError(f"log_file {status.log_file!r} does not exist", where=folder / "status.json")
    return path


def _first_existing(*paths: Path) -> Path | None:
    return next((path for path in paths if path.is_file()), None)


def _read_drafters(path: Path, problems: list[Problem]) -> tuple[Drafter, ...]:
    if not path.exists():
        return ()
    try:
        return _DRAFTERS.validate_json(_read_bytes(path))
    except ValidationError as error:
        problems.append(Problem(str(path), _first_fault(error)))
    except InputError as error:
        problems.append(Problem(str(path), error.what))
    return ()


def _read_model(path: Path, model: type[_Model]) -> _Model:
    try:
        return model.model_validate_json(_read_bytes(path))
    except ValidationError as error:
        raise RunFolderError(
            _first_fault(error), where=path, next_step="mend the file or measure the run again"
        ) from error


def _read_object(path: Path) -> dict[str, object]:
    try:
        value = json.loads(_read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise RunFolderError(f"not JSON ({error})", where=path) from error
    if not isinstance(value, dict):
        raise RunFolderError("not a JSON object", where=path)
    return value


def _read_bytes(path: Path) -> bytes:
    try:
        if path.stat().st_size > _MAX_JSON_BYTES:
            raise RunFolderError(f"larger than {_MAX_JSON_BYTES} bytes", where=path)
        return path.read_bytes()
    except OSError as error:
        raise RunFolderError(f"cannot be read ({error.strerror or error})", where=path) from error


def _first_fault(error: ValidationError) -> str:
    fault = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in fault["loc"]) or "the file"
    more = error.error_count() - 1
    return f"{field}: {fault['msg']}" + (f" (and {more} more)" if more else "")
