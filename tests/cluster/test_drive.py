"""Campaigns on the nodes of a Ray cluster in processes: whole ones, and nodes that die in the middle."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
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
    run_folder,
    servers,
    starts,
    states,
    write_campaign,
    write_project,
)

pytest.importorskip("ray", reason="campaigns on a cluster need the extra: ray")

from ray_nodes import add_nodes, of_cluster, ray_nodes, raylet_of, scripted, wait_for

from workbench import measure
from workbench.errors import LaunchError
from workbench.paths import ARRIVING
from workbench.recording import Ended
from workbench.store import read_run
from workbench.sweep import find_campaign

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("ray"),
    # Ray's own, of its pipes and processes.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
BASES = ("baseline-default-c1", "baseline-default-again-c1")
CANDIDATES = tuple(f"eagle3-d-s{steps}-k1-n{steps + 1}-c1" for steps in (2, 3, 4))
ALL = (BASES[0], *CANDIDATES, BASES[1])
SWEEP = [{"speculative_num_steps": [2, 3, 4]}]
GONE_S = 15.0


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    # The paths of Ray's sockets must be short.
    temporary = tempfile.TemporaryDirectory(prefix="wb-", dir="/tmp", ignore_cleanup_errors=True)
    with temporary as name, ray_nodes(Path(name), 2) as cluster:
        cluster.folder = Path(name)
        yield cluster


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = write_project(tmp_path / "project")
    play(monkeypatch, project)
    set_up(project)
    return project


def set_up(root: Path, *, options: dict[str, list[str]] | None = None, **changes: object) -> None:
    prefix = scripted(root, **(options or {}))
    write_campaign(root, **{"launch_prefix": prefix, "sweep": SWEEP, **changes})


def run(nodes: Any, *settings: str, said: list[str] | None = None, say: Any = None) -> list[Ended]:
    say = say or (said if said is not None else []).append
    return measure.run_campaign(find_campaign("small", settings), ray=nodes.address, say=say)


def node_of(root: Path, start: str) -> str | None:
    return read_run(run_folder(root, start)).provenance.node


def assert_nothing_runs(nodes: Any, root: Path) -> None:
    wait_for(lambda: of_case(root) == [] and of_cluster(nodes.folder, "workbench.") == [], GONE_S)
    assert list((nodes.folder / "temp").glob("workbench-starts-*/*")) == []
    assert not (root / "data" / "runs" / "small" / ARRIVING).exists()


def at_two_nodes(nodes: Any) -> None:
    """Nodes that were killed have others in their place."""
    alive = [process for process in of_cluster(nodes.folder) if process.name() == "raylet"]
    add_nodes(nodes, nodes.folder, 3 - len(alive))


# --- going well --------------------------------------------------------------------------------------------------


def test_a_campaign_is_spread_over_nodes_and_comes_back(nodes: Any, root: Path) -> None:
    set_up(root, options={"all": ["--step-ms", "20"]})
    said: list[str] = []
    ended = run(nodes, said=said)
    assert briefly(ended) == dict.fromkeys(ALL, "ok") and list(briefly(ended)) == list(ALL)
    used = {node_of(root, name) for name in ALL}
    assert len(used) == 2 and used <= {f"Ray node {number}" for number in (1, 2, 3)}
    for name in ALL:
        found = read_run(run_folder(root, name))
        assert found.provenance.places == 1
        # The log came whole: the spans of the run lie in it.
        assert found.log is not None and found.log.stat().st_size >= max(end for _, end in found.status.log_spans)
    # Progress as locally, behind the number of the node.
    assert sum(re.fullmatch(r"node \d: \S+, 2 CPUs, 2 GPUs", line) is not None for line in said) == 2
    for number in range(1, 6):
        assert sum(f"| [{number}/5] " in line for line in said) == 1
    results = [line for line in said if re.match(r"\d\|     \S+: ok, [\d.]+ tok/s", line)]
    assert len(results) == 5 and {f"Ray node {line[0]}" for line in results} == used
    assert {line.removeprefix("\r")[1:3] for line in said if line.endswith("    ready")} == {"| "}
    assert_nothing_runs(nodes, root)
    # By content, as ever.
    assert set(briefly(run(nodes)).values()) == {"kept"} and len(starts(root)) == 5
    assert set(briefly(measure.run_campaign(find_campaign("small"), say=lambda _: None)).values()) == {"kept"}


def test_places_share_a_node_and_gpus_are_those_that_ray_gave(nodes: Any, root: Path) -> None:
    set_up(root, options={"all": ["--step-ms", "30"]}, engine="sglang", baseline_again=False)
    said: list[str] = []
    assert set(briefly(run(nodes, "places=2", said=said)).values()) == {"ok"}
    given: dict[str, list[str]] = {}
    for start in ALL[:4]:
        found = read_run(run_folder(root, start)).provenance
        (visible,) = [each for each in found.argv if each.startswith("CUDA_VISIBLE_DEVICES=")]
        given.setdefault(str(found.node), []).append(visible)
        assert (found.places == 1) or start != BASES[0]
    # Those that were at a node at once had its two GPUs, one each.
    assert {each for listed in given.values() for each in listed} <= {f"CUDA_VISIBLE_DEVICES={n}" for n in (0, 1)}
    assert any(set(listed) == {"CUDA_VISIBLE_DEVICES=0", "CUDA_VISIBLE_DEVICES=1"} for listed in given.values())
    assert max(read_run(run_folder(root, start)).provenance.places or 0 for start in CANDIDATES) == 2
    assert any(re.match(r"\d\.2\| \[", line) for line in said)
    assert_nothing_runs(nodes, root)


def test_a_start_that_no_node_can_take_says_what_there_is(nodes: Any, root: Path) -> None:
    set_up(root, engine="sglang", server={"tp_size": 4})
    ended = run(nodes, "only=baseline-default")
    assert briefly(ended) == {BASES[0]: "failed"}
    assert ended[0].reason is not None and "no node of the cluster has 4 GPUs" in ended[0].reason
    assert "2 CPUs, 2 GPUs" in ended[0].reason


def test_a_model_that_the_nodes_lack_is_their_preflights_to_say(nodes: Any, root: Path) -> None:
    set_up(root, launch_prefix=[])
    said: list[str] = []
    ended = run(nodes, "only=baseline-default", said=said)
    assert briefly(ended) == {BASES[0]: "skipped"}
    assert "no folder '/models/t' for the reference engine" in str(ended[0].reason)
    assert any("refused, target.model_path: no folder" in line for line in said)


def test_no_cluster_at_the_address(root: Path) -> None:
    with pytest.raises(LaunchError, match="no Ray cluster"):
        measure.run_campaign(find_campaign("small"), ray="127.0.0.1:9", say=lambda _: None)


# --- dying -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["the node", "the node with all on it", "the worker"])
def test_what_dies_in_the_middle_loses_no_run(nodes: Any, root: Path, what: str) -> None:
    at_two_nodes(nodes)
    set_up(root, options={"speculative": ["--step-ms", "60"]}, max_concurrency=[1, 2])
    said: list[str] = []
    killed: list[str] = []
    came: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        if killed or not (match := re.match(r"\r?(\d)\|     (eagle3-\S+-c2-\w+): [1-9]", text)):
            return
        # The second load of a start is under way, its first has come.
        start = match[2].rpartition("-c2")[0]
        victim = next(server for server in servers(root) if f"--speculative-num-steps {start[10]}" in command(server))
        killed.append(start)
        came.extend(path.parent.name for path in (root / "data/runs/small").glob(f"{start}-c1-*/status.json"))
        kill(victim, what)

    ended = run(nodes, say=say)
    assert len(killed) == 1 and len(came) == 1
    assert len(ended) == 10 and set(briefly(ended).values()) == {"ok"}
    assert set(states(root).values()) == {"ok"} and len(states(root)) == 10
    # The start was begun again with what was left of it, and the load that had come was not measured again.
    (again,) = [line for line in said if "again (2 of 3 times)" in line]
    assert f"{killed[0]} again (2 of 3 times): 1 runs" in again
    assert sum(f"{came[0]}: ok" in line for line in said) == 1
    assert not (root / "data/runs/small/_kept").exists()
    wait_for(lambda: of_case(root) == [], GONE_S)
    assert set(briefly(run(nodes)).values()) == {"kept"}


def command(process: psutil.Process) -> str:
    return " ".join(process.cmdline())


def kill(server: psutil.Process, what: str) -> None:
    node = raylet_of(server)
    worker = next(parent for parent in server.parents() if parent.parent() == node)
    victims = {"the node": [node], "the worker": [worker]}
    for victim in victims.get(what) or [node, *node.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            victim.kill()


def test_a_start_that_kills_every_node_is_given_up_and_the_failure_named(
    nodes: Any, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.cluster.drive.TRIES", 2)
    at_two_nodes(nodes)
    set_up(root, options={"speculative": ["--fault", "stall@1+"]}, sweep=[{"speculative_num_steps": 2}])

    def say(text: str) -> None:
        if re.match(r"\r\d\|     eagle3-\S+: warming up", text):
            for server in servers(root):
                if "--speculative-algorithm" in command(server):
                    kill(server, "the worker")

    ended = run(nodes, "baseline_again=false", say=say)
    assert briefly(ended) == {BASES[0]: "ok", CANDIDATES[0]: "failed"}
    assert "lost 2 times, at last: " in str(ended[1].reason)
    wait_for(lambda: of_case(root) == [] and of_cluster(nodes.folder, "workbench.") == [], GONE_S)


def test_the_embedded_engine_on_a_cluster_with_a_node_killed(nodes: Any, root: Path) -> None:
    pytest.importorskip("torch", reason="the embedded engine needs the extra: reference")
    from tiny_models import (
        TOKENS,
        draft_config,
        draft_tensors,
        target_config,
        target_tensors,
        write_model,
        write_tokenizer,
    )

    at_two_nodes(nodes)
    target, draft = target_config(vocab=TOKENS), draft_config(vocab=TOKENS, draft_vocab=200)
    write_tokenizer(write_model(root / "tiny", target, target_tensors(target)))
    write_model(root / "tiny-draft", draft, draft_tensors(draft))
    set_up(
        root,
        launch_prefix=[],
        target={"name": "T", "model_path": str(root / "tiny"), "dtype": "float32"},
        drafters=[{"name": "d", "model_path": str(root / "tiny-draft")}],
        workload={"prompt_set": "few", "num_prompts": 3, "max_new_tokens": 12, "ignore_eos": True},
        server={"max_running_requests": 4, "context_length": 128},
        sweep=[{"speculative_num_steps": [2, 3]}],
    )
    killed: list[int] = []
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        if not killed and re.match(r"\d\|     loading weights", text):
            place = of_cluster(nodes.folder, "workbench.reference")[0]
            killed.append(raylet_of(place).pid)
            os.kill(killed[0], signal.SIGKILL)

    ended = run(nodes, say=say)
    assert killed and [(str(each.state), each.reason) for each in ended] == [("ok", None)] * 4
    wait_for(lambda: of_cluster(nodes.folder, "workbench.") == [], GONE_S)


# --- stopping ----------------------------------------------------------------------------------------------------


def test_ctrl_c_ends_the_servers_on_all_nodes(nodes: Any, root: Path) -> None:
    at_two_nodes(nodes)
    set_up(root, options={"all": STALLED})
    ready: set[str] = set()
    stopped = threading.Event()

    def say(text: str) -> None:
        if "warming up" in text and text.startswith("\r"):
            ready.add(text[1])
            if len(ready) == 2 and not stopped.is_set():
                stopped.set()
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run(nodes, say=say)
    assert of_case(root) == [] and of_cluster(nodes.folder, "workbench.place") == []
    # Which of the starts Ray gives to its two nodes first is its own choice.
    stopped_runs = states(root)
    assert list(stopped_runs.values()) == ["interrupted"] * 2 and set(stopped_runs) < set(ALL)
    set_up(root)
    assert briefly(run(nodes)) == dict.fromkeys(ALL, "ok")


@pytest.mark.parametrize("how", ["SIGINT to the group", "SIGTERM", "SIGKILL", "SIGKILL of the kernel"])
def test_stopping_the_command_leaves_nothing_on_the_nodes(nodes: Any, root: Path, how: str) -> None:
    at_two_nodes(nodes)
    set_up(root, options={"all": STALLED})
    call = [sys.executable, "-m", "workbench", "run", "small", "--executor", "ray", "--ray-address", nodes.address]
    variables = {**os.environ, **environment(root)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(call, env=variables, cwd=root, start_new_session=True, **pipes)
    try:
        wait_for(lambda: len(servers(root)) == 2 or process.poll() is not None, 90)
        assert process.poll() is None, process.communicate()
        number, target = getattr(signal, how.split()[0]), process.pid
        if "kernel" in how:
            (target,) = [p.pid for p in of_case(root) if "ipykernel_launcher" in command(p)]
        (os.killpg if "group" in how else os.kill)(target, number)
        wait_for(lambda: servers(root) == [], 2 * GONE_S)
        process.wait(timeout=60)
        wait_for(lambda: of_case(root) == [] and of_cluster(nodes.folder, "workbench.place") == [], GONE_S)
    finally:
        for left in of_case(root):
            with contextlib.suppress(psutil.Error):
                left.kill()
        process.communicate(timeout=30)


# --- a cluster of its own ----------------------------------------------------------------------------------------


def test_the_command_starts_a_cluster_and_leaves_nothing_behind(root: Path) -> None:
    set_up(root, sweep=[{"speculative_num_steps": 3}], baseline_again=False)
    call = [sys.executable, "-m", "workbench", "run", "small", "--executor", "ray"]
    before = set(Path("/tmp").glob("wb-ray-*"))
    variables = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    variables |= environment(root)
    done = subprocess.run(call, env=variables, cwd=root, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("2 of 2 runs are measured.")
    assert re.search(r"node 1: \S+, \d+ CPUs?, \d+ GPUs?", done.stderr) and "1| [2/2] eagle3-d-s3" in done.stderr
    wait_for(lambda: of_case(root) == [], GONE_S)
    assert set(Path("/tmp").glob("wb-ray-*")) == before
    assert json.loads((run_folder(root, BASES[0]) / "provenance.json").read_text())["node"] == "Ray node 1"
