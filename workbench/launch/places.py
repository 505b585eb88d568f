"""What a server takes of this machine: GPUs, a port, a share of its CPUs. Held by locks that end with their process."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from filelock import FileLock, Timeout

from workbench.errors import LaunchError
from workbench.gpu import Gpus, open_gpus, usable_gpus
from workbench.launch.state import state_dir

USED_BYTES = 2 << 30
"""A GPU with more than this in use is not free: an idle one holds some hundred MB."""
FIRST_PORT, LAST_PORT = 20_000, 29_999
"""Below the range from which Linux takes ports for outgoing connections, and below SGLang's usual 30000."""
POLL_S = 0.2
_PORT_TRIES = 200


@contextlib.contextmanager
def claim(
    gpus_needed: int,
    total: int | None = None,
    *,
    timeout_s: float = 24 * 3600.0,
    on_wait: Callable[[str], None] | None = None,
) -> Iterator[tuple[int, ...]]:
    """GPUs that nobody else has, for the time of the block: by lock among ours, by free memory among all.

    Neighbours are preferred (0-3 or 4-7 for four of eight). Claims are served in the order in which they came, so
    that one that needs all GPUs is not overtaken for ever.

    Parameters
    ----------
    gpus_needed
        0 gives an empty tuple at once.
    total
        How many GPUs of the machine may be used at most. Without NVML it is taken for their number.
    on_wait
        Told once what is waited for.

    Raises
    ------
    LaunchError
        When the machine has too few GPUs, or they are not free in time.
    """
    if gpus_needed == 0:
        yield ()
        return
    with open_gpus() as found:
        usable = usable_gpus(found, total)
        if len(usable) < gpus_needed:
            raise LaunchError(
                f"{gpus_needed} GPUs are needed, {len(usable)} can be used here",
                where=f"CUDA_VISIBLE_DEVICES={os.environ.get('CUDA_VISIBLE_DEVICES', '(not set)')}",
                next_step="lower tp_size or dp_size, or use a machine with more GPUs (`workbench doctor` shows them)",
            )
        held = _take(usable, gpus_needed, found, time.monotonic() + timeout_s, on_wait)
    try:
        yield tuple(sorted(held))
    finally:
        for lock in held.values():
            lock.release()


def _take(
    usable: Sequence[int],
    needed: int,
    found: Gpus | None,
    deadline: float,
    on_wait: Callable[[str], None] | None,
) -> dict[int, FileLock]:
    """Wait in line, then until enough are free. Nothing is held meanwhile, so nobody waits in a circle."""
    try:
        with _lock("gpu-queue").acquire(timeout=max(0.0, deadline - time.monotonic()), poll_interval=POLL_S):
            while True:
                taken, busy = _try_take(usable, needed, found)
                if taken:
                    return taken
                if on_wait is not None:
                    on_wait(f"waiting for {needed} free GPUs: {busy}")
                    on_wait = None
                if time.monotonic() >= deadline:
                    raise LaunchError(f"{needed} GPUs were not free in time: {busy}", kind="timeout")
                time.sleep(POLL_S)
    except Timeout as error:
        raise LaunchError(f"{needed} GPUs were not free in time: other claims came first", kind="timeout") from error


def _try_take(usable: Sequence[int], needed: int, found: Gpus | None) -> tuple[dict[int, FileLock], str]:
    """Locks of the chosen GPUs, or none of them and what is in the way."""
    free: dict[int, FileLock] = {}
    busy: list[str] = []
    for gpu in usable:
        lock = _lock(f"gpu-{gpu}")
        used = found.memory_used_bytes(gpu) if found is not None else None
        if found is not None and used is not None and used > USED_BYTES:
            holders = ", ".join(map(str, found.holders(gpu))) or "an unknown process"
            busy.append(f"GPU {gpu} holds {used / 2**30:.0f} GiB of {holders}")
        elif _acquired(lock):
            free[gpu] = lock
        else:
            busy.append(f"GPU {gpu} is taken by another run")
    chosen = choose(usable, frozenset(free), needed)
    for gpu, lock in free.items():
        if gpu not in chosen:
            lock.release()
    return {gpu: free[gpu] for gpu in chosen}, "; ".join(busy)


def choose(usable: Sequence[int], free: frozenset[int], needed: int) -> tuple[int, ...]:
    """The best of the free GPUs: an aligned block, else neighbours, else any; empty when there are too few."""
    starts = (*range(0, len(usable), needed), *range(len(usable)))
    for block in (tuple(usable[start : start + needed]) for start in starts):
        neighbours = all(right == left + 1 for left, right in pairwise(block))
        if len(block) == needed and neighbours and free.issuperset(block):
            return block
    any_free = tuple(gpu for gpu in usable if gpu in free)
    return any_free[:needed] if len(any_free) >= needed else ()


@contextlib.contextmanager
def reserved_port(host: str = "127.0.0.1") -> Iterator[int]:
    """A port that is free on ``host`` and that no other run takes as long as the block lasts.

    Raises
    ------
    LaunchError
        When none is found.
    """
    for _ in range(_PORT_TRIES):
        port = FIRST_PORT + secrets.randbelow(LAST_PORT - FIRST_PORT + 1)
        lock = _lock(f"port-{port}")
        if not _acquired(lock):
            continue
        try:
            if _is_free(host, port):
                yield port
                return
        finally:
            lock.release()
    raise LaunchError(f"no free port between {FIRST_PORT} and {LAST_PORT} on {host}", kind="port")


@contextlib.contextmanager
def reserved_share(shares: int) -> Iterator[int | None]:
    """The number, from 0, of a share of this machine that no other place has; ``None`` when all are taken."""
    for number in range(shares):
        lock = _lock(f"share-{number}-of-{shares}")
        if _acquired(lock):
            try:
                yield number
            finally:
                lock.release()
            return
    yield None


def _is_free(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _lock(name: str) -> FileLock:
    # Not bound to a thread: a notebook may leave the block in another one than it was entered in.
    folder: Path = state_dir() / "locks"
    folder.mkdir(exist_ok=True)
    return FileLock(folder / f"{name}.lock", thread_local=False)


def _acquired(lock: FileLock) -> bool:
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return False
    return True
