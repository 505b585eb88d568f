"""A campaign file and what it expands to: server starts with their runs, merged and refused points.

A campaign is YAML. Every block of ``sweep`` is the product of its lists; blocks are added up. A baseline is added for
every server setting that is used, first and, unless ``baseline_again`` is off, last (A-B-A). Loads share a start.
"""

from __future__ import annotations

import difflib
import fnmatch
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BeforeValidator, Field, ValidationError, model_validator

from workbench.errors import SpecError
from workbench.paths import campaigns_dir, slug
from workbench.prompts import run_name
from workbench.sglang_rules import effective_shape
from workbench.sglang_rules.flags import flag_key
from workbench.spec import (
    SECRET_FLAGS,
    Drafter,
    Frozen,
    Name,
    RunSpec,
    Scalar,
    ServerConfig,
    SpecDecodeConfig,
    Target,
    Workload,
    is_secret_variable,
)


def _listed(value: object) -> object:
    return value if isinstance(value, list | tuple) else [value]


_SOME = Field(min_length=1)
Steps = Annotated[tuple[Annotated[int, Field(ge=1, le=64)], ...], BeforeValidator(_listed), _SOME]
DraftTokens = Annotated[tuple[Annotated[int, Field(ge=1, le=1024)] | None, ...], BeforeValidator(_listed), _SOME]
Switch = Annotated[tuple[bool | None, ...], BeforeValidator(_listed), _SOME]
Lengths = Annotated[tuple[Annotated[float, Field(ge=1)] | None, ...], BeforeValidator(_listed), _SOME]
Names = Annotated[tuple[str, ...], BeforeValidator(_listed)]
Flags = dict[str, Annotated[tuple[Scalar, ...], BeforeValidator(_listed), _SOME]]
Env = dict[str, Annotated[tuple[str, ...], BeforeValidator(_listed), _SOME]]
Levels = Annotated[tuple[Annotated[int, Field(ge=1, le=100_000)], ...], BeforeValidator(_listed)]
Concurrencies = Annotated[Levels, _SOME]
UNNAMED = "to-be-named"
"""Id of a run until `named` makes it from the content."""


class SweepBlock(Frozen):
    """One product of settings. A single value counts as a list of one."""

    drafter: Names = ()
    speculative_algorithm: Annotated[Names, _SOME] = ("EAGLE3",)
    speculative_num_steps: Steps
    speculative_eagle_topk: Steps = (1,)
    speculative_num_draft_tokens: DraftTokens = (None,)
    simulated_accept_length: Lengths = (None,)
    cuda_graph: Switch = (None,)
    flags: Flags = Field(default_factory=dict)
    env: Env = Field(default_factory=dict)
    max_concurrency: Concurrencies | None = None
    note: str | None = None


class CampaignWorkload(Frozen):
    """What every run sends: ``num_prompts`` requests, or ``requests_per_slot`` for each of its slots when that is more.

    A full window needs several requests a slot: with as many requests as slots the first that ends ends it. Prompts
    come round again when the set has fewer. ``prompt_set`` is a shipped set's name or the path of a JSONL file.
    """

    prompt_set: Annotated[str, Field(min_length=1, max_length=4096)]
    num_prompts: int = Field(ge=1, le=1_000_000)
    requests_per_slot: int | None = Field(default=None, ge=1, le=10_000)
    temperature: float = Field(default=0.0, ge=0)
    max_new_tokens: int = Field(ge=1, le=1_000_000)
    ignore_eos: bool = False

    def at(self, concurrency: int) -> Workload:
        """The load of a run with ``concurrency`` slots."""
        shared = self.model_dump(exclude={"prompt_set", "num_prompts", "requests_per_slot"})
        count = max(self.num_prompts, (self.requests_per_slot or 0) * concurrency)
        return Workload(**shared, prompt_set=run_name(self.prompt_set), num_prompts=count, max_concurrency=concurrency)


