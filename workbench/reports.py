"""Campaigns to pages: which notebook is made for which campaign, run, rendered, indexed."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from workbench.analysis.wording import count
from workbench.campaigns import campaign_folders, campaigns_named
from workbench.errors import InputError, SpecError
from workbench.nightly import NOTHING, Since, overview, since_last_good, worse_lines
from workbench.paths import TUNED, notebooks_dir, recorded_dir, reports_dir, runs_dir, slug
from workbench.provenance import hash_path
from workbench.spec import CampaignInfo, Drafter
from workbench.store import Campaign, read_campaign, read_head

CAMPAIGN, DRAFT_TOKENS, SCALING, THROUGHPUT, TUNE, COMPARE, EXPLORE = NOTEBOOKS = (
    "20_report_campaign",
    "21_report_draft_tokens",
    "22_report_data_scaling",
    "23_report_throughput",
    "24_report_tune",
    "30_compare_campaigns",
    "00_explore",
)


# What a page takes on two cores, for the outlook before it was ever built.
_USUAL_S = 10.0
_LIMIT_S, _LIMIT_A_RUN_S = 600.0, 0.3
_WORTH_SAYING = 500  # runs that take longer to read than one would wait without a word


@dataclass(frozen=True, slots=True)
class Outline:
    """What decides on the pages of a campaign.

    ``shapes`` are the (steps, draft tokens) asked for, ``is_tuned`` says that `workbench tune` left its answer there.
    """

    path: Path
    info: CampaignInfo
    drafters: tuple[Drafter, ...]
    num_runs: int
    shapes: frozenset[tuple[int | None, int | None]]
    is_tuned: bool = False


def outline(campaign: Campaign) -> Outline:
    decodes = [run.spec.spec_decode for run in campaign.runs if run.spec.spec_decode is not None]
    shapes = frozenset((d.speculative_num_steps, d.speculative_num_draft_tokens) for d in decodes)
    return Outline(
        campaign.path, campaign.info, campaign.drafters, len(campaign.runs), shapes, is_tuned=_is_tuned(campaign.path)
    )


@dataclass(frozen=True, slots=True)
class Job:
    """One page to make: a notebook with its parameters, the campaigns it reads, the command that makes it alone."""

    notebook: str
    page: str
    parameters: dict[str, object]
    campaigns: tuple[Outline, ...]
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Planned:
    """A job with the place of its executed notebook and the fingerprint of what the page is made from.

    ``since`` holds the figures of its campaign beside the last good ones, where the page is the one that shows them.
    """

    job: Job
    output: Path
    made_from: str | None
    since: Since = NOTHING

    @property
    def page(self) -> Path:
        return self.output.with_suffix(".html")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a build: one line for the terminal, the index, and whether everything is in order.

    ``overview`` has a line for each campaign, ``worse`` one for each figure that got worse since it was last good.
    """

    summary: str
    index: Path
    all_ok: bool
    overview: tuple[str, ...] = ()
    worse: tuple[str, ...] = ()


def plan(campaigns: Sequence[Outline], notebooks: Sequence[str] | None = None, *, chosen: bool = False) -> list[Job]:
    """The pages worth making: a notebook is left out where the campaign has nothing for it to show.

    Notebooks that are asked for by name are made for every campaign, whatever it holds. ``chosen`` says that these
    are not all campaigns there are: the tour is left out then, and the comparison is named after them.
    """
    named = {_reference(campaign): campaign for campaign in campaigns}
    jobs = [
        _job(notebook, name, campaign)
        for name, campaign in named.items()
        for notebook in (_fitting(campaign) if notebooks is None else (*NOTEBOOKS[:5], EXPLORE))
    ]
    if len(named) > 1 or (named and notebooks is not None):
        jobs.append(_comparison(named, chosen=chosen))
    if named and notebooks is None and not chosen:
        shown = next((name for name, campaign in named.items() if campaign.num_runs), next(iter(named)))
        jobs.append(_job(EXPLORE, shown, named[shown]))
    return _with_own_pages([job for job in jobs if notebooks is None or job.notebook in notebooks])


def _job(notebook: str, name: str, campaign: Outline) -> Job:
    short = _short(notebook)
    command = ("workbench", "report", "--campaign", name, "--notebook", short)
    return Job(notebook, f"{name}-{short}", {"campaign": name}, (campaign,), command)


