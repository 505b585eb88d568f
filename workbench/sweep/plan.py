"""What a campaign expands to: server starts with their runs, merged and left-out points."""

from __future__ import annotations

import fnmatch
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from workbench.errors import SpecError
from workbench.paths import slug
from workbench.sglang_rules import effective_shape
from workbench.sglang_rules.flags import flag_key
from workbench.spec import (
    Drafter,
    RunSpec,
    ServerConfig,
    SpecDecodeConfig,
)
from workbench.sweep.campaign_file import UNNAMED, CampaignSpec, SweepBlock, called

MOST_POINTS = 5_000
"""Of a campaign: its starts would take weeks, and lists that multiply are written in a moment."""
MOST_LOADS = 1_000


@dataclass(frozen=True, slots=True)
class Start:
    """One server start and the runs it serves; ``alone`` keeps other starts off the machine meanwhile."""

    server_id: str
    server: ServerConfig
    decode: SpecDecodeConfig | None
    drafter: Drafter | None
    runs: tuple[RunSpec, ...]
    alone: bool = False

    @property
    def role(self) -> str:
        return "baseline" if self.decode is None else "speculative"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A point that is not started, and why."""

    point: str
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What a campaign would do: starts in order, points merged into another, points the server would refuse."""

    campaign: CampaignSpec
    starts: tuple[Start, ...]
    merged: tuple[LeftOut, ...]
    refused: tuple[LeftOut, ...]

    @property
    def gpu_hours(self) -> float | None:
        """Starts, and answers at ``expected_tok_per_s`` a stream, times a server's GPUs; ``None`` when not given."""
        speed = self.campaign.expected_tok_per_s
        if speed is None or self.campaign.engine != "sglang":
            return None
        work, seconds = self.campaign.workload, 0.0
        for start in self.starts:
            seconds += self.campaign.expected_start_s
            for run in start.runs:
                concurrency = run.workload.max_concurrency or 1
                count = run.workload.num_prompts or 0
                streams = min(concurrency, count)
                seconds += (self.campaign.repeats + 1) * count * work.max_new_tokens / (speed * streams)
        return seconds / 3600 * self.campaign.server.tp_size * self.campaign.server.dp_size


def expand(campaign: CampaignSpec) -> Plan:
    """Every start of a campaign, baselines around the candidates, each point once.

    Raises
    ------
    SpecError
        When it has more points or loads than anybody measures, or ``only`` names no start.
    """
    _refuse_many(campaign)
    merged: list[LeftOut] = []
    refused: list[LeftOut] = []
    refused += _not_there(campaign)
    candidates: dict[str, Start] = {}
    loads: dict[str, tuple[int, ...]] = {}
    for block, server, decode, drafter in _points(campaign):
        asked = _describe(server, decode, drafter, campaign.server)
        shape = effective_shape(
            decode.speculative_num_steps,
            decode.speculative_eagle_topk,
            decode.speculative_num_draft_tokens,
            version=campaign.sglang_version,
            attention_backend=server.attention_backend,
        )
        if shape.refused:
            refused.append(LeftOut(asked, shape.refused))
            continue
        used = decode.model_copy(
            update={
                "speculative_num_steps": shape.num_steps,
                "speculative_eagle_topk": shape.eagle_topk,
                "speculative_num_draft_tokens": shape.num_draft_tokens,
            }
        )
        name = _describe(server, used, drafter, campaign.server)
        if name not in candidates:
            taken = {start.server_id for start in candidates.values()}
            candidates[name] = Start(_free_id(slug(name), taken), server, used, drafter, ())
        elif decode.speculative_num_draft_tokens not in (None, used.speculative_num_draft_tokens):
            merged.append(LeftOut(asked, f"the server makes the same of it as of {name}"))
        loads[name] = tuple(dict.fromkeys((*loads.get(name, ()), *(block.max_concurrency or campaign.max_concurrency))))
    starts = [
        replace(start, runs=_runs(campaign, start, loads[name]), alone=_fits(start, campaign.alone))
        for name, start in candidates.items()
    ]
    wanted = tuple(start for start in _with_baselines(campaign, starts) if _asked_for(start, campaign.only))
    if not wanted and campaign.only:
        raise SpecError(f"no start is called {' or '.join(campaign.only)}", where="only", next_step="see --dry-run")
    return Plan(campaign, wanted, tuple(merged), tuple(refused))


