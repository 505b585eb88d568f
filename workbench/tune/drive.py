"""`workbench tune`: measure what the plan asks for, one server start at a time, until it is decided or paid up."""

from __future__ import annotations

import contextlib
import json
import math
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from workbench.analysis.frames import records
from workbench.errors import LaunchError, SpecError
from workbench.launch.argv import server_argv, server_env
from workbench.launch.resident import Resident
from workbench.measure import run_campaign
from workbench.models import changed_weights, check_engine, check_target, located, require_same_weights
from workbench.paths import COMMAND_LOCK, TUNED, runs_dir
from workbench.preflight import check_campaign, refusals
from workbench.progress import OVERWRITE, Say
from workbench.recording import alone, is_measured
from workbench.spec import RunSpec
from workbench.store import write_json
from workbench.sweep import CampaignSpec, Plan, Start, expand, find_campaign, named
from workbench.table.tuned import UNDECIDED
from workbench.terminal import Lines, terminated_like_interrupted
from workbench.tune.outcome import (
    adaptive_config,
    best_by_load,
    full_grid_s,
    one_for_all,
    ranking_df,
    ranking_text,
    summary,
)
from workbench.tune.plan import Position, Step, calibration, estimated_s, next_step, position
from workbench.tune.predict import predicted_df, residuals_df
from workbench.tune.state import State, read_state

ADAPTIVE = "tune-adaptive.json"
_EXAMPLE_PORT = 30000
_MAX_STARTS_OF_ONE = 100


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line asks for.

    ``budget_minutes`` are GPU minutes of the whole campaign, ``budget_share`` is a share of what the full grid would
    take by the times so far; of both the smaller holds, and ``None`` is no limit.
    """

    campaign: str
    settings: tuple[str, ...] = ()
    engine: str | None = None
    budget_minutes: float | None = None
    budget_share: float | None = None

    def read(self) -> CampaignSpec:
        """The campaign, with another engine where that is asked for.

        Raises
        ------
        SpecError
            When the file is invalid, or holds several prompt sets: which is best would depend on which is asked.
        """
        campaign = find_campaign(self.campaign, self.settings)
        if more := campaign.settings_for(self.engine):
            campaign = find_campaign(self.campaign, [*self.settings, *more])
        if campaign.workload.more_prompt_sets:
            advice = 'choose one: --set "workload.more_prompt_sets={}"'
            raise SpecError("tune takes one prompt set", where="workload.more_prompt_sets", next_step=advice)
        return campaign


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer as text, where it was written, and the exit code: 1 while a load is undecided."""

    text: str
    path: Path
    exit_code: int


def tune(request: Request, lines: Lines) -> Outcome:
    """Search, going on from whatever of the campaign is measured, and write the answer.

    Raises
    ------
    WorkbenchError
        When the campaign file is invalid, a model or an engine is missing, the baseline cannot be measured, another
        command measures this campaign, or what is measured was measured with other weights than lie there now.
    """
    campaign = request.read()
    check_target(campaign)
    check_engine(campaign)
    plan, refused = _servable(campaign)
    for name, why in refused.items():
        lines.say(f"left out: {name}, {why}")
    folder = runs_dir() / campaign.name
    with terminated_like_interrupted(), alone(folder, COMMAND_LOCK):
        require_same_weights(folder, plan)
        with _resident(campaign) as resident:
            state = _search(request, campaign, plan, folder, lines, resident)
        at = position(state)
        _write(folder, campaign, plan, state, at, refused)
    text = "\n".join([*_said(campaign, plan, state, at), f"written: {folder / TUNED}"])
    undecided = (at.step is None and not at.races) or any(b.state == UNDECIDED for b in best_by_load(state, at))
    return Outcome(text, folder / TUNED, int(undecided))


def dry_run(request: Request) -> str:
    """What would be measured first, and from what is measured already; nothing is started."""
    campaign = request.read()
    (plan, refused), folder = _servable(campaign), runs_dir() / campaign.name
    state = read_state(folder, plan)
    first = list(calibration(state))
    lines = [
        f"{len(state.candidates)} configurations at {_listed(state.loads)} at once, {len(state.visits)} runs so far"
    ]
    lines += [f"left out: {name}, {why}" for name, why in refused.items()]
    for number, step in enumerate(first, 1):
        lines.append(f"{number}. {step.config.name} at {_listed(step.loads)}: {step.why}")
        lines.append("   " + _command(_start_of(plan, step), campaign))
    following = next_step(state) if not first else None
    if following is not None:
        lines.append(f"next: {following.config.name} at {_listed(following.loads)}: {following.why}")
    lines.append("then, one at a time, whatever may still be the fastest" if first or following else "all is decided")
    hours = plan.gpu_hours
    lines.append("the full grid: " + ("not estimated" if hours is None else f"about {60 * hours:.0f} GPU minutes"))
    if (changed := changed_weights(folder, plan)) is not None:
        lines.append(f"nothing would be started: {changed.render()}")
    return "\n".join(lines)


