"""What a search knows: the configurations of a grid, and every finished visit to one of them, from run folders."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from workbench.analysis.frames import Floats, Row, number, records, speed_of
from workbench.spec import RunSpec, RunState
from workbench.store import Campaign, RunFolder, read_campaign
from workbench.sweep import Plan
from workbench.table import tables_of

BASELINE_STEPS = 0
_GIVEN_UP = frozenset({RunState.FAILED, RunState.TIMED_OUT, RunState.SKIPPED})


@dataclass(frozen=True, slots=True)
class Config:
    """One point of the grid. A baseline has no steps and drafts nothing; ``forced`` is a simulated accept length."""

    name: str
    group: str = "default"
    drafter: str | None = None
    steps: int = BASELINE_STEPS
    topk: int = 1
    draft_tokens: int = 1
    forced: float | None = None

    @property
    def seed(self) -> int:
        """Of its own noise: two drafters of one shape were measured in different starts."""
        return zlib.crc32(self.name.encode())

    @property
    def is_baseline(self) -> bool:
        return self.steps == BASELINE_STEPS

    @property
    def is_chain(self) -> bool:
        return self.topk == 1 and not self.is_baseline


@dataclass(frozen=True, slots=True, eq=False)
class Visit:
    """One run: a configuration at one load, within one server start. Two are the same only if they are one object.

    ``speeds`` are tok/s of all slots, one a pass. ``histograms`` are verify steps by number of correct drafts, by
    prompt. ``pass_s`` is how long a pass took.
    """

    config: str
    load: int
    speeds: tuple[float, ...]
    accept_length: float | None = None
    histograms: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
    pass_s: float = 0.0
    start: str = ""
    at: str = ""

    @property
    def log_speed(self) -> float:
        """Logarithm of the median pass: the first one of a start is sometimes cold, whatever was sent before."""
        return float(np.median(np.log(self.speeds)))


@dataclass(frozen=True, slots=True)
class State:
    """The grid, its loads (requests at once), and what is measured; ``given_up`` says why by configuration and load.

    ``start_s`` is the time of every server start, all of its runs included, by what `Visit.start` calls it. ``outside``
    are configurations at loads that nobody asks for.
    """

    configs: tuple[Config, ...]
    loads: tuple[int, ...]
    visits: tuple[Visit, ...] = ()
    given_up: Mapping[tuple[str, int], str] = field(default_factory=dict)
    start_s: Mapping[str, float] = field(default_factory=dict)
    outside: frozenset[tuple[str, int]] = frozenset()

    def of(self, config: str, load: int | None = None) -> list[Visit]:
        """Visits to a configuration, in time."""
        found = [visit for visit in self.visits if visit.config == config and load in (None, visit.load)]
        return sorted(found, key=lambda visit: visit.at)

    def without(self, config: str) -> State:
        """As if this configuration had not been measured."""
        kept = tuple(visit for visit in self.visits if visit.config != config)
        return replace(self, visits=kept)

    def baseline(self, group: str) -> Config | None:
        return next((each for each in self.configs if each.is_baseline and each.group == group), None)

    def base_speed(self, group: str, load: int) -> float | None:
        """That of the baseline."""
        base = self.baseline(group)
        return self.speed(base.name, load) if base else None

    def speed(self, config: str, load: int) -> float | None:
        """Geometric mean of the visits to a configuration, as they were measured."""
        visits = self.of(config, load)
        return float(np.exp(np.mean([visit.log_speed for visit in visits]))) if visits else None

    @property
    def candidates(self) -> tuple[Config, ...]:
        """What may win, baselines included: not forced acceptance, unless the whole grid is forced."""
        drafting = [each for each in self.configs if not each.is_baseline]
        drafting = [each for each in drafting if each.forced is None] or drafting
        groups = {each.group for each in drafting}
        return tuple(each for each in self.configs if each in drafting or (each.is_baseline and each.group in groups))

    def can_visit(self, config: Config, load: int) -> bool:
        """Whether this is asked for and did not fail before: what failed once is not tried again."""
        return (config.name, load) not in self.given_up and (config.name, load) not in self.outside

    @property
    def spent_s(self) -> float:
        return sum(self.start_s.values())


def histogram_matrix(visits: Sequence[Visit]) -> tuple[tuple[int, ...], Floats]:
    """Prompts, and their verify steps by number of correct drafts, added up over visits."""
    width = max((len(counts) for visit in visits for counts in visit.histograms.values()), default=0)
    sums: dict[int, Floats] = {}
    for visit in visits:
        for prompt, counts in visit.histograms.items():
            row = sums.setdefault(prompt, np.zeros(width))
            row[: len(counts)] += counts
    prompts = tuple(sorted(sums))
    return prompts, np.array([sums[prompt] for prompt in prompts]).reshape(len(prompts), width)


# --- reading -----------------------------------------------------------------------------------------------------


def read_state(folder: Path, plan: Plan) -> State:
    """What is measured of a plan; a campaign that was never begun gives an empty state.

    Runs count by content, whatever start served them: several visits to one configuration are several runs.
    """
    configs: list[Config] = []
    names: dict[str, str] = {}
    for start in plan.starts:
        config = config_of(start.runs[0], start.server_id)
        known = next((each.name for each in configs if _same_point(each, config)), None)
        if known is None:
            configs.append(config)
        names |= {run.content_hash(): known or config.name for run in start.runs}
    asked = {
        (names[run.content_hash()], run.workload.max_concurrency or 1) for start in plan.starts for run in start.runs
    }
    drafting = {config.name for config in State(tuple(configs), ()).candidates if not config.is_baseline}
    loads = sorted({load for name, load in asked if name in drafting} or {load for _, load in asked})
    outside = frozenset((config.name, load) for config in configs for load in loads if (config.name, load) not in asked)
    empty = State(tuple(configs), tuple(loads), outside=outside)
    return _filled(empty, read_campaign(folder), names) if (folder / "campaign.json").is_file() else empty


def read_recorded(folder: Path, *, prompt_set: str | None = None) -> State:
    """Everything in a campaign folder, each configuration that was run being one of the grid.

    ``prompt_set`` limits it to these prompts: accept lengths of several must not be mixed.
    """
    campaign = read_campaign(folder)
    runs = [run for run in campaign.runs if prompt_set in (None, run.spec.workload.prompt_set)]
    configs: dict[str, Config] = {}
    names = {}
    for run in runs:
        found = config_of(run.spec, _point_name(run.spec))
        configs.setdefault(found.name, found)
        names[run.spec.content_hash()] = found.name
    loads = sorted({run.spec.workload.max_concurrency or 1 for run in runs})
    return _filled(State(tuple(configs.values()), tuple(loads)), campaign, names)


def config_of(spec: RunSpec, name: str) -> Config:
    """The point of the grid that a run belongs to."""
    decode = spec.spec_decode
    if decode is None:
        return Config(name, spec.baseline_group)
    steps = decode.speculative_num_steps or 1
    usual = decode.speculative_algorithm in (None, "EAGLE3")
    return Config(
        name,
        spec.baseline_group,
        spec.drafter if usual else f"{spec.drafter} as {decode.speculative_algorithm}",
        steps,
        decode.speculative_eagle_topk or 1,
        decode.speculative_num_draft_tokens or steps + 1,
        decode.simulated_accept_length,
    )


def _same_point(left: Config, right: Config) -> bool:
    """The baseline again is no other configuration."""
    return left.is_baseline and right.is_baseline and left.group == right.group


def _point_name(spec: RunSpec) -> str:
    config = config_of(spec, "")
    if config.is_baseline:
        return f"baseline-{config.group}"
    shape = f"{config.drafter or 'draft'}-s{config.steps}-k{config.topk}-n{config.draft_tokens}"
    return shape + ("" if config.forced is None else f"-sim{config.forced:g}") + f"-{config.group}"


def _filled(empty: State, campaign: Campaign, names: Mapping[str, str]) -> State:
    """The state with the runs of a campaign that are of its grid."""
    runs = [(run, name) for run in campaign.runs if (name := names.get(run.spec.content_hash())) is not None]
    tables = tables_of([campaign])
    rows = {row["run_id"]: row for row in records(tables.runs)}
    histograms = _histograms(records(tables.requests[["run_id", "prompt_index", "ok", "steps_histogram"]]))
    visits: list[Visit] = []
    given_up: dict[tuple[str, int], str] = {}
    for run, name in runs:
        row, load = rows.get(run.spec.run_id), run.spec.workload.max_concurrency or 1
        if load not in empty.loads:
            continue
        speeds = _speeds(row) if row is not None and run.status.status is RunState.OK else ()
        if row is not None and speeds:
            visits.append(_visit(run, name, row, speeds, histograms.get(run.spec.run_id, {})))
        elif run.status.status in _GIVEN_UP:
            given_up[name, load] = run.status.reason or run.status.status.value
        elif run.status.status is RunState.OK:
            given_up[name, load] = run.status.reason or "no speed was measured"
    started = _start_seconds(run for run, _ in runs)
    return replace(empty, visits=tuple(visits), given_up=given_up, start_s=started)


def _visit(run: RunFolder, name: str, row: Row, speeds: tuple[float, ...], counts: dict[int, Floats]) -> Visit:
    return Visit(
        config=name,
        load=run.spec.workload.max_concurrency or 1,
        speeds=speeds,
        accept_length=number(row["accept_length"]) if run.spec.spec_decode is not None else None,
        histograms={prompt: tuple(total) for prompt, total in counts.items()},
        pass_s=float(np.mean([window.wall_s for window in run.windows])) if run.windows else 0.0,
        start=_start_of(run),
        at=run.provenance.recorded_at or "",
    )


def _speeds(row: Row) -> tuple[float, ...]:
    """Speeds of the passes while all slots are busy; else the run's one speed."""
    passes = [speed for value in row["pass_decode_tok_per_s"] or [] if (speed := speed_of(value)) is not None]
    if passes:
        return tuple(passes)
    single = speed_of(row["decode_tok_per_s"]) or speed_of(row["output_tok_per_s"])
    return () if single is None else (single,)


