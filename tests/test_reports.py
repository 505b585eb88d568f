from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from notebook_files import code, finished_run, markdown, stream, write_notebook
from run_folders import write_campaign, write_run, write_text
from tune_answer import write_answer

import workbench.notebook
from workbench import reports, reuse
from workbench.errors import SpecError
from workbench.notebook import NotebookJob, NotebookRun
from workbench.paths import ROOT_ENV
from workbench.provenance import hash_path
from workbench.spec import RunState
from workbench.store import read_campaign


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two campaigns, one run each, and a notebook of every name."""
    monkeypatch.setenv(ROOT_ENV, str(tmp_path))
    for notebook in reports.NOTEBOOKS:
        write_notebook(tmp_path / "notebooks" / f"{notebook}.ipynb", markdown(f"# {notebook}"))
    for name in ("a", "b"):
        write_run(write_campaign(tmp_path / "data" / "recorded" / name) / "base")
    write_text(tmp_path / "data" / "reference_points.csv", "x\n1\n")
    return tmp_path


class Runner:
    """Stands in for the notebooks' processes: copies each notebook and notes which were run."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.status = RunState.OK
        self.problem = False

    def __call__(self, jobs: list[NotebookJob], *, workers: int) -> Iterator[NotebookRun]:
        for job in jobs:
            self.ran.append(job.output.stem)
            said = [code("p", "problems", outputs=[stream("1 run left out")])] if self.problem else []
            write_notebook(job.output, markdown(f"# {job.output.stem}"), *said)
            yield finished_run(job.output, self.status, None if self.status is RunState.OK else "broke")


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> Runner:
    runner = Runner()
    monkeypatch.setattr(workbench.notebook, "run_notebooks", runner)
    return runner


def build(*campaigns: str, notebook: str | None = None, force: bool = False) -> tuple[reports.Outcome, list[str]]:
    said: list[str] = []
    outcome = reports.build(
        campaigns=campaigns or None,
        notebooks=None if notebook is None else [notebook],
        workers=2,
        force=force,
        say=said.append,
    )
    return outcome, said


ALL = ["a-report_campaign", "a-report_throughput", "b-report_campaign", "b-report_throughput"]
ACROSS = ["compare_campaigns", "a-explore"]


def test_pages_of_all_and_of_chosen_campaigns(project: Path) -> None:
    folder = project / "data" / "recorded"
    trained = write_campaign(folder / "c", drafters=[{"name": "d", "training_samples": 500}])
    write_run(trained / "s3")
    a, b, c = (reports.outline(read_campaign(folder / name)) for name in "abc")

    def pages(*arguments: object, chosen: bool = False) -> list[str]:
        return [job.page for job in reports.plan(*arguments, chosen=chosen)]  # type: ignore[arg-type]

    assert pages([a, b]) == ALL + ACROSS
    assert pages([a], chosen=True) == ["a-report_campaign", "a-report_throughput"]
    assert pages([b, a], chosen=True)[-1] == "compare_campaigns-b-a"
    assert pages([c], chosen=True) == ["c-report_campaign", "c-report_data_scaling", "c-report_throughput"]
    write_answer(trained)
    assert pages([reports.outline(read_campaign(trained))], chosen=True)[-1] == "c-report_tune"
    assert pages([a, b], ["00_explore"]) == ["a-explore", "b-explore"]
    assert pages([a], ["21_report_draft_tokens"], chosen=True) == ["a-report_draft_tokens"]
    assert pages([]) == []


def test_the_list_names_what_will_be_built(project: Path, runner: Runner) -> None:
    assert reports.list_pages() == [
        "a: 1 run; a-report_campaign, a-report_throughput, a-explore",
        "b: 1 run; b-report_campaign, b-report_throughput",
        "several campaigns: compare_campaigns",
    ]
    build()
    assert sorted(runner.ran) == sorted(ALL + ACROSS)
    assert reports.list_pages(campaigns=["b"], notebooks=["explore"]) == ["b: 1 run; b-explore"]
    with pytest.raises(SpecError, match="no campaign 'bb'"):
        reports.list_pages(campaigns=["bb"])


def test_what_has_not_changed_is_kept(project: Path, runner: Runner) -> None:
    outcome, said = build()
    assert runner.ran == ALL + ACROSS
    assert outcome.summary == "6 pages. Open:"
    # Not built before: taken as 10 s each, two at a time.
    assert said[0] == "6 pages to build, 2 at a time, less than a minute; 0 unchanged"
    assert said[1] == "[1/6] ok a-report_campaign.html (12.5 s)"

    runner.ran.clear()
    outcome, said = build()
    assert runner.ran == []
    assert (outcome.summary, outcome.all_ok) == ("6 pages, 6 of them unchanged. Open:", True)
    assert said == ["nothing to build, 6 unchanged", *(f"unchanged {page}.html" for page in ALL + ACROSS)]

    _, said = build(force=True)
    assert runner.ran == ALL + ACROSS
    assert said[0] == "6 pages to build, 2 at a time, about a minute; 0 unchanged"  # 6 x 12.5 s / 2 = 37.5 s


