from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from workbench.launch import sharing
from workbench.launch.sharing import Company, cores, listed, room_for, share_out


def topology(root: Path, *cpus: tuple[int, int, int]) -> Path:
    """As Linux shows it: CPU, core, package."""
    for cpu, core, package in cpus:
        folder = root / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "core_id").write_text(f"{core}\n")
        (folder / "physical_package_id").write_text(f"{package}\n")
    return root


def test_two_threads_of_a_core_stay_together(tmp_path: Path) -> None:
    # Eight CPUs on four cores, numbered as Linux usually does: 0 and 4 are one core.
    root = topology(tmp_path, *((cpu, cpu % 4, 0) for cpu in range(8)))
    assert share_out(cores(range(8), root), 2) == ({0, 1, 4, 5}, {2, 3, 6, 7})
    assert share_out(cores(range(8), root), 4) == ({0, 4}, {1, 5}, {2, 6}, {3, 7})
    # Half of the CPUs are somebody else's.
    assert share_out(cores({0, 1, 2, 3}, root), 2) == ({0, 1}, {2, 3})


def test_packages_are_not_mixed(tmp_path: Path) -> None:
    # Two packages of two cores with a CPU each, numbered in turn; core ids come again in the second.
    root = topology(tmp_path, (0, 0, 0), (1, 0, 1), (2, 1, 0), (3, 1, 1))
    assert share_out(cores(range(4), root), 2) == ({0, 2}, {1, 3})


def test_shares_are_equal_and_what_is_left_is_nobody_s() -> None:
    each_its_own = {(0, cpu): [cpu] for cpu in range(11)}
    assert share_out(each_its_own, 3) == ({0, 1, 2}, {3, 4, 5}, {6, 7, 8})
    assert share_out(each_its_own, 5) == ({0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9})


@pytest.mark.parametrize("places", [6, 11, 12])
def test_fewer_than_two_cpus_each_are_no_shares(places: int) -> None:
    assert share_out({(0, cpu): [cpu] for cpu in range(11)}, places) == ()


def test_without_topology_each_cpu_is_a_core(tmp_path: Path) -> None:
    assert cores({5, 3}, tmp_path) == {(0, 3): [3], (0, 5): [5]}


@pytest.mark.parametrize(
    ("cpus", "text"), [((), None), ((3,), "3"), ((0, 1, 2, 3), "0-3"), ((8, 0, 1, 3), "0-1,3,8"), ((7, 6, 2), "2,6-7")]
)
def test_cpu_sets_are_written_as_linux_does(cpus: tuple[int, ...], text: str | None) -> None:
    assert listed(cpus) == text


def test_the_most_company_since_a_run_began() -> None:
    company = Company(now=3, most=3)
    company.tell(1)
    company.begin()
    assert (company.now, company.most) == (1, 1)
    company.tell(4)
    company.tell(2)
    assert (company.now, company.most) == (2, 4)


def test_places_have_gpus_of_their_own() -> None:
    eight = tuple(range(8))
    assert [room_for(9, eight, each) for each in (0, 1, 2, 4, 8)] == [9, 8, 4, 2, 1]
    assert room_for(2, (0, 1, 2, 3), 1) == 2
    # One place remains, whose claim says what is missing.
    assert room_for(4, (), 2) == 1


@pytest.mark.parametrize(
    ("prefix", "stays"),
    [((), True), (("numactl", "-N0"), True), (("/usr/bin/docker", "run"), False), (("ssh", "node"), False)],
)
def test_containers_and_other_machines_have_cpus_of_their_own(prefix: tuple[str, ...], stays: bool) -> None:
    assert sharing.inherited(prefix) is stays


def test_pinned_are_all_threads_and_what_is_started() -> None:
    if sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one CPU, or no Linux")
    code = (
        "import os, subprocess, sys, threading\n"
        "from workbench.launch.sharing import pin\n"
        "one = {min(os.sched_getaffinity(0))}\n"
        "release, seen = threading.Event(), []\n"
        "early = threading.Thread(target=lambda: (release.wait(), seen.append(os.sched_getaffinity(0))))\n"
        "early.start()\n"
        "pin(one)\n"
        "release.set(); early.join()\n"
        "child = subprocess.run([sys.executable, '-c', 'import os; print(os.sched_getaffinity(0))'],"
        " capture_output=True, text=True).stdout.strip()\n"
        "assert seen == [one] and child == str(one), (seen, child)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_pinning_to_nothing_changes_nothing() -> None:
    before = sharing.my_cpus()
    sharing.pin(())
    assert sharing.my_cpus() == before
