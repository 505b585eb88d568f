"""Odd campaigns and names through the plan and the build, without kernels."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from notebook_files import code, finished_run, shown, write_notebook
from run_folders import SPECULATIVE, write_campaign, write_run

import workbench.notebook
from workbench.campaigns import campaign_folder
from workbench.errors import SpecError
from workbench.notebook import NotebookJob, NotebookRun
from workbench.paths import ROOT_ENV
from workbench.reports import (
    CAMPAIGN,
    COMPARE,
    DRAFT_TOKENS,
    EXPLORE,
    NOTEBOOKS,
    SCALING,
    Outcome,
    Outline,
    build,
    list_pages,
    outline,
    plan,
)
from workbench.spec import RunState
from workbench.store import read_campaign


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with the notebooks' names and no campaign."""
    monkeypatch.setenv(ROOT_ENV, str(tmp_path))
    for name in NOTEBOOKS:
        write_notebook(tmp_path / "notebooks" / f"{name}.ipynb", code("x: str = ''", "parameters"))
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def campaign(folder: Path, **more: object) -> Path:
    """A campaign with a baseline and a speculative run."""
    write_campaign(folder, **more)
    write_run(folder / "base")
    write_run(folder / "spec", **SPECULATIVE)
    return folder


def read(*folders: Path) -> list[Outline]:
    return [outline(read_campaign(folder)) for folder in folders]


# --- which pages -------------------------------------------------------------------------------------------------


def test_the_recorded_campaigns_give_twelve_pages() -> None:
    names = ("h200_first_trial", "h200_smollm2", "kimi_k25")
    jobs = plan(read(*(campaign_folder(name) for name in names)))
    assert [job.page for job in jobs] == [
        "h200_first_trial-report_campaign",
        "h200_first_trial-report_draft_tokens",
        "h200_first_trial-report_data_scaling",
        "h200_first_trial-report_throughput",
        "h200_smollm2-report_campaign",  # one shape and no training size: two pages have nothing to show
        "h200_smollm2-report_throughput",
        "kimi_k25-report_campaign",
        "kimi_k25-report_draft_tokens",
        "kimi_k25-report_data_scaling",
        "kimi_k25-report_throughput",
        "compare_campaigns",
        "h200_first_trial-explore",
    ]
    assert jobs[0].parameters == {"campaign": "h200_first_trial"}
    assert jobs[-2].parameters == {"campaigns": list(names)}


def test_two_shapes_give_the_page_on_draft_tokens(data: Path) -> None:
    folder = campaign(data / "runs" / "a")
    longer = {"speculative_algorithm": "EAGLE3", "speculative_num_steps": 5, "speculative_num_draft_tokens": 6}
    write_run(folder / "longer", drafter="d", spec_decode=longer)
    assert DRAFT_TOKENS in [job.notebook for job in plan(read(folder))]


def test_a_notebook_that_is_asked_for_is_made_whatever_there_is(data: Path) -> None:
    folder = campaign(data / "runs" / "a")
    jobs = plan(read(folder), [SCALING, COMPARE])
    assert [(job.notebook, job.page) for job in jobs] == [
        (SCALING, "a-report_data_scaling"),
        (COMPARE, "compare_campaigns"),
    ]


def test_the_tour_takes_a_campaign_that_has_runs(data: Path) -> None:
    empty, full = write_campaign(data / "runs" / "a"), campaign(data / "runs" / "b")
    assert [job.parameters for job in plan(read(empty, full)) if job.notebook == EXPLORE] == [{"campaign": "b"}]
    assert [job.parameters for job in plan(read(empty)) if job.notebook == EXPLORE] == [{"campaign": "a"}]


def test_two_campaigns_of_one_name_have_pages_of_their_own(data: Path) -> None:
    jobs = plan(read(campaign(data / "recorded" / "a"), campaign(data / "runs" / "a")), [CAMPAIGN])
    assert [(job.page, job.parameters["campaign"]) for job in jobs] == [
        ("a-report_campaign", "a"),
        ("runs-a-report_campaign", "runs/a"),
    ]


def test_names_that_read_alike_as_files_get_a_number(data: Path) -> None:
    folders = [campaign(data / "runs" / name) for name in ("a b", "a-b", "A+b")]
    pages = [job.page for job in plan(read(*folders), [CAMPAIGN])]
    assert pages == ["a-b-report_campaign", "a-b-report_campaign-2", "A-b-report_campaign-3"]


# --- a build, without kernels ------------------------------------------------------------------------------------


@dataclass
class Runner:
    """Stands in for papermill: notes the jobs and leaves an executed notebook, or none where it fails."""

    jobs: list[NotebookJob] = field(default_factory=list)
    failing: tuple[str, ...] = ()

    def __call__(self, jobs: Iterable[NotebookJob], *, workers: int = 2) -> Iterator[NotebookRun]:
        self.jobs = list(jobs)
        for job in self.jobs:
            if job.notebook.stem in self.failing:
                yield finished_run(job.output, RunState.FAILED, "ValueError: no", **job.parameters)
                continue
            answer = shown({"text/html": f"<p>{job.parameters}</p>"})
            write_notebook(job.output, code("answer", "answer", outputs=[answer]))
            yield finished_run(job.output, **job.parameters)


@dataclass
class Built:
    outcome: Outcome
    said: list[str]
    runner: Runner

    @property
    def pages(self) -> list[str]:
        return sorted(page.name for page in self.outcome.index.parent.glob("*.html"))


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Built]:
    def made(campaigns: list[str] | None = None, notebooks: list[str] | None = None, **runner: object) -> Built:
        said: list[str] = []
        stub = Runner(**runner)  # type: ignore[arg-type]
        monkeypatch.setattr(workbench.notebook, "run_notebooks", stub)
        outcome = build(campaigns=campaigns, notebooks=notebooks, workers=1, say=said.append)
        return Built(outcome, said, stub)

    return made


