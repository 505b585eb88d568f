"""Power, memory, utilisation and clock of the GPUs while something is measured: ``gpu.jsonl``."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from workbench.errors import Problem
from workbench.gpu import Gpus, open_gpus

INTERVAL_S = 0.2


@contextlib.contextmanager
def sampled(
    path: Path, gpus: Sequence[int] | None = None, *, interval_s: float = INTERVAL_S, since: float | None = None
) -> Iterator[list[Problem]]:
    """Write a line a GPU and interval to ``path`` from a thread, as long as the block runs.

    A line is ``{"t_s", "gpu", "power_w", "memory_used_bytes", "utilisation", "sm_clock_mhz"}``: seconds since the
    beginning, nvidia-smi's number, watts, bytes, a fraction from 0 to 1, MHz; ``null`` for what a GPU does not say.
    Without a GPU no file is made. A failure to write ends the sampling, not the block; it is in the yielded list.

    Parameters
    ----------
    gpus
        ``None`` for all.
    since
        Value of `time.monotonic` from which ``t_s`` counts; the time of the call when left out.
    """
    problems: list[Problem] = []
    start = time.monotonic() if since is None else since
    with open_gpus() as found:
        numbers = tuple(range(found.count) if gpus is None else gpus) if found is not None else ()
        if found is None or not numbers:
            yield problems
            return
        stop = threading.Event()
        job = (found, numbers, path, interval_s, start, stop, problems)
        thread = threading.Thread(target=_sample, args=job, daemon=True, name="gpu-telemetry")
        thread.start()
        try:
            yield problems
        finally:
            stop.set()
            thread.join(timeout=interval_s + 5)


def _sample(
    found: Gpus,
    numbers: Sequence[int],
    path: Path,
    interval_s: float,
    start: float,
    stop: threading.Event,
    problems: list[Problem],
) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8") as file:
            _write(found, numbers, file, start)
            while not stop.wait(interval_s):
                _write(found, numbers, file, start)
            _write(found, numbers, file, start)
    except OSError as error:
        problems.append(Problem(str(path), f"GPU telemetry ended: {error.strerror or error}"))


def _write(found: Gpus, numbers: Sequence[int], file: TextIO, start: float) -> None:
    for gpu in numbers:
        line = {"t_s": round(time.monotonic() - start, 4), "gpu": gpu, **asdict(found.sample(gpu))}
        file.write(json.dumps(line) + "\n")
    file.flush()
