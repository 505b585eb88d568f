"""What this machine can run, and what is missing for the rest."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path

_NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
_PYTHON = "make PYTHON=python3.12 report, with one of these versions"


@dataclass(frozen=True, slots=True)
class Ability:
    """Something the workbench can do here or not, and what would make it possible."""

    what: str
    able: bool
    detail: str


def abilities() -> list[Ability]:
    """Checked without importing anything heavy and without touching a GPU."""
    python_ok = (3, 11) <= sys.version_info[:2] <= (3, 13)
    return [
        Ability("Python 3.11-3.13", python_ok, platform.python_version() + ("" if python_ok else f": {_PYTHON}")),
        _package("read logs and run folders", "pandas", "pip install -e ."),
        _package("run notebooks", "papermill", "pip install -e ."),
        _package("make pages", "nbconvert", "pip install -e ."),
        _package("explore in JupyterLab", "jupyterlab", "pip install -e ."),
        _package("run the embedded engine", "torch", "make quickstart, or pip install -e '.[reference]'"),
        _slow_start(_package("serve with SGLang", "sglang", "conda env create -f environment.yml, on the GPU node")),
        _package("measure on many nodes", "ray", "pip install -e '.[ray]', on every node"),
        _program("NVIDIA driver", "nvidia-smi", "needed on the GPU node only"),
        _program("browser tests", "chromium", "apt-get install chromium; needed for development only"),
    ]


def examine() -> str:
    """The abilities as lines of text."""
    found = abilities()
    width = max(len(ability.what) for ability in found)
    return "\n".join(f"{'yes' if a.able else 'no ':<4} {a.what:<{width}}  {a.detail}" for a in found)


def _package(what: str, name: str, remedy: str) -> Ability:
    if importlib.util.find_spec(name) is None:
        return Ability(what, False, f"{name} is not installed: {remedy}")
    try:
        return Ability(what, True, f"{name} {importlib.metadata.version(name)}")
    except importlib.metadata.PackageNotFoundError:
        return Ability(what, True, f"{name} (version unknown)")


def _slow_start(serving: Ability) -> Ability:
    """Without bytecode and forbidden to write it, every process of a server compiles all that it imports.

    Measured on one node, SGLang 0.5.14 and a target of 135M: 57 s instead of 37 s from start to ready.
    """
    if not serving.able or not os.environ.get(_NO_BYTECODE):
        return serving
    spec = importlib.util.find_spec("sglang")
    folders = [Path(place) for place in (spec and spec.submodule_search_locations) or ()]
    sources = [source for folder in folders for part in (folder, folder / "srt") for source in part.glob("*.py")]
    if not sources or any(Path(importlib.util.cache_from_source(str(source))).is_file() for source in sources):
        return serving
    slow = (
        f"{_NO_BYTECODE} is set and {folders[0]} has no bytecode, so a server takes about 20 s longer to start: "
        f"unset it, or run python -m compileall -q {folders[0].parent} once"
    )
    return replace(serving, detail=f"{serving.detail}; {slow}")


def _program(what: str, name: str, remedy: str) -> Ability:
    path = shutil.which(name)
    return Ability(what, path is not None, path or f"{name} is not on the PATH: {remedy}")
