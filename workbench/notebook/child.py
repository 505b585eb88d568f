"""The process that executes one notebook: ``python -m workbench.notebook.child SCRATCH``.

Reads ``SCRATCH/job.json``, writes ``SCRATCH/outcome.json`` last. Imported by nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
from traitlets.config import Config

from workbench.light_import import HDFS, IRI_GRAMMAR, hidden
from workbench.spec import RunState
from workbench.store import write_json

with hidden(HDFS, IRI_GRAMMAR):
    import papermill
    from papermill.engines import NBClientEngine, papermill_engines
    from papermill.iorw import write_ipynb

_REASON_LENGTH = 2_000


def run_here(scratch: Path) -> int:
    """Execute the job and say what became of it; the exit code is 0 only when all of it went well."""
    _end_with_parent()
    (scratch / "r").mkdir(mode=0o700)
    job = json.loads((scratch / "job.json").read_bytes())
    status, reason = RunState.OK, None
    try:
        _execute(sockets=str(scratch / "r" / "k"), **job)
    except papermill.PapermillExecutionError as error:
        status, reason = RunState.FAILED, f"{error.ename}: {error.evalue}"
    except Exception as error:  # noqa: BLE001 - whatever papermill or the kernel raises is the run's result
        status, reason = RunState.FAILED, f"{type(error).__name__}: {error}"
    write_json(scratch / "outcome.json", {"status": status, "reason": reason and reason[:_REASON_LENGTH]})
    return 0 if status is RunState.OK else 1


def _execute(*, notebook: str, partial: str, parameters: dict[str, object], save_each_cell: bool, sockets: str) -> None:
    class KeepingEngine(NBClientEngine):  # type: ignore[misc]
        """Papermill's engine, but what was executed is also written when the kernel dies."""

        @classmethod
        def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, **options: object) -> object:
            try:
                return super().execute_managed_notebook(nb_man, kernel_name, **options)
            except BaseException:
                write_ipynb(nb_man.nb, partial)
                raise

    papermill_engines.register("keeping", KeepingEngine)
    papermill.execute_notebook(
        notebook,
        partial,
        parameters=parameters,
        engine_name="keeping",
        kernel_name="python3",
        language="python",
        progress_bar=False,
        request_save_on_cell_execute=save_each_cell,
        # Without `ip` the sockets would be called kernel-ipc-1 ... in the working folder, the same for every run.
        config=Config({"KernelManager": {"transport": "ipc", "ip": sockets}}),
        coalesce_streams=True,
    )


def _end_with_parent() -> None:
    """Kill everything below this process, then this process, once the parent's end of standard input closes."""

    def watch() -> None:
        while os.read(0, 1024):
            pass
        for below in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                below.kill()
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="end-with-parent").start()


if __name__ == "__main__":
    raise SystemExit(run_here(Path(sys.argv[1])))
