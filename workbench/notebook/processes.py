"""Processes of a run: interrupt what a kernel does, end everything that was started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time

import psutil

INTERRUPT_GRACE_S = 8.0
INTERRUPT_AGAIN_S = 5.0
# The path of a Unix socket holds at most 103 bytes on macOS and 107 on Linux; "/wb-1a2b3c4d/r/k-10" is added to it.
MAX_TEMP_LENGTH = 80


def short_temp() -> str:
    """A folder for temporary files with a path short enough for the kernel's sockets."""
    place = tempfile.gettempdir()
    return place if len(os.fsencode(place)) <= MAX_TEMP_LENGTH else "/tmp"  # noqa: S108


def interrupt_cell(process: subprocess.Popen[bytes], grace_s: float = INTERRUPT_GRACE_S) -> None:
    """Send Ctrl-C to the kernel, the child's only child, and give the notebook a moment to be saved.

    It is sent again every few seconds: a kernel that is between two cells does not hear it.
    """
    deadline = time.monotonic() + grace_s
    while (left_s := deadline - time.monotonic()) > 0:
        kernels: list[psutil.Process] = []
        with contextlib.suppress(psutil.Error):
            kernels = psutil.Process(process.pid).children()
            for kernel in kernels:
                kernel.send_signal(signal.SIGINT)
        if not kernels:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=min(left_s, INTERRUPT_AGAIN_S))
            return


def stop_tree(pid: int) -> None:
    """Kill a process, everything below it, and every process group that these lead (kernels have their own)."""
    try:
        root = psutil.Process(pid)
        root.suspend()  # so that it starts nothing while its family is listed
        family = [root, *root.children(recursive=True)]
    except psutil.Error:
        return
    groups = set()
    for member in family:
        with contextlib.suppress(psutil.Error, OSError):
            groups.add(os.getpgid(member.pid))
            member.kill()
    for group in groups - {os.getpgrp()}:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)
    psutil.wait_procs(family[1:], timeout=5)
