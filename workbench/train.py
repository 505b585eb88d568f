"""``workbench train``: one drafter or a study of many; on wish evaluated, served and recorded by a campaign at once."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.analysis.wording import count
from workbench.errors import UsageError
from workbench.paths import notebooks_dir, reports_dir, slug, under_root
from workbench.spec import RunState
from workbench.sweep import CampaignSpec, find_campaign
from workbench.terminal import Lines
from workbench.trained import RECORD, read_record
from workbench.training import judged
from workbench.training.config import TrainConfig, read_config, read_content
from workbench.training.many import Result, listing, train_all
from workbench.training.needs import check_torch
from workbench.training.study import Study, is_study, read_study

if TYPE_CHECKING:
    from workbench import run

NOTEBOOK = "40_train_drafter.ipynb"
_PAGE_LIMIT_S = 600.0


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line asks for. ``serve`` names a campaign, ``page`` asks for the notebook's page."""

    config: Path
    settings: tuple[str, ...] = ()
    resume: bool = False
    jobs: int = 1
    serve: str | None = None
    page: bool = False
    allow_refused: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is said at the end, and the exit code."""

    text: str
    exit_code: int


def listed(request: Request) -> str:
    """The runs of a study and how far each is.

    Raises
    ------
    UsageError
        When the file means one drafter.
    """
    return listing(_study(request))


def train(request: Request, lines: Lines) -> Outcome:
    """Train what the file asks for; what is finished is kept where the rest of the command still needs it.

    Raises
    ------
    WorkbenchError
        When the file, its data, its folder or the campaign cannot be used.
    """
    if request.config.is_dir():
        return _show_finished(request)
    check_torch()
    if is_study(read_content(request.config, request.settings)):
        return _train_study(request, lines)
    if request.jobs > 1:
        raise UsageError("one drafter is one job", where="--jobs", next_step="leave it out, or use torchrun")
    config = read_config(request.config, request.settings)
    campaign = None if request.serve is None else find_campaign(request.serve)
    folder = _trained(config, request, lines)
    if not (folder / RECORD).is_file():
        return Outcome("", 0)  # of several processes this is not the one that writes
    said = [_page(folder)] if request.page else []
    if campaign is None:
        return Outcome("\n".join(said), 0)
    _judge(config, folder, walks_of(campaign), lines)
    settings = settings_for(campaign, config.name, folder)
    served = _serve(request, settings, lines)
    return Outcome("\n".join([*said, served.text]), served.exit_code)


def _show_finished(request: Request) -> Outcome:
    if not (request.page and (request.config / RECORD).is_file()):
        advice = "name a training file, or give --page to show a finished drafter"
        raise UsageError("is a folder", where=request.config, next_step=advice)
    return Outcome(_page(request.config), 0)


# --- one drafter -------------------------------------------------------------------------------------------------


def _trained(config: TrainConfig, request: Request, lines: Lines) -> Path:
    folder = Path(config.out)
    if (folder / RECORD).is_file() and (request.serve is not None or request.page):
        _check_same(config, folder)
        lines.say(f"{folder}: trained already")
        return folder
    from workbench.training.train import train as train_one

    # The command goes on by itself where it does more than train: it may have been stopped anywhere.
    resume = request.resume or request.serve is not None
    train_one(config, resume=resume, say=lines.say, overwrite=lines.overwrite)
    lines.clear()
    return folder


def _check_same(config: TrainConfig, folder: Path) -> None:
    trained = read_record(folder).get("config") or {}
    # A key that came later says nothing about what was trained before it.
    changed = [key for key, value in config.identity.items() if trained.get(key, value) != value]
    if changed:
        advice = "name another folder, or remove this one"
        raise UsageError(f"the drafter there differs in {', '.join(changed)}", where=folder, next_step=advice)


def _judge(config: TrainConfig, folder: Path, walks: Sequence[judged.Walk], lines: Lines) -> None:
    """The walks that are missing, by the command that makes them alone; it shows its own progress."""
    for walk in judged.missing(folder, walks):
        lines.say(f"accept length offline on {walk.asked()['prompt_set']}")
        if not judged.make(walk, config, folder, lambda command: subprocess.run(command, check=False).returncode):
            raise UsageError("the drafter could not be evaluated", where=folder, next_step="see the message above")


def walks_of(campaign: CampaignSpec) -> list[judged.Walk]:
    """The walks that say offline what a campaign serves; none where it samples or goes on beyond an answer's end."""
    work = campaign.workload
    if work.temperature > 0 or work.ignore_eos:
        return []
    return [
        judged.Walk(prompts=name, num_prompts=number, max_new_tokens=work.max_new_tokens)
        for name, number in work.prompt_sets.items()
    ]


