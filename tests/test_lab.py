from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from workbench import lab
from workbench.cli import main
from workbench.errors import MissingToolError
from workbench.paths import ROOT_ENV


def test_the_server_is_for_this_machine_alone_and_keeps_its_token(tmp_path: Path) -> None:
    argv = lab.command(tmp_path)
    assert argv[:3] == [sys.executable, "-m", "jupyterlab"]
    assert "--ServerApp.ip=127.0.0.1" in argv and "--ServerApp.allow_remote_access=False" in argv
    assert not [word for word in argv if "token" in word or "password" in word or "xsrf" in word]
    assert f"--ServerApp.root_dir={tmp_path}" in argv


def test_root_is_allowed_only_where_it_is_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for user, allowed in ((0, True), (1000, False)):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        assert ("--allow-root" in lab.command(tmp_path)) is allowed


def test_the_command_becomes_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    became: list[tuple[str, list[str], dict[str, str]]] = []
    monkeypatch.setenv(ROOT_ENV, str(tmp_path))

    def execve(path: str, argv: list[str], env: dict[str, str]) -> None:
        became.append((path, argv, env))
        raise KeyboardInterrupt  # the real one does not come back

    monkeypatch.setattr(os, "execve", execve)
    assert main(["lab", "--port", "8890", "--no-browser"]) == 130
    ((path, argv, env),) = became
    assert path == argv[0] == sys.executable
    assert {"--ServerApp.port=8890", "--no-browser"} <= set(argv)
    assert env[ROOT_ENV] == str(tmp_path)


def test_the_first_notebook_is_there() -> None:
    assert (Path(__file__).parents[1] / lab.FIRST).is_file()


def test_without_jupyterlab_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab, "find_spec", lambda name: None)
    with pytest.raises(MissingToolError, match="JupyterLab is not installed"):
        lab.start()
