"""`workbench import`: files to run folders, each marked as imported, and what was left out."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from workbench.analysis.wording import count
from workbench.errors import InputError, Problem, UsageError
from workbench.files import MOST_SMALL_BYTES, read_small, require_own
from workbench.importing.found import NOT_STATED, Found, Stated
from workbench.importing.logs import read_log
from workbench.importing.merge import by_identity, clash, known_drafters, tell_apart
from workbench.importing.results import looks_like_results, read_results, unusable
from workbench.importing.taken import Taken, scratch_in, take
from workbench.launch.redaction import blank_out, secret_values
from workbench.paths import recorded_dir, runs_dir, slug
from workbench.recording import alone, resolved
from workbench.spec import CampaignInfo, Drafter, RunSpec
from workbench.store import SERVERS, RunFolder, read_run, write_json, write_run
from workbench.terminal import terminated_like_interrupted

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
    with terminated_like_interrupted(), scratch_in(runs_dir()) as scratch:
        problems: list[Problem] = []
        found = [run for file in request.files for run in read_file(file, request.stated, problems, scratch)]
        whole = [run for run in found if run.speculative is not None]
        undecided = [run for run in found if run.speculative is None]
        problems += [Problem(run.source.place, _NO_ARM.format(run.source.tool)) for run in undecided]
        written = _Written()
        try:
            if whole:
                with alone(runs_dir() / name):
                    _write(runs_dir() / name, whole, request.stated, written)
        finally:
            problems += written.refused
            _say_left_out(problems, say)
    if not whole:
        advice = _TELL_ARM if undecided else "docs/importing.md names the files that can be read"
        raise InputError(f"nothing to import in {count(len(request.files), 'file')}", next_step=advice)
    return Outcome(_told(name, written, undecided), tuple(problems))


def _say_left_out(problems: Sequence[Problem], say: Callable[[str], None]) -> None:
    for problem in problems[:_MOST_SHOWN]:
        say(f"left out: {problem.where}: {problem.what}")
    if len(problems) > _MOST_SHOWN:
        say(f"left out: {len(problems) - _MOST_SHOWN:,} more")


def _campaign_name(name: str) -> str:
    if slug(name) != name or name.startswith("_"):
        advice = f"try {slug(name.lstrip('_'))!r}: letters, digits, '.', '_' and '-'"
        raise UsageError("no name for a campaign", where=f"--campaign {name}", next_step=advice)
    if (recorded_dir() / name).exists():
        advice = "choose another name: one of two campaigns of one name would hide the other"
        raise UsageError("a recorded campaign has this name", where=f"--campaign {name}", next_step=advice)
    return name


def read_file(file: Path, stated: Stated, problems: list[Problem], scratch: Path) -> list[Found]:
    """The runs of one file; one that cannot be read stops no other, and what is wrong is added to ``problems``.

    The file is read once, into ``scratch``, where the copy of a log stays.
    """
    own: list[Problem] = []
    try:
        taken = take(file, scratch)
        found = [run for run in _found_in(taken, stated, own) if _is_usable(run, own)]
        if not any(run.log for run in found):
            taken.copy.unlink()
        return found
    except (InputError, OSError) as error:
        what = error.what if isinstance(error, InputError) else error.strerror or str(error)
        own.append(Problem(str(file), what))
    except ValidationError as error:
        own.append(Problem(str(file), unusable(error)))
    except RecursionError:
        own.append(Problem(str(file), "nested too deeply"))
    finally:
        problems += own
    return []


def _found_in(taken: Taken, stated: Stated, problems: list[Problem]) -> list[Found]:
    is_json = looks_like_results(taken.head)
    if is_json and taken.is_small and not taken.faults:
        found = read_results(taken.file, taken.copy.read_bytes(), stated, problems)
        if found or problems:
            return found
    if (log := read_log(taken, stated, problems)) is not None:
        return [log]
    what = "neither results of a known benchmark tool nor a server log"
    if taken.faults:
        what = f"{taken.faults[0].what.partition(':')[0]}: nothing of it is used"
    elif is_json and not taken.is_small:
        what = f"larger than {MOST_SMALL_BYTES >> 20} MiB, which is more than a result file may have: split it by lines"
    problems.append(Problem(str(taken.file), what))
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


@dataclass(slots=True)
class _Written:
    """How many runs are new, how many were renewed, the arms of all that are held, and what was refused."""

    arms: list[str] = field(default_factory=list)
    new: int = 0
    renewed: int = 0
    refused: list[Problem] = field(default_factory=list)


def _write(folder: Path, found: Sequence[Found], stated: Stated, written: _Written) -> None:
    """Write what is not there yet, and logs that grew."""
    _describe(folder, found, stated)
    known = known_drafters(folder)
    there = by_identity(folder)
    for run in tell_apart(found, known):
        spec, old = run.spec(folder.name), there.get(run.source.identity)
        path = old or folder / spec.run_id
        try:
            require_own(path)
            before = None if old is None else read_run(old)
        except InputError as error:
            fault = f"{Path(error.where or path).name}: {error.what}"
            there_is = f"is there as {path.name}, which cannot be used ({fault}): mend or remove that folder"
            written.refused.append(Problem(run.source.place, there_is))
            continue
        if before is not None and (why := clash(before, spec)) is not None:
            written.refused.append(Problem(run.source.place, why))
            continue
        written.arms.append(run.arm)
        if before is None:
            _name_drafter(folder, run, known)
            written.new += 1
        elif _has_grown(run, before):
            spec = before.spec
            written.renewed += 1
        else:
            continue
        _write_one(folder, spec, run, stated)
        there[run.source.identity] = folder / spec.run_id


def _has_grown(run: Found, before: RunFolder) -> bool:
    return run.log is not None and before.log is not None and run.log.stat().st_size > before.log.stat().st_size


def _write_one(folder: Path, spec: RunSpec, run: Found, stated: Stated) -> None:
    path = folder / spec.run_id
    log_file = None if run.log is None else _keep_log(run.log, folder / SERVERS / spec.server_id, path)
    if run.server_info is not None:
        write_json(path / "resolved.json", resolved(run.server_info, ()))
    write_run(path, spec, run.provenance(stated.machine), run.status(log_file), reported=run.figures)


def _describe(folder: Path, runs: Sequence[Found], stated: Stated) -> None:
    """Make ``campaign.json`` where there is none."""
    if (folder / "campaign.json").exists():
        return
    targets = {run.spec(folder.name).target.name for run in runs} - {NOT_STATED}
    info = CampaignInfo(
        name=folder.name,
        title=f"Imported results: {folder.name}",
        target=", ".join(sorted(targets)[:3]) or NOT_STATED,
        machine=stated.machine or NOT_STATED,
        source="imported from files of other tools; each run names its file",
    )
    write_json(folder / "campaign.json", info)


def _name_drafter(folder: Path, run: Found, known: dict[str, Drafter]) -> None:
    """Put the drafter of a run into ``drafters.json`` before the run that names it."""
    if run.drafter is not None and run.drafter.name not in known:
        known[run.drafter.name] = run.drafter
        listed = [drafter.model_dump(mode="json", exclude_none=True) for drafter in known.values()]
        write_json(folder / "drafters.json", listed)


def _keep_log(log: Path, server: Path, run: Path) -> str:
    """The copy of the log into the campaign, secrets blanked out: run folders lead to files of their campaign only."""
    blank_out(log, secret_values([], os.environ))
    server.mkdir(parents=True, exist_ok=True)
    kept = server / "server.log"
    log.chmod(0o644)
    log.replace(kept)
    return os.path.relpath(kept, run)


def _told(name: str, written: _Written, undecided: Sequence[Found]) -> str:
    arms = Counter(written.arms)
    lines = [f"{count(written.new, 'run')} imported into {runs_dir() / name}"]
    if written.renewed:
        lines.append(f"grown since and imported again: {count(written.renewed, 'log')}")
    if written.refused:
        lines.append(f"refused: {count(len(written.refused), 'result')} there already, otherwise or damaged")
    if there := len(written.arms) - written.new - written.renewed:
        lines.append(f"there already: {count(there, 'run')}")
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
            if "spec_decode" not in json.loads(read_small(path)):
                return True
        except (OSError, ValueError, TypeError):
            continue
    return False
