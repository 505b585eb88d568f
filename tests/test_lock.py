"""The versions that CI installs are versions that pyproject.toml allows."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LOCK = ROOT / ".ci" / "constraints.txt"
# Pinned in the Makefile, since its builds differ by machine.
ELSEWHERE = {"torch"}


@cache
def locked() -> dict[str, str]:
    lines = [line for line in LOCK.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}


def asked() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    return [
        Requirement(text)
        for text in (*project["dependencies"], *(r for e in ("test", "lint", "reference") for r in extras[e]))
    ]


@pytest.mark.parametrize("requirement", asked(), ids=str)
def test_what_is_needed_is_locked_to_a_version_that_is_allowed(requirement: Requirement) -> None:
    name = canonicalize_name(requirement.name)
    if name not in ELSEWHERE:
        assert name in locked(), "run `make lock`"
        assert requirement.specifier.contains(locked()[name]), f"{locked()[name]}: run `make lock`"


def test_every_line_is_one_version() -> None:
    assert len(locked()) > 100
    for name, version in locked().items():
        Requirement(f"{name}=={version}")


def test_ci_installs_these() -> None:
    assert 'PIP_CONSTRAINT="$PWD/.ci/constraints.txt"' in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
