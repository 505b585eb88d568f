from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from workbench import lab
from workbench.cli import main
from workbench.errors import MissingToolError
from workbench.paths import ROOT_ENV


def test_the_server_is_for_this_machine_alone_and_keeps_its_token(tmp_path: Path) -> None:
    argv = lab.command(tmp_path)
    assert argv[:4] == [sys.executable, "-P", "-m", "workbench.lab"]
    assert "--ServerApp.ip=127.0.0.1" in argv and "--ServerApp.allow_remote_access=False" in argv
    assert not [word for word in argv if "token" in word or "password" in word or "xsrf" in word]
    assert "--ServerApp.allow_origin=" in argv and "--ServerApp.allow_origin_pat=" in argv
    assert f"--ServerApp.root_dir={tmp_path}" in argv


def test_root_is_allowed_only_where_it_is_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for user, allowed in ((0, True), (1000, False)):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        assert ("--allow-root" in lab.command(tmp_path)) is allowed


def test_the_command_becomes_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    became: list[tuple[str, list[str], dict[str, str]]] = []
    monkeypatch.setenv(ROOT_ENV, str(tmp_path))
    monkeypatch.setenv("JUPYTER_TOKEN", "")

    def execve(path: str, argv: list[str], env: dict[str, str]) -> None:
        became.append((path, argv, env))
        raise KeyboardInterrupt  # the real one does not come back

    monkeypatch.setattr(os, "execve", execve)
    assert main(["lab", "--port", "8890", "--no-browser"]) == 130
    ((path, argv, env),) = became
    assert path == argv[0] == sys.executable
    assert {"--ServerApp.port=8890", "--no-browser"} <= set(argv)
    assert env[ROOT_ENV] == str(tmp_path)
    token = env["JUPYTER_TOKEN"]
    assert len(token) == 48 and not [word for word in argv if token in word]
    assert token in capsys.readouterr().out


def test_a_token_is_asked_for_whatever_the_users_configuration_says(tmp_path: Path) -> None:
    """Asked of the real server, which reads the configuration and ends where it would begin to serve."""
    (tmp_path / "jupyter_server_config.py").write_text(
        "c.IdentityProvider.token = ''\nc.ServerApp.token = ''\nc.ServerApp.allow_origin = '*'\n"
    )
    ask = (
        "import sys; from jupyter_server.serverapp import ServerApp; from workbench import lab\n"
        "def told(app): print('told', app.identity_provider.token, repr(app.allow_origin), app.ip)\n"
        "ServerApp.start = told\n"
        "lab.serve(sys.argv[1:])\n"
        "import os; print('JUPYTER_TOKEN' in os.environ)"
    )
    # With a free port and without the browser; the folder of this test stands in for the user's own.
    argv = [sys.executable, "-c", ask, *lab.command(tmp_path, port=0, browser=False)[4:]]
    folders = {f"JUPYTER_{name}_DIR": str(tmp_path) for name in ("CONFIG", "RUNTIME", "DATA")}
    env = {**os.environ, **folders, "JUPYTER_TOKEN": "0123456789abcdef"}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "told 0123456789abcdef '' 127.0.0.1\nFalse\n"


def test_the_first_notebook_is_there() -> None:
    assert (Path(__file__).parents[1] / lab.FIRST).is_file()


def test_without_jupyterlab_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab, "find_spec", lambda name: None)
    with pytest.raises(MissingToolError, match="JupyterLab is not installed"):
        lab.start()
