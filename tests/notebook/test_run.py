"""Each test here starts kernels, so there are few of them and each looks at several things."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import psutil
import pytest
from notebook_files import code, finished_run, markdown, write_notebook

from workbench.errors import SpecError, UsageError
from workbench.notebook import NotebookJob, NotebookRun, run, run_notebook, run_notebooks, status_file
from workbench.spec import RunState


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("notebooks", "data", "reports"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("WORKBENCH_ROOT", str(tmp_path))
    return tmp_path


def printed(executed: Path) -> list[str]:
    """Text that the cells printed, and the names of exceptions they raised."""
    outputs = [o for cell in json.loads(executed.read_text())["cells"] for o in cell.get("outputs", [])]
    return ["".join(o["text"]) if o["output_type"] == "stream" else o["ename"] for o in outputs if "data" not in o]


def wait_until(there: Path, seconds: float = 60.0) -> str:
    deadline = time.monotonic() + seconds
    while not (there.exists() and there.read_text().endswith("\n")):
        assert time.monotonic() < deadline, f"{there} did not appear"
        time.sleep(0.05)
    return there.read_text()


def is_running(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


# A cell that starts a process in a session of its own, writes its pid down, and then never ends.
SLEEPER = """\
import pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print("started")
pathlib.Path("pid").write_text(f"{child.pid}\\n")
time.sleep(600)
"""


def test_several_at_once_and_one_that_fails_stops_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = root / "user"
    (hidden / "kernels" / "python3").mkdir(parents=True)
    (hidden / "kernels" / "python3" / "kernel.json").write_text('{"argv": ["false"], "display_name": "x"}')
    monkeypatch.setenv("JUPYTER_PATH", str(hidden))
    monkeypatch.setenv("MPLBACKEND", "nonsense")
    look = """\
    import os, sys, ipykernel.connect
    from workbench.paths import project_root
    info = ipykernel.connect.get_connection_info(unpack=True)
    print(sys.executable, os.getcwd(), project_root(), info["transport"], campaign, limit)
    for k in range(3): print("line", k, flush=True)
    """
    first = write_notebook(
        root / "notebooks" / "first.ipynb",
        code("campaign: str = 'a'\nlimit: int | None = 3", "parameters"),
        code(textwrap.dedent(look)),
    )
    fails = write_notebook(
        root / "notebooks" / "fails.ipynb", code("print('before')"), code("{}['<b>']"), code("print('after')")
    )
    out = root / "reports"
    runs = {
        done.output.stem: done
        for done in run_notebooks(
            [
                NotebookJob(first, out / "one.ipynb", {"campaign": 'it\'s "b"\n'}),
                NotebookJob(fails, out / "two.ipynb"),
                NotebookJob(first, out / "three.ipynb", {"campain": "b"}),
            ],
            workers=2,
        )
    }
    assert {name: done.status.value for name, done in runs.items()} == {"one": "ok", "two": "failed", "three": "failed"}
    one, two, three = runs["one"], runs["two"], runs["three"]

    assert one.parameters == {"campaign": 'it\'s "b"\n', "limit": 3}
    assert (one.exit_code, one.reason) == (0, None)
    assert one.duration_s is not None and 0 < one.duration_s < 120
    # One stream, although the cell flushed four times; our interpreter although the user's kernelspec says otherwise.
    assert printed(one.output) == [
        f'{sys.executable} {root} {root} ipc it\'s "b"\n 3\nline 0\nline 1\nline 2\n',
    ]
    assert two.reason == "KeyError: '<b>'"
    assert two.exit_code == 1
    assert printed(two.output) == ["before\n", "KeyError"]
    assert "did you mean 'campaign'?" in str(three.reason)
    assert three.exit_code is None
    assert not three.output.exists()

    status = json.loads(status_file(two.output).read_text())
    assert (status["status"], status["reason"], status["notebook"]) == ("failed", "KeyError: '<b>'", "fails.ipynb")
    # No sockets, no half-written files: only what was promised.
    assert sorted(p.name for p in out.iterdir()) == ["one.ipynb", "one.status.json", "two.ipynb", "two.status.json"]
    assert sorted(p.name for p in root.iterdir()) == ["data", "notebooks", "reports", "user"]


def test_the_time_limit_ends_everything_and_keeps_what_was_done(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.monotonic
    monkeypatch.setattr(run, "_clock", lambda: real() + (10_000 if (root / "pid").exists() else 0))
    path = write_notebook(root / "notebooks" / "n.ipynb", code("print('done')"), code(SLEEPER), code("print('after')"))
    done = run_notebook(path, root / "reports" / "n.ipynb", {}, timeout_s=600)
    assert done.status is RunState.TIMED_OUT
    assert done.reason == "stopped at the time limit of 600 s"
    assert printed(done.output) == ["done\n", "started\n", "KeyboardInterrupt"]
    assert json.loads(status_file(done.output).read_text())["status"] == "timed_out"


def test_a_stop_ends_processes_in_sessions_of_their_own(root: Path) -> None:
    path = write_notebook(root / "notebooks" / "n.ipynb", code(SLEEPER))
    stop = threading.Event()
    results: list[NotebookRun] = []
    thread = threading.Thread(
        target=lambda: results.append(run_notebook(path, root / "reports" / "n.ipynb", {}, stop=stop))
    )
    thread.start()
    pid = int(wait_until(root / "pid"))
    assert is_running(pid)
    assert json.loads((root / "reports" / "n.status.json").read_text())["status"] == "running"
    stop.set()
    thread.join(30)
    assert results[0].status is RunState.INTERRUPTED
    assert not is_running(pid)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_nothing_survives_the_process_that_waits(root: Path, how: signal.Signals) -> None:
    path = write_notebook(root / "notebooks" / "n.ipynb", code(SLEEPER))
    output = root / "reports" / "n.ipynb"
    script = (
        "from pathlib import Path; from workbench.notebook import NotebookJob, run_notebooks; "
        f"list(run_notebooks([NotebookJob(Path({str(path)!r}), Path({str(output)!r}))]))"
    )
    waiting = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL)
    pid = int(wait_until(root / "pid"))
    below = [child.pid for child in psutil.Process(waiting.pid).children(recursive=True)]
    assert pid in below
    os.kill(waiting.pid, how)
    assert waiting.wait(timeout=30) != 0
    deadline = time.monotonic() + 20
    while any(map(is_running, below)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert [child for child in below if is_running(child)] == []
    # Killed outright it could not say more than that it was running.
    says = "running" if how is signal.SIGKILL else "interrupted"
    assert json.loads(status_file(output).read_text())["status"] == says


def test_a_kernel_that_dies_leaves_what_it_had_done(root: Path) -> None:
    path = write_notebook(
        root / "notebooks" / "n.ipynb", code("print('done')"), code("import os; os._exit(7)"), code("print('after')")
    )
    done = run_notebook(path, root / "reports" / "n.ipynb", {})
    assert done.status is RunState.FAILED
    assert "Kernel died" in str(done.reason)
    assert printed(done.output) == ["done\n"]


def test_refusals_before_anything_is_started(root: Path) -> None:
    outside = write_notebook(root / "elsewhere.ipynb", markdown("x"))
    (root / "notebooks" / "link.ipynb").symlink_to(outside)
    for path in (outside, root / "notebooks" / "link.ipynb", root / "notebooks" / ".." / "elsewhere.ipynb"):
        with pytest.raises(UsageError, match="only notebooks of this project"):
            run_notebook(path, root / "reports" / "n.ipynb", {})
    with pytest.raises(UsageError, match="no such notebook"):
        run_notebook(root / "notebooks" / "absent.ipynb", root / "reports" / "n.ipynb", {})
    inside = write_notebook(root / "notebooks" / "n.ipynb", code("a: int = 1", "parameters"))
    with pytest.raises(SpecError, match="not of type int"):
        run_notebook(inside, root / "reports" / "n.ipynb", {"a": "1"})
    with pytest.raises(UsageError, match="same output"):
        list(run_notebooks([NotebookJob(inside, root / "reports" / "n.ipynb")] * 2))
    assert list((root / "reports").iterdir()) == []


# --- judging, without a kernel -----------------------------------------------------------------------------------


def test_modules_beside_the_notebooks_are_not_run(root: Path) -> None:
    """The one is imported before anything of ours, the other by the notebook."""
    for name in ("tokenize", "pandas", "json"):
        (root / f"{name}.py").write_text(
            f"import pathlib\npathlib.Path('ran').write_text({name!r})\nraise SystemExit(9)\n"
        )
    source = "import os, json, tokenize, pandas\nprint(os.getcwd(), pandas.DataFrame.__name__)"
    done = run_notebook(write_notebook(root / "notebooks" / "n.ipynb", code(source)), root / "reports" / "n.ipynb", {})
    assert (done.status, done.reason) == (RunState.OK, None)
    assert printed(done.output) == [f"{root} DataFrame\n"]
    assert not (root / "ran").exists()


def test_an_output_folder_that_goes_meanwhile_is_not_made_again(root: Path) -> None:
    source = "import pathlib\npathlib.Path('reports/p').rename('reports/q')"
    output = root / "reports" / "p" / "n.ipynb"
    done = run_notebook(write_notebook(root / "notebooks" / "n.ipynb", code(source)), output, {})
    assert done.status is RunState.FAILED
    assert not output.parent.exists()


def test_what_cannot_be_written_leaves_no_half_notebook(root: Path) -> None:
    """A folder's name that is no UTF-8 comes as a parameter that no file can hold."""
    notebook = write_notebook(
        root / "notebooks" / "n.ipynb", code("campaign: str = ''", "parameters"), code("print(1)")
    )
    earlier = write_notebook(root / "reports" / "n.ipynb", code("0"))
    done = run_notebook(notebook, earlier, {"campaign": "q\udcff"})
    assert done.status is RunState.FAILED
    assert done.reason is not None and "surrogates not allowed" in done.reason
    assert [path.name for path in (root / "reports").iterdir()] == ["n.status.json"]


