"""Where things are: the project root and its folders, and names that are safe in a path."""

from __future__ import annotations

import os
import re
from pathlib import Path

from workbench.errors import UsageError

ROOT_ENV = "WORKBENCH_ROOT"
CACHE_ENV = "WORKBENCH_CACHE"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def project_root() -> Path:
    """Folder that holds notebooks/, data/ and reports/.

    ``$WORKBENCH_ROOT`` when set, otherwise the nearest parent of the working folder, then of this file, that
    holds ``notebooks/`` and ``data/``.

    Raises
    ------
    UsageError
        When there is no such folder.
    """
    stated = os.environ.get(ROOT_ENV)
    if stated:
        return Path(stated).resolve()
    here = Path.cwd()
    for folder in (here, *here.parents, *Path(__file__).resolve().parents):
        if (folder / "notebooks").is_dir() and (folder / "data").is_dir():
            return folder
    raise UsageError(
        "no project folder found (a folder with notebooks/ and data/)",
        where=here,
        next_step=f"run inside a checkout of the workbench, or set {ROOT_ENV} to it",
    )


def check_stated_root() -> None:
    """Refuse a ``$WORKBENCH_ROOT`` that is not there, before a command makes folders in it.

    Raises
    ------
    UsageError
        When it is set and no folder.
    """
    stated = os.environ.get(ROOT_ENV)
    if stated and not Path(stated).is_dir():
        raise UsageError("no such folder", where=f"{ROOT_ENV}={stated}", next_step="set it to a checkout, or unset it")


def campaigns_dir() -> Path:
    return project_root() / "data" / "campaigns"


def recorded_dir() -> Path:
    return project_root() / "data" / "recorded"


def runs_dir() -> Path:
    return project_root() / "data" / "runs"


def prompts_dir() -> Path:
    return project_root() / "data" / "prompts"


def reference_points_csv() -> Path:
    return project_root() / "data" / "reference_points.csv"


def notebooks_dir() -> Path:
    return project_root() / "notebooks"


def reports_dir() -> Path:
    return project_root() / "reports"


def cache_dir() -> Path:
    """Folder for what is downloaded or converted once: ``$WORKBENCH_CACHE``, else one in the user's cache."""
    stated = os.environ.get(CACHE_ENV)
    if stated:
        return Path(stated).expanduser().resolve()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "eagle3-workbench"


TUNED = "tune.json"
"""What `workbench tune` found, in a campaign folder."""
KEPT, RUN_NOTEBOOKS, LOCK, COMMAND_LOCK, PROGRESS = "_kept", "_notebooks", "_lock", "_command", "progress.log"
ARRIVING = "_arriving"
WORKING = frozenset({KEPT, RUN_NOTEBOOKS, LOCK, COMMAND_LOCK, PROGRESS, ARRIVING})
"""What a measuring command leaves in a campaign's folder beside the data."""


def under_root(path: str) -> str:
    """A relative path as one under the project where there is such a file, else unchanged."""
    inside = project_root() / path
    try:
        return str(inside) if not Path(path).is_absolute() and inside.exists() else path
    except (OSError, ValueError):  # a name too long, a NUL in it: said where the file is read
        return path


def slug(text: str, *, max_length: int = 80) -> str:
    """A file name made from ``text``: letters, digits, ``. _ -`` only, never empty, never starting with a dot."""
    cleaned = _UNSAFE.sub("-", text).strip("-.")[:max_length].rstrip("-.")
    return cleaned or "unnamed"