def _histograms(requests: Iterable[Row]) -> dict[str, dict[int, Floats]]:
    """Verify steps by number of correct drafts, by run and prompt."""
    found: dict[str, dict[int, Floats]] = {}
    for row in requests:
        counts = row["steps_histogram"]
        if not row["ok"] or counts is None or len(counts) == 0 or row["prompt_index"] is None:
            continue
        of_run = found.setdefault(row["run_id"], {})
        before = of_run.get(row["prompt_index"], np.zeros(0))
        total = np.zeros(max(len(before), len(counts)))
        total[: len(before)] += before
        total[: len(counts)] += counts
        of_run[row["prompt_index"]] = total
    return found


def _start_of(run: RunFolder) -> str:
    return run.status.log_file or f"{run.spec.server_id} {run.provenance.recorded_at}"


def _start_seconds(runs: Iterable[RunFolder]) -> dict[str, float]:
    """From when a server was started to the end of its last run; starts whose times are not known are left out."""
    spans: dict[str, list[datetime]] = {}
    for run in runs:
        began, ended = _moment(run.provenance.recorded_at), _moment(run.status.finished_at)
        if began and ended:
            spans.setdefault(_start_of(run), []).extend((began, ended))
    return {start: (max(moments) - min(moments)).total_seconds() for start, moments in spans.items()}


def _moment(text: str | None) -> datetime | None:
    """The time that a file states; UTC where it names no zone, ``None`` where it is no time."""
    with contextlib.suppress(ValueError, OverflowError):
        moment = datetime.fromisoformat(text or "")
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return None