def _servable(campaign: CampaignSpec) -> tuple[Plan, dict[str, str]]:
    """The plan without what preflight refuses, such as a control with the wrong flag, and why each was left out.

    Raises
    ------
    SpecError
        When every baseline or all else is refused: there is nothing to choose from.
    """
    plan = expand(campaign)
    if not any(start.role == "speculative" for start in plan.starts):
        why = "; ".join(f"{left.point}: {left.why}" for left in plan.refused) or "nothing drafts in it"
        advice = f"workbench check {campaign.name}; a drafter that is missing has to be trained first"
        raise SpecError(f"nothing to choose from ({why})", where=campaign.name, next_step=advice)
    refused = refusals(check_campaign(plan))
    kept = tuple(start for start in plan.starts if start.server_id not in refused)
    roles = {start.role for start in kept}
    lost = {start.role for start in plan.starts if start.server_id in refused} - roles
    if lost:
        name, why = next(iter(refused.items()))
        raise SpecError(f"{name} is refused: {why}", where=campaign.name, next_step=f"workbench check {campaign.name}")
    return replace(plan, starts=kept), refused


# --- searching ---------------------------------------------------------------------------------------------------


def _resident(campaign: CampaignSpec) -> contextlib.AbstractContextManager[Resident | None]:
    """A server that changes its shape, where the engine allows it."""
    can = campaign.engine == "reference" and not campaign.launch_prefix
    return Resident() if can else contextlib.nullcontext()


def _search(
    request: Request, campaign: CampaignSpec, plan: Plan, folder: Path, lines: Lines, resident: Resident | None = None
) -> State:
    state = read_state(folder, plan)
    untold_s = 0.0
    while (step := next_step(state)) is not None:
        spent = state.spent_s + untold_s
        needed = estimated_s(state, step, passes_of(campaign, step)) or 0.0
        if spent + needed > (allowed_s := limit_s(request, campaign, state)):
            of = f"{_gpu_minutes(spent, campaign)} of {_gpu_minutes(allowed_s, campaign)} GPU minutes"
            lines.say(f"the budget is spent, {of}: {step.config.name} would be next, {step.why}")
            break
        lines.say(f"{len(state.start_s) + 1}. {step.config.name} at {_listed(step.loads)}: {step.why}")
        began = time.monotonic()
        visit = visit_plan(campaign, plan, step, folder)
        run_campaign(campaign, plan=visit, resident=resident, say=_follow(lines))
        after = _advanced(state, read_state(folder, plan), step)
        # What failed to start took time that no run folder tells.
        untold_s += 0.0 if len(after.start_s) > len(state.start_s) else time.monotonic() - began
        state = after
    return state


def limit_s(request: Request, campaign: CampaignSpec, state: State) -> float:
    """What may be spent, by what is known so far: before the first start nobody knows what the grid takes."""
    allowed_s = math.inf
    if request.budget_minutes is not None:
        allowed_s = 60 * request.budget_minutes / gpus_of(campaign)
    if request.budget_share is not None:
        full_s = full_grid_s(state, campaign.repeats, baseline_again=campaign.baseline_again)
        allowed_s = min(allowed_s, math.inf if full_s is None else request.budget_share * full_s)
    return allowed_s


def _gpu_minutes(seconds: float, campaign: CampaignSpec) -> str:
    return f"{seconds * gpus_of(campaign) / 60:.1f}"


def _advanced(before: State, after: State, step: Step) -> State:
    """The new state, if the step changed anything; without a baseline nothing can be compared."""
    failed = [after.given_up[step.config.name, load] for load in step.loads if not after.can_visit(step.config, load)]
    if step.config.is_baseline and failed:
        raise LaunchError(f"the baseline could not be measured: {failed[0]}", where=step.config.name)
    if len(after.visits) == len(before.visits) and not failed:
        raise LaunchError("nothing was measured", where=step.config.name, next_step="see its run folder")
    return after


def visit_plan(campaign: CampaignSpec, plan: Plan, step: Step, folder: Path) -> Plan:
    """One start with the runs of a step. Further visits are called ``-again``, ``-again-2`` ... and keep their own."""
    passes = passes_of(campaign, step)
    start = _start_of(plan, step)
    for number in range(_MAX_STARTS_OF_ONE):
        server_id = start.server_id + ("", "-again", f"-again-{number}")[min(number, 2)]
        runs = tuple(_visited(run, server_id, passes) for run in start.runs)
        if not any(is_measured(folder / run.run_id, run.model_copy(update={"repeats": 1})) for run in runs):
            break
    lighter = campaign.model_copy(update={"repeats": passes})
    return replace(plan, campaign=lighter, starts=(replace(start, server_id=server_id, runs=runs),))


