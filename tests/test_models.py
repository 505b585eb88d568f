"""Whether models are as they were when finished runs were measured. Engines and paths: `test_measure`, `test_run`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from live_campaigns import write_project
from model_folders import CONFIG, TARGET_CONFIG, draft_tensors, ones, write_folder, zeros

from workbench.hashes import weights_id
from workbench.models import changed_weights, require_same_weights, weights_of
from workbench.paths import ROOT_ENV
from workbench.spec import Origin, Provenance, RunState, RunStatus
from workbench.store import write_run
from workbench.sweep import Plan, expand, find_campaign


@dataclass(frozen=True)
class Models:
    """A project whose campaign names a drafter by a path under it, and a target elsewhere."""

    root: Path
    target: Path
    drafter: Path

    def plan(self, *settings: str) -> Plan:
        return expand(find_campaign("small", settings))

    def finish(self, plan: Plan, *, state: RunState = RunState.OK) -> Path:
        """All runs of a plan as they are when they were measured with what lies there now."""
        folder = self.root / "data" / "runs" / plan.campaign.name
        for start in plan.starts:
            weights = weights_of(start, plan.campaign)
            provenance = Provenance(origin=Origin.MEASURED, source="s", weights=weights)
            for run in start.runs:
                write_run(folder / run.run_id, run, provenance, RunStatus(status=state))
        return folder

    def retrain(self) -> None:
        write_folder(self.drafter, CONFIG, draft_tensors(norm__weight=zeros(8)))


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Models:
    target = write_folder(tmp_path / "t", TARGET_CONFIG, {"w": ones(8)})
    drafters = [{"name": "d", "model_path": "drafters/d"}]
    root = write_project(
        tmp_path / "project",
        target={"name": "T", "model_path": str(target)},
        drafters=drafters,
        baseline_again=False,
        sweep=[{"speculative_num_steps": [1, 3]}],
    )
    monkeypatch.setenv(ROOT_ENV, str(root))
    return Models(root, target, write_folder(root / "drafters" / "d", CONFIG, draft_tensors()))


def test_each_start_states_what_it_serves(models: Models) -> None:
    plan = models.plan()
    target, drafter = weights_id(models.target), weights_id(models.drafter)
    assert None not in (target, drafter) and target != drafter
    found = {start.server_id: weights_of(start, plan.campaign) for start in plan.starts}
    both = {"target": target, "drafter": drafter}
    assert found == {"baseline-default": {"target": target}, "eagle3-d-s1-k1-n2": both, "eagle3-d-s3-k1-n4": both}
    (models.drafter / "model.safetensors").rename(models.drafter / "model.gguf")
    assert weights_of(plan.starts[1], plan.campaign) == {"target": target}


@pytest.mark.parametrize("prefix", [["ssh", "-tt", "node"], ["/usr/bin/kubectl", "exec"]])
def test_a_path_on_another_machine_is_not_looked_for_here(models: Models, prefix: list[str]) -> None:
    plan = models.plan(f"launch_prefix={prefix}".replace("'", '"'))
    assert [weights_of(start, plan.campaign) for start in plan.starts] == [{}, {}, {}]
    models.finish(models.plan())
    models.retrain()
    assert changed_weights(models.root / "data" / "runs" / "small", plan) is None


def test_what_changed_is_named_with_the_runs_the_folder_and_what_to_do(models: Models) -> None:
    plan = models.plan()
    folder = models.finish(plan)
    assert changed_weights(folder, plan) is None
    models.retrain()
    changed = changed_weights(folder, plan)
    assert changed is not None and changed.exit_code == 3 and changed.where == str(folder)
    ids = [run.run_id for start in plan.starts for run in start.runs]
    assert changed.what == (
        f"measured with other weights of the drafter than lie in {models.drafter} now: 2 of the finished runs, "
        f"first {ids[1]}"
    )
    assert changed.next_step is not None and re.search(r"--set name=.*--force.*_kept", changed.next_step)
    # Of the target there are three, and both are said.
    write_folder(models.target, {**TARGET_CONFIG, "rope_theta": 5000.0})
    changed = changed_weights(folder, plan)
    assert changed is not None
    assert f"of the target than lie in {models.target} now: 3 of the finished runs, first {ids[0]}" in changed.what
    assert "of the drafter than lie in" in changed.what
    with pytest.raises(type(changed), match=re.escape(changed.what)):
        require_same_weights(folder, plan)


def test_only_runs_that_stay_and_whose_models_are_served_count(models: Models) -> None:
    plan = models.plan()
    folder = models.finish(plan)
    models.retrain()
    ids = [run.run_id for start in plan.starts for run in start.runs]
    assert changed_weights(folder, plan, anew=set(ids)) is None
    found = changed_weights(folder, plan, anew=set(ids[:2]))
    assert found is not None and f"1 of the finished runs, first {ids[2]}" in found.what
    # The target alone is served.
    assert changed_weights(folder, models.plan("only=baseline-default")) is None
    # A run beside the plan, of the same drafter, would be shown beside the new ones.
    assert changed_weights(folder, models.plan("only=eagle3-d-s1*"), anew=set(ids[:2])) is not None
    models.finish(plan, state=RunState.FAILED)
    write_folder(models.drafter, CONFIG, draft_tensors())
    assert changed_weights(folder, plan) is None


def test_what_is_not_known_is_not_said(models: Models) -> None:
    plan = models.plan()
    folder = models.finish(plan)
    assert changed_weights(folder.with_name("never-begun"), plan) is None
    models.drafter.rename(models.drafter.with_name("elsewhere"))
    assert changed_weights(folder, plan) is None
    # Runs from before, and of attached servers, state nothing.
    for path in folder.glob("*/provenance.json"):
        path.write_text('{"origin": "measured", "source": "s"}')
    write_folder(models.drafter, CONFIG, draft_tensors(norm__weight=zeros(8)))
    assert changed_weights(folder, plan) is None
    assert len(list(folder.glob("*/provenance.json"))) == 3
