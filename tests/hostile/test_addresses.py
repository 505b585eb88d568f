"""Who can reach what is started here: this machine's own processes, and with JupyterLab only who has its token."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
from notebook_files import code, write_notebook

from workbench.launch.argv import server_argv
from workbench.notebook import run_notebook
from workbench.paths import ROOT_ENV
from workbench.reference.arguments import parse_arguments
from workbench.spec import RunState
from workbench.sweep import expand, find_campaign

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["quickstart", "kimi_k25_8gpu", "h200_variants"])
def test_servers_listen_on_this_machine_alone(name: str) -> None:
    campaign = find_campaign(name)
    for start in expand(campaign).starts:
        argv = server_argv(start, campaign, port=30000)
        assert argv[argv.index("--host") + 1] == "127.0.0.1"
        assert argv.count("--host") == 1


def test_another_address_has_to_be_said() -> None:
    campaign = find_campaign("quickstart")
    argv = server_argv(expand(campaign).starts[0], campaign, port=30000, host="0.0.0.0")
    assert argv[argv.index("--host") + 1] == "0.0.0.0"


def test_the_embedded_engine_too() -> None:
    assert parse_arguments(["--model-path", "m"])[0].host == "127.0.0.1"


def test_jupyterlab_keeps_its_token() -> None:
    """The Makefile only starts the command, whose server is asked in tests/test_lab.py."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (lab,) = re.findall(r"^lab:.*\n((?:\t.*\n)+)", makefile, re.M)
    assert "workbench lab" in lab
    for weakened in ("token", "password", "--ip", "allow_origin", "allow_remote", "disable_check_xsrf", "0.0.0.0"):
        assert weakened not in lab


CELL = """
import json, os, time
import ipykernel.kernelapp
app = ipykernel.kernelapp.IPKernelApp.instance()
print(json.dumps({"transport": app.transport, "ip": app.ip, "file": app.connection_file, "pid": os.getpid()}))
time.sleep(2.0)
"""


def test_a_kernel_talks_through_files_of_this_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROOT_ENV, str(tmp_path))
    (tmp_path / "data").mkdir()
    notebook = write_notebook(tmp_path / "notebooks" / "n.ipynb", code("x: str = ''", "parameters"), code(CELL))
    listening: set[tuple[str, int]] = set()
    modes: set[int] = set()
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            for process in psutil.Process().children(recursive=True):
                try:
                    for connection in process.net_connections("inet"):
                        if connection.status == psutil.CONN_LISTEN:
                            listening.add((connection.laddr.ip, process.pid))
                    for connection in process.net_connections("unix"):
                        folder = Path(str(connection.laddr)).parent
                        if "wb-" in str(folder):
                            modes.add(folder.stat().st_mode & 0o777)
                except (psutil.Error, OSError):
                    continue

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        run = run_notebook(notebook, tmp_path / "out.ipynb", {}, timeout_s=120)
    finally:
        done.set()
        watcher.join()
    assert run.status is RunState.OK, run.reason
    cells = json.loads((tmp_path / "out.ipynb").read_text())["cells"]
    said = json.loads("".join(cells[-1]["outputs"][0]["text"]))
    assert said["transport"] == "ipc"
    assert said["ip"].startswith(("/tmp/wb-", "/dev/shm/wb-")) or "/wb-" in said["ip"]
    assert modes == {0o700}
    # ipykernel's own way for what forked processes print; it takes nothing without a random key of 16 bytes.
    assert {address for address, _ in listening} <= {"127.0.0.1"}
    assert len(listening) <= 1


def test_the_scripted_check_sees_a_listener() -> None:
    """What the test above looks for is seen where it is."""
    script = "import socket, time; s = socket.create_server(('127.0.0.1', 0)); print('up', flush=True); time.sleep(20)"
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None and process.stdout.readline().strip() == b"up"
        states = [c.status for c in psutil.Process(process.pid).net_connections("inet")]
        assert psutil.CONN_LISTEN in states
    finally:
        process.kill()
        process.communicate()
