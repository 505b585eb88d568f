"""`workbench lab`: JupyterLab on this project, for this machine alone."""

from __future__ import annotations

import os
import secrets
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from workbench.errors import MissingToolError
from workbench.paths import ROOT_ENV, project_root
from workbench.terminal import say

FIRST = "notebooks/00_explore.ipynb"
TOKEN_ENV = "JUPYTER_TOKEN"  # noqa: S105 - the name of a variable


def command(root: Path, *, port: int | None = None, browser: bool = True) -> list[str]:
    """The command line of the server.

    It listens on the loopback address, and answers no page of another origin, whatever the user's own configuration
    says. The whole project is its folder, so that data/, docs/ and reports/ can be opened too.
    """
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    return [
        sys.executable,
        "-P",
        *("-m", "workbench.lab"),
        "--ServerApp.ip=127.0.0.1",
        "--ServerApp.allow_remote_access=False",
        "--ServerApp.allow_origin=",
        "--ServerApp.allow_origin_pat=",
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
    token = os.environ.get(TOKEN_ENV) or secrets.token_hex(24)
    say(f"Token, for the address that JupyterLab prints with token=...: {token}")
    sys.stdout.flush()
    # Kernels look for the project where the server was started, wherever their notebook lies.
    os.execve(argv[0], argv, {**os.environ, ROOT_ENV: str(root), TOKEN_ENV: token})  # noqa: S606 - no shell


def serve(arguments: list[str]) -> None:
    """What `start` becomes.

    Jupyter takes the variable for a default only, which a configuration with an empty token overrides; an argument
    overrides that, and given here it is in no list of processes. Kernels do not inherit it.
    """
    token = os.environ.pop(TOKEN_ENV)
    import_module("jupyterlab.labapp").LabApp.launch_instance([*arguments, f"--IdentityProvider.token={token}"])


if __name__ == "__main__":
    serve(sys.argv[1:])
