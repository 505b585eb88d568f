"""What a SpecForge run left behind: its config, its logs, its checkpoints. Nothing pickled is opened."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.errors import InputError, LogError, Problem
from workbench.files import read_chunks
from workbench.specforge import run_yaml
from workbench.specforge.log import Log, ordered, parse
from workbench.specforge.tracked import read_tracked
from workbench.specforge.traps import Run, beside, read_run

STATE = "training_state.pt"
_CHECKPOINT = re.compile(r"(.+)-step(\d{1,12})")
_LOGS = ("*.log", "*.out", "*.txt", "*.log.gz", "wandb/*/files/output.log", "files/output.log")
_MOST_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Left:
    """``run`` is None where there is no run.yaml. ``checkpoints`` are whole ones by step: folders of pickles."""

    folder: Path
    run: Run | None
    log: Log
    logs: Sequence[Path]
    checkpoints: dict[int, Path]
    exported: Sequence[Path]
    problems: Sequence[Problem]


def look(folder: Path, *, config: Path | None = None, logs: Sequence[Path] = ()) -> Left:
    """Everything in the folder of a run: the one that holds run.yaml, or its ``output_dir``.

    Raises
    ------
    InputError
        When nothing of a run is there.
    """
    if not folder.is_dir():
        raise InputError("no such folder", where=folder, next_step="name the folder of run.yaml, or its output_dir")
    problems: list[Problem] = []
    path = config or next((p for p in (folder / run_yaml.RUN, folder.parent / run_yaml.RUN) if p.is_file()), None)
    run = None if path is None else read_run(path)
    places = list(dict.fromkeys([folder, *_output(run)]))
    named = list(logs) or sorted(_logs(places))
    log = _read_logs(named, problems)
    if not log.steps:
        points = [point for place in places for point in read_tracked(place, problems)]
        log.steps, log.evaluations = ordered(points)
    found = {step: path for place in places for step, path in _checkpoints(place)}
    exported = [path for place in places for path in sorted(place.iterdir()) if _is_exported(path)]
    if run is None and not log.steps and not found:
        raise InputError(
            "nothing of a SpecForge run: no run.yaml, no log with its figures, no checkpoint",
            where=folder,
            next_step="name its folder, or give --config and --log",
        )
    return Left(folder, run, log, named, dict(sorted(found.items())), exported, problems)


def _output(run: Run | None) -> list[Path]:
    if run is None:
        return []
    folder = beside(run.path, run.of("output_dir"))
    return [folder] if folder.is_dir() else []


def _logs(places: Sequence[Path]) -> Iterator[Path]:
    yield from {path for place in places for pattern in _LOGS for path in place.glob(pattern) if path.is_file()}


def _read_logs(paths: Sequence[Path], problems: list[Problem]) -> Log:
    """All files as one log: one that begins at a later step goes on from one that begins earlier."""
    found = [_read_log(path, problems) for path in paths]
    found = sorted((log for log in found if log.steps), key=lambda log: (log.steps[0].step, log.steps[-1].step)) + [
        log for log in found if not log.steps
    ]
    steps, _ = ordered(point for log in found for point in log.steps)
    _, evaluations = ordered(point for log in found for point in log.evaluations)
    errors = [log.error for log in found if log.error is not None]
    return Log(steps, evaluations, sum(log.unread for log in found), errors[-1] if errors else None)


def _read_log(path: Path, problems: list[Problem]) -> Log:
    try:
        data = bytearray()
        for chunk in read_chunks(path, problems):
            data += chunk
            if len(data) > _MOST_BYTES:
                problems.append(Problem(str(path), f"only its first {_MOST_BYTES >> 20} MiB are read"))
                break
        return parse(data.decode("utf-8", "replace"))
    except LogError as error:
        problems.append(Problem(str(path), error.what))
        return Log()


def _checkpoints(folder: Path) -> Iterator[tuple[int, Path]]:
    for path in folder.iterdir():
        match = _CHECKPOINT.fullmatch(path.name)
        # A save that was broken off has none, and SpecForge does not count it either.
        if match is not None and not path.is_symlink() and (path / STATE).is_file():
            yield int(match[2]), path


def _is_exported(path: Path) -> bool:
    return path.is_dir() and (path / "config.json").is_file() and any(path.glob("*.safetensors")) and _is_draft(path)


def _is_draft(path: Path) -> bool:
    return "Eagle3" in (path / "config.json").read_text(encoding="utf-8", errors="replace")


def export_command(left: Left, out: Path) -> str:
    """What turns the last checkpoint into a folder that can be read."""
    last = next(reversed(left.checkpoints.values()), left.folder)
    config = None if left.run is None else left.run.of("model.draft_model_config")
    draft = "DRAFT_CONFIG.json" if config is None or left.run is None else str(beside(left.run.path, config))
    return f"specforge export --to sglang --checkpoint {last} --draft-config {draft} --output-dir {out}"