class CampaignSpec(Frozen):
    """A campaign file. ``launch_prefix`` stands before the server's command line (docker run, srun, ssh).

    ``expected_tok_per_s`` (one stream, for the estimate of time only) and ``price_per_gpu_hour`` may be left out.
    ``baseline_max_concurrency`` are loads of the baseline beside those of the candidates. ``only`` are patterns of
    server names (``baseline*``): the other starts are left for another time. ``request_timeout_s`` limits one request,
    ``ready_timeout_s`` a start (by default 300 s for the embedded engine, an hour for SGLang).
    """

    name: Name
    title: str
    question: str | None = None
    machine: str = "not stated"
    engine: Literal["sglang", "reference"] = "sglang"
    sglang_version: str | None = None
    target: Target
    drafters: tuple[Drafter, ...] = ()
    workload: CampaignWorkload
    max_concurrency: Concurrencies = (1,)
    repeats: int = Field(default=1, ge=1, le=1000)
    baseline_again: bool = True
    baseline_max_concurrency: Levels = ()
    only: Names = ()
    server: ServerConfig = ServerConfig()
    sweep: tuple[SweepBlock, ...] = Field(min_length=1)
    launch_prefix: tuple[str, ...] = ()
    request_timeout_s: float = Field(default=600.0, gt=0)
    ready_timeout_s: float | None = Field(default=None, gt=0)
    expected_tok_per_s: float | None = Field(default=None, gt=0)
    expected_start_s: float = Field(default=60.0, gt=0)
    price_per_gpu_hour: float | None = Field(default=None, ge=0)
    notes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _can_be_found_again(self) -> Self:
        if self.name.startswith(("_", ".")):
            raise ValueError(f"name: {self.name!r} begins with {self.name[0]!r}, and such folders are not read")
        return self

    @model_validator(mode="after")
    def _no_secrets(self) -> Self:
        flags = [*self.server.flags, *(name for block in self.sweep for name in block.flags)]
        variables = [*self.server.env, *(name for block in self.sweep for name in block.env)]
        secret = [name for name in flags if flag_key(name) in SECRET_FLAGS]
        secret += [name for name in variables if is_secret_variable(name)]
        if secret:
            raise ValueError(
                f"{secret[0]} is a secret, and settings are written down with every run: leave a server key out, "
                "and set a variable in the shell that starts this, from where the server inherits it"
            )
        return self

    @model_validator(mode="after")
    def _known_drafters(self) -> Self:
        names = [drafter.name for drafter in self.drafters]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ValueError(f"drafters: two are called {twice[0]!r}")
        for number, block in enumerate(self.sweep):
            for name in block.drafter:
                if name not in names:
                    near = difflib.get_close_matches(name, names, n=1)
                    raise ValueError(f"sweep.{number}.drafter: no drafter {name!r}{_did_you_mean(near)}")
        return self


@dataclass(frozen=True, slots=True)
class Start:
    """One server start and the runs it serves."""

    server_id: str
    server: ServerConfig
    decode: SpecDecodeConfig | None
    drafter: Drafter | None
    runs: tuple[RunSpec, ...]

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
                count = run.workload.num_prompts or work.num_prompts
                streams = min(concurrency, count)
                seconds += (self.campaign.repeats + 1) * count * work.max_new_tokens / (speed * streams)
        return seconds / 3600 * self.campaign.server.tp_size * self.campaign.server.dp_size


_ROOMS: Mapping[str, Any] = {"workload": CampaignWorkload, "server": ServerConfig, "target": Target}


# --- reading -----------------------------------------------------------------------------------------------------


