from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from nights import measure, put_aside_attempt
from notebook_files import code, finished_run, markdown, stream, write_notebook
from run_folders import write_campaign, write_run, write_text

import workbench.notebook
from workbench import reports
from workbench.cli import main
from workbench.nightly import MOST_LINES, NOTHING, Since, overview, since_last_good, worse_lines
from workbench.notebook import NotebookJob, NotebookRun
from workbench.page import write_page
from workbench.summary import Change, Summary

CHANGE = Change(run="r", label="L", figure="decode speed", unit="tok/s", verdict="worse", ratio=0.8)


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose notebooks are copied instead of executed."""
    monkeypatch.setenv("WORKBENCH_ROOT", str(tmp_path))
    for notebook in reports.NOTEBOOKS:
        write_notebook(tmp_path / "notebooks" / f"{notebook}.ipynb", markdown(f"# {notebook}"))
    write_text(tmp_path / "data" / "reference_points.csv", "x\n1\n")
    write_run(write_campaign(tmp_path / "data" / "recorded" / "old") / "base")

    def copied(jobs: list[NotebookJob], *, workers: int) -> Iterator[NotebookRun]:
        for job in jobs:
            answer = code("a", "answer", outputs=[stream("It pays.")])
            write_notebook(job.output, markdown(f"# {job.output.stem}"), answer)
            yield finished_run(job.output)

    monkeypatch.setattr(workbench.notebook, "run_notebooks", copied)
    return tmp_path


def night(project: Path, number: int, seconds: float = 1.0) -> Path:
    return measure(project / "data" / "runs" / "nightly", number, seconds=seconds)


def report(*arguments: str) -> int:
    return main(["report", *arguments])


def test_a_regression_is_named_everywhere_and_fails_when_asked(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    night(project, 1)
    assert report("--all", "--fail-on-regression") == 0
    out = capsys.readouterr().out
    assert re.search(r"^nightly +2 ok +not measured before +It pays\.$", out, re.M) and "WORSE" not in out
    night(project, 2, 1.25)
    assert report("--all", "--fail-on-regression") == 3
    out = capsys.readouterr().out
    assert re.search(r"^nightly +2 ok +2 worse, 1 as before +It pays\.$", out, re.M)
    assert "WORSE nightly: eagle3-c1, p: decode speed 0.80x" in out
    assert "WORSE nightly: The plain server got slower, too" in out
    assert len(out.splitlines()) < 24
    page = (project / "reports" / "nightly-report_campaign.html").read_text()
    assert "Worse than the last good run" in page
    index = BeautifulSoup((project / "reports" / "index.html").read_text(), "html.parser")
    # The index lists a page at several places.
    badges = index.select("a + .badge")
    marked = {(badge.find_previous("a")["href"], badge.get_text()) for badge in badges}
    assert marked == {("nightly-report_campaign.html", "Worse than last good")}
    assert len(badges) == len(index.select(".badge"))
    summary = Summary.model_validate_json((project / "reports" / "nightly-report_campaign.summary.json").read_bytes())
    assert {change.run for change in summary.worse} == {"baseline-c1-aaaaaa", "eagle3-c1-bbbbbb"}


def test_without_asking_a_regression_is_said_and_the_exit_code_is_that_of_the_pages(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    night(project, 1)
    night(project, 2, 1.25)
    assert report("--campaign", "nightly") == 0
    assert "WORSE nightly" in capsys.readouterr().out


def test_a_night_as_the_one_before(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    night(project, 1)
    night(project, 2)
    assert report("--all", "--fail-on-regression") == 0
    out = capsys.readouterr().out
    assert "3 as before" in out and "WORSE" not in out
    assert "0 of 3 figures got worse" in (project / "reports" / "nightly-report_campaign.html").read_text()


def test_a_page_is_built_again_when_its_earlier_runs_are_taken_away(project: Path) -> None:
    night(project, 1)
    campaign = night(project, 2, 1.25)
    report("--campaign", "nightly")
    for path in sorted((campaign / "_kept").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    assert report("--campaign", "nightly", "--fail-on-regression") == 0
    assert "Worse than the last good run" not in (project / "reports" / "nightly-report_campaign.html").read_text()


def test_an_attempt_that_failed_is_not_verified(project: Path) -> None:
    campaign = night(project, 1)
    put_aside_attempt(campaign, 2)
    said = since_last_good(campaign)
    assert said.changes is None and len(said.attempts) == 2
    report("--campaign", "nightly")
    summary = Summary.model_validate_json((project / "reports" / "nightly-report_campaign.summary.json").read_bytes())
    assert any("out of memory" in text for text in summary.not_verified)


def test_all_and_names_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert report("--all", "--campaign", "old") == 2
    assert "--all" in capsys.readouterr().err


def test_the_overview_fits_a_screen(project: Path) -> None:
    lines = overview({f"campaign-{number}": NOTHING for number in range(40)}, [])
    assert len(lines) == MOST_LINES + 1 and lines[-1] == "and 25 more campaigns"


def test_long_answers_are_cut_and_trouble_is_said(project: Path) -> None:
    page = project / "reports" / "c-report_campaign.html"
    summary = Summary(kind="report", title="t", status="failed", finished_at="now", answer="x" * 500, campaign="c")  # type: ignore[arg-type]
    write_page(page, "<p>", summary)
    _, line = overview({"c": Since((CHANGE,))}, [page])
    assert line.startswith("c         1, 1 with trouble  1 worse") and line.endswith("x…") and len(line) < 140


def test_lines_on_what_got_worse() -> None:
    assert worse_lines({"a": NOTHING, "b": Since((CHANGE,))}) == (
        "WORSE b: L: decode speed 0.80x: not measured tok/s, not measured when it was last good",
    )


def test_many_lines_are_cut_to_a_screen() -> None:
    lines = worse_lines({"b": Since((CHANGE,) * 50)})
    assert len(lines) == MOST_LINES + 1 and lines[-1] == f"WORSE and {50 - MOST_LINES} lines more: see the pages"


def test_every_key_of_a_summary_is_described() -> None:
    page = (Path(__file__).parents[1] / "docs" / "nightly.md").read_text(encoding="utf-8")
    from workbench.summary import Figure, PageProvenance

    for model in (Summary, Figure, Change, PageProvenance):
        missing = [name for name in model.model_fields if f"`{name}`" not in page]
        assert missing == [], model.__name__


@pytest.mark.parametrize(
    ("measured", "reported", "expected"),
    [(0, 0, 0), (0, 3, 3), (1, 3, 3), (1, 0, 1), (6, 1, 6), (0, 1, 1), (130, 0, 130)],
)
def test_the_exit_code_of_a_night(tmp_path: Path, measured: int, reported: int, expected: int) -> None:
    """The script with a stand-in for the command, which notes how it was called."""
    stand_in = tmp_path / "workbench"
    stand_in.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n[ "$1" = run ] && exit {measured}\nexit {reported}\n'
    )
    stand_in.chmod(0o755)
    script = Path(__file__).parents[1] / "tools" / "nightly.sh"
    environment = {**os.environ, "WORKBENCH": str(stand_in), "SET": "repeats=5 seed=1"}
    done = subprocess.run(["bash", str(script), "a", "b"], env=environment, timeout=30, check=False)
    assert done.returncode == expected
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls[0] == "run a --force --quiet --set repeats=5 --set seed=1"
    if measured != 130:
        assert [call.split()[1] for call in calls[:2]] == ["a", "b"]
        assert calls[2:] == ["report --all --fail-on-regression"]