def settings_for(campaign: CampaignSpec, name: str, folder: Path) -> list[str]:
    """Changes that make a campaign one of this drafter alone, under a name of its own.

    Two drafters in one campaign folder would each overwrite what is known of the other.
    """
    named = slug(name)
    drafter = {"name": named, "model_path": str(folder.resolve())}
    own = [f"name={campaign.name}-{named}", f"drafters={json.dumps([drafter])}", "drafters_from=null"]
    return [*own, *(f"sweep.{place}.drafter=[]" for place, block in enumerate(campaign.sweep) if block.drafter)]


def _serve(request: Request, settings: Sequence[str], lines: Lines) -> run.Outcome:
    # Here and for pages: a node that only trains need not have what measuring and notebooks need.
    from workbench import run

    assert request.serve is not None
    asked = run.Request(request.serve, tuple(settings), allow_refused=request.allow_refused)
    return run.run(asked, lines)


# --- a study -----------------------------------------------------------------------------------------------------


def _study(request: Request) -> Study:
    if not is_study(read_content(request.config, request.settings)):
        advice = "give a key several values, such as seed: [0, 1, 2]"
        raise UsageError("this file means one drafter", where=request.config, next_step=advice)
    return read_study(request.config, request.settings)


def _train_study(request: Request, lines: Lines) -> Outcome:
    study = _study(request)
    results = train_all(study, jobs=request.jobs, lines=lines)
    failed = [result for result in results if result.state == "failed"]
    said = [_sentence(study, results), *(f"  {result.name}: {result.reason}" for result in failed)]
    if request.page:
        said += [_page(Path(one.out)) for one in study.runs if (Path(one.out) / RECORD).is_file()]
    if request.serve is None:
        return Outcome("\n".join(said), 1 if failed else 0)
    served = _serve(request, [f"drafters_from={json.dumps(str(study.folder))}"], lines)
    return Outcome("\n".join([*said, served.text]), max(served.exit_code, 1 if failed else 0))


def _sentence(study: Study, results: Sequence[Result]) -> str:
    states = [result.state for result in results]
    said = [f"{states.count('done')} trained", f"{states.count('kept')} kept from before"]
    said += [f"{states.count('failed')} failed"] if "failed" in states else []
    return f"{study.name}: of {count(len(study.runs), 'drafter')} {', '.join(said)}; {study.folder}"


# --- the page ----------------------------------------------------------------------------------------------------


def _page(folder: Path) -> str:
    """Execute the notebook on a finished drafter and make its page."""
    from workbench.index import build_index
    from workbench.report import render_page

    name = slug(f"train_drafter-{folder.name}")
    output = reports_dir().resolve() / f"{name}.ipynb"
    parameters: dict[str, object] = {"config": str(folder.resolve())}
    from workbench.notebook import run_notebook

    done = run_notebook(notebooks_dir() / NOTEBOOK, output, parameters, timeout_s=_PAGE_LIMIT_S)
    command = ("workbench", "train", str(folder), "--page")
    made = render_page(
        output, output.with_suffix(".html"), run=done, inputs=[Path(under_root(str(folder)))], command=command
    )
    build_index(reports_dir())
    return f"page: {made.path}" if done.status is RunState.OK else f"the page has trouble: {done.reason}"
