"""The runs of a study, trained one after the other or side by side, each in a process of its own."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.gpu import open_gpus
from workbench.plain import from_json
from workbench.progress import duration
from workbench.terminal import Lines
from workbench.trained import LOG, RECORD
from workbench.training import judged
from workbench.training.config import SHARING, TrainConfig
from workbench.training.study import OUTPUT, Study, write_config

_POLL_S = 0.2
_STOP_S = 20.0
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_ALL, _SAMPLES_A_STEP, _SAMPLES_A_MINUTE = 30_000, 90, 100_000


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a run: ``done``, ``kept`` from before, or ``failed`` with the end of what it said."""

    name: str
    state: str
    reason: str = ""


@dataclass(slots=True)
class _Work:
    lines: Lines
    walks: Sequence[judged.Walk]
    given: dict[str, str | None]
    places: queue.SimpleQueue[str | None]
    on_one_gpu: int
    stop: threading.Event = field(default_factory=threading.Event)
    running: dict[str, Path] = field(default_factory=dict)


def train_all(study: Study, *, jobs: int, lines: Lines) -> list[Result]:
    """Train what is not trained, in order; one that fails never stops the others.

    With several ``jobs`` each process sees one GPU; without a GPU one run is trained at a time.
    """
    gpus = visible_gpus()
    results = [Result(run.name, "kept") for run in study.runs if is_done(run, study.walks)]
    todo = [run for run in study.runs if not is_done(run, study.walks)]
    lines.say(f"{study.name}: {len(todo)} of {len(study.runs)} drafters to train, into {study.folder}")
    places = _places(study, gpus, min(jobs, max(1, len(todo))), lines)
    given = spread(todo[: len(places)], places)
    work = _Work(lines, study.walks, given, queue.SimpleQueue(), max(Counter(places).values()))
    pool = ThreadPoolExecutor(len(places), "training")
    try:
        results += _followed(work, [pool.submit(_train, work, run) for run in todo])
    finally:
        work.stop.set()
        pool.shutdown(wait=True, cancel_futures=True)
        lines.clear()
    return results


def is_done(run: TrainConfig, walks: Sequence[judged.Walk]) -> bool:
    folder = Path(run.out)
    return (folder / RECORD).is_file() and not judged.missing(folder, walks)


def visible_gpus() -> list[str]:
    """The GPUs that a process started from here sees, by the names that CUDA_VISIBLE_DEVICES takes."""
    stated = os.environ.get(_VISIBLE)
    if stated is not None:
        return [name for name in stated.split(",") if name and name != "-1"]
    with open_gpus() as found:
        return [] if found is None else [str(number) for number in range(found.count)]


def _places(study: Study, gpus: Sequence[str], jobs: int, lines: Lines) -> list[str | None]:
    """A GPU for each process at a time, or ``None`` for the processor."""
    if not gpus or all(run.device == "cpu" for run in study.runs):
        if jobs > 1:
            lines.say("no GPU: one drafter is trained at a time")
        return [None]
    # There and back, so that the GPU of the longest run does not get the third longest, too.
    there_and_back = [*gpus, *reversed(gpus)]
    return [there_and_back[place % len(there_and_back)] for place in range(jobs)]


def spread(first: Sequence[TrainConfig], places: Sequence[str | None]) -> dict[str, str | None]:
    """Places of the runs that begin together, by name, so that each GPU has about as much to do."""
    longest_first = sorted(first, key=_length, reverse=True)
    return {run.name: place for run, place in zip(longest_first, places, strict=False)}


def _length(run: TrainConfig) -> float:
    """About how many samples it reads; only to compare runs of a study."""
    if run.epochs is not None:
        return run.epochs * (_ALL if run.prompts == "all" else run.prompts)
    return _SAMPLES_A_STEP * run.steps if run.steps is not None else _SAMPLES_A_MINUTE * (run.minutes or 0)


# --- one run -----------------------------------------------------------------------------------------------------


def _train(work: _Work, run: TrainConfig) -> Result:
    if work.stop.is_set():
        return Result(run.name, "not begun")
    place = work.given.pop(run.name) if run.name in work.given else work.places.get()
    folder = Path(run.out)
    work.running[run.name] = folder
    try:
        return _trained(work, run, folder, place)
    finally:
        work.running.pop(run.name)
        work.places.put(place)