def _comparison(named: Mapping[str, Outline], *, chosen: bool) -> Job:
    short = _short(COMPARE)
    options = [word for name in named for word in ("--campaign", name)] if chosen else []
    page = "-".join([short, *named]) if chosen else short
    command = ("workbench", "report", *options, "--notebook", short)
    return Job(COMPARE, page, {"campaigns": list(named)}, tuple(named.values()), command)


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
        named.append(replace(job, page=page))
    return named


def _fitting(campaign: Outline) -> list[str]:
    fitting = [CAMPAIGN]
    if len(campaign.shapes - {(None, None)}) > 1:
        fitting.append(DRAFT_TOKENS)
    if any(drafter.training_samples for drafter in campaign.drafters):
        fitting.append(SCALING)
    if campaign.num_runs:
        fitting.append(THROUGHPUT)
    if campaign.is_tuned:
        fitting.append(TUNE)
    return fitting


def _is_tuned(folder: Path) -> bool:
    return os.path.lexists(folder / TUNED)


def _reference(campaign: Outline) -> str:
    """The name under which `campaigns.campaign_folder` finds this campaign again."""
    return next((name for name, folder in campaign_folders().items() if folder == campaign.path), campaign.info.name)


def list_pages(*, campaigns: Sequence[str] | None = None, notebooks: Sequence[str] | None = None) -> list[str]:
    """What cannot be read, then a line a campaign: its name, its runs, its pages; then the pages on several.

    Raises
    ------
    SpecError
        For a campaign or notebook that does not exist.
    """
    read, lines = _read(campaigns, lambda folder: outline(read_campaign(folder)))
    pages: dict[tuple[Path, ...], list[str]] = {(campaign.path,): [] for campaign in read}
    for job in plan(read, _known_notebooks(notebooks), chosen=bool(campaigns)):
        pages.setdefault(tuple(campaign.path for campaign in job.campaigns), []).append(job.page)
    for campaign in read:
        runs = count(campaign.num_runs, "run")
        lines.append(f"{_reference(campaign)}: {runs}; {', '.join(pages.pop((campaign.path,))) or 'no page'}")
    lines += [f"several campaigns: {', '.join(names)}" for names in pages.values()]
    return lines or [_no_campaign()]


def _no_campaign() -> str:
    return (
        f"no campaign in {recorded_dir()} or {runs_dir()} (workbench run measures one, workbench import brings results)"
    )


def build(
    *,
    campaigns: Sequence[str] | None,
    notebooks: Sequence[str] | None,
    workers: int,
    say: Callable[[str], None],
    force: bool = False,
) -> Outcome:
    """Make the pages of the named campaigns (all by default) and the index; one that fails never stops the others.

    A page is kept when it was whole and nothing that it is made from has changed, unless ``force`` is given.

    Raises
    ------
    SpecError
        For a campaign or notebook that does not exist.
    """
    from workbench.index import build_index
    from workbench.reuse import is_unchanged

    wanted = _known_notebooks(notebooks)
    read, faults = _read(campaigns, partial(_read_tables, workers=workers, say=say))
    for fault in faults:
        say(f"left out: {fault}")
    since = {campaign.path: since_last_good(campaign.path) for campaign in read}
    # Of thousands of runs each look takes seconds, and all pages are of what was there when they were planned.
    hashed = cache(hash_path)
    pages = _placed(plan(read, wanted, chosen=bool(campaigns)), since, hashed)
    kept = [] if force else [page for page in pages if is_unchanged(page.page, page.made_from)]
    todo = [page for page in pages if page not in kept]
    if pages:
        say(_outlook(todo, len(kept), workers))
    for page in kept:
        say(f"unchanged {page.page.name}")
    bad = _make(todo, workers, say, hashed) if todo else 0
    index = build_index(reports_dir())
    made = _made(pages, kept, bad) if pages or faults else _no_campaign()
    named = {_reference(campaign): since[campaign.path] for campaign in read}
    lines, worse = overview(named, [page.page for page in pages]), worse_lines(named)
    return Outcome(f"{made}. Open:", index, not bad and not faults, lines, worse)


def _placed(jobs: Sequence[Job], since: Mapping[Path, Since], hashed: Callable[[Path], str]) -> list[Planned]:
    from workbench.reuse import fingerprints

    shown = [since[job.campaigns[0].path] if job.notebook == CAMPAIGN else NOTHING for job in jobs]
    made_from = fingerprints(
        (
            (
                notebooks_dir() / f"{job.notebook}.ipynb",
                {**job.parameters, **said.fingerprint},
                [campaign.path for campaign in job.campaigns],
            )
            for job, said in zip(jobs, shown, strict=True)
        ),
        hashed,
    )
    # Resolved, because the runs that come back name their outputs so.
    folder = reports_dir().resolve()
    return [
        Planned(job, folder / f"{job.page}.ipynb", key, said)
        for job, key, said in zip(jobs, made_from, shown, strict=True)
    ]


