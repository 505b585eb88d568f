"""Tables kept from report to report: what is read again, what is not, and what befalls the files on the way."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from log_samples import N4_GRAPH, N5_NO_GRAPH, decode_line
from run_folders import SPECULATIVE, write_campaign, write_run, write_text

from workbench.paths import ROOT_ENV, recorded_dir
from workbench.store import read_campaign
from workbench.table import Tables, filling, kept, load_tables, tables_of
from workbench.table.columns import TABLES
from workbench.table.shelf import open_segments

FIELDS = [("windows" if name == "decode_windows" else name) for name in TABLES]
SHARED = "_servers/server/server.log"


@pytest.fixture
def campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A campaign of a project: two runs that share a log, one with a log of its own, one without any."""
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setenv(ROOT_ENV, str(tmp_path))
    folder = write_campaign(tmp_path / "data" / "runs" / "c", drafters=[{"name": "d", "training_samples": 500}])
    at = N4_GRAPH.index(b"\n") + 1
    write_text(folder / SHARED, N4_GRAPH)
    for name, span in (("a1", [0, at]), ("a2", [at, len(N4_GRAPH)])):
        write_run(
            folder / name,
            requests=[{"prompt_index": 0, "completion_tokens": 9, "spec_verify_ct": 4, "steps_histogram": [1, 2, 1]}],
            status={"log_file": f"../{SHARED}", "log_spans": [span]},
            **SPECULATIVE,
        )
    write_run(folder / "b", server_id="other", log=N5_NO_GRAPH)
    write_run(folder / "none", server_id="third", requests=[{"prompt_index": 1, "completion_tokens": 3}, "not JSON"])
    age(folder)
    return folder


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the run folders and logs that are read, as they are."""
    names: list[str] = []
    read_run, read_log = filling.try_run, filling.RunsReader.__init__.__globals__["read_chunks"]

    def run(path: Path, *rest: object) -> object:
        names.append(path.name)
        return read_run(path, *rest)  # type: ignore[arg-type]

    def log(path: Path, *rest: object) -> Iterator[bytes]:
        names.append(str(path.parent.name))
        return read_log(path, *rest)  # type: ignore[no-any-return]

    monkeypatch.setattr(filling, "try_run", run)
    monkeypatch.setitem(filling.RunsReader.__init__.__globals__, "read_chunks", log)
    return names


def age(folder: Path, seconds: float = 60.0) -> None:
    """Make all files as old as those of a campaign that nobody writes to any more."""
    for path in folder.rglob("*"):
        if path.is_file():
            then = time.time() - seconds
            os.utime(path, (then, then))


def shelf(folder: Path) -> Path:
    found = kept.shelf_of(folder)
    assert found is not None
    return found


def assert_as_read_anew(tables: Tables, folder: Path) -> None:
    anew = tables_of([read_campaign(folder)])
    for name in FIELDS:
        pd.testing.assert_frame_equal(getattr(tables, name), getattr(anew, name))
    assert tables.problems == anew.problems
    assert tables.logs.keys() == anew.logs.keys()
    for key, log in anew.logs.items():
        assert replace(tables.logs[key], windows=log.windows) == log
        pd.testing.assert_frame_equal(tables.logs[key].windows, log.windows)
        for name in ("offset", "running_req", "accept_len", "cuda_graph", "prefills"):
            np.testing.assert_array_equal(tables.logs[key].lines[name], log.lines[name])


def test_nothing_is_read_twice(campaign: Path, reads: list[str]) -> None:
    first = load_tables(campaign)
    assert sorted(reads) == ["a1", "a2", "b", "b", "none", "server"]
    reads.clear()
    second = load_tables(campaign)
    assert (len(second.runs), len(second.requests), len(second.windows)) == (4, 3, 6)
    assert reads == []
    for tables in (first, second):
        assert_as_read_anew(tables, campaign)


@pytest.mark.parametrize("name", ["h200_smollm2", "kimi_k25"])
def test_a_recorded_campaign_comes_back_as_it_was(name: str, tmp_path: Path) -> None:
    folder = recorded_dir() / name
    for _ in range(2):
        held = kept.hold(folder, shelf=tmp_path / "shelf")
        assert held is not None
        anew = tables_of([read_campaign(folder)])
        pd.testing.assert_frame_equal(held.requests(), anew.requests)
        pd.testing.assert_frame_equal(held.settings(), anew.settings)
        pd.testing.assert_frame_equal(held.windows(), anew.windows)
        assert [run.row["run_id"] for run in held.runs if run.row] == anew.runs["run_id"].tolist()


def change_requests(folder: Path) -> None:
    (folder / "a1" / "requests.jsonl").write_text('{"prompt_index": 0}\n{"prompt_index": 1}\n')


def change_spec(folder: Path) -> None:
    write_run(folder / "b", server_id="other", log=N5_NO_GRAPH, label="renamed")


def change_status(folder: Path) -> None:
    write_text(folder / "none" / "status.json", {"status": "failed", "reason": "out of memory"})


def grow_own_log(folder: Path) -> None:
    write_text(folder / "b" / "server.log", N5_NO_GRAPH + decode_line().encode())


def grow_shared_log(folder: Path) -> None:
    write_text(folder / SHARED, N4_GRAPH + decode_line().encode())


def rewrite_log_in_place(folder: Path) -> None:
    write_text(folder / SHARED, N4_GRAPH.replace(b"597.79", b"123.45"))


def change_drafter(folder: Path) -> None:
    write_campaign(folder, drafters=[{"name": "d", "training_samples": 900}])


def add_drafter(folder: Path) -> None:
    write_campaign(folder, drafters=[{"name": "d", "training_samples": 500}, {"name": "e"}])


def add_run(folder: Path) -> None:
    write_run(folder / "a3", server_id="fourth", log=N5_NO_GRAPH)


def lose_run(folder: Path) -> None:
    shutil.rmtree(folder / "a2")


def break_run(folder: Path) -> None:
    (folder / "none" / "status.json").unlink()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (change_requests, ["a1"]),
        (change_spec, ["b", "b"]),
        (change_status, ["none"]),
        (grow_own_log, ["b", "b"]),
        (grow_shared_log, ["a1", "a2", "server"]),
        (rewrite_log_in_place, ["a1", "a2", "server"]),
        (change_drafter, ["a1", "a2"]),
        (add_drafter, []),
        (add_run, ["a3", "a3"]),
        (lose_run, []),
        (break_run, ["none"]),
    ],
)
def test_what_changed_is_read_again(change: object, expected: list[str], campaign: Path, reads: list[str]) -> None:
    load_tables(campaign)
    reads.clear()
    change(campaign)  # type: ignore[operator]
    age(campaign, 30.0)
    # Files that the change did not touch keep their times.
    again = load_tables(campaign)
    changed = set(reads)
    assert set(expected) <= changed
    assert_as_read_anew(again, campaign)


def test_only_what_changed_is_read_again(campaign: Path, reads: list[str]) -> None:
    load_tables(campaign)
    for change, expected in ((change_requests, ["a1"]), (add_drafter, []), (add_run, ["a3", "a3"]), (lose_run, [])):
        reads.clear()
        change(campaign)
        for path in campaign.rglob("*"):
            if path.is_file() and time.time() - path.stat().st_mtime < 5:
                os.utime(path, (time.time() - 40, time.time() - 40))
        assert_as_read_anew(load_tables(campaign), campaign)
        assert reads[: len(expected)] == expected
        reads.clear()
        load_tables(campaign)
        assert reads == []


def test_a_log_that_still_grows_is_read_each_time(campaign: Path, reads: list[str]) -> None:
    load_tables(campaign)
    write_text(campaign / SHARED, N4_GRAPH + decode_line().encode())
    for _ in range(2):
        reads.clear()
        assert len(load_tables(campaign).logs["c", "server"].windows) == 4
        assert sorted(reads) == ["a1", "a2", "server"]


def test_a_new_version_of_the_code_reads_all_again(
    campaign: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    load_tables(campaign)
    reads.clear()
    monkeypatch.setattr(kept, "readers_version", lambda: "another")
    load_tables(campaign)
    assert sorted(reads) == ["a1", "a2", "b", "b", "none", "server"]


def test_the_version_follows_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(Path(kept.__file__).parent.parent, tmp_path / "workbench", ignore=lambda *_: ["__pycache__"])
    monkeypatch.setattr(kept, "_PACKAGE", tmp_path / "workbench")
    version = kept.readers_version.__wrapped__
    before = version()
    assert version() == before
    for name in ("parse/server_log.py", "table/runs.py", "store.py", "sglang_rules/layouts.py"):
        with (tmp_path / "workbench" / name).open("a") as file:
            file.write("# changed\n")
        assert version() != before, name
        before = version()
    (tmp_path / "workbench" / "show.py").write_text("")
    assert version() == before


@pytest.mark.parametrize(
    "suffix", [".json", ".logs.jsonl", ".requests.parquet", ".settings.parquet", ".windows.parquet"]
)
@pytest.mark.parametrize("damage", ["empty", "cut", "gone", "garbage"])
def test_damaged_files_are_made_anew(suffix: str, damage: str, campaign: Path) -> None:
    load_tables(campaign)
    [path] = shelf(campaign).glob(f"*{suffix}")
    if damage == "gone":
        path.unlink()
    else:
        whole = path.read_bytes()
        path.write_bytes({"empty": b"", "cut": whole[: len(whole) // 2], "garbage": b"\x00" * len(whole)}[damage])
    assert_as_read_anew(load_tables(campaign), campaign)
    assert_as_read_anew(load_tables(campaign), campaign)


def test_windows_that_are_damaged_while_the_file_is_open_are_read_from_the_log(campaign: Path) -> None:
    load_tables(campaign)
    tables = load_tables(campaign)
    [path] = shelf(campaign).glob("*.windows.parquet")
    with path.open("r+b") as file:
        file.write(b"\xff" * (path.stat().st_size // 2))
    for key, log in tables_of([read_campaign(campaign)]).logs.items():
        np.testing.assert_array_equal(tables.logs[key].lines["accept_len"], log.lines["accept_len"])
        pd.testing.assert_frame_equal(tables.logs[key].windows, log.windows)


def test_what_a_killed_process_left_is_no_segment_and_goes(campaign: Path) -> None:
    load_tables(campaign)
    left = write_text(shelf(campaign) / "dead.requests.parquet", b"half")
    temporary = write_text(shelf(campaign) / ".writing-x.tmp", b"half")
    assert_as_read_anew(load_tables(campaign), campaign)
    assert left.exists()  # it may be a process at work
    for path in (left, temporary):
        os.utime(path, (time.time() - 7200, time.time() - 7200))
    load_tables(campaign)
    assert not left.exists()
    assert not temporary.exists()


def test_without_room_the_tables_are_read_each_time(campaign: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(filling, "write_segment", full)
    assert_as_read_anew(load_tables(campaign), campaign)


def test_a_campaign_of_no_project_is_not_kept(campaign: Path, tmp_path: Path) -> None:
    elsewhere = shutil.copytree(campaign, tmp_path / "elsewhere" / "c")
    assert kept.shelf_of(elsewhere) is None
    assert len(load_tables(elsewhere).runs) == 4


def test_many_segments_become_few(campaign: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_FEW_SEGMENTS", 2)
    for number in range(4):
        write_run(campaign / f"new{number}", server_id=f"n{number}", log=N5_NO_GRAPH)
        age(campaign, 60.0 + number)
        assert_as_read_anew(load_tables(campaign), campaign)
    segments = open_segments(shelf(campaign))
    assert len(segments) <= 3
    assert_as_read_anew(load_tables(campaign), campaign)


def test_tables_outlive_the_files_they_were_opened_from(campaign: Path) -> None:
    tables = load_tables(campaign)
    shutil.rmtree(shelf(campaign))
    assert len(tables.requests) == 3
    assert len(tables.logs["c", "server"].windows) == 3


READ = """
import sys
from pathlib import Path
from workbench.table import load_tables
if __name__ == "__main__":
    tables = load_tables(Path(sys.argv[1]), workers=int(sys.argv[2]))
    print(len(tables.runs), len(tables.requests), len(tables.windows), len(tables.problems))
"""


def test_two_processes_at_once_see_the_same(campaign: Path) -> None:
    command = [sys.executable, "-c", READ, str(campaign), "1"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=60)[0].split() for process in both]
    assert said == [["4", "3", "6", "1"]] * 2
    assert_as_read_anew(load_tables(campaign), campaign)


def test_several_workers_read_what_one_reads(campaign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = write_text(tmp_path / "read.py", READ.replace("workers=", "workers=2 + 0*"))
    monkeypatch.setattr(filling, "CHUNK_RUNS", 1)
    answer = subprocess.run(
        [sys.executable, str(script), str(campaign), "2"], capture_output=True, text=True, check=True
    )
    assert answer.stdout.split() == ["4", "3", "6", "1"]


def test_logs_are_not_read_to_know_that_they_are_there(campaign: Path) -> None:
    load_tables(campaign)
    logs = load_tables(campaign).logs
    shutil.rmtree(shelf(campaign))
    (campaign / SHARED).unlink()
    assert ("c", "server") in logs
    assert ("c", "nobody") not in logs
    assert logs.get(("c", "nobody")) is None
    assert len(logs) == 2
