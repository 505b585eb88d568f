"""Wheels as files of data: only the bytes that are known are opened."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest

from workbench import wheels
from workbench.errors import InputError, MissingToolError
from workbench.wheels import Wheel, opened

# Of the empty zip archive that `made` writes, by sha256sum.
EMPTY_SHA256 = "8739c76e681f900923b900c9df0ef75cf421d39cabb54650c4b9ad19b6a76d85"


def made(folder: Path) -> Path:
    path = folder / "some_data-1.0-py3-none-any.whl"
    zipfile.ZipFile(path, "w").close()
    return path


def test_a_wheel_in_a_folder_is_opened(tmp_path: Path) -> None:
    made(tmp_path)
    with opened(Wheel("some-data==1.0", EMPTY_SHA256), tmp_path) as archive:
        assert archive.namelist() == []


def test_other_bytes_are_refused(tmp_path: Path) -> None:
    made(tmp_path)
    with pytest.raises(InputError, match="SHA-256 is 8739c7"), opened(Wheel("some-data==1.0", "0" * 64), tmp_path):
        pass


def test_a_wheel_that_is_not_there(tmp_path: Path) -> None:
    made(tmp_path)
    with pytest.raises(MissingToolError, match=r"no wheel of some-data==2\.0"):
        opened(Wheel("some-data==2.0", EMPTY_SHA256), tmp_path).__enter__()


def test_a_download_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def failed(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        assert command[1:5] == ["-P", "-m", "pip", "download"]
        assert command[-1] == "some-data==1.0"
        return subprocess.CompletedProcess(command, 1, "", "no such host")

    monkeypatch.setattr(wheels.subprocess, "run", failed)
    with pytest.raises(MissingToolError, match=r"could not be downloaded \(no such host\)"):
        opened(Wheel("some-data==1.0", EMPTY_SHA256)).__enter__()
