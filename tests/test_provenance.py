from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from workbench.provenance import code_version, hash_path, provenance_facts, provenance_rows, redact


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_code_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_ROOT", str(tmp_path))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert code_version().endswith(", commit not known")
    git(tmp_path, "init", "-q")
    (tmp_path / "file").write_text("1")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-qm", "x")
    sha = git(tmp_path, "rev-parse", "HEAD")[:12]
    (tmp_path / "untracked").write_text("1")
    assert code_version().endswith(f", commit {sha}")
    (tmp_path / "file").write_text("2")
    assert code_version().endswith(f", commit {sha}, with uncommitted changes")
    monkeypatch.setenv("PATH", "/nonexistent")
    assert code_version().endswith(", commit not known")


def test_hashes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert hash_path(tmp_path / "a") == "ba7816bf8f01cfea"  # FIPS 180-2, appendix B.1
    assert hash_path(tmp_path / "absent") == "not known: No such file or directory"
    before = hash_path(tmp_path)
    (tmp_path / "sub").mkdir()
    assert hash_path(tmp_path) == before
    (tmp_path / "sub" / "b").write_bytes(b"")
    changed = hash_path(tmp_path)
    assert changed != before
    # What a command that measured nothing new leaves behind.
    (tmp_path / "progress.log").write_text("measured already")
    (tmp_path / "_notebooks").mkdir()
    (tmp_path / "_notebooks" / "run.ipynb").write_text("{}")
    assert hash_path(tmp_path) == changed


def test_redact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/jane")
    monkeypatch.setenv("WORKBENCH_ROOT", "/home/jane/work/bench")
    assert redact('File "/home/jane/work/bench/a.py", /home/jane, /home/jane2') == 'File "./a.py", ~, /home/jane2'
    assert redact("token=hf_ABCDEFGHIJKLMNOPQRSTUVWX end hf_model") == "token=hf_*** end hf_model"
    monkeypatch.setenv("HOME", "/")
    assert redact("/etc/hosts") == "/etc/hosts"


def test_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    rows = dict(provenance_rows(provenance_facts(command=["workbench", "diagnose", f"{tmp_path}/me/my log"])))
    assert rows["Command"] == "workbench diagnose '~/my log'"
    assert rows["Versions"].startswith("Python 3.")
    assert "nbconvert 7." in rows["Versions"]
    monkeypatch.setattr("sys.argv", ["/venv/bin/workbench", "report"])
    assert dict(provenance_rows(provenance_facts()))["Command"] == "workbench report"


def test_a_file_name_that_is_no_text_becomes_escapes(tmp_path: Path) -> None:
    log = tmp_path / os.fsdecode(b"a\xff.log")
    log.write_bytes(b"abc")
    rows = provenance_rows(provenance_facts(inputs=[log, tmp_path], command=["workbench", str(log)]))
    assert rows[0][1].endswith("a\\udcff.log'")
    assert rows[-2][1].endswith("a\\udcff.log (SHA-256 ba7816bf8f01cfea)")
    assert "not known" not in rows[-1][1]
    "".join(text for _, text in rows).encode()
