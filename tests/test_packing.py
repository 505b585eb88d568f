"""Starts side by side, on real servers in real processes: the scripted one in the place of the engine."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from live_campaigns import (
    STALLED,
    briefly,
    environment,
    of_case,
    play,
    run,
    run_folder,
    servers,
    starts,
    states,
    status,
    write_project,
)

from workbench import live, measure, packing
from workbench.errors import InputError
from workbench.launch import sharing
from workbench.sweep import campaign_names, expand, find_campaign

BASES = ("baseline-default-c1", "baseline-default-again-c1")
CANDIDATES = tuple(f"eagle3-d-s{steps}-k1-n{steps + 1}-c1" for steps in (2, 3, 4))
ALL = (BASES[0], *CANDIDATES, BASES[1])
GONE_S = 12.0


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = write_project(tmp_path / "project", places=2, sweep=[{"speculative_num_steps": [2, 3, 4]}])
    play(monkeypatch, project)
    return project


def provenance(root: Path, start: str) -> dict[str, Any]:
    content = json.loads((run_folder(root, start) / "provenance.json").read_text())
    assert isinstance(content, dict)
    return content


def stop_when(condition: Callable[[str], object]) -> Callable[[str], None]:
    """A listener that stops this process, as Ctrl-C does, when a line first fulfils a condition."""
    done = threading.Event()

    def say(text: str) -> None:
        if condition(text) and not done.is_set():
            done.set()
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    return say


def wait_for(condition: Callable[[], object], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def test_what_a_place_is_told_is_what_was_meant() -> None:
    """Also flags that are numbers, switches or lists of either, in every campaign that is shipped."""
    told = 0
    for name in campaign_names():
        campaign = find_campaign(name)
        for start in expand(campaign).starts:
            job = packing.Job(Path("/runs"), campaign, start, (0, 2), 3)
            back = packing.JOB.validate_json(packing.JOB.dump_json(job))
            assert back == job
            assert [run.content_hash() for run in back.start.runs] == [run.content_hash() for run in start.runs]
            told += 1
    assert told > 20


# --- going well --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_candidates_share_the_machine_and_baselines_have_it_alone(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The first two wait for each other: neither is done before the other measures.
    play(monkeypatch, root, speculative=["--step-ms", "20"])
    said: list[str] = []
    ended = run(said=said)
    # In the order of the plan, whatever ended first.
    assert briefly(ended) == dict.fromkeys(ALL, "ok") and list(briefly(ended)) == list(ALL)
    assert {name: provenance(root, name)["places"] for name in ALL[:3]} == {ALL[0]: 1, ALL[1]: 2, ALL[2]: 2}
    assert provenance(root, BASES[1])["places"] == 1
    assert [provenance(root, name)["servers_alive"] for name in BASES] == [1, 1]
    began = [line.partition("[")[2] for line in said if "| [" in line]
    assert [line.split(":")[0] for line in began] == [
        "1/5] baseline-default, alone",
        "2/5] eagle3-d-s2-k1-n3",
        "3/5] eagle3-d-s3-k1-n4",
        "4/5] eagle3-d-s4-k1-n5",
        "5/5] baseline-default-again, alone",
    ]
    # Alone means: not before the one before has stopped, and none begins before it has.
    last = next(number for number, line in enumerate(said) if "again, alone" in line)
    assert sum(line.endswith("    stopped") for line in said[:last]) == 4
    assert {line.removeprefix("\r")[:3] for line in said if line.endswith("    ready")} == {"1| ", "2| "}
    assert of_case(root) == [] and len(starts(root)) == 5


@pytest.mark.slow
def test_the_order_of_the_sweep_does_not_matter(root: Path) -> None:
    run("sweep.0.speculative_num_steps=[4, 3, 2]")
    assert states(root) == dict.fromkeys(ALL, "ok")
    assert set(briefly(run()).values()) == {"kept"} and len(starts(root)) == 5


@pytest.mark.slow
def test_places_have_cpus_of_their_own(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = sorted(sharing.my_cpus())
    if len(here) < 2:
        pytest.skip("one CPU")
    monkeypatch.setattr(sharing, "MIN_CPUS", 1)
    play(monkeypatch, root, speculative=["--step-ms", "20"])
    pinned: dict[int, set[int]] = {}

    def look(text: str) -> None:
        if text.endswith("    ready"):
            for server in servers(root):
                pinned.setdefault(server.pid, set()).update(server.cpu_affinity())

    measure.run_campaign(find_campaign("small"), say=look)
    first, second = (sharing.listed(share) for share in sharing.cpu_shares(2))
    found = {name: provenance(root, name)["cpus"] for name in ALL}
    assert found[ALL[1]] == first and found[ALL[2]] == second and first != second
    assert found[BASES[0]] == found[BASES[1]] == first
    # The servers themselves, as the system sees them.
    assert {sharing.listed(cpus) for cpus in pinned.values()} == {first, second}


def test_too_few_cpus_are_said_and_not_shared(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "MIN_CPUS", 1000)
    said: list[str] = []
    run("only=baseline-default", said=said)
    assert said[0].startswith("2 places are not pinned: ")
    assert provenance(root, BASES[0])["cpus"] == sharing.listed(sharing.my_cpus())


@pytest.mark.slow
def test_a_finalist_is_measured_again_alone(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, root, speculative=["--step-ms", "10"])
    run()
    finalist = "alone=eagle3-d-s2*"
    spec = find_campaign("small", [finalist])
    assert [(one.run_id.rpartition("-")[0], one.reason) for one in live.missing(measure.plan_of(spec))] == [
        (CANDIDATES[0], "measured with neighbours; it is to be measured alone")
    ]
    # One that fails leaves the run that there was.
    play(monkeypatch, root, speculative=["--start-fault", "oom"])
    assert briefly(run(finalist))[CANDIDATES[0]] == "failed"
    assert (states(root)[CANDIDATES[0]], provenance(root, CANDIDATES[0])["places"]) == ("ok", 2)
    play(monkeypatch, root)
    assert briefly(run(finalist)) == {name: "ok" if name == CANDIDATES[0] else "kept" for name in ALL}
    assert provenance(root, CANDIDATES[0])["places"] == 1
    # And is good enough for a campaign that would not have asked for it.
    assert set(briefly(run()).values()) == {"kept"}


@pytest.mark.slow
def test_interference_is_measured_and_said(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, root, speculative=["--step-ms", "20"])
    campaign = find_campaign("small", ["interference=true", "max_concurrency=[1, 2]"])
    planned = measure.plan_of(campaign)
    assert [start.server_id for start in planned.starts if start.alone] == [
        "baseline-default",
        "eagle3-d-s2-k1-n3-alone",
        "baseline-default-again",
    ]
    assert live.neighbours_text(planned).startswith("what neighbours cost is not known")
    measure.run_campaign(campaign, say=lambda _: None)
    found = live.neighbours_df(planned)
    # Baselines were alone, and the other two have no twin.
    assert found[["server_id", "max_concurrency", "places"]].to_numpy().tolist() == [
        ["eagle3-d-s2-k1-n3", 1, 2],
        ["eagle3-d-s2-k1-n3", 2, 2],
    ]
    # A step takes 20 ms with and without neighbours.
    assert found["ratio"].between(0.5, 1.5).all()
    assert "eagle3-d-s2-k1-n3, few, 2 at once: " in live.neighbours_text(planned)


# --- starts that fail --------------------------------------------------------------------------------------------


def test_a_start_that_fails_beside_a_good_one(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Five steps are refused by this server only: the fault is the start's own.
    prefix = [sys.executable, str(root / "launch.py")]
    (root / "launch.py").write_text(
        "import os, runpy, sys\n"
        "if '--speculative-num-steps' in sys.argv and sys.argv[sys.argv.index('--speculative-num-steps') + 1] == '2':\n"
        '    os.environ[\'SCRIPTED\'] = \'{"all": ["--start-fault", "oom"]}\'\n'
        f"sys.argv[0] = {str(Path(__file__).with_name('scripted_launch.py'))!r}\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    play(monkeypatch, root, speculative=["--step-ms", "10"])
    ended = run(f"launch_prefix={json.dumps(prefix)}")
    assert briefly(ended) == dict.fromkeys(ALL, "ok") | {CANDIDATES[0]: "failed"}
    assert "the GPU ran out of memory" in status(run_folder(root, CANDIDATES[0]))["reason"]
    assert of_case(root) == []


@pytest.mark.slow
def test_a_place_that_is_killed_does_not_disturb_the_other(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, root, speculative=["--step-ms", "40"])
    killed: list[int] = []

    def say(text: str) -> None:
        if "eagle3-d-s2" in text and "warming up" in text:
            (victim, *_) = [p for p in of_case(root) if "workbench.place" in p.cmdline() and p.children()]
            victim.kill()
            killed.append(victim.pid)

    ended = measure.run_campaign(find_campaign("small"), say=say)
    assert len(killed) == 1
    failed = {name for name, state in briefly(ended).items() if state != "ok"}
    assert len(failed) == 1 and failed < set(CANDIDATES[:2])
    (name,) = failed
    assert status(run_folder(root, name))["reason"].startswith("the process that measured it ended with -9")
    assert of_case(root) == []
    assert briefly(run()) == dict.fromkeys(ALL, "kept") | {name: "ok"}


@pytest.mark.slow
def test_a_disk_that_cannot_be_written_stops_all(root: Path) -> None:
    run("only=baseline-default")
    # What is to be replaced cannot be put aside.
    kept = root / "data" / "runs" / "small" / "_kept"
    kept.write_text("a file")
    folder = next(iter((root / "data" / "runs" / "small").glob("baseline*")))
    (folder / "status.json").write_text('{"status": "failed"}')
    with pytest.raises(InputError, match="cannot be written"):
        run()
    assert of_case(root) == []


# --- stopping ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["starting", "requests"])
def test_ctrl_c_stops_both_and_the_same_call_goes_on(root: Path, monkeypatch: pytest.MonkeyPatch, phase: str) -> None:
    options = {"starting": ["--load-s", "60"], "requests": STALLED}[phase]
    run("only=baseline-default")
    play(monkeypatch, root, speculative=options)
    monkeypatch.setattr("workbench.progress.EVERY_S", 0.0)
    places: set[str] = set()

    def both(text: str) -> bool:
        if phase in text:
            places.add(text.removeprefix("\r")[:1])
        return places == {"1", "2"}

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        measure.run_campaign(find_campaign("small"), say=stop_when(both))
    assert time.monotonic() - began < 2 * GONE_S and of_case(root) == []
    assert states(root) == {BASES[0]: "ok", CANDIDATES[0]: "interrupted", CANDIDATES[1]: "interrupted"}
    play(monkeypatch, root)
    assert briefly(run()) == dict.fromkeys(ALL, "ok") | {BASES[0]: "kept"}


def test_ctrl_c_before_a_place_is_ready_for_it(root: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        measure.run_campaign(find_campaign("small"), say=stop_when(lambda text: "[1/5]" in text))
    assert of_case(root) == [] and starts(root) == []


@pytest.mark.slow
def test_places_that_do_not_stop_are_killed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, root, baseline=["--load-s", "60"])
    monkeypatch.setattr(packing, "STOP_LIMIT_S", 0.0)
    with pytest.raises(KeyboardInterrupt):
        measure.run_campaign(find_campaign("small"), say=stop_when(lambda text: "loading" in text))
    wait_for(lambda: of_case(root) == [], GONE_S)


MEASURE = """
from workbench import measure
from workbench.sweep import find_campaign
measure.run_campaign(find_campaign("small"), say=print)
"""


@pytest.mark.slow
def test_kill_9_leaves_no_process(root: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", MEASURE],
        env={**os.environ, **environment(root, baseline=STALLED)},
        cwd=root,
        stdout=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: any(path.stat().st_size for path in root.glob("data/runs/small/*/requests.jsonl")))
        assert len(servers(root)) == 1
        process.kill()
        wait_for(lambda: of_case(root) == [], GONE_S)
    finally:
        end(process, root)
    assert states(root) == {BASES[0]: "running"}
    assert briefly(run("only=baseline-default")) == {BASES[0]: "ok"}


def end(process: subprocess.Popen[Any], root: Path) -> None:
    for left in of_case(root):
        with contextlib.suppress(psutil.Error):
            left.kill()
    process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["SIGINT to the group", "SIGTERM", "SIGKILL", "SIGKILL of the kernel"])
def test_stopping_the_command(root: Path, how: str) -> None:
    """Through papermill and a kernel, two servers at work."""
    run("only=baseline-default")
    call = [sys.executable, "-m", "workbench", "run", "small"]
    variables = {**os.environ, **environment(root, speculative=STALLED)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(call, env=variables, cwd=root, start_new_session=True, **pipes)
    try:
        at_work = "data/runs/small/eagle3*/requests.jsonl"
        wait_for(lambda: sum(bool(path.stat().st_size) for path in root.glob(at_work)) == 2, 60)
        number, target = getattr(signal, how.split()[0]), process.pid
        if "kernel" in how:
            (target,) = [p.pid for p in of_case(root) if "ipykernel_launcher" in " ".join(p.cmdline())]
        (os.killpg if "group" in how else os.kill)(target, number)
        wait_for(lambda: servers(root) == [], GONE_S)
        process.wait(timeout=40)
        wait_for(lambda: of_case(root) == [], GONE_S)
    finally:
        end(process, root)
    left = "running" if "KILL" in how else "interrupted"
    assert states(root) == {BASES[0]: "ok", CANDIDATES[0]: left, CANDIDATES[1]: left}
    assert briefly(run()) == dict.fromkeys(ALL, "ok") | {BASES[0]: "kept"}


@pytest.mark.slow
def test_the_command_measures_side_by_side_and_says_what_it_costs(root: Path) -> None:
    call = [sys.executable, "-m", "workbench", "run", "small", "--places", "3", "--interference"]
    variables = {**os.environ, **environment(root, speculative=["--step-ms", "20"])}
    done = subprocess.run(call, env=variables, cwd=root, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(
        "6 of 6 runs are measured.\nspeed with neighbours over speed alone:\n  eagle3-d-s2-k1-n3, "
    )
    assert ", 3 starts at once)" in done.stdout
    assert "3| [5/6] eagle3-d-s4-k1-n5: 1 run" in done.stderr
    assert provenance(root, CANDIDATES[2])["places"] == 3
