"""`workbench run`: the run notebook through papermill, its progress shown as it comes, the executed copy kept."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench import live
from workbench.attached import attachment
from workbench.cluster import LOCAL, check_ray
from workbench.errors import InputError, NotebookError, SpecError, UsageError
from workbench.files import require_there
from workbench.measure import plan_of, to_measure
from workbench.models import changed_weights, check_engine, check_target
from workbench.notebook import NotebookRun, run_notebook
from workbench.paths import COMMAND_LOCK, RUN_NOTEBOOKS, notebooks_dir, runs_dir, under_root
from workbench.prompts import is_file_name
from workbench.recording import alone, check_space
from workbench.spec import RunState
from workbench.sweep import Plan, find_campaign
from workbench.terminal import Lines, terminated_like_interrupted

NOTEBOOK = "10_run_campaign.ipynb"
LIMIT_S = 7 * 24 * 3600.0
STOP_GRACE_S = 30.0
"""For a server to end and the notebook to be kept after Ctrl-C; SGLang takes up to 20 s."""
_POLL_S = 0.3


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line asks for; ``attach`` and ``log`` are empty where servers are started."""

    campaign: str
    settings: tuple[str, ...] = ()
    engine: str | None = None
    force: bool = False
    allow_refused: bool = False
    attach: str = ""
    log: str = ""
    places: int | None = None
    interference: bool = False
    executor: str = "local"
    ray_address: str = ""

    @property
    def ray(self) -> str:
        """Address of the Ray cluster: as given, as Ray's own variable says, or one that is started here; else empty."""
        if self.executor == "ray":
            return self.ray_address or os.environ.get("RAY_ADDRESS", "") or LOCAL
        if self.ray_address:
            raise UsageError("goes with the executor ray", where="--ray-address", next_step="add --executor ray")
        return ""

    def parameters(self) -> dict[str, object]:
        """Those of the notebook, whose working folder is another one: paths are made absolute."""
        is_path = Path(self.campaign).suffix in (".yaml", ".yml")
        return {
            "campaign": str(Path(self.campaign).resolve()) if is_path else self.campaign,
            "settings": [*self.settings, *self._more_settings()],
            "force": self.force,
            "allow_refused": self.allow_refused,
            "attach": self.attach,
            "log": str(Path(self.log).resolve()) if self.log else "",
            "ray": self.ray,
        }

    def _more_settings(self) -> list[str]:
        """What the command line means besides."""
        campaign = find_campaign(self.campaign, self.settings)
        settings = []
        work, trained = campaign.workload, campaign.drafters_from
        if _is_here(work.prompt_set):
            settings.append(f"workload.prompt_set={json.dumps(str(Path(work.prompt_set).resolve()))}")
        if any(map(_is_here, work.more_prompt_sets)):
            more = {
                str(Path(name).resolve()) if _is_here(name) else name: n for name, n in work.more_prompt_sets.items()
            }
            settings.append(f"workload.more_prompt_sets={json.dumps(more)}")
        if trained is not None and Path(trained).is_dir() and not Path(under_root(trained)).samefile(trained):
            settings.append(f"drafters_from={json.dumps(str(Path(trained).resolve()))}")
        return settings + campaign.settings_for(self.engine) + self._places(campaign.places)

    def _places(self, usual: int) -> list[str]:
        """One name for both: what the command line says is a setting of the campaign."""
        if self.attach and (self.places or self.interference or self.ray):
            advice = "leave out --places, --interference and --executor"
            raise UsageError("a server that runs already is one place", where="--attach", next_step=advice)
        if self.interference and (self.places or usual) < 2:
            raise UsageError("there are no neighbours", where="--interference", next_step="add --places 2 or more")
        return [f"places={self.places}"] * (self.places is not None) + ["interference=true"] * self.interference