def test_a_build_makes_the_pages_and_the_index(data: Path, make: Callable[..., Built]) -> None:
    campaign(data / "recorded" / "a")
    campaign(data / "runs" / "b")
    built = make()
    assert built.outcome.summary == "6 pages. Open:"
    assert built.outcome.all_ok
    assert built.outcome.index == data.parent / "reports" / "index.html"
    assert "compare_campaigns.html" in built.pages
    index = built.outcome.index.read_text()
    assert all(page in index for page in built.pages if page != "index.html")


def test_a_folder_without_campaign_json_is_said_and_the_others_are_built(
    data: Path, make: Callable[..., Built]
) -> None:
    campaign(data / "recorded" / "good")
    (data / "recorded" / "no info").mkdir()
    write_campaign(data / "recorded" / "broken")
    (data / "recorded" / "broken" / "campaign.json").write_text('{"name": "broken"')
    built = make()
    left_out = [line for line in built.said if line.startswith("left out: ")]
    assert len(left_out) == 2
    assert "no info" in left_out[1]
    assert "broken" in left_out[0]
    assert not built.outcome.all_ok
    assert "good-report_campaign.html" in built.pages


def test_a_notebook_that_fails_leaves_a_page_and_the_others(data: Path, make: Callable[..., Built]) -> None:
    campaign(data / "runs" / "a")
    built = make(failing=(CAMPAIGN,))
    assert built.outcome.summary == "3 pages, 1 of them with trouble. Open:"
    assert not built.outcome.all_ok
    assert "[1/3] failed a-report_campaign.html (12.5 s)" in built.said
    assert "ValueError: no" in (data.parent / "reports" / "a-report_campaign.html").read_text()


def test_a_folder_whose_name_is_no_text_stops_no_other_page(data: Path, make: Callable[..., Built]) -> None:
    campaign(data / "runs" / "q").rename(data / "runs" / os.fsdecode(b"q\xff"))
    campaign(data / "runs" / "r")
    built = make(failing=(CAMPAIGN,))
    assert built.outcome.summary == "6 pages, 2 of them with trouble. Open:"
    assert "r-report_campaign.html" in built.pages
    index = built.outcome.index.read_text()
    assert all(page in index for page in built.pages if page != "index.html")
    assert "cannot be read" not in index


def test_an_unknown_campaign_brings_the_nearest_name(data: Path, make: Callable[..., Built]) -> None:
    campaign(data / "recorded" / "kimi_k25")
    with pytest.raises(SpecError, match="did you mean 'kimi_k25'"):
        make(["kimi_k26"])


@pytest.mark.parametrize(
    ("asked", "hint"),
    [
        ("report_campain", "did you mean 'report_campaign'"),
        ("21_report_draft", "did you mean '21_report_draft_tokens'"),
        ("zzz", "there are: 20_report_campaign, "),
    ],
)
def test_an_unknown_notebook_brings_the_nearest_name(
    data: Path, make: Callable[..., Built], asked: str, hint: str
) -> None:
    campaign(data / "runs" / "a")
    with pytest.raises(SpecError, match=hint) as caught:
        make(notebooks=[asked])
    assert repr(asked) in caught.value.what


@pytest.mark.parametrize(
    "name", ["report_campaign", "20_report_campaign", "20_report_campaign.ipynb", "report_campaign.ipynb"]
)
def test_a_notebook_may_be_named_without_its_number(data: Path, make: Callable[..., Built], name: str) -> None:
    campaign(data / "runs" / "a")
    built = make(notebooks=[name])
    assert [job.notebook.name for job in built.runner.jobs] == ["20_report_campaign.ipynb"]
    assert built.outcome.summary == "1 page. Open:"


def test_naming_a_campaign_twice_builds_it_once(data: Path, make: Callable[..., Built]) -> None:
    campaign(data / "runs" / "a")
    assert len(make(["a", "a"]).runner.jobs) == 2


def test_two_campaigns_of_one_name_are_both_built(data: Path, make: Callable[..., Built]) -> None:
    campaign(data / "recorded" / "a")
    campaign(data / "runs" / "a")
    built = make(notebooks=["report_campaign"])
    assert built.pages == ["a-report_campaign.html", "index.html", "runs-a-report_campaign.html"]
    summary = json.loads((data.parent / "reports" / "runs-a-report_campaign.summary.json").read_text())
    assert summary["campaign"] == "runs/a"


def test_pages_in_a_linked_folder(data: Path, make: Callable[..., Built]) -> None:
    campaign(data / "runs" / "a")
    (data.parent / "elsewhere").mkdir()
    (data.parent / "reports").symlink_to(data.parent / "elsewhere")
    built = make()
    assert built.outcome.all_ok
    assert (data.parent / "elsewhere" / "a-report_campaign.html").exists()


# --- the list ----------------------------------------------------------------------------------------------------


def test_the_list_names_what_cannot_be_read_too(data: Path) -> None:
    assert list_pages()[0].startswith(f"no campaign in {data / 'recorded'} or {data / 'runs'} (")
    campaign(data / "recorded" / "a")
    (data / "runs" / "c").mkdir(parents=True)
    fault, first = list_pages()
    assert fault.startswith("c: ")
    assert "campaign.json" in fault
    assert first == "a: 2 runs; a-report_campaign, a-report_throughput, a-explore"
