"""`workbench import`: files to run folders, each marked as imported, and what was left out."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from workbench.analysis.wording import count
from workbench.errors import InputError, Problem, UsageError
from workbench.files import read_chunks, read_small
from workbench.importing.found import NOT_STATED, Found, Stated
from workbench.importing.logs import read_log
from workbench.importing.results import looks_like_results, read_results, unusable
from workbench.launch.redaction import blank_out, secret_values
from workbench.paths import runs_dir, slug
from workbench.recording import alone, resolved
from workbench.spec import CampaignInfo
from workbench.store import SERVERS, read_head, write_json, write_run

_MOST_SHOWN = 20
_NO_ARM = "{} does not tell whether a drafter was used"
_TELL_ARM = "say --baseline or --speculative for files that do not tell; one command for each kind"


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line asks for."""

    files: tuple[Path, ...]
    campaign: str
    stated: Stated = field(default_factory=Stated)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it: the answer for the terminal, and whether everything in the files became a run."""

    text: str
    left_out: tuple[Problem, ...]

    @property
    def exit_code(self) -> int:
        return 1 if self.left_out else 0


def import_files(request: Request, say: Callable[[str], None] = lambda _: None) -> Outcome:
    """Read the files and write their runs into the campaign ``data/runs/NAME``, which is made where there is none.

    Raises
    ------
    UsageError
        When the campaign's name is none.
    InputError
        When no file holds a run that can be imported, or nothing can be written.
    """
    name = _campaign_name(request.campaign)
    problems: list[Problem] = []
    found = [run for file in request.files for run in read_file(file, request.stated, problems)]
    whole = [run for run in found if run.speculative is not None]
    undecided = [run for run in found if run.speculative is None]
    problems += [Problem(run.source.place, _NO_ARM.format(run.source.tool)) for run in undecided]
    for problem in problems[:_MOST_SHOWN]:
        say(f"left out: {problem.where}: {problem.what}")
    if len(problems) > _MOST_SHOWN:
        say(f"left out: {len(problems) - _MOST_SHOWN:,} more")
    if not whole:
        advice = _TELL_ARM if undecided else "docs/importing.md names the files that can be read"
        raise InputError(f"nothing to import in {count(len(request.files), 'file')}", next_step=advice)
    folder = runs_dir() / name
    with alone(folder):
        new = _write(folder, name, whole, request.stated)
    return Outcome(_told(name, whole, new, undecided), tuple(problems))


def _campaign_name(name: str) -> str:
    if slug(name) != name or name.startswith("_"):
        advice = f"try {slug(name.lstrip('_'))!r}: letters, digits, '.', '_' and '-'"
        raise UsageError("no name for a campaign", where=f"--campaign {name}", next_step=advice)
    return name


def read_file(file: Path, stated: Stated, problems: list[Problem]) -> list[Found]:
    """The runs of one file; one that cannot be read stops no other, and what is wrong is added to ``problems``."""
    try:
        found: list[Found] = []
        if looks_like_results(next(iter(read_chunks(file)), b"")):
            found = read_results(file, read_small(file, unpack=True), stated, problems)
        if not found and (log := read_log(file, stated, problems)) is not None:
            found = [log]
        if not found:
            problems.append(Problem(str(file), "neither results of a known benchmark tool nor a server log"))
        return [run for run in found if _is_usable(run, problems)]
    except (InputError, OSError, EOFError, zlib.error) as error:
        what = error.what if isinstance(error, InputError) else getattr(error, "strerror", None) or str(error)
        problems.append(Problem(str(file), what))
    except ValidationError as error:
        problems.append(Problem(str(file), unusable(error)))
    return []


def _is_usable(run: Found, problems: list[Problem]) -> bool:
    """Whether the models of a run folder can hold it."""
    try:
        run.spec("campaign")
        run.provenance(None)
    except ValidationError as error:
        problems.append(Problem(run.source.place, unusable(error)))
        return False
    return True


def _write(folder: Path, name: str, runs: Sequence[Found], stated: Stated) -> int:
    """Write what is not there yet; how many runs that were."""
    drafters = _describe(folder, name, runs, stated)
    new = 0
    for run in runs:
        spec = run.spec(name)
        path = folder / spec.run_id
        if (path / "status.json").exists():
            continue
        log_file = None if run.log is None else _keep_log(run.log, folder / SERVERS / spec.server_id, path)
        if run.server_info is not None:
            write_json(path / "resolved.json", resolved(run.server_info, ()))
        write_run(path, spec, run.provenance(stated.machine), run.status(log_file), reported=run.figures)
        new += 1
    if drafters:
        write_json(folder / "drafters.json", drafters)
    return new


def _describe(folder: Path, name: str, runs: Sequence[Found], stated: Stated) -> list[object]:
    """Make ``campaign.json`` where there is none; the drafters of the campaign, with those of these runs."""
    known: dict[str, object] = {}
    if (folder / "campaign.json").exists():
        head = read_head(folder)
        known = {drafter.name: drafter.model_dump(mode="json", exclude_none=True) for drafter in head.drafters}
    else:
        targets = {run.spec(name).target.name for run in runs} - {NOT_STATED}
        info = CampaignInfo(
            name=name,
            title=f"Imported results: {name}",
            target=", ".join(sorted(targets)[:3]) or NOT_STATED,
            machine=stated.machine or NOT_STATED,
            source="imported from files of other tools; each run names its file",
        )
        write_json(folder / "campaign.json", info)
    for run in runs:
        if run.drafter is not None:
            known.setdefault(run.drafter.name, run.drafter.model_dump(mode="json", exclude_none=True))
    return list(known.values())


def _keep_log(log: Path, server: Path, run: Path) -> str:
    """A copy of the log in the campaign, secrets blanked out: run folders lead to files of their campaign only."""
    server.mkdir(parents=True, exist_ok=True)
    copy = server / "server.log"
    with copy.open("wb") as file:
        for chunk in read_chunks(log, []):
            file.write(chunk)
    blank_out(copy, secret_values([], os.environ))
    return os.path.relpath(copy, run)


def _told(name: str, runs: Sequence[Found], new: int, undecided: Sequence[Found]) -> str:
    arms = {arm: sum(run.arm == arm for run in runs) for arm in dict.fromkeys(run.arm for run in runs)}
    lines = [f"{count(new, 'run')} imported into {runs_dir() / name}"]
    if len(runs) > new:
        lines.append(f"there already: {count(len(runs) - new, 'run')}")
    lines += [f"  {arm}: {count(number, 'run')}" for arm, number in list(arms.items())[:_MOST_SHOWN]]
    if "baseline" not in arms and not _has_baseline(runs_dir() / name):
        lines.append("no baseline among them: import the results of the same server without a drafter, too")
    if undecided:
        lines.append(f"{count(len(undecided), 'result')} left out: {_TELL_ARM}")
    lines.append(f"its pages: workbench report --campaign {name}")
    return "\n".join(lines)


def _has_baseline(folder: Path) -> bool:
    for path in folder.glob("*/spec.json"):
        try:
            if "spec_decode" not in json.loads(path.read_bytes()):
                return True
        except (OSError, ValueError, TypeError):
            continue
    return False