def with_control(plan: Plan) -> Plan:
    """With ``interference``, the first start that has neighbours once more without them, under a name of its own."""
    first = next((start for start in plan.starts if not start.alone), None)
    if not plan.campaign.interference or first is None:
        return plan
    control = replace(first, server_id=f"{first.server_id}-alone", alone=True)
    loads = dict.fromkeys(run.workload.max_concurrency or 1 for run in first.runs)
    control = replace(control, runs=_runs(plan.campaign, control, tuple(loads)))
    at = plan.starts.index(first)
    return replace(plan, starts=(*plan.starts[:at], control, *plan.starts[at:]))


def _refuse_many(campaign: CampaignSpec) -> None:
    points = sum(_size(block) * max(1, len(_drafters_of(block, campaign))) for block in campaign.sweep)
    levels = [campaign.max_concurrency, campaign.baseline_max_concurrency]
    levels += [block.max_concurrency for block in campaign.sweep if block.max_concurrency is not None]
    loads = sum(map(len, levels)) * len(campaign.workload.prompt_sets)
    for count, most, what in ((points, MOST_POINTS, "points"), (loads, MOST_LOADS, "loads")):
        if count > most:
            raise SpecError(f"{count:,} {what}, and at most {most:,} are planned", where="sweep")


def _size(block: SweepBlock) -> int:
    """Points of a block with one drafter: the product of its lists."""
    lists = (
        block.speculative_algorithm,
        block.speculative_num_steps,
        block.speculative_eagle_topk,
        block.speculative_num_draft_tokens,
        block.simulated_accept_length,
        block.cuda_graph,
        *block.flags.values(),
        *block.env.values(),
    )
    return math.prod(map(len, lists))


def _not_there(campaign: CampaignSpec) -> Iterator[LeftOut]:
    """Drafters of ``drafters_from`` that blocks name and that are not trained yet."""
    if campaign.drafters_from is None:
        return
    for name in dict.fromkeys(name for block in campaign.sweep for name in block.drafter or ("*",)):
        if not called(name, campaign.drafters):
            yield LeftOut(f"drafter {name}", f"no finished training of that name in {campaign.drafters_from} yet")


def _drafters_of(block: SweepBlock, campaign: CampaignSpec) -> Sequence[Drafter | None]:
    if block.drafter or campaign.drafters_from is not None:
        named = {
            drafter.name: drafter for name in block.drafter or ("*",) for drafter in called(name, campaign.drafters)
        }
        return list(named.values())
    return campaign.drafters or (None,)


def _free_id(wanted: str, taken: set[str]) -> str:
    """Names that differ in signs alone, or behind the length of a file name, still have folders of their own."""
    return next(each for each in (wanted, *(f"{wanted}-{number}" for number in range(2, 10_000))) if each not in taken)


def _asked_for(start: Start, patterns: Sequence[str]) -> bool:
    return not patterns or _fits(start, patterns)


def _fits(start: Start, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(start.server_id, pattern) for pattern in patterns)


def _points(
    campaign: CampaignSpec,
) -> Iterator[tuple[SweepBlock, ServerConfig, SpecDecodeConfig, Drafter | None]]:
    for block in campaign.sweep:
        flags = [dict(zip(block.flags, values, strict=True)) for values in itertools.product(*block.flags.values())]
        envs = [dict(zip(block.env, values, strict=True)) for values in itertools.product(*block.env.values())]
        for drafter, algorithm, steps, topk, tokens, forced, graph, flag, env in itertools.product(
            _drafters_of(block, campaign),
            block.speculative_algorithm,
            block.speculative_num_steps,
            block.speculative_eagle_topk,
            block.speculative_num_draft_tokens,
            block.simulated_accept_length,
            block.cuda_graph,
            flags,
            envs,
        ):
            server = campaign.server.model_copy(
                update={
                    "cuda_graph": campaign.server.cuda_graph if graph is None else graph,
                    "flags": {**campaign.server.flags, **flag},
                    "env": {**campaign.server.env, **env},
                }
            )
            decode = SpecDecodeConfig(
                speculative_algorithm=algorithm,
                speculative_num_steps=steps,
                speculative_eagle_topk=topk,
                speculative_num_draft_tokens=tokens,
                simulated_accept_length=forced,
            )
            yield block, server, decode, drafter


