"""Ray for the time of a campaign, and the nodes that it has."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import psutil
import ray

from workbench.cluster import LOCAL
from workbench.cluster.sizes import Node, left_out
from workbench.errors import LaunchError
from workbench.progress import Say

_STORE_BYTES = 256 << 20
_FRESH_S = 1.0
_KNOCK_S = 10.0


@contextlib.contextmanager
def connected(address: str) -> Iterator[None]:
    """Ray for the time of the block. One that this process is connected to already stays so.

    Raises
    ------
    LaunchError
        When no cluster answers at the address, or it has another version of Ray.
    """
    if ray.is_initialized():
        yield
        return
    on_sigterm = signal.getsignal(signal.SIGTERM)
    with contextlib.ExitStack() as stack:
        options = _own_cluster(stack) if address == LOCAL else {}
        stack.callback(_end_cluster, options.get("_temp_dir"))
        try:
            _knock(address)
            _init(address, options)
        except Exception as error:  # also of this very type: a node that does not start in time
            advice = "start one with `ray start --head`, or leave out --ray-address"
            raise LaunchError(f"no Ray cluster: {first_line(error)}", where=address, next_step=advice) from error
        with contextlib.suppress(ValueError):  # not in the main thread
            signal.signal(signal.SIGTERM, on_sigterm)
        yield


def _init(address: str, options: dict[str, Any]) -> None:
    try:
        ray.init(address=address, log_to_driver=False, logging_level="error", **options)
    except Exception:
        if address != LOCAL:
            raise
        # Ray gives a node 30 s to start; on a busy machine the second time is faster, with its files in memory.
        _end_cluster(options["_temp_dir"])
        ray.init(address=address, log_to_driver=False, logging_level="error", **options)


def _knock(address: str) -> None:
    """Fail at once where nobody listens: Ray itself would try for many minutes."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), _KNOCK_S).close()


def _own_cluster(stack: contextlib.ExitStack) -> dict[str, Any]:
    """Options of one that leaves nothing behind and tells nobody of its use."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # The paths of its sockets must be short.
    folder = tempfile.mkdtemp(prefix="wb-ray-", dir="/tmp")
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    return {"include_dashboard": False, "object_store_memory": _STORE_BYTES, "_temp_dir": folder}


def _end_cluster(folder: str | None) -> None:
    """Leave Ray, and end what it has started here: of a node that did not start in time it forgets the processes."""
    ray.shutdown()
    if folder is None:
        return
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if folder in " ".join(process.cmdline()):
                process.kill()
                process.wait(_KNOCK_S)


@dataclass(slots=True)
class Nodes:
    """The nodes by the numbers that they are called by: in the order of host names, as long as none joins."""

    say: Say
    numbers: dict[str, int] = field(default_factory=dict)
    _found: list[Node] = field(default_factory=list)
    _read_at: float = float("-inf")

    def alive(self) -> list[Node]:
        """Those that live, as of a moment ago; new ones are said."""
        if time.monotonic() - self._read_at < _FRESH_S:
            return self._found
        there = [node for node in ray.nodes() if node["Alive"]]
        new = [node for node in there if node["NodeID"] not in self.numbers]
        for facts in sorted(new, key=lambda node: (node["NodeManagerHostname"], node["NodeManagerAddress"])):
            self.numbers[facts["NodeID"]] = len(self.numbers) + 1
            self.say(str(self._node(facts)))
        self._found, self._read_at = [self._node(facts) for facts in there], time.monotonic()
        if new and (said := left_out(self._found)):
            self.say(said)
        return self._found

    def _node(self, facts: dict[str, Any]) -> Node:
        has = facts.get("Resources", {})
        cpus, gpus = int(has.get("CPU", 0)), int(has.get("GPU", 0))
        return Node(facts["NodeID"], self.numbers[facts["NodeID"]], facts["NodeManagerHostname"], cpus, gpus)


def first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
