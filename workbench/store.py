"""Run folders and campaign folders: written atomically, read with every problem collected.

Layout (a campaign folder lies in ``data/recorded`` or ``data/runs``)::

    <campaign>/campaign.json      CampaignInfo          drafters.json   list of Drafter (optional)
               _servers/<server_id>/server.log[.gz]     one log a server start
               <run_id>/spec.json       RunSpec         provenance.json   Provenance
                        status.json     RunStatus, written last
                        reported.json   ReportedFigures (optional)
                        requests.jsonl[.gz]  one line a request (optional)
                        metrics.{before,after}.prom  the server's counters (optional)
                        windows.json    list of LoadWindow, one a pass (optional)
                        gpu.jsonl       power, memory and clock of the GPUs, one line a GPU and moment (optional)
                        resolved.json[.gz]  what the server says it uses (optional)
                        server.log[.gz] a log of this run alone (optional)
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar, cast

from pydantic import BaseModel, TypeAdapter, ValidationError

from workbench.errors import InputError, Problem, RunFolderError
from workbench.files import (
    KeyTwiceError,
    as_text,
    first_there,
    read_chunks,
    read_small,
    real_file,
    replacing,
    require_inside,
    unique_keys,
    write_advice,
)
from workbench.parse.counts import CountsBuilder
from workbench.parse.lines import MAX_LINE_BYTES, physical_lines, undecodable
from workbench.spec import CampaignInfo, Drafter, LoadWindow, Provenance, ReportedFigures, RunSpec, RunStatus

SERVERS = "_servers"
_MAX_JSON_BYTES = 64 << 20
MOST_RECORDS = 1_000_000
"""Lines of a run's file that are held at once: ten times what a long measurement leaves."""
_WINDOWS = TypeAdapter(tuple[LoadWindow, ...])
_Model = TypeVar("_Model", bound=BaseModel)
_Read = TypeVar("_Read")


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
    windows: tuple[LoadWindow, ...] = ()


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
    """Write a whole file or nothing: readers see the old one or the new one.

    Names of files may hold bytes that are no text; these are written as escapes.

    Raises
    ------
    InputError
        When the file cannot be written: no space, no permission.
    """
    try:
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise InputError(
            f"cannot be written ({error.strerror or error})", where=path, next_step=write_advice(error)
        ) from error


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
    """Folders below ``roots`` that may hold a campaign, sorted by name, in the order of the roots.

    Raises
    ------
    RunFolderError
        When a root cannot be listed.
    """
    return [folder for root in roots if root.is_dir() for folder in run_folders(root)]


def read_campaign(folder: Path) -> Campaign:
    """Read everything readable in a campaign folder.

    Raises
    ------
    RunFolderError
        When the folder is missing, empty or has no usable ``campaign.json``. Faults of single runs are collected in
        ``problems`` instead.
    """
    head = read_head(folder)
    problems = list(head.problems)
    runs = tuple(run for path in run_folders(folder) if (run := try_run(path, problems)) is not None)
    if not runs:
        problems.append(no_run(folder))
    return replace(head, runs=runs, problems=tuple(problems))


def read_head(folder: Path) -> Campaign:
    """A campaign without its runs: what it is, and its drafters.

    Raises
    ------
    RunFolderError
        When the folder is missing or has no usable ``campaign.json``.
    """
    if not folder.is_dir():
        raise RunFolderError(
            "no such campaign folder", where=folder, next_step="`workbench report --list` names the campaigns"
        )
    info = _read_model(folder / "campaign.json", CampaignInfo, folder)
    problems: list[Problem] = []
    name = as_text(folder.name)
    if info.name != name:
        problems.append(Problem(str(folder), f"campaign.json says name {info.name!r}; the folder's name is used"))
        info = info.model_copy(update={"name": name})
    drafters = _read_drafters(folder / "drafters.json", problems)
    return Campaign(folder, info, drafters, (), tuple(problems))


def no_run(folder: Path) -> Problem:
    return Problem(str(folder), "no run can be read in this campaign")


def read_run(folder: Path, problems: list[Problem] | None = None) -> RunFolder:
    """Read one run folder.

    Parameters
    ----------
    problems
        Where to say which optional file is invalid and not used. Without it that is an error like any other.

    Raises
    ------
    RunFolderError
        When a file that every run has is missing or invalid.
    """
    campaign = folder.parent
    spec = _read_model(folder / "spec.json", RunSpec, campaign)
    status = _read_model(folder / "status.json", RunStatus, campaign)
    provenance = _read_model(folder / "provenance.json", Provenance, campaign)

    def optional(path: Path | None, read: Callable[[Path], _Read]) -> _Read | None:
        return None if path is None else _usable(lambda: read(path), problems)

    return RunFolder(
        folder,
        spec,
        provenance,
        status,
        optional(first_there(folder / "reported.json"), lambda path: _read_model(path, ReportedFigures, campaign)),
        _usable(lambda: _read_resolved(folder), problems),
        _usable(lambda: _find_log(folder, status), problems),
        optional(first_there(folder / "windows.json"), lambda path: _read_windows(path, campaign)) or (),
    )


