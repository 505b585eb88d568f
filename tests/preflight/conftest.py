from __future__ import annotations

from pathlib import Path

import pytest
from model_folders import CONFIG, TARGET_CONFIG, draft_tensors, write_folder

from workbench.checkpoint import Checkpoint, read_checkpoint
from workbench.preflight import CheckResult, check_draft


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
