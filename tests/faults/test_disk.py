"""Real file systems that are full, become full at any write, or cannot be written."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from injecting import BASELINE, Tally, assert_no_part_passes_as_whole, content, locks_held
from live_campaigns import STALLED, briefly, of_case, play, run, run_folder, small_disk, starts, states, write_project
from notebook_files import markdown, write_notebook

from workbench import files, measure
from workbench.cli import main
from workbench.errors import InputError
from workbench.sweep import find_campaign

PAGE = 4096


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = write_project(tmp_path / "project", baseline_again=False)
    play(monkeypatch, root)
    return root


@pytest.fixture
def disk(root: Path) -> Iterator[Path]:
    try:
        with small_disk(root / "data" / "runs", "4m") as folder:
            yield folder
    except OSError:
        pytest.skip("this user may not mount a file system")


def fill(disk: Path, left: int) -> Path:
    filler = disk / "filler"
    with filler.open("wb") as file:
        for _ in range(shutil.disk_usage(disk).free // PAGE - left):
            file.write(bytes(PAGE))
    return filler


def test_a_full_disk_is_said_before_a_server_loads(root: Path, disk: Path, tally: Tally) -> None:
    fill(disk, 200)
    tally.injected = 1
    with pytest.raises(InputError, match="No space left on device") as caught:
        run()
    assert caught.value.next_step is not None and caught.value.next_step.startswith("free space")
    assert starts(root) == [] and of_case(root) == []
    (disk / "filler").unlink()
    assert set(briefly(run()).values()) == {"ok"}
    tally.survived = 1


@pytest.mark.slow
def test_a_disk_that_becomes_full_at_any_write(
    root: Path, disk: Path, monkeypatch: pytest.MonkeyPatch, tally: Tally
) -> None:
    """From no page left to so many that all fits: what the system refuses, wherever that is."""
    monkeypatch.setattr(files, "FULL_BELOW_BYTES", 0)
    run("only=baseline-default")
    finished = content(run_folder(root, BASELINE))
    completed, left = False, 0
    while not completed:
        filler = fill(disk, left)
        tally.injected += 1
        try:
            completed = set(briefly(run()).values()) <= {"ok", "kept"}
        except InputError as error:
            assert "No space left on device" in error.what and "free space" in str(error.next_step)
        tally.lost += content(run_folder(root, BASELINE)) != finished
        assert tally.lost == 0 and of_case(root) == [] and locks_held(root) == []
        whole = assert_no_part_passes_as_whole()
        assert len(whole) == 1 + completed and any(name.startswith(BASELINE) for name in whole)
        filler.unlink()
        tally.survived += 1
        left += 3
    assert tally.injected > 4
    assert set(briefly(run()).values()) == {"kept"} and set(states(root).values()) == {"ok"}


@pytest.mark.slow
def test_a_full_disk_that_a_server_only_hangs_of(
    root: Path, disk: Path, monkeypatch: pytest.MonkeyPatch, tally: Tally
) -> None:
    """It is not asked until the time limit of each request: the first failed one makes us look."""
    run("only=baseline-default")
    play(monkeypatch, root, speculative=STALLED)
    told: list[str] = []

    def say(text: str) -> None:
        told.append(text)
        if "eagle" in text and "warming up" in text:
            tally.injected = 1
            fill(disk, 200)

    with pytest.raises(InputError, match="No space left on device"):
        measure.run_campaign(find_campaign("small", ["request_timeout_s=0.5"]), say=say)
    assert tally.injected == 1 and of_case(root) == []
    (disk / "filler").unlink()
    play(monkeypatch, root)
    assert set(briefly(run()).values()) == {"ok", "kept"}
    tally.survived = 1


def test_folders_that_cannot_be_written(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tally: Tally
) -> None:
    """Where a file stands in the place of the folder, as root may write anywhere else."""
    write_notebook(root / "notebooks" / "20_report_campaign.ipynb", markdown("# Page"))
    for name, call in (("data/runs", ("run", "small")), ("data/runs", ("tune", "small")), ("reports", ("report",))):
        shutil.rmtree(root / name, ignore_errors=True)
        (root / name).write_text("a file where a folder belongs")
        tally.injected += 1
        assert main([*call]) == InputError.exit_code, call
        said = capsys.readouterr().err
        assert str(root / name) in said and "  -> " in said and "Traceback" not in said
        (root / name).unlink()
        tally.survived += 1
    assert starts(root) == []


@pytest.mark.slow
def test_read_only_file_systems(root: Path, disk: Path, capsys: pytest.CaptureFixture[str], tally: Tally) -> None:
    run("only=baseline-default")
    finished = content(run_folder(root, BASELINE))
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    for call in (("run", "small"), ("tune", "small")):
        tally.injected += 1
        assert main([*call]) == InputError.exit_code, call
        said = capsys.readouterr().err
        assert "Read-only file system" in said and "  -> " in said and "Traceback" not in said
    subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    assert content(run_folder(root, BASELINE)) == finished and len(starts(root)) == 1
    assert set(briefly(run()).values()) == {"ok", "kept"}
    tally.survived = tally.injected