def _read_windows(path: Path, campaign: Path) -> tuple[LoadWindow, ...]:
    try:
        return _WINDOWS.validate_json(_read_once(path, campaign), strict=True)
    except ValidationError as error:
        raise RunFolderError(_first_fault(error), where=path) from error


def _usable(read: Callable[[], _Read], problems: list[Problem] | None) -> _Read | None:
    try:
        return read()
    except InputError as error:
        if problems is None:
            raise
        problems.append(Problem(error.where or "", f"{error.what}; it is not used"))
        return None


def read_requests(run: RunFolder) -> tuple[list[dict[str, object]], list[Problem]]:
    """The request records of a run, and what of the file could not be used (a cut last line, say).

    Raises
    ------
    InputError
        When the file cannot be read at all.
    """
    return _read_lines(_plain_or_packed(run.path, "requests.jsonl"), run)


def read_gpu(run: RunFolder) -> tuple[list[dict[str, object]], list[Problem]]:
    """The GPU samples of a run, and what of the file could not be used; nothing where there is no file.

    Raises
    ------
    InputError
        When the file cannot be read at all.
    """
    return _read_lines(_plain_or_packed(run.path, "gpu.jsonl"), run)


def _plain_or_packed(folder: Path, name: str) -> Path | None:
    """The file of that name, which may be packed; of two nobody knows which was measured."""
    plain, packed = folder / name, folder / f"{name}.gz"
    if first_there(plain) and first_there(packed):
        raise RunFolderError(
            f"stands beside {packed.name}", where=plain, next_step="remove the one that is not the run's"
        )
    return first_there(plain, packed)


def _read_lines(path: Path | None, run: RunFolder) -> tuple[list[dict[str, object]], list[Problem]]:
    """The JSON objects of a file, one a line."""
    if path is None:
        return [], []
    real_file(path, run.path.parent)
    problems: list[Problem] = []
    records: list[dict[str, object]] = []
    left_out: list[int] = []
    mended: list[int] = []
    for number, _, raw, _ in physical_lines(read_chunks(path, problems), CountsBuilder()):
        if not raw.strip():
            continue
        if len(records) == MOST_RECORDS:
            problems.append(Problem(str(path), f"more than {MOST_RECORDS:,} lines: the others are left out"))
            break
        value = _json(raw.decode("utf-8", "replace"))
        if not isinstance(value, dict):
            left_out.append(number)
            continue
        records.append(value)
        if undecodable(raw):
            mended.append(number)
    if left_out:
        what = f"not a JSON object of at most {MAX_LINE_BYTES:,} bytes: {_at(left_out)} left out"
        problems.append(Problem(str(path), what))
    if mended:
        problems.append(Problem(str(path), f"not UTF-8: characters replaced in {_at(mended)}"))
    return records, problems


def read_metrics(run: RunFolder) -> tuple[str, str] | None:
    """The server's Prometheus text before and after the load, ``None`` when there is none.

    Raises
    ------
    RunFolderError
        When one of the two is missing or cannot be read.
    """
    names = ("metrics.before.prom", "metrics.after.prom")
    found = [_plain_or_packed(run.path, name) for name in names]
    if found == [None, None]:
        return None
    before, after = (
        _read_text(path or run.path / name, run.path.parent) for path, name in zip(found, names, strict=True)
    )
    return before, after


def _read_text(path: Path, campaign: Path) -> str:
    try:
        return read_small(real_file(path, campaign), unpack=True).decode("utf-8", "replace")
    except (OSError, EOFError, zlib.error) as error:
        what = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise RunFolderError(f"cannot be read ({what})", where=path) from error


def run_folders(folder: Path) -> list[Path]:
    """Folders that may hold a run, by name, numbers in it by value: ``base-c8`` before ``base-c16``."""
    try:
        found = (p for p in folder.iterdir() if not p.name.startswith((".", "_")) and p.is_dir())
        return sorted(found, key=lambda path: (_by_value(path.name), path.name))
    except OSError as error:
        raise RunFolderError(
            f"cannot be listed ({error.strerror or error})", where=folder, next_step="check its permissions"
        ) from error


def _by_value(name: str) -> list[tuple[str, int]]:
    return [(text, int(digits or 0)) for text, digits in re.findall(r"([^0-9]*)([0-9]{0,18})", name)]


def try_run(path: Path, problems: list[Problem]) -> RunFolder | None:
    """The run in a folder, ``None`` where it cannot be read; what is wrong with it is added to ``problems``."""
    try:
        run = read_run(path, problems)
    except InputError as error:
        problems.append(Problem(error.where or str(path), f"{error.what}; this run is left out"))
        return None
    name = as_text(path.name)
    if run.spec.run_id != name:
        problems.append(Problem(str(path), f"spec.json says run_id {run.spec.run_id!r}; the folder's name is used"))
        run = replace(run, spec=run.spec.model_copy(update={"run_id": name}))
    return run


