"""What was found of logs is kept, and found anew where it cannot be the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from log_samples import N4_GRAPH, N5_NO_GRAPH
from run_folders import SPECULATIVE, write_campaign, write_run

from workbench.analysis import campaign as pages
from workbench.analysis import remembered as rooms
from workbench.analysis import views
from workbench.analysis.cost import cost_df
from workbench.analysis.prefills import prefills_of_runs_df
from workbench.analysis.remembered import remembered
from workbench.paths import ROOT_ENV
from workbench.store import read_campaign
from workbench.table import Tables, load_tables, tables_of


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setenv(ROOT_ENV, str(tmp_path))
    return tmp_path


class Counted:
    """A value that counts how often it is worked out."""

    def __init__(self, value: object) -> None:
        self.value, self.times = value, 0

    def __call__(self) -> object:
        self.times += 1
        return self.value


def test_a_value_is_worked_out_once(root: Path) -> None:
    one, two = Counted({"a": 1.5}), Counted(None)
    for _ in range(3):
        assert remembered("kind", "c", [("1", one), ("2", two)]) == [{"a": 1.5}, None]
    assert (one.times, two.times) == (1, 1)
    # Of another kind, another campaign, made from something else, or from what is not known.
    remembered("other", "c", [("1", one)])
    remembered("kind", "d", [("1", one)])
    remembered("kind", "c", [("3", one), (None, one)])
    assert one.times == 5


def test_what_is_not_asked_for_goes(root: Path) -> None:
    gone = Counted(1)
    remembered("kind", "c", [("1", gone), ("2", Counted(2))])
    remembered("kind", "c", [("2", Counted(2))])
    remembered("kind", "c", [("1", gone)])
    assert gone.times == 2


def test_another_version_of_the_code_works_all_out_anew(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    value = Counted(1)
    remembered("kind", "c", [("1", value)])
    monkeypatch.setattr(rooms, "version", lambda: "another")
    remembered("kind", "c", [("1", value)])
    assert value.times == 2
    assert len(list((root / "reports" / ".cache" / "findings").glob("*.json"))) == 1


_ONE_OF_TWO = """
import sys, time
from workbench.analysis.remembered import remembered
def work_out():
    with open(sys.argv[1], "a") as file:
        file.write("worked\\n")
    time.sleep(1)
    return 7
print(remembered("kind", "c", [("1", work_out)]))
"""


def test_of_two_pages_at_once_one_works_it_out(root: Path) -> None:
    told = root / "told"
    command = [sys.executable, "-c", _ONE_OF_TWO, str(told)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate(timeout=60)[0] for process in both] == ["[7]\n", "[7]\n"]
    assert told.read_text() == "worked\n"


def test_where_nothing_can_be_locked_it_is_worked_out_all_the_same(root: Path) -> None:
    (root / "reports").write_text("a file where the folder should be")
    value = Counted(3)
    assert remembered("kind", "c", [("1", value)]) == [3]


@pytest.mark.parametrize("damage", [b"", b"{", b"[1]", b"\xff\xfe"])
def test_a_damaged_file_is_no_file(damage: bytes, root: Path) -> None:
    value = Counted(1)
    remembered("kind", "c", [("1", value)])
    [path] = (root / "reports" / ".cache" / "findings").glob("*.json")
    path.write_bytes(damage)
    assert remembered("kind", "c", [("1", value)]) == [1]
    assert value.times == 2


def test_pages_say_the_same_from_memory(root: Path) -> None:
    folder = write_campaign(root / "data" / "runs" / "c")
    write_run(folder / "base", server_id="b", log=N4_GRAPH.replace(b"accept len: 1.00, accept rate: 0.25, ", b""))
    write_run(folder / "spec", server_id="s", log=N5_NO_GRAPH, **SPECULATIVE)

    def found(tables: Tables) -> list[object]:
        costs = cost_df(tables.runs)
        return [
            {
                key: (each.verdict, each.findings, each.not_known, each.figures.to_csv())
                for key, each in pages.diagnose_logs(tables).items()
            },
            views.log_speeds(tables).to_csv(),
            prefills_of_runs_df(tables, costs).to_csv(),
        ]

    anew = found(tables_of([read_campaign(folder)]))
    assert anew[0]
    for _ in range(2):
        assert found(load_tables(folder)) == anew