def _is_here(prompts: str) -> bool:
    """Whether this names a file as seen from the working folder."""
    return is_file_name(prompts) and Path(prompts).is_file()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a campaign, in a sentence, and a line for each run that is missing."""

    campaign: str
    sentence: str
    neighbours: str
    missing: str
    notebook: Path
    exit_code: int

    @property
    def text(self) -> str:
        notebook = f"executed notebook: {self.notebook}" if self.notebook.is_file() else ""
        pages = f"its pages: workbench report --campaign {self.campaign}"
        return "\n".join(part for part in (self.sentence, self.missing, self.neighbours, notebook, pages) if part)


def dry_run(request: Request) -> str:
    """The plan of a campaign as text; nothing is started."""
    parameters = request.parameters()
    campaign = find_campaign(str(parameters["campaign"]), _listed(parameters["settings"]))
    place = attachment(request.attach, request.log)
    plan = plan_of(campaign, place)
    if place is not None:
        return live.attached_run(plan, place.url)
    anew = {run.run_id for run in live.missing(plan)}
    changed = None if request.force else changed_weights(runs_dir() / campaign.name, plan, anew=anew)
    return live.dry_run(plan) + ("" if changed is None else f"\nnothing would be started: {changed.render()}")


def run(request: Request, lines: Lines) -> Outcome:
    """Execute the run notebook; what can be known before a kernel starts is checked before.

    Raises
    ------
    WorkbenchError
        When the campaign file is invalid, a model or an engine is missing, no server answers at the URL, nothing can
        be written, another command measures this campaign, or as `to_measure`.
    """
    parameters = request.parameters()
    campaign = find_campaign(str(parameters["campaign"]), _listed(parameters["settings"]))
    place = attachment(request.attach, str(parameters["log"]))
    if request.ray:
        check_ray(request.ray)
    elif place is None:
        check_target(campaign)
        check_engine(campaign)
    plan = plan_of(campaign, place)
    if not plan.starts:
        reasons = "; ".join(f"{point.point}: {point.why}" for point in plan.refused)
        advice = "train drafters first, or describe them in the campaign file"
        raise SpecError(f"nothing can be started ({reasons})", where=request.campaign, next_step=advice)
    folder = runs_dir() / campaign.name
    with terminated_like_interrupted(), alone(folder, COMMAND_LOCK):
        with alone(folder):  # else a notebook by hand measures it
            to_measure(folder, plan, force=request.force or place is not None)
        return _execute(plan, folder / RUN_NOTEBOOKS / NOTEBOOK, parameters, lines)


def _execute(plan: Plan, output: Path, parameters: dict[str, object], lines: Lines) -> Outcome:
    try:
        check_space(runs_dir() / plan.campaign.name)
        with _followed(live.progress_file(plan.campaign.name), lines):
            done = run_notebook(
                notebooks_dir() / NOTEBOOK,
                output,
                parameters,
                timeout_s=LIMIT_S,
                save_each_cell=True,
                stop_grace_s=STOP_GRACE_S,
            )
    except (KeyboardInterrupt, InputError):
        missing = live.missing(plan)
        lines.say(f"Stopped; the same command goes on. {_sentence(plan, len(missing))}\n{live.missing_text(missing)}")
        raise
    require_there(runs_dir() / plan.campaign.name)
    return _outcome(plan, done)


def _outcome(plan: Plan, done: NotebookRun) -> Outcome:
    missing = live.missing(plan)
    sentence, code = _sentence(plan, len(missing)), 1 if missing else 0
    if done.status is not RunState.OK:
        sentence = f"The run notebook {done.status}: {done.reason or 'no reason given'}\n{sentence}"
        code = NotebookError.exit_code
    neighbours = live.neighbours_text(plan)
    return Outcome(plan.campaign.name, sentence, neighbours, live.missing_text(missing), done.output, code)


def _sentence(plan: Plan, missing: int) -> str:
    total = sum(len(start.runs) for start in plan.starts)
    return f"{total - missing} of {total} runs are measured" + (", missing are:" if missing else ".")


def _listed(settings: object) -> Sequence[str]:
    assert isinstance(settings, list)
    return settings


@contextlib.contextmanager
def _followed(path: Path, lines: Lines) -> Iterator[None]:
    """Pass on the lines that another process appends to ``path`` from now on."""
    stop = threading.Event()
    position = path.stat().st_size if path.exists() else 0

    def follow() -> None:
        at, rest = position, ""
        while True:
            last = stop.is_set()
            with contextlib.suppress(OSError), path.open("rb") as file:
                if path.stat().st_size < at:
                    at, rest = 0, ""  # somebody emptied it
                file.seek(at)
                data = file.read()
                at += len(data)
                *whole, rest = (rest + data.decode("utf-8", "replace")).split("\n")
                for line in whole:
                    (lines.overwrite if line[8:9] == live.PASSING else lines.say)(line)
            if last:
                return
            time.sleep(_POLL_S)

    thread = threading.Thread(target=follow, daemon=True, name="progress")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        lines.clear()