@pytest.mark.parametrize("content", ["", '{"cells": ['])
@pytest.mark.parametrize("state", [RunState.OK, RunState.TIMED_OUT])
def test_a_notebook_that_is_cut_off_is_not_kept(root: Path, content: str, state: RunState) -> None:
    partial = root / "reports" / ".n.partial-1.ipynb"
    partial.write_text(content)
    begun = finished_run(root / "reports" / "n.ipynb", RunState.RUNNING)
    done = run._finish(begun, partial, 0.0, run._Ended(state, None, 0))
    assert done.status is (RunState.FAILED if state is RunState.OK else state)
    assert [path.name for path in (root / "reports").iterdir()] == ["n.status.json"]


def test_a_run_is_ok_only_when_exit_code_and_outcome_agree(tmp_path: Path) -> None:
    def judged(outcome: str | None, exit_code: int) -> tuple[str, str | None]:
        (tmp_path / "log.txt").write_text("the last words")
        (tmp_path / "outcome.json").unlink(missing_ok=True)
        if outcome is not None:
            (tmp_path / "outcome.json").write_text(outcome)
        ended = run._judge(tmp_path, exit_code)
        return ended.status.value, ended.reason

    assert judged('{"status": "ok", "reason": null}', 0) == ("ok", None)
    assert judged('{"status": "failed", "reason": "KeyError: 1"}', 1) == ("failed", "KeyError: 1")
    assert judged('{"status": "ok", "reason": null}', 1)[0] == "failed"
    assert judged(None, 0) == ("failed", "the process ended with exit code 0\nthe last words")
    assert judged('{"status": "o', 0)[0] == "failed"
    assert judged(None, -9) == ("failed", "the process ended by signal 9\nthe last words")


def test_sockets_fit_where_temporary_folders_have_long_names(monkeypatch: pytest.MonkeyPatch) -> None:
    from workbench.notebook import processes

    monkeypatch.setattr(processes.tempfile, "gettempdir", lambda: "/" + "x" * 90)
    assert processes.short_temp() == "/tmp"
    monkeypatch.setattr(processes.tempfile, "gettempdir", lambda: "/var/folders/ab/cdefgh/T")
    assert processes.short_temp() == "/var/folders/ab/cdefgh/T"
