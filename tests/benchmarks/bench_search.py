"""`workbench tune` beside the whole grid: what each costs, and what the search's choice is worth. `make bench`.

The rival is what SGLang's `bench_speculative` does: every shape in turn, a server start each, as `workbench run` does.
A replay lets the search choose among the starts of a recorded grid: each takes the time that it took there and gives
the speeds that it gave there. A record holds one start a shape: a replay ends where the search wants a second one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from workbench.paths import ROOT_ENV, TUNED, notebooks_dir, project_root, prompts_dir, recorded_dir
from workbench.tune.outcome import best_by_load
from workbench.tune.plan import estimated_s, next_step, position
from workbench.tune.state import State, Visit, read_recorded

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600)]

TITLE = "A search beside its whole grid"
SHARE = 0.25  # of the grid's time: the search's budget
DRAFTER = "data/drafters/smollm2-135m-eagle3"
RECORDED = [
    ("h200_tune", "h200_tune_search"),
    ("h200_wide", "h200_wide"),
    ("h200_wide", "h200_wide_search"),
    ("h200_wide", "h200_wide_search2"),
]
REPLAYED = ["h200_grid", "h200_wide"]


@dataclass(frozen=True)
class Found:
    """What a search spent, and at each load what it names and how sure it says it is."""

    spent_s: float
    starts: int
    best: Sequence[tuple[int, str, str]]


def answered(folder: Path) -> Found:
    """What `workbench tune` wrote."""
    answer = json.loads((folder / TUNED).read_text())
    best = [(each["load"], each["config"], each["state"]) for each in answer["best"]]
    return Found(60 * answer["gpu_minutes"]["spent"], answer["gpu_minutes"]["starts"], best)


def replay(grid: State, budget_s: float) -> Found:
    """The search as `workbench tune` does it, its starts taken from a grid."""
    state = replace(grid, visits=(), start_s={})
    while (step := next_step(state)) is not None:
        visits = [visit for load in step.loads for visit in grid.of(step.config.name, load)]
        if not visits or any(state.of(step.config.name, load) for load in step.loads):
            break
        if state.spent_s + (estimated_s(state, step, len(visits[0].speeds)) or 0.0) > budget_s:
            break
        state = advanced(state, visits, grid.start_s[visits[0].start])
    best = [(each.load, each.config, each.state) for each in best_by_load(state, position(state))]
    return Found(state.spent_s, len(state.start_s), best)


def advanced(state: State, visits: Sequence[Visit], cost_s: float) -> State:
    """With one start more, the latest."""
    name = f"{len(state.start_s):03d}"
    now = tuple(replace(visit, start=name, at=name) for visit in visits)
    return replace(state, visits=state.visits + now, start_s={**state.start_s, name: cost_s})


def shape(name: str) -> str:
    """Steps, topk and draft tokens, as names of servers hold them."""
    found = re.search(r"-(s\d+-k\d+-n\d+)", name)
    return found[1] if found else "baseline"


def speeds(grid: State, load: int) -> dict[str, float]:
    """Of each shape that was measured."""
    found = {shape(config.name): grid.speed(config.name, load) for config in grid.configs}
    return {name: speed for name, speed in found.items() if speed is not None}


def compare(bench, where: str, grid: State, found: Found) -> None:  # type: ignore[no-untyped-def]
    for load, config, says in found.best:
        measured = speeds(grid, load)
        fastest = max(measured, key=lambda name: measured[name])
        chosen = shape(config)
        bench.add(
            "search",
            TITLE,
            where=where,
            at_once=load,
            shapes=len(measured) - 1,
            grid_minutes=grid.spent_s / 60,
            search_minutes=found.spent_s / 60,
            search_starts=found.starts,
            fastest_of_the_grid=fastest,
            the_search_names=chosen,
            behind_by=f"{100 * (1 - measured[chosen] / measured[fastest]):.1f} %",
            it_says=says,
        )


@pytest.mark.parametrize(("whole", "search"), RECORDED)
def test_recorded_on_a_gpu(whole: str, search: str, bench) -> None:  # type: ignore[no-untyped-def]
    grid, found = read_recorded(recorded_dir() / whole), answered(recorded_dir() / search)
    compare(bench, f"{search}: recorded on one NVIDIA H200", grid, found)


@pytest.mark.parametrize("whole", REPLAYED)
def test_replayed(whole: str, bench) -> None:  # type: ignore[no-untyped-def]
    grid = read_recorded(recorded_dir() / whole)
    found = replay(grid, SHARE * grid.spent_s)
    compare(bench, f"{whole}: replayed", grid, found)
    assert found.spent_s < SHARE * grid.spent_s + max(grid.start_s.values())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project of its own, with a grid of 24 shapes of the shipped drafter for the embedded engine."""
    shutil.copytree(notebooks_dir(), tmp_path / "notebooks")
    shutil.copytree(prompts_dir(), tmp_path / "data" / "prompts")
    shutil.copytree(project_root() / DRAFTER, tmp_path / DRAFTER)
    (tmp_path / "data" / "campaigns").mkdir()
    for name in ("grid", "search"):
        (tmp_path / "data" / "campaigns" / f"{name}.yaml").write_text(yaml.safe_dump({"name": name, **GRID}))
    return tmp_path


GRID = {
    "title": "Shapes of the shipped drafter",
    "engine": "reference",
    "target": {"name": "SmolLM2-135M-Instruct", "model_path": "smollm2-135m-instruct"},
    "drafters": [{"name": "shipped", "model_path": DRAFTER}],
    "workload": {"prompt_set": "mt_bench", "num_prompts": 4, "temperature": 0, "max_new_tokens": 32},
    "max_concurrency": [1, 4],
    "repeats": 2,
    "server": {"max_running_requests": 4, "context_length": 2048},
    "sweep": [
        {"speculative_num_steps": [1, 2, 3, 4, 5, 6, 7]},
        {"speculative_num_steps": [2, 3], "speculative_eagle_topk": [2, 4], "speculative_num_draft_tokens": 4},
        {"speculative_num_steps": [3, 5], "speculative_eagle_topk": [2, 4], "speculative_num_draft_tokens": 8},
        {"speculative_num_steps": [4, 5, 7], "speculative_eagle_topk": [4, 8], "speculative_num_draft_tokens": 16},
        {"speculative_num_steps": [5, 6, 7], "speculative_eagle_topk": 8, "speculative_num_draft_tokens": 32},
    ],
}


def workbench(root: Path, *words: str) -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "workbench", *words],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {ROOT_ENV: str(root)},
        cwd=root,
    )
    # 1: a load is undecided.
    assert answer.returncode in (0, 1), answer.stderr[-3000:]


def test_on_this_machine(root: Path, bench) -> None:  # type: ignore[no-untyped-def]
    pytest.importorskip("torch", reason="the embedded engine needs the extra: reference")
    runs = root / "data" / "runs"
    workbench(root, "run", "grid")
    grid = read_recorded(runs / "grid")
    assert len(grid.configs) == 25 and not grid.given_up
    workbench(root, "tune", "search", "--budget-minutes", str(SHARE * grid.spent_s / 60))
    found = answered(runs / "search")
    compare(bench, "this machine, embedded engine", grid, found)
    assert found.spent_s < 1.2 * SHARE * grid.spent_s