def _outlook(todo: Sequence[Planned], kept: int, workers: int) -> str:
    """``12 pages to build, 2 at a time, about 2 minutes; 3 unchanged``, going by what each took the last time."""
    from workbench.reuse import last_summary

    unchanged = f"{kept} unchanged"
    if not todo:
        return f"nothing to build, {unchanged}"
    earlier = [summary.duration_s if (summary := last_summary(page.page)) else None for page in todo]
    minutes = round(sum(_USUAL_S if took is None else took for took in earlier) / min(workers, len(todo)) / 60)
    takes = f"about {minutes} minutes" if minutes > 1 else "about a minute" if minutes else "less than a minute"
    at_a_time = f", {min(workers, len(todo))} at a time" if len(todo) > 1 else ""
    return f"{count(len(todo), 'page')} to build{at_a_time}, {takes}; {unchanged}"


def _make(todo: Sequence[Planned], workers: int, say: Callable[[str], None], hashed: Callable[[Path], str]) -> int:
    """Build the pages, a line each as they are done; how many of them are not whole."""
    from workbench.notebook import NotebookJob, run_notebooks
    from workbench.report import render_page

    planned = {page.output: page for page in todo}
    jobs = [
        NotebookJob(
            notebooks_dir() / f"{page.job.notebook}.ipynb", page.output, page.job.parameters, _limit_s(page.job)
        )
        for page in todo
    ]
    bad = 0
    for done, run in enumerate(run_notebooks(jobs, workers=workers), 1):
        page = planned[run.output]
        named = page.job.parameters.get("campaign")
        made = render_page(
            run.output,
            page.page,
            run=run,
            campaign=None if named is None else str(named),
            campaign_title=None if named is None else page.job.campaigns[0].info.title,
            made_from=page.made_from,
            inputs=[campaign.path for campaign in page.job.campaigns],
            command=page.job.command,
            hashed=hashed,
            since=page.since.changes,
            attempts=page.since.attempts,
        )
        bad += made.summary.status != "ok"
        took = "" if run.duration_s is None else f" ({run.duration_s:.1f} s)"
        say(f"[{done}/{len(todo)}] {made.summary.status} {made.path.name}{took}")
    return bad


def _limit_s(job: Job) -> float:
    """Wall-clock limit of a page: judging the logs of thousands of runs for the first time takes its time."""
    return max(_LIMIT_S, _LIMIT_A_RUN_S * sum(campaign.num_runs for campaign in job.campaigns))


def _made(pages: Sequence[Planned], kept: Sequence[Planned], bad: int) -> str:
    unchanged = f", {len(kept)} of them unchanged" if kept else ""
    trouble = f", {bad} of them with trouble" if bad else ""
    return f"{count(len(pages), 'page')}{unchanged}{trouble}"


def _read(names: Sequence[str] | None, read_one: Callable[[Path], Outline]) -> tuple[list[Outline], list[str]]:
    named = [folder for name in names for folder in campaigns_named(name)] if names else campaign_folders().values()
    folders = dict.fromkeys(named)
    read: list[Outline] = []
    faults: list[str] = []
    for folder in folders:
        try:
            read.append(read_one(folder))
        except InputError as error:
            faults.append(f"{folder.name}: {error}")
    return read, faults


def _read_tables(folder: Path, *, workers: int, say: Callable[[str], None]) -> Outline:
    """Bring the tables that all pages of a campaign read up to date, by several processes at once."""
    from workbench.table import load_tables

    def announce(num_runs: int) -> None:
        if num_runs >= _WORTH_SAYING:
            say(f"reading {count(num_runs, 'run')} of {folder.name} that are new or changed")

    tables = load_tables(folder, workers=workers, announce=announce)
    head = read_head(folder)
    asked = tables.runs.loc[tables.runs["role"] == "speculative", ["asked_num_steps", "asked_num_draft_tokens"]]
    told = asked.drop_duplicates().astype(object)
    shapes = told.where(told.notna(), None).itertuples(index=False, name=None)
    return Outline(
        head.path, head.info, head.drafters, len(tables.runs), frozenset(shapes), is_tuned=_is_tuned(head.path)
    )


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