def passes_of(campaign: CampaignSpec, step: Step) -> int:
    """All passes where it is decided, fewer where it is only looked: starting costs most there."""
    return campaign.repeats if step.confirms else min(campaign.repeats, max(2, campaign.repeats // 2))


def gpus_of(campaign: CampaignSpec) -> int:
    return campaign.server.tp_size * campaign.server.dp_size


def _start_of(plan: Plan, step: Step) -> Start:
    """The start of a step's configuration, with the runs at its loads."""
    start = next(start for start in plan.starts if start.server_id == step.config.name)
    return replace(start, runs=tuple(run for run in start.runs if (run.workload.max_concurrency or 1) in step.loads))


def _visited(run: RunSpec, server_id: str, passes: int) -> RunSpec:
    label = f"{server_id}, {run.workload.max_concurrency} at once"
    return named(run.model_copy(update={"server_id": server_id, "repeats": passes, "label": label}))


def _follow(lines: Lines) -> Say:
    def say(text: str) -> None:
        if text.startswith(OVERWRITE):
            lines.overwrite(text.removeprefix(OVERWRITE))
        else:
            lines.say(text)

    return say


# --- answering ---------------------------------------------------------------------------------------------------


def _said(campaign: CampaignSpec, plan: Plan, state: State, at: Position) -> list[str]:
    lines = summary(state, at, campaign.repeats, gpus_of(campaign), baseline_again=campaign.baseline_again)
    lines += ["", ranking_text(ranking_df(state, at)), ""]
    commands = _commands(campaign, plan, at)
    for config, command in commands.items():
        loads = [load for load, race in at.races.items() if race.leader.config.name == config]
        lines += [f"To serve {_listed(sorted(loads))} at once:", f"  {command}"]
    adaptive = _adaptive(campaign, plan, state, at)
    if adaptive is not None:
        where = runs_dir() / campaign.name / ADAPTIVE
        lines += ["All loads by one server that changes its steps with the batch (not measured):"]
        lines += [f"  {adaptive['command']}", f"  {where}: {json.dumps(adaptive['config'])}"]
    return lines


def _commands(campaign: CampaignSpec, plan: Plan, at: Position) -> dict[str, str]:
    """The command line of every leader."""
    leaders = {race.leader.config.name: Step(race.leader.config, (load,), "") for load, race in at.races.items()}
    return {name: _command(_start_of(plan, step), campaign) for name, step in leaders.items()}


def _command(start: Start, campaign: CampaignSpec, more: Sequence[str] = ()) -> str:
    placed = located(Plan(campaign, (start,), (), ()))
    variables = server_env(placed.starts[0], version=campaign.sglang_version)
    argv = server_argv(placed.starts[0], placed.campaign, port=_EXAMPLE_PORT)
    return shlex.join([*(f"{name}={value}" for name, value in variables.items()), *argv, *more])


def _adaptive(campaign: CampaignSpec, plan: Plan, state: State, at: Position) -> dict[str, object] | None:
    """SGLang's own switch between chain lengths, where it has one and where it would be used."""
    found = adaptive_config(state, at) if campaign.engine == "sglang" else None
    if found is None:
        return None
    first, config = found
    more = ["--speculative-adaptive", "--speculative-adaptive-config", str(runs_dir() / campaign.name / ADAPTIVE)]
    start = _start_of(plan, Step(first, state.loads, ""))
    return {"config": config, "command": _command(start, campaign, more), "measured": False}


def _write(
    folder: Path, campaign: CampaignSpec, plan: Plan, state: State, at: Position, refused: Mapping[str, str]
) -> None:
    single, gpus = one_for_all(at), gpus_of(campaign)
    full = full_grid_s(state, campaign.repeats, baseline_again=campaign.baseline_again)
    adaptive = _adaptive(campaign, plan, state, at)
    answer: dict[str, object] = {
        "campaign": campaign.name,
        "written_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "best": [{name: getattr(best, name) for name in best.__dataclass_fields__} for best in best_by_load(state, at)],
        "one_for_all": None if single is None else {"config": single.config, "regret": single.regret},
        "gpu_minutes": {
            "spent": state.spent_s * gpus / 60,
            "full_grid_estimate": None if full is None else full * gpus / 60,
            "starts": len(state.start_s),
        },
        "next": None if at.step is None else {"config": at.step.config.name, "why": at.step.why},
        "commands": _commands(campaign, plan, at),
        "adaptive": adaptive,
        "left_out": [
            *({"config": name, "load": None, "why": why} for name, why in refused.items()),
            *({"config": name, "load": load, "why": why} for (name, load), why in state.given_up.items()),
        ],
        "ranking": records(ranking_df(state, at)),
        "predicted": records(predicted_df(state, at.speeds)),
        "residuals": records(residuals_df(state)),
    }
    write_json(folder / TUNED, answer)
    if adaptive is not None:
        write_json(folder / ADAPTIVE, adaptive["config"])


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
