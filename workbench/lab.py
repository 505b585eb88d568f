"""`workbench lab`: JupyterLab on this project, for this machine alone."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

from workbench.errors import MissingToolError
from workbench.paths import ROOT_ENV, project_root

FIRST = "notebooks/00_explore.ipynb"


def command(root: Path, *, port: int | None = None, browser: bool = True) -> list[str]:
    """The command line of the server.

    It listens on the loopback address whatever the user's own configuration says, and asks for the token that it makes
    up at each start. The whole project is its folder, so that data/, docs/ and reports/ can be opened too.
    """
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    return [
        sys.executable,
        *("-m", "jupyterlab"),
        "--ServerApp.ip=127.0.0.1",
        "--ServerApp.allow_remote_access=False",
        f"--ServerApp.root_dir={root}",
        f"--LabApp.default_url=/lab/tree/{FIRST}",
        *([f"--ServerApp.port={port}"] if port is not None else []),
        *([] if browser else ["--no-browser"]),
        *(["--allow-root"] if is_root else []),
    ]


def start(*, port: int | None = None, browser: bool = True) -> int:
    """Become the server; it ends with Ctrl-C.

    Raises
    ------
    MissingToolError
        Where JupyterLab is not installed.
    """
    if find_spec("jupyterlab") is None:
        raise MissingToolError("JupyterLab is not installed", where="workbench lab", next_step="pip install jupyterlab")
    root = project_root()
    argv = command(root, port=port, browser=browser)
    # Kernels look for the project where the server was started, wherever their notebook lies.
    os.execve(argv[0], argv, {**os.environ, ROOT_ENV: str(root)})  # noqa: S606 - a list of arguments, no shell