def _with_baselines(campaign: CampaignSpec, starts: Sequence[Start]) -> Iterator[Start]:
    groups: dict[str, list[Start]] = {}
    for start in starts:
        groups.setdefault(_group(_plain(start.server), campaign.server), []).append(start)
    for group, members in groups.items():
        asked = {run.workload.max_concurrency or 1 for start in members for run in start.runs}
        if group == "default":
            asked.update(campaign.baseline_max_concurrency)
        levels = tuple(sorted(asked))
        first = Start(slug(f"baseline-{group}"), _plain(members[0].server), None, None, (), alone=True)
        yield replace(first, runs=_runs(campaign, first, levels))
        yield from members
        if campaign.baseline_again:
            again = replace(first, server_id=f"{first.server_id}-again")
            yield replace(again, runs=_runs(campaign, again, levels))


def _runs(campaign: CampaignSpec, start: Start, concurrencies: Sequence[int]) -> tuple[RunSpec, ...]:
    runs = []
    for concurrency, prompts in itertools.product(concurrencies, campaign.workload.prompt_sets):
        workload = campaign.workload.at(concurrency, prompts)
        apart = f", {workload.prompt_set}" if campaign.workload.more_prompt_sets else ""
        spec = RunSpec(
            campaign=campaign.name,
            run_id=UNNAMED,
            server_id=start.server_id,
            engine=campaign.engine,
            sglang_version=campaign.sglang_version,
            target=campaign.target,
            drafter=start.drafter.name if start.drafter else None,
            spec_decode=start.decode,
            server=start.server,
            workload=workload,
            repeats=campaign.repeats,
            drafter_path=start.drafter.model_path if start.drafter else None,
            launch_prefix=campaign.launch_prefix or None,
            baseline_group=_group(_plain(start.server), campaign.server),
            label=f"{start.server_id}{apart}, {concurrency} at once",
        )
        runs.append(named(spec, also=slug(workload.prompt_set) if apart else ""))
    return tuple(runs)


def named(run: RunSpec, also: str = "") -> RunSpec:
    """A run with its id: what serves it, its load, its content."""
    parts = (run.server_id, also, f"c{run.workload.max_concurrency}", run.content_hash())
    run_id = "-".join(part for part in parts if part)
    return run.model_copy(update={"run_id": run_id})


def _describe(server: ServerConfig, decode: SpecDecodeConfig, drafter: Drafter | None, usual: ServerConfig) -> str:
    """A readable name: what sets a start apart from the others."""
    parts = [
        (decode.speculative_algorithm or "").lower(),
        drafter.name if drafter else "",
        f"s{decode.speculative_num_steps}",
        f"k{decode.speculative_eagle_topk}",
        "" if decode.speculative_num_draft_tokens is None else f"n{decode.speculative_num_draft_tokens}",
        "" if decode.simulated_accept_length is None else f"sim{decode.simulated_accept_length:g}",
    ]
    group = _group(server, usual)
    return "-".join(part for part in (*parts, "" if group == "default" else group) if part)


def _plain(server: ServerConfig) -> ServerConfig:
    """The settings that a server without speculation takes: flags of speculation alone need no other baseline."""
    flags = {name: value for name, value in server.flags.items() if not flag_key(name).startswith("speculative_")}
    return server.model_copy(update={"flags": flags})


def _group(server: ServerConfig, usual: ServerConfig) -> str:
    """What a server's settings differ in from the campaign's usual ones; ``default`` for nothing."""
    said = []
    if server.cuda_graph != usual.cuda_graph:
        said.append("graph" if server.cuda_graph else "nograph")
    for name, value in {**server.flags, **server.env}.items():
        if {**usual.flags, **usual.env}.get(name) != value:
            said.append(f"{name}={value}")
    return "-".join(said) or "default"


def running_limit(start: Start, campaign: CampaignSpec) -> int:
    """``--max-running-requests``: as stated, else the highest concurrency of the whole campaign.

    Left to SGLang it is 48 with speculation and unlimited without: no fair comparison.
    """
    if start.server.max_running_requests is not None:
        return start.server.max_running_requests
    blocks = (block.max_concurrency for block in campaign.sweep if block.max_concurrency is not None)
    loads = (campaign.max_concurrency, campaign.baseline_max_concurrency, *blocks)
    return max(level for levels in loads for level in levels)