def _find_log(folder: Path, status: RunStatus) -> Path | None:
    if status.log_file is None:
        path = _plain_or_packed(folder, "server.log")
        return None if path is None else real_file(path, folder.parent)
    try:
        return real_file(folder / status.log_file, folder.parent)
    except RunFolderError as error:
        raise RunFolderError(f"log_file {status.log_file!r} {error.what}", where=folder / "status.json") from error


def _read_drafters(path: Path, problems: list[Problem]) -> tuple[Drafter, ...]:
    """Every drafter that is valid and has a name of its own."""
    if not path.exists():
        return ()
    listed = _usable(lambda: _read_list(path, path.parent), problems) or []
    named: dict[str, Drafter] = {}
    for position, item in enumerate(listed, 1):
        where = f"{path}, drafter {position}"
        try:
            drafter = Drafter.model_validate_json(json.dumps(item), strict=True)
        except (ValidationError, RecursionError) as error:
            what = _first_fault(error) if isinstance(error, ValidationError) else "nested too deeply"
            problems.append(Problem(where, f"{what}; this drafter is left out"))
            continue
        if drafter.name in named:
            problems.append(Problem(where, f"a second drafter is named {drafter.name!r}; it is left out"))
        named.setdefault(drafter.name, drafter)
    return tuple(named.values())


def _read_model(path: Path, model: type[_Model], campaign: Path) -> _Model:
    # Strict: "5" or true where a number belongs is a fault of the writer, not a 5 or a 1.
    try:
        return model.model_validate_json(_read_once(path, campaign), strict=True)
    except ValidationError as error:
        raise RunFolderError(
            _first_fault(error), where=path, next_step="mend the file or measure the run again"
        ) from error


def _read_resolved(folder: Path) -> dict[str, object] | None:
    path = _plain_or_packed(folder, "resolved.json")
    return None if path is None else _read_object(path, folder.parent)


def _read_object(path: Path, campaign: Path) -> dict[str, object]:
    value = _json_once(_read_text(path, campaign) if path.suffix == ".gz" else _read_bytes(path, campaign), path)
    if not isinstance(value, dict):
        raise RunFolderError("not a JSON object", where=path, next_step="mend the file or measure the run again")
    return value


def _read_list(path: Path, campaign: Path) -> list[object]:
    value = _json_once(_read_bytes(path, campaign), path)
    if not isinstance(value, list):
        raise RunFolderError("not a JSON list", where=path, next_step="mend the file")
    return value


def _json(text: str | bytes) -> object:
    """The value, ``None`` where the text is no JSON or nested too deeply."""
    try:
        return cast(object, json.loads(text))
    except (ValueError, RecursionError):
        return None


def _read_once(path: Path, campaign: Path) -> bytes:
    """The bytes of a JSON file none of whose keys stands twice; what else is wrong is said by who reads it as JSON."""
    read = _read_bytes(path, campaign)
    _json_once(read, path)
    return read


def _json_once(text: str | bytes, path: Path) -> object:
    """`_json` of a small file, where a key that stands twice is refused: of two values nobody knows which holds."""
    try:
        return cast(object, json.loads(text, object_pairs_hook=unique_keys))
    except KeyTwiceError as error:
        raise RunFolderError(str(error), where=path, next_step="mend the file or measure the run again") from error
    except (ValueError, RecursionError):
        return None


def _read_bytes(path: Path, campaign: Path) -> bytes:
    require_inside(path, campaign)
    try:
        if not path.is_file():
            raise RunFolderError(_absence(path), where=path, next_step="measure it again, or remove the folder")
        if path.stat().st_size > _MAX_JSON_BYTES:
            raise RunFolderError(f"larger than {_MAX_JSON_BYTES:,} bytes", where=path, next_step="is it another file?")
        return path.read_bytes()
    except OSError as error:
        raise RunFolderError(
            f"cannot be read ({error.strerror or error})", where=path, next_step="check its permissions"
        ) from error


_MEANING = {
    "campaign.json": "so this is no campaign folder",
    "status.json": "which is written last, so the run did not come to its end",
}


def _absence(path: Path) -> str:
    if path.exists():
        return "is not a file"
    meaning = _MEANING.get(path.name)
    return "does not exist" + (f", {meaning}" if meaning else "")


def _at(lines: list[int]) -> str:
    """``line 3``, ``3 lines (3, 4, 9)``, ``12 lines (3, 4, 9 ...)``."""
    if len(lines) == 1:
        return f"line {lines[0]}"
    return f"{len(lines):,} lines ({', '.join(map(str, lines[:3]))}{' ...' if len(lines) > 3 else ''})"


def _first_fault(error: ValidationError) -> str:
    fault = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(str(part) for part in fault["loc"]) or "the file"
    more = error.error_count() - 1
    return f"{field}: {fault['msg']}" + (f" (and {more} more)" if more else "")
