"""Campaigns to pages: which notebook is made for which campaign, run, rendered, indexed."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.analysis.wording import count
from workbench.campaigns import campaign_folder, campaign_folders
from workbench.errors import InputError, SpecError
from workbench.paths import notebooks_dir, recorded_dir, reports_dir, runs_dir, slug
from workbench.store import Campaign, read_campaign

CAMPAIGN, DRAFT_TOKENS, SCALING, THROUGHPUT, COMPARE, EXPLORE = NOTEBOOKS = (
    "20_report_campaign",
    "21_report_draft_tokens",
    "22_report_data_scaling",
    "23_report_throughput",
    "30_compare_campaigns",
    "00_explore",
)


@dataclass(frozen=True, slots=True)
class Job:
    """One page to make: a notebook with its parameters."""

    notebook: str
    page: str
    parameters: dict[str, object]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a build: one line for the terminal, the index, and whether everything is in order."""

    summary: str
    index: Path
    all_ok: bool


def plan(campaigns: Sequence[Campaign], notebooks: Sequence[str] | None = None) -> list[Job]:
    """The pages worth making: a notebook is left out where the campaign has nothing for it to show.

    Notebooks that are asked for by name are made for every campaign, whatever it holds.
    """
    named = {_reference(campaign): campaign for campaign in campaigns}
    jobs = [
        Job(notebook, f"{name}-{_short(notebook)}", {"campaign": name})
        for name, campaign in named.items()
        for notebook in (_fitting(campaign) if notebooks is None else NOTEBOOKS[:4])
    ]
    if len(named) > 1 or (named and notebooks is not None):
        jobs.append(Job(COMPARE, _short(COMPARE), {"campaigns": list(named)}))
    if named:
        shown = next((name for name, campaign in named.items() if campaign.runs), next(iter(named)))
        jobs.append(Job(EXPLORE, _short(EXPLORE), {"campaign": shown}))
    return _with_own_pages([job for job in jobs if notebooks is None or job.notebook in notebooks])


def _short(notebook: str) -> str:
    return notebook.split("_", 1)[1]


def _with_own_pages(jobs: Sequence[Job]) -> list[Job]:
    """Page names made safe for a path; of names that read alike then, the later ones get a number."""
    taken: set[str] = set()
    named = []
    for job in jobs:
        page, number = slug(job.page), 1
        while page.lower() in taken:
            number += 1
            page = f"{slug(job.page)}-{number}"
        taken.add(page.lower())
        named.append(Job(job.notebook, page, job.parameters))
    return named


def _fitting(campaign: Campaign) -> list[str]:
    decodes = [run.spec.spec_decode for run in campaign.runs if run.spec.spec_decode is not None]
    shapes = {(d.speculative_num_steps, d.speculative_num_draft_tokens) for d in decodes} - {(None, None)}
    fitting = [CAMPAIGN]
    if len(shapes) > 1:
        fitting.append(DRAFT_TOKENS)
    if any(drafter.training_samples for drafter in campaign.drafters):
        fitting.append(SCALING)
    if campaign.runs:
        fitting.append(THROUGHPUT)
    return fitting


def _reference(campaign: Campaign) -> str:
    """The name under which `campaign_folder` finds this campaign again."""
    return next((name for name, folder in campaign_folders().items() if folder == campaign.path), campaign.info.name)


def list_campaigns() -> list[str]:
    """A line a campaign: its name, what can be read of it, and which notebooks fit."""
    lines = []
    for name, folder in campaign_folders().items():
        try:
            campaign = read_campaign(folder)
        except InputError as error:
            lines.append(f"{name}: {error}")
            continue
        lines.append(f"{name}: {count(len(campaign.runs), 'run')}, {', '.join(_fitting(campaign))}")
    return lines or [_no_campaign()]


def _no_campaign() -> str:
    return f"no campaign in {recorded_dir()} or {runs_dir()}"


def build(
    *,
    campaigns: Sequence[str] | None,
    notebooks: Sequence[str] | None,
    workers: int,
    say: Callable[[str], None],
) -> Outcome:
    """Make the pages of the named campaigns (all by default) and the index; one that fails never stops the others.

    Raises
    ------
    SpecError
        For a campaign or notebook that does not exist.
    """
    from workbench.index import build_index
    from workbench.notebook import NotebookJob, run_notebooks
    from workbench.report import render_page

    wanted = _known_notebooks(notebooks)
    read, faults = _read(campaigns)
    for fault in faults:
        say(f"left out: {fault}")
    # Resolved, because the runs that come back name their outputs so.
    todo = {(reports_dir() / f"{job.page}.ipynb").resolve(): job for job in plan(read, wanted)}
    runs = run_notebooks(
        [
            NotebookJob(notebooks_dir() / f"{job.notebook}.ipynb", output, job.parameters)
            for output, job in todo.items()
        ],
        workers=workers,
    )
    bad = 0
    for done, run in enumerate(runs, 1):
        campaign = todo[run.output].parameters.get("campaign")
        page = render_page(
            run.output, run.output.with_suffix(".html"), run=run, campaign=None if campaign is None else str(campaign)
        )
        bad += page.summary.status != "ok"
        took = "" if run.duration_s is None else f" ({run.duration_s:.1f} s)"
        say(f"[{done}/{len(todo)}] {page.summary.status} {page.path.name}{took}")
    index = build_index(reports_dir())
    trouble = f", {bad} of them with trouble" if bad else ""
    made = f"{count(len(todo), 'page')}{trouble}" if todo or faults else _no_campaign()
    return Outcome(f"{made}. Open:", index, not bad and not faults)


def _read(names: Sequence[str] | None) -> tuple[list[Campaign], list[str]]:
    folders = dict.fromkeys(map(campaign_folder, names) if names else campaign_folders().values())
    read: list[Campaign] = []
    faults: list[str] = []
    for folder in folders:
        try:
            read.append(read_campaign(folder))
        except InputError as error:
            faults.append(str(error))
    return read, faults


def _known_notebooks(names: Sequence[str] | None) -> list[str] | None:
    """The notebooks of these names, with or without number and ending; ``None`` where none is named.

    Raises
    ------
    SpecError
        For a name that no report has; the nearest name is given.
    """
    if not names:
        return None
    known = {**{notebook: notebook for notebook in NOTEBOOKS}, **{_short(notebook): notebook for notebook in NOTEBOOKS}}
    wanted = []
    for name in names:
        stem = name.removesuffix(".ipynb")
        if stem not in known:
            near = difflib.get_close_matches(stem, known, n=1, cutoff=0.4)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(NOTEBOOKS)}"
            raise SpecError(f"no report notebook {name!r}", where=notebooks_dir(), next_step=hint)
        wanted.append(known[stem])
    return wanted