def read_campaign_file(path: Path) -> CampaignSpec:
    """Read and check a campaign file.

    Raises
    ------
    SpecError
        With the line and the nearest known name for the first fault.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"cannot be read ({error})", where=path) from error
    return parse_campaign(text, name=str(path))


def parse_campaign(text: str, *, name: str) -> CampaignSpec:
    """A campaign from YAML text; ``name`` is what messages call it."""
    try:
        _refuse_aliases(text, name)
        tree = yaml.compose(text, Loader=yaml.SafeLoader)
        _refuse_twice(tree, name)
        content = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise SpecError(f"not YAML ({' '.join(str(error).split())})", where=name) from error
    if not isinstance(content, dict):
        raise SpecError("not a mapping of settings", where=name, next_step="see data/campaigns/ for examples")
    try:
        return CampaignSpec.model_validate_json(json.dumps(content, default=str), strict=False)
    except ValidationError as error:
        raise _fault(error, tree, name) from error


def _refuse_aliases(text: str, name: str) -> None:
    """Aliases can blow a short file up to any size, and a campaign needs none."""
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise SpecError(f"alias *{event.anchor}", where=_place(name, event), next_step="write the value out")


def _refuse_twice(node: Any, name: str) -> None:
    """Of a setting that is given twice, YAML would silently take the last."""
    seen: set[str] = set()
    for key, _ in node.value if isinstance(node, yaml.MappingNode) else []:
        if isinstance(key, yaml.ScalarNode) and key.value in seen:
            raise SpecError(f"{key.value!r} is set twice", where=_place(name, key), next_step="keep one of them")
        seen.add(str(key.value))
    if isinstance(node, yaml.CollectionNode):
        for child in node.value:
            _refuse_twice(child[1] if isinstance(child, tuple) else child, name)


def _place(name: str, mark: Any) -> str:
    return f"{name}:{mark.start_mark.line + 1}"


def _fault(error: ValidationError, tree: Any, name: str) -> SpecError:
    # A misspelt name is the cause of the "required" that it leaves behind.
    fault = min(error.errors(include_url=False), key=lambda fault: fault["type"] != "extra_forbidden")
    path = tuple(fault["loc"])
    line = _line_of(tree, path)
    where = f"{name}:{line}" if line else name
    field = ".".join(str(part) for part in path)
    if fault["type"] == "extra_forbidden":
        near = _nested(str(path[-1])) if len(path) == 1 else []
        near = near or difflib.get_close_matches(str(path[-1]), _names_at(path[:-1]), n=1, cutoff=0.5)
        return SpecError(
            f"unknown setting {field!r}", where=where, next_step=_did_you_mean(near).removeprefix("; ") or None
        )
    return SpecError(f"{field or 'the campaign'}: {fault['msg']}", where=where)


def _nested(name: str) -> list[str]:
    """Where a setting lies that was given at the top by its own name alone."""
    return [f"{room}.{name}" for room, model in _ROOMS.items() if name in model.model_fields]


def _names_at(path: Sequence[int | str]) -> list[str]:
    """Names of the model that a path leads to, for suggestions."""
    model: Any = CampaignSpec
    for part in path:
        model = {**_ROOMS, "drafters": Drafter, "sweep": SweepBlock}.get(str(part), model)
    return list(model.model_fields)


def _line_of(node: Any, path: Sequence[int | str]) -> int | None:
    """Line, from 1, of the key or item that a path leads to; of the nearest parent where there is none."""
    line = None
    for part in path:
        if isinstance(node, yaml.MappingNode):
            pair = next((pair for pair in node.value if pair[0].value == str(part)), None)
            if pair is None:
                break
            line, node = pair[0].start_mark.line + 1, pair[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
        else:
            break
    return line


def _did_you_mean(near: Sequence[str]) -> str:
    return f"; did you mean {near[0]!r}?" if near else ""


# --- expanding ---------------------------------------------------------------------------------------------------


def expand(campaign: CampaignSpec) -> Plan:
    """Every start of a campaign, baselines around the candidates, each point once."""
    merged: list[LeftOut] = []
    refused: list[LeftOut] = []
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
    starts = [replace(start, runs=_runs(campaign, start, loads[name])) for name, start in candidates.items()]
    wanted = tuple(start for start in _with_baselines(campaign, starts) if _asked_for(start, campaign.only))
    if not wanted and campaign.only:
        raise SpecError(f"no start is called {' or '.join(campaign.only)}", where="only", next_step="see --dry-run")
    return Plan(campaign, wanted, tuple(merged), tuple(refused))


def _free_id(wanted: str, taken: set[str]) -> str:
    """Names that differ in signs alone, or behind the length of a file name, still have folders of their own."""
    return next(each for each in (wanted, *(f"{wanted}-{number}" for number in range(2, 10_000))) if each not in taken)


def _asked_for(start: Start, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatch.fnmatchcase(start.server_id, pattern) for pattern in patterns)


def _points(
    campaign: CampaignSpec,
) -> Iterator[tuple[SweepBlock, ServerConfig, SpecDecodeConfig, Drafter | None]]:
    by_name = {drafter.name: drafter for drafter in campaign.drafters}
    for block in campaign.sweep:
        drafters: Sequence[Drafter | None] = [by_name[n] for n in block.drafter] or list(by_name.values()) or [None]
        flags = [dict(zip(block.flags, values, strict=True)) for values in itertools.product(*block.flags.values())]
        envs = [dict(zip(block.env, values, strict=True)) for values in itertools.product(*block.env.values())]
        for drafter, algorithm, steps, topk, tokens, forced, graph, flag, env in itertools.product(
            drafters,
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
        first = Start(slug(f"baseline-{group}"), _plain(members[0].server), None, None, ())
        yield replace(first, runs=_runs(campaign, first, levels))
        yield from members
        if campaign.baseline_again:
            again = replace(first, server_id=f"{first.server_id}-again")
            yield replace(again, runs=_runs(campaign, again, levels))


def _runs(campaign: CampaignSpec, start: Start, concurrencies: Sequence[int]) -> tuple[RunSpec, ...]:
    runs = []
    for concurrency in concurrencies:
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
            workload=campaign.workload.at(concurrency),
            repeats=campaign.repeats,
            drafter_path=start.drafter.model_path if start.drafter else None,
            launch_prefix=campaign.launch_prefix or None,
            baseline_group=_group(_plain(start.server), campaign.server),
            label=f"{start.server_id}, {concurrency} at once",
        )
        runs.append(named(spec))
    return tuple(runs)


def named(run: RunSpec) -> RunSpec:
    """A run with its id: what serves it, its load, its content."""
    run_id = f"{run.server_id}-c{run.workload.max_concurrency}-{run.content_hash()}"
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


# --- finding -----------------------------------------------------------------------------------------------------


def campaign_names() -> list[str]:
    """The campaigns of ``data/campaigns``."""
    return sorted(file.stem for file in campaigns_dir().glob("*.yaml"))


def find_campaign(name: str, settings: Sequence[str] = ()) -> CampaignSpec:
    """A campaign file by its name in ``data/campaigns`` or its path, with ``key=value`` changes.

    Raises
    ------
    SpecError
        When there is no such file, a change is no ``key=value``, or the outcome is no valid campaign.
    """
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        path = campaigns_dir() / f"{name}.yaml"
    if not path.is_file():
        there = campaign_names()
        near = difflib.get_close_matches(name, there, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(there) or 'none'}"
        raise SpecError(f"no campaign file {name!r}", where=str(path), next_step=hint)
    campaign = read_campaign_file(path)
    if not settings:
        return campaign
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    for setting in settings:
        _set(content, setting)
    return parse_campaign(yaml.safe_dump(content), name=f"{path} with {', '.join(settings)}")


def _set(content: dict[str, Any], setting: str) -> None:
    key, equals, value = setting.partition("=")
    if not equals or not key.strip():
        raise SpecError(f"{setting!r} is no change", where="--set", next_step='give key=value, such as "repeats=3"')
    try:
        plain = yaml.safe_load(value)
        _put(content, key.strip().split("."), plain)
    except yaml.YAMLError as error:
        raise SpecError(f"{value!r} is no value ({' '.join(str(error).split())})", where=f"--set {key}") from error
    except (IndexError, ValueError, TypeError, AttributeError) as error:
        raise SpecError(f"{key!r} leads nowhere in the file", where=f"--set {setting}") from error


def _put(content: Any, path: Sequence[str], value: object) -> None:
    for part in path[:-1]:
        content = content[int(part)] if isinstance(content, list) else content.setdefault(part, {})
    if isinstance(content, list):
        content[int(path[-1])] = value
    else:
        content[path[-1]] = value
