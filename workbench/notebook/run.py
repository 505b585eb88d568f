"""The side that waits: starts one process a notebook, limits it, judges it, keeps what it produced.

A run is judged by the exit code of its process and by what that process wrote about itself, never by papermill's
metadata: that calls timed-out cells and cells that never ran "completed". The kernel talks over ipc, so that runs
side by side cannot race for ports and nobody else on the machine can listen. Its kernelspec is written here, so that
what is installed under the user's Jupyter paths does not matter.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import psutil

from workbench.errors import UsageError, WorkbenchError
from workbench.notebook.parameters import check_parameters
from workbench.notebook.processes import interrupt_cell, short_temp, stop_tree
from workbench.paths import ROOT_ENV, notebooks_dir, project_root, reports_dir
from workbench.plain import whole_number
from workbench.spec import RunState
from workbench.store import write_json

_REASON_LENGTH = 2_000
_CHILD = "workbench.notebook.child"
_PIDS = 2**31
_NO_FOLDER = ("--InteractiveShellApp.ignore_cwd=True",)
"""IPython would put its working folder before installed packages again."""
_clock = time.monotonic


@dataclass(frozen=True, slots=True)
class NotebookRun:
    """What became of a notebook. ``output`` exists only when there was something to keep.

    ``exit_code`` is ``None`` when no process was started, negative when a signal ended it. Times are UTC, ISO 8601.
    """

    notebook: Path
    output: Path
    status: RunState
    reason: str | None
    started_at: str
    finished_at: str | None
    duration_s: float | None
    parameters: dict[str, object]
    exit_code: int | None


@dataclass(frozen=True, slots=True)
class NotebookJob:
    """One notebook to run; fields as in `run_notebook`."""

    notebook: Path
    output: Path
    parameters: Mapping[str, object] = field(default_factory=dict)
    timeout_s: float = 600.0
    save_each_cell: bool = False


def status_file(output: Path) -> Path:
    """Where the state of a run is written, beside its output."""
    return output.with_suffix(".status.json")


def run_notebook(
    path: Path,
    output: Path,
    parameters: Mapping[str, object],
    *,
    timeout_s: float = 600.0,
    save_each_cell: bool = False,
    stop: threading.Event | None = None,
    stop_grace_s: float = 0.0,
) -> NotebookRun:
    """Check the parameters, run the notebook, keep what it produced, also when it failed.

    Parameters
    ----------
    timeout_s
        Wall-clock limit of the whole run. When it passes, the running cell is interrupted so that the notebook can
        be kept; a few seconds later everything that the run started is killed.
    save_each_cell
        Save after every cell: for notebooks whose partial result is worth the 40 ms a cell it costs.
    stop
        When set by another thread, the run ends as interrupted.
    stop_grace_s
        What a notebook gets on Ctrl-C to end by itself what it started, and to be kept; a second Ctrl-C takes it away.

    Raises
    ------
    UsageError
        When the notebook lies outside the project's ``notebooks/``.
    SpecError
        When a parameter is unknown or of a wrong type; no process has been started then.
    """
    notebook = _inside_notebooks(path)
    output = output.resolve()
    run = NotebookRun(
        notebook=notebook,
        output=output,
        status=RunState.RUNNING,
        reason=None,
        started_at=_now(),
        finished_at=None,
        duration_s=None,
        parameters=check_parameters(notebook, parameters),
        exit_code=None,
    )
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = _own_partial(output)
    _write_status(run)
    began = _clock()
    try:
        ended = _run_process(run, partial, timeout_s, save_each_cell, stop or threading.Event(), stop_grace_s)
    except KeyboardInterrupt:
        _finish(run, partial, began, _Ended(RunState.INTERRUPTED, "interrupted", None))
        raise
    return _finish(run, partial, began, ended)


def run_notebooks(jobs: Iterable[NotebookJob], *, workers: int = 2) -> Iterator[NotebookRun]:
    """Run several notebooks at once and yield each run as it ends; one that fails never stops the others.

    A job that is refused (wrong parameter, no such notebook) is yielded as failed, without an output. Closing the
    iterator or Ctrl-C ends every run that is under way.
    """
    jobs = list(jobs)
    outputs = [job.output.resolve() for job in jobs]
    if len(set(outputs)) < len(outputs):
        raise UsageError("two notebook runs would write the same output file")
    stop = threading.Event()
    pool = ThreadPoolExecutor(max_workers=max(1, workers), thread_name_prefix="notebook")
    try:
        for future in as_completed([pool.submit(_run_job, job, stop) for job in jobs]):
            yield future.result()
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)


def _own_partial(output: Path) -> Path:
    """Where this process has its notebook written: others may make the same one. What killed ones left is removed."""
    for left in output.parent.glob(f".{glob.escape(output.stem)}.partial-*.ipynb"):
        number = left.name.removesuffix(".ipynb").rpartition("-")[2]
        pid = whole_number(number)
        if pid is None or pid >= _PIDS or pid == os.getpid() or not psutil.pid_exists(pid):
            left.unlink(missing_ok=True)
    return output.with_name(f".{output.stem}.partial-{os.getpid()}.ipynb")


# --- the side that waits -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Ended:
    status: RunState
    reason: str | None
    exit_code: int | None


def _run_job(job: NotebookJob, stop: threading.Event) -> NotebookRun:
    try:
        return run_notebook(
            job.notebook,
            job.output,
            job.parameters,
            timeout_s=job.timeout_s,
            save_each_cell=job.save_each_cell,
            stop=stop,
        )
    except WorkbenchError as error:
        now = _now()
        given = dict(job.parameters)
        return NotebookRun(job.notebook, job.output, RunState.FAILED, str(error), now, now, 0.0, given, None)


def _inside_notebooks(path: Path) -> Path:
    notebook, allowed = path.resolve(), notebooks_dir().resolve()
    if not notebook.is_relative_to(allowed) or notebook.suffix != ".ipynb":
        raise UsageError(
            "only notebooks of this project are run, because a notebook is code",
            where=path,
            next_step=f"read it, then move it into {allowed}",
        )
    if not notebook.is_file():
        raise UsageError("no such notebook", where=path)
    return notebook


def _run_process(
    run: NotebookRun,
    partial: Path,
    timeout_s: float,
    save_each_cell: bool,
    stop: threading.Event,
    stop_grace_s: float,
) -> _Ended:
    deadline = _clock() + timeout_s
    with tempfile.TemporaryDirectory(prefix="wb-", dir=short_temp(), ignore_cleanup_errors=True) as name:
        scratch = Path(name)
        job = {
            "notebook": str(run.notebook),
            "partial": str(partial),
            "parameters": run.parameters,
            "save_each_cell": save_each_cell,
        }
        (scratch / "job.json").write_text(json.dumps(job), encoding="utf-8")
        process = _start(scratch)
        try:
            cut_short = _wait(process, deadline, stop)
        except KeyboardInterrupt:
            interrupt_cell(process, stop_grace_s)
            raise
        finally:
            if process.poll() is None:
                stop_tree(process.pid)
            code = process.wait()
            if process.stdin is not None:
                process.stdin.close()
        if cut_short is RunState.TIMED_OUT:
            return _Ended(cut_short, f"stopped at the time limit of {timeout_s:g} s", code)
        if cut_short is not None:
            return _Ended(cut_short, "interrupted", code)
        return _judge(scratch, code)


def _start(scratch: Path) -> subprocess.Popen[bytes]:
    """Start the child on ``scratch/job.json`` in a session of its own.

    Standard input stays open as long as this process lives: its end tells the child that nobody waits any more.
    """
    with (scratch / "log.txt").open("wb") as log:
        return subprocess.Popen(
            # -P: the project's folder, where it starts, must not come before installed packages.
            [sys.executable, "-P", "-m", _CHILD, str(scratch)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=project_root(),
            env=_environment(scratch),
            start_new_session=True,
        )


def _environment(scratch: Path) -> dict[str, str]:
    """The child's environment: this one, without what a user's Jupyter set-up could change in a page."""
    kernel = scratch / "kernels" / "python3"
    kernel.mkdir(parents=True)
    spec = {
        "argv": [sys.executable, "-P", "-m", "ipykernel_launcher", *_NO_FOLDER, "-f", "{connection_file}"],
        "display_name": "Python 3",
        "language": "python",
    }
    (kernel / "kernel.json").write_text(json.dumps(spec), encoding="utf-8")
    own = {
        ROOT_ENV: str(project_root()),
        "JUPYTER_PATH": str(scratch),
        "JUPYTER_RUNTIME_DIR": str(scratch / "r"),
        "JUPYTER_CONFIG_DIR": str(scratch / "config"),
        "IPYTHONDIR": str(scratch / "ipython"),
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }
    if "MPLCONFIGDIR" not in os.environ and not _home_is_writable():
        # Without a place for its font list, matplotlib builds it anew in every process.
        own["MPLCONFIGDIR"] = str(reports_dir() / ".cache" / "matplotlib")
    return os.environ | own


def _home_is_writable() -> bool:
    try:
        return os.access(Path.home(), os.W_OK)
    except RuntimeError:
        return False


def _wait(process: subprocess.Popen[bytes], deadline: float, stop: threading.Event) -> RunState | None:
    """Wait for the end; the state to report when it did not come by itself."""
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.1)
            return None
        if stop.is_set():
            return RunState.INTERRUPTED
        if _clock() > deadline:
            interrupt_cell(process)
            return RunState.TIMED_OUT


def _judge(scratch: Path, code: int) -> _Ended:
    try:
        outcome = json.loads((scratch / "outcome.json").read_bytes())
        status, reason = RunState(outcome["status"]), outcome["reason"]
    except (OSError, ValueError, KeyError, TypeError):
        log = (scratch / "log.txt").read_text(encoding="utf-8", errors="replace").strip()
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        return _Ended(RunState.FAILED, f"the process ended {how}\n{log[-_REASON_LENGTH:]}".strip(), code)
    if status is RunState.OK and code != 0:
        return _Ended(RunState.FAILED, f"the notebook ran to its end, then the process ended with code {code}", code)
    return _Ended(status, reason, code)


def _finish(run: NotebookRun, partial: Path, began: float, ended: _Ended) -> NotebookRun:
    """Put the notebook in its place, then write the final status: whoever sees that sees the notebook too."""
    if _is_whole(partial):
        partial.replace(run.output)
    else:
        partial.unlink(missing_ok=True)
        run.output.unlink(missing_ok=True)  # that of an earlier run
        if ended.status is RunState.OK:
            ended = _Ended(RunState.FAILED, "the run ended well but left no notebook", ended.exit_code)
    final = replace(
        run,
        status=ended.status,
        reason=ended.reason,
        finished_at=_now(),
        duration_s=round(_clock() - began, 3),
        exit_code=ended.exit_code,
    )
    if run.output.parent.is_dir():  # one that was removed or renamed meanwhile is not begun anew
        _write_status(final)
    return final


def _is_whole(notebook: Path) -> bool:
    """Not cut off: a process that is ended, or whose text cannot be encoded, leaves half of one or an empty file."""
    try:
        json.loads(notebook.read_bytes())
    except (OSError, ValueError):
        return False
    return True


def _write_status(run: NotebookRun) -> None:
    write_json(status_file(run.output), asdict(run) | {"notebook": run.notebook.name, "output": run.output.name})


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