@pytest.mark.parametrize(
    ("changed", "rebuilt"),
    [
        ("data/recorded/b/base/spec.json", ["b-report_campaign", "b-report_throughput", "compare_campaigns"]),
        ("data/recorded/a/new.txt", ["a-report_campaign", "a-report_throughput", "compare_campaigns", "a-explore"]),
        ("notebooks/23_report_throughput.ipynb", ["a-report_throughput", "b-report_throughput"]),
        ("data/reference_points.csv", ALL + ACROSS),
        ("reports/compare_campaigns.html", ["compare_campaigns"]),
        ("reports/compare_campaigns.ipynb", ["compare_campaigns"]),
        ("reports/b-report_campaign.summary.json", ["b-report_campaign"]),
    ],
)
def test_what_has_changed_is_built_again(project: Path, runner: Runner, changed: str, rebuilt: list[str]) -> None:
    build()
    runner.ran.clear()
    path = project / changed
    if path.parent.name == "reports":
        path.unlink()
    else:
        path.write_text((path.read_text() if path.exists() else "") + "\n")
    build()
    assert runner.ran == rebuilt


def test_a_page_and_a_summary_of_two_reports_at_once_are_built_again(project: Path, runner: Runner) -> None:
    """The slower one read the campaign before it changed, and writes its page between the other's page and summary."""
    build("a")
    page = project / "reports" / "a-report_campaign.html"
    before = page.read_bytes()
    write_text(project / "data" / "recorded" / "a" / "new.txt", "x")
    build("a")
    page.write_bytes(before)
    runner.ran.clear()
    build("a")
    assert runner.ran == ["a-report_campaign"]
    assert page.read_bytes() != before
    runner.ran.clear()
    build("a")
    assert runner.ran == []


def test_another_package_or_library_is_a_change(
    project: Path, runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "package"
    write_text(package / "templates" / "style.css", "a")
    monkeypatch.setattr(reuse, "_PACKAGE", package)
    build("a")
    runner.ran.clear()
    write_text(package / "__pycache__" / "x.pyc", b"1")
    build("a")
    assert runner.ran == []
    write_text(package / "templates" / "style.css", "b")
    build("a")
    assert runner.ran == ALL[:2]
    monkeypatch.setattr(reuse, "versions", lambda: {"pandas": "99"})
    build("a")
    assert runner.ran == ALL[:2] * 2


@pytest.mark.parametrize("problem", [False, True])
def test_failed_and_partial_pages_are_always_built_again(project: Path, runner: Runner, problem: bool) -> None:
    runner.status, runner.problem = (RunState.OK if problem else RunState.FAILED), problem
    outcome, said = build("a")
    assert (outcome.summary, outcome.all_ok) == ("2 pages, 2 of them with trouble. Open:", False)
    assert said[1].startswith(f"[1/2] {'partial' if problem else 'failed'} a-report_campaign.html")
    build("a")
    assert runner.ran == ALL[:2] * 2


def test_an_input_that_cannot_be_read_is_never_taken_as_unchanged(project: Path, runner: Runner) -> None:
    (project / "data" / "reference_points.csv").unlink()
    build("a")
    build("a")
    assert runner.ran == ALL[:2] * 2


def test_a_campaign_that_cannot_be_read_is_left_out_and_said(project: Path, runner: Runner) -> None:
    (project / "data" / "recorded" / "b" / "campaign.json").unlink()
    outcome, said = build()
    assert runner.ran == [*ALL[:2], "a-explore"]
    assert said[0].startswith("left out: b: ")
    assert not outcome.all_ok


def test_a_page_names_its_campaign_inputs_and_command(project: Path, runner: Runner) -> None:
    build()
    build("b", "a")
    summary = json.loads((project / "reports" / "a-explore.summary.json").read_text())
    assert (summary["campaign"], summary["campaign_title"]) == ("a", "Campaign a")

    def rows(page: str) -> list[tuple[str, str]]:
        soup = BeautifulSoup((project / "reports" / f"{page}.html").read_text(), "html.parser")
        texts = [tag.get_text() for tag in soup.select(".provenance dt, .provenance dd")]
        return list(zip(texts[::2], texts[1::2], strict=True))

    folders = {name: project / "data" / "recorded" / name for name in "ab"}
    inputs = {name: ("Input", f"./data/recorded/{name} (SHA-256 {hash_path(path)})") for name, path in folders.items()}
    assert {row for row in rows("a-explore") if row[0] in ("Command", "Input")} == {
        ("Command", "workbench report --campaign a --notebook explore"),
        inputs["a"],
    }
    assert rows("compare_campaigns")[-2:] == [inputs["a"], inputs["b"]]
    assert ("Command", "workbench report --notebook compare_campaigns") in rows("compare_campaigns")
    chosen = "workbench report --campaign b --campaign a --notebook compare_campaigns"
    assert ("Command", chosen) in rows("compare_campaigns-b-a")


def test_nothing_to_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROOT_ENV, str(tmp_path))
    outcome, said = build()
    assert outcome.summary.startswith("no campaign in ")
    assert (said, outcome.all_ok) == ([], True)
