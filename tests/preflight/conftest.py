from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from model_folders import CONFIG, TARGET_CONFIG, draft_tensors, ones, write_folder

from workbench.checkpoint import Checkpoint, read_checkpoint
from workbench.preflight import CheckResult, Machine, check_draft, check_start
from workbench.sweep import CampaignSpec, Plan, Start, expand

GIB = 1 << 30
NODE = Machine((80 * GIB,) * 8, "0.5.14")
"""Eight GPUs of 80 GiB, with the SGLang that the campaigns of these tests are for."""


class Bench:
    """Writes a correct tiny draft with the given changes, checks it, and returns the findings by rule."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0

    def draft(self, config=None, tensors=None, drop=()) -> Checkpoint:
        self.count += 1
        stated = {key: value for key, value in {**CONFIG, **(config or {})}.items() if key not in drop}
        return read_checkpoint(
            write_folder(self.folder / f"draft{self.count}", stated, draft_tensors() if tensors is None else tensors)
        )

    def target(self, config=None, drop=()) -> Checkpoint:
        stated = {key: value for key, value in {**TARGET_CONFIG, **(config or {})}.items() if key not in drop}
        return read_checkpoint(write_folder(self.folder / "target", stated))

    def __call__(self, config=None, tensors=None, *, drop=(), target=None, **use) -> dict[str, CheckResult]:
        results = check_draft(self.draft(config, tensors, drop), self.target(target), **use)
        for result in results:
            assert result.what and result.where and result.next_step
        # A rule that fires twice would hide behind one key.
        assert len({(result.rule, result.what) for result in results}) == len(results)
        return {result.rule: result for result in results if result.rule != "capture-layers"}


@pytest.fixture
def bench(tmp_path) -> Bench:
    return Bench(tmp_path)


class Campaigns:
    """A campaign with nothing wrong in it, on tiny models that are there, with the changes of a test."""

    def __init__(self, folder: Path) -> None:
        self.target = write_folder(folder / "target", TARGET_CONFIG, {"lm_head.weight": ones(16, 8)})
        self.draft = write_folder(folder / "draft", CONFIG, draft_tensors())

    def spec(self, **changes: Any) -> CampaignSpec:
        """``server``, ``workload`` and ``target`` are changed key by key, everything else is replaced."""
        content: dict[str, Any] = {
            "name": "c",
            "title": "C",
            "sglang_version": "0.5.14",
            "target": {"name": "T", "model_path": str(self.target), "dtype": "bfloat16"},
            "drafters": [{"name": "d", "model_path": str(self.draft), "target": "T"}],
            "workload": {"prompt_set": "mt_bench", "num_prompts": 32, "max_new_tokens": 64},
            "max_concurrency": [1, 8],
            "repeats": 5,
            "server": {"max_running_requests": 8, "mem_fraction_static": 0.8, "context_length": 4096},
            "sweep": [{"speculative_num_steps": 3}],
        }
        for key, value in changes.items():
            content[key] = {**content[key], **value} if key in ("server", "workload", "target") else value
        return CampaignSpec.model_validate(content)

    def plan(self, **changes: Any) -> Plan:
        return expand(self.spec(**changes))

    def start(self, **changes: Any) -> tuple[Start, CampaignSpec]:
        """The first candidate."""
        plan = self.plan(**changes)
        return next(start for start in plan.starts if start.role == "speculative"), plan.campaign

    def __call__(self, machine: Machine = NODE, *, baseline: bool = False, **changes: Any) -> Mapping[str, CheckResult]:
        """Findings of the first candidate, or of the baseline, by rule; without the note that is always there."""
        plan = self.plan(**changes)
        start = plan.starts[0] if baseline else self.start(**changes)[0]
        results = check_start(start, plan.campaign, machine=machine)
        for result in results:
            assert result.what and result.where and result.next_step
        return {result.rule: result for result in results if result.rule != "capture-layers"}


@pytest.fixture
def campaigns(tmp_path) -> Campaigns:
    return Campaigns(tmp_path)
