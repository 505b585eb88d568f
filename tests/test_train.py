"""One command for one drafter: trained, evaluated, served, recorded; and its page."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from live_campaigns import PROMPTS, play, write_project
from training_records import record, write_training, write_walk

from workbench import learning, train
from workbench.errors import UsageError
from workbench.notebook import run_notebook
from workbench.paths import ROOT_ENV
from workbench.run import Outcome
from workbench.spec import RunState
from workbench.sweep import CampaignSpec, find_campaign
from workbench.terminal import Lines
from workbench.train import Request, settings_for, walks_of
from workbench.training.config import TrainConfig
from workbench.training.judged import Walk

ROOT = Path(__file__).parents[1]
QUIET = Lines(quiet=True)
KEYS: dict[str, Any] = {
    "name": "tiny",
    "target": "/models/t",
    "corpus": "/data/mix",
    "draft_vocab_size": 20,
    "steps": 6,
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = write_project(tmp_path / "project")
    play(monkeypatch, project)
    return project


def config(folder: Path, **changes: Any) -> Path:
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump({**KEYS, "out": str(folder / "tiny"), **changes}))
    return path


def finished(folder: Path) -> Path:
    """A drafter of `config`, trained already."""
    made = TrainConfig.model_validate({**KEYS, "out": str(folder / "tiny")})
    return write_training(folder / "tiny", config=made.model_dump(mode="json"))


def small(**changes: Any) -> CampaignSpec:
    campaign = find_campaign("small")
    return campaign.model_copy(update={"workload": campaign.workload.model_copy(update=changes)})


# --- what a campaign sends is walked along -----------------------------------------------------------------------


def test_a_walk_for_every_prompt_set_of_greedy_campaigns(root: Path) -> None:
    assert walks_of(small(more_prompt_sets={"mixed": 4})) == [
        Walk(prompts="few", num_prompts=6, max_new_tokens=8),
        Walk(prompts="mixed", num_prompts=4, max_new_tokens=8),
    ]
    assert walks_of(small(temperature=0.7)) == [] and walks_of(small(ignore_eos=True)) == []


def test_the_campaign_becomes_one_of_this_drafter(root: Path) -> None:
    folder = finished(root)
    write_walk(folder, "few", PROMPTS)
    campaign = small()
    block = campaign.sweep[0].model_copy(update={"drafter": ("d",)})
    settings = settings_for(campaign.model_copy(update={"sweep": (block,)}), "a b", folder)
    assert settings[-1] == "sweep.0.drafter=[]"
    changed = find_campaign("small", settings)
    (drafter,) = changed.drafters
    assert (changed.name, drafter.name, drafter.model_path) == ("small-a-b", "a-b", str(folder))
    assert drafter.training_samples == 500
    assert [(walk.prompt_set, walk.served_as) for walk in drafter.offline][1:] == [("few, 6 prompts", "few")]


def test_train_evaluate_serve(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def train_one(asked: TrainConfig, *, resume: bool, say: object, overwrite: object) -> Path:
        done.append(f"train {asked.name} resume {resume}")
        return finished(root)

    def make(walk: Walk, asked: TrainConfig, folder: Path, execute: object) -> bool:
        done.append(f"walk {walk.prompts}")
        write_walk(folder, walk.prompts, walk.num_prompts or 0)
        return True

    def serve(asked: Any, lines: object) -> Outcome:
        done.append(f"serve {asked.campaign} {asked.settings[0]}")
        return Outcome("small-tiny", "3 of 3 runs are measured.", "", "", root / "n.ipynb", 0)

    monkeypatch.setattr("workbench.training.train.train", train_one)
    monkeypatch.setattr("workbench.training.judged.make", make)
    monkeypatch.setattr("workbench.run.run", serve)
    request = Request(config(root), serve="small")
    outcome = train.train(request, QUIET)
    assert done == ["train tiny resume True", "walk few", "serve small name=small-tiny"]
    assert (outcome.exit_code, outcome.text.splitlines()[0]) == (0, "3 of 3 runs are measured.")
    train.train(request, QUIET)
    assert done[3:] == ["serve small name=small-tiny"]
    with pytest.raises(UsageError, match="differs in learning_rate"):
        train.train(Request(request.config, ("learning_rate=0.5",), serve="small"), QUIET)


def test_a_campaign_that_is_not_there_is_found_out_before_training(root: Path) -> None:
    with pytest.raises(Exception, match="did you mean 'small'"):
        train.train(Request(config(root), serve="smal"), QUIET)
    assert not (root / "tiny").exists()


def test_jobs_and_lists_belong_to_studies(root: Path) -> None:
    with pytest.raises(UsageError, match="one drafter is one job"):
        train.train(Request(config(root), jobs=2), QUIET)
    with pytest.raises(UsageError, match="means one drafter"):
        train.listed(Request(config(root)))
    assert train.listed(Request(config(root, seed=[0, 1]))).startswith("tiny: 0 of 2 drafters are done")


def test_a_study_s_exit_code_is_that_of_its_worst(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = [train.Result("a", "done"), train.Result("b", "kept"), train.Result("c", "failed", "no memory")]
    monkeypatch.setattr(train, "train_all", lambda study, *, jobs, lines: results)
    outcome = train.train(Request(config(root, seed=[0, 1, 2])), QUIET)
    assert outcome.exit_code == 1
    assert "of 3 drafters 1 trained, 1 kept from before, 1 failed" in outcome.text and "c: no memory" in outcome.text


# --- the notebook and its page -----------------------------------------------------------------------------------


def test_a_finished_folder_is_read_and_nothing_else_is(tmp_path: Path) -> None:
    folder = write_training(tmp_path / "run")
    assert learning.trained(str(folder)) == folder
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="no finished drafter"):
        learning.trained(str(tmp_path / "empty"))
    with pytest.raises(UsageError, match="is a folder"):
        train.train(Request(folder), QUIET)


@pytest.mark.slow
def test_the_page_of_a_finished_drafter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    shutil.copytree(ROOT / "notebooks", tmp_path / "notebooks")
    monkeypatch.setenv(ROOT_ENV, str(tmp_path))
    folder = write_training(tmp_path / "run")
    write_walk(folder, "mixed", 6)
    outcome = train.train(Request(folder, page=True), QUIET)
    assert outcome.text == f"page: {tmp_path / 'reports' / 'train_drafter-run.html'}"
    page = (tmp_path / "reports" / "train_drafter-run.html").read_text(encoding="utf-8")
    assert "tiny: 500 samples, 62,063 response tokens, 831 steps; accept length 1.80" in page
    assert page.count("<img ") == 1 and "The loss went from 5.00 to 2.00" in page
    assert "train_drafter-run.html" in (tmp_path / "reports" / "index.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_notebook_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="training needs torch (extra: reference)")
    from training_files import config_for, greedy_samples, tiny_target, write_corpus

    write_corpus(tmp_path / "corpus", greedy_samples(tiny_target(tmp_path / "target"), 16))
    keys = config_for(tmp_path, held_out=4, log_steps=1).model_dump(mode="json", exclude_none=True)
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(keys))
    given = {"config": str(tmp_path / "tiny.yaml"), "settings": ["steps=4"]}
    done = run_notebook(ROOT / "notebooks" / "40_train_drafter.ipynb", tmp_path / "out.ipynb", given)
    assert done.status is RunState.OK, done.reason
    made = json.loads((tmp_path / "draft" / "training.json").read_text())
    assert made["seen"]["optimizer_steps"] == 4
    assert f"tiny: {made['data']['samples']} samples" in done.output.read_text(encoding="utf-8")


@pytest.mark.slow
def test_one_command_with_a_real_drafter(root: Path) -> None:
    """Trained and walked for real; the server is the scripted one."""
    pytest.importorskip("torch", reason="training needs torch (extra: reference)")
    from answering_target import write_target
    from training_files import config_for, greedy_samples, tiny_target, write_corpus

    write_corpus(root / "corpus", greedy_samples(tiny_target(root / "target"), 16))
    write_target(root / "target")
    keys = config_for(root, held_out=4).model_dump(mode="json", exclude_none=True)
    (root / "tiny.yaml").write_text(yaml.safe_dump(keys))
    outcome = train.train(Request(root / "tiny.yaml", serve="small", allow_refused=True), QUIET)
    assert outcome.text.startswith("3 of 3 runs are measured."), outcome.text
    (drafter,) = json.loads((root / "data" / "runs" / "small-tiny" / "drafters.json").read_text())
    assert drafter["training_samples"] == json.loads((root / "draft" / "training.json").read_text())["data"]["samples"]
    assert [(walk["prompt_set"], walk.get("served_as")) for walk in drafter["offline"]][1] == ("few, 6 prompts", "few")


def test_records_of_the_tests_look_like_the_trainer_s() -> None:
    """Keys that this room reads are those that `workbench.training.train` writes."""
    source = (ROOT / "workbench" / "training" / "train.py").read_text(encoding="utf-8")
    assert all(f'"{key}"' in source for key in record())
