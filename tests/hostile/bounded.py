"""A call in a process of its own, with a limit of memory and of time."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

HELPERS = Path(__file__).parent
TESTS = HELPERS.parent


def bounded(code: str, *arguments: str | Path, mib: int, seconds: float, stdin: bytes | None = None) -> str:
    """Run Python code with ``sys.argv[1:]``; what it printed. Too much memory is an error in it, too long one here."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        timeout=seconds,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (mib << 20, mib << 20)),
        env={"PATH": "/usr/bin:/bin", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": f"{TESTS}:{HELPERS}"},
        cwd=TESTS.parent,
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return done.stdout.decode()
