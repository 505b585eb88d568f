"""Hashes of folders: of their content, and without reading again what is as it was."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from workbench import hashes
from workbench.hashes import hash_folder
from workbench.paths import ROOT_ENV


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a project with more files than are hashed without a second thought."""
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setenv(ROOT_ENV, str(tmp_path))
    found = tmp_path / "data" / "runs" / "c"
    for number in range(hashes._FEW_FILES + 1):
        path = found / f"r{number}" / "spec.json"
        path.parent.mkdir(parents=True)
        path.write_text(str(number))
        os.utime(path, (time.time() - 60, time.time() - 60))
    return found


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that are read."""
    names: list[Path] = []
    real = hashes.hash_file
    monkeypatch.setattr(hashes, "hash_file", lambda path: names.append(path) or real(path))
    return names


def test_only_what_changed_is_read_again(folder: Path, read: list[Path]) -> None:
    first = hash_folder(folder)
    read.clear()
    assert hash_folder(folder) == first
    assert read == []
    (folder / "r7" / "spec.json").write_text("other")
    changed = hash_folder(folder)
    assert changed != first
    assert read == [folder / "r7" / "spec.json"]
    # It changed just now: it may change again and look the same.
    read.clear()
    assert hash_folder(folder) == changed
    assert read == [folder / "r7" / "spec.json"]


def test_the_hash_is_that_of_the_content(folder: Path, tmp_path: Path) -> None:
    first = hash_folder(folder)
    hash_folder(folder)
    for path in (tmp_path / "reports" / ".cache" / "hashes").iterdir():
        path.write_bytes(b"not JSON")
    assert hash_folder(folder) == first
    (folder / "r0" / "spec.json").rename(folder / "r0" / "other.json")
    assert hash_folder(folder) != first


def test_what_is_left_out_does_not_count(folder: Path) -> None:
    first = hash_folder(folder, without={"_lock"})
    (folder / "_lock").write_text("held")
    assert hash_folder(folder, without={"_lock"}) == first
    assert hash_folder(folder) != first
