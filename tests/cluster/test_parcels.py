"""Run folders in pieces from one folder to another, by the two ends that do it over a network."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest

from workbench.cluster import parcels
from workbench.cluster.parcels import Arrivals, Came, Outgoing, Piece
from workbench.errors import InputError, RunFolderError
from workbench.paths import ARRIVING, KEPT
from workbench.recording import is_measured
from workbench.spec import Origin, Provenance, RunSpec, RunState, RunStatus, ServerConfig, Target, Workload
from workbench.store import SERVERS, read_run, write_run
from workbench.sweep import Start

SECRET = "hunter2-hunter2"
LOG = "server-1.log"


def run(run_id: str = "a-c1") -> RunSpec:
    return RunSpec(
        campaign="c", run_id=run_id, server_id="a", target=Target(name="T"), workload=Workload(prompt_set="p")
    )


def start(*runs: RunSpec) -> Start:
    return Start("a", ServerConfig(), None, None, runs or (run(),))


def make(
    folder: Path, spec: RunSpec, state: RunState = RunState.OK, *, answer: str = "x", places: int | None = 1
) -> None:
    provenance = Provenance(origin=Origin.MEASURED, source="s", places=places)
    write_run(folder / spec.run_id, spec, provenance, RunStatus(status=state, log_file=f"../{SERVERS}/a/{LOG}"))
    (folder / spec.run_id / "requests.jsonl").write_text(answer)
    (folder / spec.run_id / "empty").touch()


def write_log(folder: Path, text: bytes) -> Path:
    path = folder / SERVERS / "a" / LOG
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(text)
    return path


def bring(arrivals: Arrivals, sent: list[Piece | Came], *, node: str = "Ray node 2", places: int = 1) -> list[str]:
    """Take all; the runs that were put in place."""
    came = []
    for each in sent:
        if isinstance(each, Piece):
            arrivals.take(each)
        else:
            came.append(arrivals.put_in_place(each.run_id, node=node, places=places).run_id)
    return came


@pytest.fixture
def ends(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("there", "here"):
        (tmp_path / name).mkdir()
    return tmp_path / "there", tmp_path / "here"


def test_a_run_comes_as_it_was_with_its_node(ends: tuple[Path, Path]) -> None:
    there, here = ends
    make(there, run())
    log = write_log(there, b"line\n" * 3)
    arrivals = Arrivals(here, start())
    assert bring(arrivals, list(Outgoing(there, start()).due())) == ["a-c1"]
    arrivals.drop()
    found = read_run(here / "a-c1")
    assert found.provenance.node == "Ray node 2" and found.provenance.places == 1
    assert found.log is not None and found.log.read_bytes() == log.read_bytes()
    assert (here / "a-c1" / "requests.jsonl").read_text() == "x" and (here / "a-c1" / "empty").read_bytes() == b""
    assert is_measured(here / "a-c1", run())
    assert sorted(path.name for path in here.iterdir()) == [SERVERS, "a-c1"]


def test_only_what_has_ended_is_due_and_nothing_twice(ends: tuple[Path, Path]) -> None:
    there, here = ends
    first, second = run("a-c1"), run("a-c2")
    outgoing, arrivals = Outgoing(there, start(first, second)), Arrivals(here, start(first, second))
    assert list(outgoing.due()) == []
    make(there, first)
    make(there, second, RunState.RUNNING)
    write_log(there, b"one\n")
    assert bring(arrivals, list(outgoing.due())) == ["a-c1"]
    assert list(outgoing.due()) == []
    write_log(there, b"two\n")
    make(there, second)
    assert bring(arrivals, list(outgoing.due())) == ["a-c2"]
    write_log(there, b"three\n")
    assert bring(arrivals, list(outgoing.rest())) == []
    assert (here / SERVERS / "a" / LOG).read_text() == "one\ntwo\nthree\n"
    assert list(arrivals.ended) == ["a-c1", "a-c2"]


def test_a_run_that_was_begun_and_not_sent_whole_is_no_run(ends: tuple[Path, Path]) -> None:
    there, here = ends
    make(there, run())
    sent = list(Outgoing(there, start()).due())
    # The status comes last: what is cut off before is not there at all.
    assert [each.path for each in sent if isinstance(each, Piece)][-1] == "a-c1/status.json"
    arrivals = Arrivals(here, start())
    assert bring(arrivals, sent[:-1]) == [] and not (here / "a-c1").exists()
    assert (here / ARRIVING).exists()
    # The next try begins afresh.
    arrivals.drop()
    assert not (here / ARRIVING).exists()
    assert bring(arrivals, sent) == ["a-c1"]
    assert (here / "a-c1" / "requests.jsonl").read_text() == "x"


def test_a_better_run_that_was_there_comes_back_and_a_worse_one_is_kept_aside(ends: tuple[Path, Path]) -> None:
    there, here = ends
    make(here, run(), answer="old")
    write_log(here, b"old log\n")
    make(there, run(), RunState.FAILED, answer="new")
    ended = Arrivals(here, start())
    bring(ended, list(Outgoing(there, start()).due()))
    assert ended.ended["a-c1"].state is RunState.FAILED
    assert (here / "a-c1" / "requests.jsonl").read_text() == "old"
    make(there, run(), answer="newest")
    bring(Arrivals(here, start()), list(Outgoing(there, start()).due()))
    assert (here / "a-c1" / "requests.jsonl").read_text() == "newest"
    assert sorted((path / "requests.jsonl").read_text() for path in (here / KEPT).iterdir()) == ["new", "old"]


@pytest.mark.parametrize("size", [1, 7, 64])
def test_secrets_do_not_travel_wherever_pieces_end(
    ends: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(parcels, "PIECE_BYTES", size)
    there, here = ends
    make(there, run())
    outgoing = Outgoing(there, start(), [SECRET])
    arrivals = Arrivals(here, start())
    whole = f"key {SECRET} and again {SECRET}{SECRET}.".encode()
    # It is cut in the middle of the last one.
    write_log(there, whole[:-5])
    bring(arrivals, list(outgoing.due()))
    part = (here / SERVERS / "a" / LOG).read_bytes()
    assert b"hunter" not in part and len(part) == len(whole) - 5 - (len(SECRET) - 1)
    write_log(there, whole[-5:])
    bring(arrivals, list(outgoing.rest()))
    assert (here / SERVERS / "a" / LOG).read_bytes() == whole.replace(SECRET.encode(), b"*" * len(SECRET))


def test_a_large_log_takes_little_memory(ends: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parcels, "PIECE_BYTES", 1 << 16)
    there, here = ends
    make(there, run())
    write_log(there, b"a line of a log\n" * (1 << 20))  # 16 MiB
    arrivals, most = Arrivals(here, start()), 0
    tracemalloc.start()
    for each in Outgoing(there, start(), [SECRET]).due():
        if isinstance(each, Piece):
            most = max(most, len(each.data))
            arrivals.take(each)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most == 1 << 16 and peak < 1 << 20
    held_back = len(SECRET) - 1
    assert (here / SERVERS / "a" / LOG).stat().st_size == (16 << 20) - held_back


@pytest.mark.parametrize("name", ["../a", "a-c1/../../x", "/etc/x", "other-c1/x", "a-c1", f"{SERVERS}/b/x.log"])
def test_files_that_belong_nowhere_are_refused(ends: tuple[Path, Path], name: str) -> None:
    with pytest.raises(RunFolderError, match="belongs nowhere"):
        Arrivals(ends[1], start()).take(Piece(name, b"x"))


def test_a_run_that_was_not_asked_for_is_refused(ends: tuple[Path, Path]) -> None:
    with pytest.raises(RunFolderError, match="not asked for"):
        Arrivals(ends[1], start()).put_in_place("b-c1", node=None, places=1)


def test_a_disk_that_cannot_be_written_says_so(ends: tuple[Path, Path]) -> None:
    (ends[1] / ARRIVING).write_text("a file")
    with pytest.raises(InputError, match="cannot be written"):
        Arrivals(ends[1], start()).take(Piece("a-c1/x", b"x"))


def test_neighbours_are_those_that_the_command_saw_where_a_server_ran(ends: tuple[Path, Path]) -> None:
    there, here = ends
    first, second = run("a-c1"), run("a-c2")
    make(there, first)
    make(there, second, RunState.SKIPPED, places=None)
    bring(Arrivals(here, start(first, second)), list(Outgoing(there, start(first, second)).due()), places=3)
    assert read_run(here / "a-c1", []).provenance.places == 3
    assert "places" not in json.loads((here / "a-c2" / "provenance.json").read_text())
