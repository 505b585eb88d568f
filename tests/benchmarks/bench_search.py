"""`workbench tune` beside the whole grid: what each costs, and what the search's choice is worth. `make bench`.

The rival is what SGLang's `bench_speculative` does: every shape in turn, a server start each, as `workbench run` does.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from workbench.paths import ROOT_ENV, TUNED, notebooks_dir, project_root, prompts_dir, recorded_dir
from workbench.tune.state import State, read_recorded

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600)]

TITLE = "A search beside its whole grid"
SHARE = 0.25  # of the grid's time: the search's budget
DRAFTER = "data/drafters/smollm2-135m-eagle3"
RECORDED = [("h200_tune", "h200_tune_search")]


def shape(name: str) -> str:
    """Steps, topk and draft tokens, as names of servers hold them."""
    found = re.search(r"-(s\d+-k\d+-n\d+)", name)
    return found[1] if found else "baseline"


def speeds(grid: State, load: int) -> dict[str, float]:
    """Of each shape that was measured."""
    found = {shape(config.name): grid.speed(config.name, load) for config in grid.configs}
    return {name: speed for name, speed in found.items() if speed is not None}


def compare(bench, where: str, grid: State, answer: dict[str, Any]) -> None:  # type: ignore[no-untyped-def]
    minutes = answer["gpu_minutes"]
    for best in answer["best"]:
        measured = speeds(grid, best["load"])
        fastest = max(measured, key=lambda name: measured[name])
        chosen = shape(best["config"])
        bench.add(
            "search",
            TITLE,
            where=where,
            at_once=best["load"],
            shapes=len(measured) - 1,
            grid_minutes=grid.spent_s / 60,
            search_minutes=minutes["spent"],
            search_starts=minutes["starts"],
            fastest_of_the_grid=fastest,
            the_search_names=chosen,
            behind_by=f"{100 * (1 - measured[chosen] / measured[fastest]):.1f} %",
            it_says=best["state"],
        )


@pytest.mark.parametrize(("whole", "search"), RECORDED)
def test_recorded_on_a_gpu(whole: str, search: str, bench) -> None:  # type: ignore[no-untyped-def]
    answer = json.loads((recorded_dir() / search / TUNED).read_text())
    compare(bench, f"{whole}, {search}: recorded on one NVIDIA H200", read_recorded(recorded_dir() / whole), answer)


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
    answer = json.loads((runs / "search" / TUNED).read_text())
    compare(bench, "this machine, embedded engine", grid, answer)
    assert answer["gpu_minutes"]["spent"] < 1.2 * SHARE * grid.spent_s / 60