def _trained(work: _Work, run: TrainConfig, folder: Path, place: str | None) -> Result:
    began = time.monotonic()

    def execute(command: Sequence[str]) -> int:
        own = {} if place is None else {_VISIBLE: place, SHARING: str(work.on_one_gpu)}
        return _execute(command, folder / OUTPUT, own, work.stop)

    if not (folder / RECORD).is_file():
        config = write_config(run)
        if execute([sys.executable, "-P", "-m", "workbench", "train", str(config), "--resume"]) != 0:
            return _failed(work, run, folder)
    for walk in judged.missing(folder, work.walks):
        if not judged.make(walk, run, folder, execute):
            return _failed(work, run, folder)
    work.lines.say(f"{run.name}: {told(folder)}, {duration(time.monotonic() - began)}")
    return Result(run.name, "done")


def _failed(work: _Work, run: TrainConfig, folder: Path) -> Result:
    if work.stop.is_set():
        return Result(run.name, "stopped")
    said = (folder / OUTPUT).read_text(encoding="utf-8", errors="replace").strip().splitlines()
    reason = " ".join(said[-2:])[-300:] or "it said nothing"
    work.lines.say(f"{run.name}: failed, {reason} ({folder / OUTPUT})")
    return Result(run.name, "failed", reason)


def _execute(command: Sequence[str], output: Path, own: Mapping[str, str], stop: threading.Event) -> int:
    """Run a command to its end, or until ``stop``; what it says is added to ``output``. ``own`` are its variables."""
    with output.open("ab") as file:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, env={**os.environ, **own}
        )
        while True:
            try:
                return process.wait(_POLL_S)
            except subprocess.TimeoutExpired:
                if stop.is_set():
                    return _ended(process)


def _ended(process: subprocess.Popen[bytes]) -> int:
    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    return -1


# --- what is said ------------------------------------------------------------------------------------------------


def _followed(work: _Work, futures: Sequence[Future[Result]]) -> list[Result]:
    """Wait for all runs and show meanwhile how far those under way are."""
    left = set(futures)
    while left:
        left = wait(left, timeout=1.0, return_when=FIRST_COMPLETED).not_done
        under_way = "; ".join(f"{name}: {_progress(folder)}" for name, folder in list(work.running.items()))
        work.lines.overwrite(f"{len(futures) - len(left)} of {len(futures)} done. {under_way}")
    return [future.result() for future in futures]


def _progress(folder: Path) -> str:
    line = last_line(folder)
    if not line:
        return "begins"
    loss = f", loss {line['loss']:.3f}" if isinstance(line.get("loss"), float) else ""
    return f"step {line.get('step')}{loss}"


def last_line(folder: Path) -> dict[str, Any]:
    """The last whole line of a training's log; empty without one."""
    try:
        with (folder / LOG).open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 8192))
            lines = file.read().decode("utf-8", "replace").split("\n")
    except OSError:
        return {}
    for text in reversed(lines[:-1]):
        try:
            return dict(from_json(text))
        except (ValueError, TypeError):
            continue
    return {}


def told(folder: Path) -> str:
    """A finished run in a few words."""
    record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    lengths = (record.get("held_out") or {}).get("accept_length") or {}
    steps = "3" if "3" in lengths else next(iter(lengths), "")
    said = f"{record['seen']['optimizer_steps']:,} steps"
    return f"{said}, held-out accept length {lengths[steps]:.3f} at {steps}" if steps else said


def listing(study: Study) -> str:
    """A line a run: its name and how far it is."""
    width = max(len(run.name) for run in study.runs)
    done = sum(is_done(run, study.walks) for run in study.runs)
    lines = [f"{study.name}: {done} of {len(study.runs)} drafters are done, in {study.folder}"]
    return "\n".join([*lines, *(f"  {run.name:<{width}}  {_state(run, study.walks)}" for run in study.runs)])


def _state(run: TrainConfig, walks: Sequence[judged.Walk]) -> str:
    folder = Path(run.out)
    if (folder / RECORD).is_file():
        left = len(judged.missing(folder, walks))
        return f"done, {told(folder)}" + (f"; {left} of {len(walks)} walks are missing" if left else "")
    if (folder / OUTPUT).is_file():
        return f"begun, {_progress(folder)}"
    return "not begun"
