"""A Ray cluster of several nodes, each in processes of its own on this machine, and what runs on them."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
from live_campaigns import CASE
from ray.cluster_utils import Cluster

from workbench.paths import ROOT_ENV

HEAD = {"num_cpus": 0, "include_dashboard": False, "include_log_monitor": False}
CPUS, GPUS = 2, 2
"""What a node gives out; Ray counts GPUs, whether there are any or not."""


@contextlib.contextmanager
def ray_nodes(folder: Path, count: int) -> Iterator[Cluster]:
    """A head that measures nothing and so many nodes."""
    for name in ("notebooks", "data", "temp"):
        (folder / name).mkdir(parents=True)
    with _bare(folder):
        cluster = _patiently(
            lambda: Cluster(initialize_head=True, head_node_args=HEAD),
            lambda: _kill(folder),
        )
    try:
        add_nodes(cluster, folder, count)
        yield cluster
    finally:
        cluster.shutdown()
        _kill(folder)


def add_nodes(cluster: Cluster, folder: Path, count: int) -> None:
    with _bare(folder):
        for _ in range(count):
            _patiently(lambda: cluster.add_node(num_cpus=CPUS, num_gpus=GPUS))


def _patiently(make: Callable[[], Any], clear: Callable[[], None] | None = None) -> Any:
    """Ray gives a node 30 s to start, which a busy machine may exceed."""
    for _ in range(3):
        try:
            return make()
        except Exception as error:
            if "timed out during startup" not in str(error):
                raise
            if clear is not None:
                clear()
    raise AssertionError("no Ray node starts on this machine in time")


def _kill(folder: Path) -> None:
    for process in of_cluster(folder):
        with contextlib.suppress(psutil.Error):
            process.kill()


@contextlib.contextmanager
def _bare(folder: Path) -> Iterator[None]:
    """The environment of machines that have no project of ours."""
    variables = {
        ROOT_ENV: str(folder),
        CASE: str(folder),
        "XDG_STATE_HOME": str(folder / "state"),
        "TMPDIR": str(folder / "temp"),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    before = {name: os.environ.pop(name, None) for name in variables}
    os.environ |= variables
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            os.environ.update({} if value is None else {name: value})


def of_cluster(folder: Path, what: str = "") -> list[psutil.Process]:
    """Processes that descend from a cluster's, with this in their command line."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            mine = process.pid != os.getpid() and process.environ().get(CASE) == str(folder)
            if mine and process.status() != psutil.STATUS_ZOMBIE and what in " ".join(process.cmdline()):
                found.append(process)
    return found


def raylet_of(process: psutil.Process) -> psutil.Process:
    """The process that is the node."""
    (found,) = [parent for parent in process.parents() if parent.name() == "raylet"]
    return found


def scripted(root: Path, **options: list[str]) -> list[str]:
    """The launch prefix by which nodes start the scripted server for a project."""
    variables = {"SCRIPTED": json.dumps(options), "SCRIPTED_COUNT": str(root / "starts.txt"), CASE: str(root)}
    launch = str(Path(__file__).with_name("scripted_launch.py"))
    return ["env", *(f"{name}={value}" for name, value in variables.items()), sys.executable, launch]


def wait_for(condition: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
