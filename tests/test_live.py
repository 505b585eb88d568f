from __future__ import annotations

import json
from pathlib import Path

import pytest
from live_campaigns import play, write_project

from workbench import live, measure
from workbench.paths import runs_dir
from workbench.recording import Ended
from workbench.spec import RunState
from workbench.sweep import expand, find_campaign


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = write_project(tmp_path / "project")
    play(monkeypatch, project)
    return project


def test_progress_is_printed_and_kept_with_the_time(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = live.progress_file("small")
    path.parent.mkdir(parents=True)
    path.write_text("10:00:00  from before\n")
    say = live.progress("small")
    for text in ("one", "\rrun: 1 of 10 requests", "\rrun: 2", "run: ok"):
        say(text)
    # What passes is overwritten to its whole length, also by what stays.
    assert capsys.readouterr().out == "one\n\rrun: 1 of 10 requests\rrun: 2               \rrun: ok\n"
    lines = path.read_text().splitlines()
    assert [line[8:] for line in lines[1:]] == ["  one", "~ run: 1 of 10 requests", "~ run: 2", "  run: ok"]
    assert lines[0] == "10:00:00  from before"


def test_progress_that_cannot_be_written_is_still_printed(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs_dir().write_text("not a folder")
    live.progress("small")("one")
    assert capsys.readouterr().out == "one\n"


def test_what_is_missing_and_why(root: Path) -> None:
    plan = expand(find_campaign("small"))
    assert [run.reason for run in live.missing(plan)] == ["not begun"] * 3
    measure.run_campaign(plan.campaign, say=lambda _: None)
    assert live.missing(plan) == []
    first, second, _ = (runs_dir() / "small" / start.runs[0].run_id for start in plan.starts)
    (first / "status.json").write_text(json.dumps({"status": "failed", "reason": "the GPU\nran out of memory"}))
    (second / "status.json").write_text(json.dumps({"status": "running"}))
    width = len(second.name)
    assert live.missing_text(live.missing(plan)) == (
        f"  {first.name:<{width}}  failed       the GPU ran out of memory\n"
        f"  {second.name}  running      what measured it is gone; it will be measured again"
    )
    (second / "status.json").write_text("{")
    assert live.missing(plan)[1] == Ended(second.name, RunState.PENDING, "not begun")


def test_ended_runs_in_a_sentence() -> None:
    runs = [
        Ended("a", RunState.OK),
        Ended("b", RunState.OK, reused=True),
        Ended("c", RunState.TIMED_OUT, "slow"),
        Ended("d", RunState.FAILED, "out of memory"),
    ]
    said = "Of 4 runs: 1 runs measured, 1 kept from before, 1 failed, 1 timed_out."
    assert live.ended_sentence(runs) == said
    assert live.ended_df(runs)["state"].tolist() == ["ok", "kept", "timed_out", "failed"]


def test_a_dry_run_starts_nothing_and_shows_exact_command_lines(root: Path) -> None:
    campaign = find_campaign("small", ["launch_prefix=[docker, run, image]", "max_concurrency=[1, 4]"])
    text = live.dry_run(expand(campaign))
    assert text.count("docker run image") == 3
    assert "2. eagle3-d-s3-k1-n4  (concurrency 1, 4)" in text
    assert "--speculative-num-steps 3" in text and "--max-running-requests 4" in text
    assert "3 starts, 6 runs, 36 requests" in text
    assert not (root / "starts.txt").exists() and not runs_dir().exists()
