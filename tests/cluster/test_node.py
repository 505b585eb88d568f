"""A start measured as on a node, without Ray: the process of a place and a real server, in a folder of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import tempfile
import time
from pathlib import Path

import psutil
import pytest
from live_campaigns import STALLED, of_case, play, servers, write_project

from workbench import __version__, measure, packing
from workbench.cluster import check_ray, node
from workbench.cluster.parcels import Came, Event, Over, Parcel, Piece, Said
from workbench.cluster.unpack import TEXTS, unpacked
from workbench.errors import LaunchError, MissingToolError, UsageError
from workbench.models import texts_of
from workbench.paths import ROOT_ENV
from workbench.sweep import Plan, find_campaign


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = write_project(tmp_path / "project", only="baseline-default", max_concurrency=[1, 2])
    play(monkeypatch, project)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temp"))
    (tmp_path / "temp").mkdir()
    return project


def parcel(*settings: str, version: str = __version__) -> tuple[Parcel, bytes]:
    campaign = find_campaign("small", settings)
    (start,) = measure.plan_of(campaign).starts
    texts = {name: tuple(prompts) for name, prompts in texts_of(campaign).items()}
    return Parcel(version, campaign, start, False), TEXTS.dump_json(texts)


def left_behind(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "temp").glob("workbench-starts-*/*"))


def statuses(events: list[Event]) -> list[dict[str, str]]:
    pieces = [event for event in events if isinstance(event, Piece) and event.path.endswith("status.json")]
    return [json.loads(piece.data) for piece in pieces if piece.data]


def test_it_says_and_sends_all_and_leaves_nothing(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order, texts = parcel()
    # A node has no such project: prompts travel.
    bare = tmp_path / "bare"
    (bare / "notebooks").mkdir(parents=True)
    (bare / "data").mkdir()
    monkeypatch.setenv(ROOT_ENV, str(bare))
    events = list(node.measured(order, texts))
    assert isinstance(events[-1], Over)
    came = [event.run_id for event in events if isinstance(event, Came)]
    assert came == [run.run_id for run in order.start.runs] and len(came) == 2
    # The server answers at once, so that a status may say that the client was the limit.
    told = [(status["status"], (status.get("reason") or "").partition(" busy ")[0]) for status in statuses(events)]
    assert len(told) == 2 and set(told) <= {("ok", ""), ("ok", "the client was")}
    said = [line for event in events if isinstance(event, Said) for line in event.lines]
    assert "    ready" in said and any(f"{came[0]}: ok" in line for line in said)
    # A run is sent while the server still runs, and its second load is measured meanwhile.
    assert events.index(Came(came[0])) < next(
        n for n, e in enumerate(events) if "    stopping" in getattr(e, "lines", ())
    )
    assert left_behind(tmp_path) == [] and of_case(root) == [] and list((bare / "data").iterdir()) == []


def test_one_that_is_given_up_ends_its_server(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, root, all=["--load-s", "60"])
    events = node.measured(*parcel())
    while not servers(root):
        next(events)
    events.close()  # as when Ray's KeyboardInterrupt lands in it
    assert of_case(root) == [] and left_behind(tmp_path) == []


def test_a_place_that_is_killed_is_a_fault_in_words(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(monkeypatch, root, all=STALLED)
    events = node.measured(*parcel())
    with pytest.raises(LaunchError, match="the process that measured it ended with -9"):
        for event in events:
            if any("warming up" in line for line in getattr(event, "lines", ())):
                for process in of_case(root):
                    with contextlib.suppress(psutil.NoSuchProcess):  # ended since, or killed by the line before
                        if "workbench.place" in process.cmdline() and process.ppid() == os.getpid():
                            process.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 12
    while of_case(root) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert of_case(root) == [] and left_behind(tmp_path) == []


def test_when_the_nodes_own_process_is_gone_it_ends(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(monkeypatch, root, all=["--load-s", "60"])
    events = node.measured(*parcel())
    with pytest.raises(LaunchError, match="the node's own process is gone"):
        for _ in events:
            monkeypatch.setattr(os, "getppid", lambda: 1)
    assert of_case(root) == [] and left_behind(tmp_path) == []


def test_another_version_is_refused(root: Path) -> None:
    with pytest.raises(LaunchError, match=r"this node has workbench .*, the command 0\.0\.0"):
        next(node.measured(*parcel(version="0.0.0")))


def test_folders_of_processes_that_were_killed_are_removed(root: Path, tmp_path: Path) -> None:
    base = tmp_path / "temp" / f"workbench-starts-{os.getuid()}"
    (base / f"{os.getpid()}.1.gone").mkdir(parents=True)
    with node._own_folder() as folder:
        assert [path.name for path in base.iterdir()] == [folder.name]


def test_a_model_that_is_not_on_the_node_is_said_by_its_preflight(root: Path) -> None:
    order, texts = parcel("launch_prefix=[]")
    events = list(node.measured(order, texts))
    assert isinstance(events[-1], Over)
    found = statuses(events)
    assert [status["status"] for status in found] == ["skipped"] * 2
    assert "no folder '/models/t' for the reference engine" in found[0]["reason"]


def test_what_preflight_refuses_is_allowed_where_that_was_asked_for(root: Path, tmp_path: Path) -> None:
    order, texts = parcel("launch_prefix=[/absent/program]")
    brought = packing.FromElsewhere(tmp_path / "texts.json")
    brought.prompts.write_bytes(texts)
    plan = Plan(order.campaign, (order.start,), (), ())
    _, prompts, why = unpacked(plan, brought)
    assert why is not None and "/absent/program is not found" in why
    assert {name: len(each) for name, each in prompts.items()} == {"few": 6}
    assert unpacked(plan, packing.FromElsewhere(brought.prompts, allow_refused=True))[2] is None


def test_threads_of_rays_making_are_no_setting(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")

    class Parent:
        def __init__(self, pid: int) -> None:
            self.variables = {"OMP_NUM_THREADS": "3"} if pid == 7 else {}

        def environ(self) -> dict[str, str]:
            return self.variables

    monkeypatch.setattr(psutil, "Process", Parent)
    for parent, kept in ((7, "3"), (8, None)):
        monkeypatch.setattr(os, "getppid", lambda parent=parent: parent)
        assert node._environment(tmp_path).get("OMP_NUM_THREADS") == kept


def test_places_of_a_node_have_cpus_of_their_own(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "cpu_shares", lambda places: tuple(frozenset({2 * n, 2 * n + 1}) for n in range(places)))
    with contextlib.ExitStack() as stack:
        got = [stack.enter_context(node._share(2)) for _ in range(3)]
    assert got == [(0, 1), (2, 3), ()]
    with node._share(1) as cpus:
        assert cpus == ()


def test_without_ray_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(MissingToolError, match=r"eagle3-workbench\[ray\]"):
        check_ray("auto")
    with pytest.raises(UsageError, match="no address of a cluster itself"):
        check_ray("ray://head:10001")
