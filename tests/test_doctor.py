from __future__ import annotations

import importlib.metadata
import importlib.util
import shutil
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from workbench import doctor


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A machine with these packages and programs; fill it in the test."""
    there: dict[str, str] = {}

    def version(name: str) -> str:
        if there[name] == "":
            raise importlib.metadata.PackageNotFoundError(name)
        return there[name]

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: ModuleSpec(name, None) if name in there else None)
    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr(shutil, "which", there.get)
    return there


def said() -> dict[str, doctor.Ability]:
    return {ability.what: ability for ability in doctor.abilities()}


def test_a_bare_machine_is_told_what_is_missing_and_how_to_get_it(machine: dict[str, str]) -> None:
    missing = {what: ability.detail for what, ability in said().items() if not ability.able}
    assert missing == {
        "read logs and run folders": "pandas is not installed: pip install -e .",
        "run notebooks": "papermill is not installed: pip install -e .",
        "make pages": "nbconvert is not installed: pip install -e .",
        "explore in JupyterLab": "jupyterlab is not installed: pip install -e .",
        "run the embedded engine": "torch is not installed: make quickstart, or pip install -e '.[reference]'",
        "serve with SGLang": "sglang is not installed: conda env create -f environment.yml, on the GPU node",
        "measure on many nodes": "ray is not installed: pip install -e '.[ray]', on every node",
        "NVIDIA driver": "nvidia-smi is not on the PATH: needed on the GPU node only",
        "browser tests": "chromium is not on the PATH: apt-get install chromium; needed for development only",
    }


def test_what_is_there_is_named_with_its_version(machine: dict[str, str]) -> None:
    machine |= {"pandas": "3.0.1", "sglang": "", "nvidia-smi": "/usr/bin/nvidia-smi"}
    able = {what: ability.detail for what, ability in said().items() if ability.able}
    assert able.pop("Python 3.11-3.13")
    assert able == {
        "read logs and run folders": "pandas 3.0.1",
        "serve with SGLang": "sglang (version unknown)",
        "NVIDIA driver": "/usr/bin/nvidia-smi",
    }


@pytest.fixture
def installed(machine: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An SGLang of two modules without bytecode, where the variable is set."""
    package = tmp_path / "site" / "sglang"
    (package / "srt").mkdir(parents=True)
    for name in ("__init__.py", "srt/server_args.py"):
        (package / name).write_text("x = 1\n")
    spec = ModuleSpec("sglang", None, is_package=True)
    spec.submodule_search_locations = [str(package)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec if name == "sglang" else None)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setattr(sys, "pycache_prefix", None)
    machine["sglang"] = "0.5.14"
    return package


def test_sglang_that_is_compiled_anew_at_every_start(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serving = said()["serve with SGLang"]
    assert serving.able
    assert serving.detail == (
        f"sglang 0.5.14; PYTHONDONTWRITEBYTECODE is set and {installed} has no bytecode, so a server takes about 20 s "
        f"longer to start: unset it, or run python -m compileall -q {installed.parent} once"
    )
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "")
    assert said()["serve with SGLang"].detail == "sglang 0.5.14", "Python takes an empty value for none"


def test_what_is_said_about_bytecode_helps(installed: Path) -> None:
    """The advice, followed with the variable still set."""
    subprocess.run([sys.executable, "-m", "compileall", "-q", installed.parent], check=True)
    assert said()["serve with SGLang"].detail == "sglang 0.5.14"


@pytest.mark.parametrize(("version", "able"), [((3, 10), False), ((3, 11), True), ((3, 13), True), ((3, 14), False)])
def test_pythons(monkeypatch: pytest.MonkeyPatch, version: tuple[int, int], able: bool) -> None:
    monkeypatch.setattr(sys, "version_info", (*version, 0, "final", 0))
    python = said()["Python 3.11-3.13"]
    assert python.able is able
    assert ("make PYTHON=" in python.detail) is not able


def test_the_text_has_a_line_an_ability_in_columns(machine: dict[str, str]) -> None:
    lines = doctor.examine().splitlines()
    assert len(lines) == len(doctor.abilities())
    assert lines[1] == "no   read logs and run folders  pandas is not installed: pip install -e ."
    assert {line[:5] for line in lines} == {"yes  ", "no   "}
