"""Facts of training folders in campaigns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from training_records import write_training, write_walk

from workbench.errors import InputError
from workbench.spec import Drafter, Target, Workload
from workbench.sweep import CampaignSpec, expand, parse_campaign
from workbench.trained import filled, read_record

TARGET = Target(name="SmolLM2-135M-Instruct", model_path="/models/smollm2-135m-instruct")
WORK = Workload(prompt_set="mixed", num_prompts=6, temperature=0.0, max_new_tokens=8, ignore_eos=False)


def of(folder: Path, **stated: object) -> Drafter:
    return filled(Drafter.model_validate({"name": "d", "model_path": str(folder), **stated}), TARGET, [WORK])


def test_a_drafter_takes_the_facts_of_its_training(tmp_path: Path) -> None:
    drafter = of(write_training(tmp_path / "run"))
    assert drafter == Drafter(
        name="d",
        model_path=str(tmp_path / "run"),
        target="SmolLM2-135M-Instruct",
        training_samples=500,
        response_tokens=62063,
        seed=4,
        optimizer_steps=831,
        epochs=2.0,
        draft_vocab_size=16384,
        data_mix="training_mix; answers by the target at temperature 0.7, at most 256 tokens (corpus 00aa11bb22cc33dd)",
        recipe="EAGLE-3, 3 passes, learning rate 0.0004, 16,384 tokens a step, 2 epochs",
        design="fixed epochs",
        offline=drafter.offline,
        survival=(1.0, 0.5, 0.25, 0.05),
        survival_prompt_set="training_mix, held out, sampled answers",
    )
    (held,) = drafter.offline
    assert (held.prompt_set, held.served_as) == ("training_mix, held out, sampled answers", None)
    assert held.accept_length_by_steps == {1: 1.5, 2: 1.75, 3: 1.8}
    assert held.without_repetitive_by_steps == {1: 1.4, 2: 1.6, 3: 1.65}


def test_what_the_campaign_states_stays(tmp_path: Path) -> None:
    drafter = of(write_training(tmp_path / "run"), training_samples=7, recipe="mine", notes="n")
    assert (drafter.training_samples, drafter.recipe, drafter.notes, drafter.seed) == (7, "mine", "n", 4)


def test_of_another_target_the_name_is_the_training_s(tmp_path: Path) -> None:
    other = Target(name="Llama", model_path="/models/llama")
    folder = write_training(tmp_path / "run")
    assert filled(Drafter(name="d", model_path=str(folder)), other, []).target == "smollm2-135m-instruct"


def test_the_design_tells_what_was_the_same(tmp_path: Path) -> None:
    steps = of(write_training(tmp_path / "steps", epochs=None, steps=6000))
    assert (steps.design, steps.recipe and steps.recipe[-11:]) == ("fixed steps", "6,000 steps")
    assert of(write_training(tmp_path / "minutes", epochs=None, minutes=2.5)).design == "fixed time"
    again = of(write_training(tmp_path / "again", init_from="/x/first"))
    assert again.recipe is not None and again.recipe.endswith("2 epochs, going on from first")


def test_a_walk_is_served_where_a_campaign_sends_the_same(tmp_path: Path) -> None:
    folder = write_training(tmp_path / "run", held_out=None)
    write_walk(folder, "mixed", 6)
    write_walk(folder, "mt_bench", 6)
    drafter = of(folder)
    assert {walk.prompt_set: walk.served_as for walk in drafter.offline} == {
        "mixed, 6 prompts": "mixed",
        "mt_bench, 6 prompts": None,
    }
    assert drafter.survival == () and drafter.survival_prompt_set is None
    for other in ({"num_prompts": 5}, {"max_new_tokens": 9}, {"temperature": 0.7}, {"ignore_eos": True}):
        found = filled(Drafter(name="d", model_path=str(folder)), TARGET, [WORK.model_copy(update=other)])
        assert {walk.served_as for walk in found.offline} == {None}, other


def test_a_folder_that_is_no_training_of_ours_is_left_alone(tmp_path: Path) -> None:
    drafter = Drafter(name="d", model_path=str(tmp_path))
    assert filled(drafter, TARGET, [WORK]) is drafter
    assert filled(Drafter(name="d"), TARGET, [WORK]) == Drafter(name="d")


def test_a_drafter_of_another_trainer_brings_its_facts_with_it(tmp_path: Path) -> None:
    record = {
        "trainer": "SpecForge 0.2.0",
        "config": {"target": "/elsewhere/smollm2-135m-instruct"},
        "data": {},
        "drafter": {"training_samples": 60, "optimizer_steps": 13, "recipe": "SpecForge 0.2.0, eagle3"},
    }
    (tmp_path / "training.json").write_text(json.dumps(record))
    drafter = of(tmp_path)
    assert (drafter.training_samples, drafter.optimizer_steps) == (60, 13)
    assert (drafter.recipe, drafter.target) == ("SpecForge 0.2.0, eagle3", "SmolLM2-135M-Instruct")
    assert drafter.seed is None and drafter.offline == ()
    (tmp_path / "training.json").write_text(json.dumps({**record, "config": {}}))
    assert of(tmp_path).target is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"config": {}, "data": 3}'])
def test_a_broken_record_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "training.json").write_text(text)
    with pytest.raises(InputError, match="no record of a training") as caught:
        of(tmp_path)
    assert caught.value.where == str(tmp_path / "training.json")


def test_a_broken_walk_is_named(tmp_path: Path) -> None:
    folder = write_training(tmp_path / "run")
    (folder / "evaluated-x-1.json").write_text("{")
    with pytest.raises(InputError, match="no figures of a walk"):
        of(folder)
    assert read_record(folder)["name"] == "tiny"


# --- campaigns ---------------------------------------------------------------------------------------------------


def campaign(**changes: object) -> CampaignSpec:
    content = {
        "name": "small",
        "title": "Small",
        "target": {"name": "SmolLM2-135M-Instruct", "model_path": "/models/smollm2-135m-instruct"},
        "workload": {"prompt_set": "mixed", "num_prompts": 6, "max_new_tokens": 8},
        "sweep": [{"speculative_num_steps": 3}],
    }
    return parse_campaign(yaml.safe_dump({**content, **changes}), name="small.yaml")


def test_a_campaign_takes_every_finished_drafter_of_a_folder(tmp_path: Path) -> None:
    for name in ("n500-a", "n1000-b"):
        write_training(tmp_path / name)
    (tmp_path / "n2000-c").mkdir()
    given = {"name": "n500-a", "model_path": str(tmp_path / "n500-a"), "training_samples": 9}
    found = campaign(drafters_from=str(tmp_path), drafters=[given])
    assert {drafter.name: drafter.training_samples for drafter in found.drafters} == {"n500-a": 9, "n1000-b": 500}
    assert found.drafters[1].model_path == str(tmp_path / "n1000-b")
    names = [start.server_id for start in expand(found).starts]
    assert names[1:-1] == ["eagle3-n500-a-s3-k1-n4", "eagle3-n1000-b-s3-k1-n4"]


def test_blocks_name_drafters_by_patterns(tmp_path: Path) -> None:
    for name in ("n500-a", "n500-b", "n1000-a"):
        write_training(tmp_path / name)
    blocks = [{"speculative_num_steps": 3, "drafter": "n500-*"}, {"speculative_num_steps": 1, "drafter": "*-a"}]
    starts = expand(campaign(drafters_from=str(tmp_path), sweep=blocks)).starts
    assert [(start.drafter.name, start.decode.speculative_num_steps) for start in starts if start.drafter] == [
        ("n500-a", 3),
        ("n500-b", 3),
        ("n1000-a", 1),
        ("n500-a", 1),
    ]


def test_drafters_that_are_not_trained_yet_are_left_out_and_said(tmp_path: Path) -> None:
    write_training(tmp_path / "n500-a")
    blocks = [{"speculative_num_steps": 3}, {"speculative_num_steps": [1, 2], "drafter": "nall-*"}]
    planned = expand(campaign(drafters_from=str(tmp_path), sweep=blocks))
    assert [start.role for start in planned.starts] == ["baseline", "speculative", "baseline"]
    assert [point.point for point in planned.refused] == ["drafter nall-*"]
    nothing = expand(campaign(drafters_from=str(tmp_path / "none")))
    assert (nothing.starts, len(nothing.refused)) == ((), 1)


def test_every_load_is_measured_with_every_prompt_set() -> None:
    drafters = [{"name": "d", "model_path": "/models/d"}]
    work = {"prompt_set": "mixed", "num_prompts": 6, "more_prompt_sets": {"mt_bench": 8}, "max_new_tokens": 8}
    start = expand(campaign(drafters=drafters, workload=work, max_concurrency=[1, 4])).starts[1]
    assert [
        (run.workload.prompt_set, run.workload.num_prompts, run.workload.max_concurrency) for run in start.runs
    ] == [("mixed", 6, 1), ("mt_bench", 8, 1), ("mixed", 6, 4), ("mt_bench", 8, 4)]
    assert [run.run_id[:-7] for run in start.runs][:2] == [
        "eagle3-d-s3-k1-n4-mixed-c1",
        "eagle3-d-s3-k1-n4-mt_bench-c1",
    ]
    # One set alone makes the runs that it always made.
    del work["more_prompt_sets"]
    alone = expand(campaign(drafters=drafters, workload=work, max_concurrency=[1, 4])).starts[1]
    assert [run.content_hash() for run in alone.runs] == [start.runs[0].content_hash(), start.runs[2].content_hash()]
