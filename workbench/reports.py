"""Campaigns to pages: which notebook is made for which campaign, run, rendered, indexed."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.campaigns import campaign_folder, campaign_folders
from workbench.errors import InputError, SpecError
from workbench.paths import notebooks_dir, recorded_dir, reports_dir, runs_dir, slug
from workbench.store import Campaign, read_campaign

CAMPAIGN, DRAFT_TOKENS, SCALING, THROUGHPUT, COMPARE, EXPLORE = (
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
    """The pages worth making: a notebook is left out where the campaign has nothing for it to show."""
    jobs = [
        Job(notebook, f"{slug(campaign.info.name)}-{notebook.split('_', 1)[1]}", {"campaign": _reference(campaign)})
        for campaign in campaigns
        for notebook in _fitting(campaign)
    ]
    names = [_reference(campaign) for campaign in campaigns]
    if len(names) > 1:
        jobs.append(Job(COMPARE, "compare_campaigns", {"campaigns": names}))
    if names:
        jobs.append(Job(EXPLORE, "explore", {"campaign": names[0]}))
    return [job for job in jobs if notebooks is None or job.notebook in notebooks]


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
        lines.append(f"{name}: {len(campaign.runs)} runs, {', '.join(_fitting(campaign))}")
    return lines or [f"no campaign in {', '.join(str(path) for path in (recorded_dir(), runs_dir()))}"]


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

    read, faults = _read(campaigns)
    jobs = plan(read, _known_notebooks(notebooks))
    for fault in faults:
        say(f"left out: {fault}")
    todo = {reports_dir() / f"{job.page}.ipynb": job for job in jobs}
    runs = run_notebooks(
        [
            NotebookJob(notebooks_dir() / f"{job.notebook}.ipynb", output, job.parameters)
            for output, job in todo.items()
        ],
        workers=workers,
    )
    bad = 0
    for count, run in enumerate(runs, 1):
        job = todo[run.output]
        page = render_page(
            run.output, run.output.with_suffix(".html"), run=run, campaign=str(job.parameters.get("campaign", ""))
        )
        bad += page.summary.status != "ok"
        took = "" if run.duration_s is None else f" ({run.duration_s:.1f} s)"
        say(f"[{count}/{len(jobs)}] {page.summary.status} {page.path.name}{took}")
    index = build_index(reports_dir())
    summary = f"{len(jobs)} pages" + (f", {bad} of them with trouble" if bad else "") + ". Open:"
    return Outcome(summary, index, not bad and not faults)


def _read(names: Sequence[str] | None) -> tuple[list[Campaign], list[str]]:
    folders = [campaign_folder(name) for name in names] if names else list(campaign_folders().values())
    read: list[Campaign] = []
    faults: list[str] = []
    for folder in folders:
        try:
            read.append(read_campaign(folder))
        except InputError as error:
            faults.append(str(error))
    return read, faults


def _known_notebooks(names: Sequence[str] | None) -> list[str] | None:
    if names is None:
        return None
    there = sorted(path.stem for path in notebooks_dir().glob("*.ipynb"))
    wanted = []
    for name in names:
        stem = name.removesuffix(".ipynb")
        matches = [known for known in there if stem in (known, known.split("_", 1)[-1])]
        if not matches:
            near = difflib.get_close_matches(stem, there, n=1, cutoff=0.3)
            raise SpecError(
                f"no notebook {name!r}", where="notebooks/", next_step=f"there are: {', '.join(near or there)}"
            )
        wanted += matches
    return wanted
