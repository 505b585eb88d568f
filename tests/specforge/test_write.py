"""Folders written for SpecForge; what it said to such is in the fixtures."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="the embedded engine needs torch (extra: reference)")

from specforge_files import FIXTURES, GOLDEN, order, read_features, write_target

from workbench.checkpoint import read_checkpoint
from workbench.errors import SpecError, UsageError
from workbench.specforge.draft import draft_config
from workbench.specforge.order import Order, read_order
from workbench.specforge.run_yaml import run_content
from workbench.specforge.target import head_key, index_fault, linked
from workbench.specforge.validate import faults, value
from workbench.specforge.write import Written, write
from workbench.terminal import Lines

V = "0.2.0"


def written(folder: Path, **changes: Any) -> Written:
    return write(order(folder, **changes), folder / "out", Lines(quiet=True))


def run_of(folder: Path) -> dict[str, Any]:
    return dict(yaml.safe_load((folder / "out" / "run.yaml").read_text()))


@pytest.mark.parametrize("name", GOLDEN)
def test_run_yaml_is_the_one_that_specforge_accepted(name: str, tmp_path: Path) -> None:
    written(tmp_path, **GOLDEN[name])
    assert (tmp_path / "out" / "run.yaml").read_text() == (FIXTURES / f"{name}_run.yaml").read_text()


@pytest.mark.parametrize("name", GOLDEN)
def test_specforge_itself_prints_the_same_plan(name: str, tmp_path: Path) -> None:
    command = os.environ.get("SPECFORGE") or shutil.which("specforge")
    if command is None:
        pytest.skip("needs SpecForge 0.2.0: a `specforge` on the path, or its path in SPECFORGE")
    written(tmp_path, **GOLDEN[name])
    call = [command, "train", "--config", "./run.yaml", "--plan"]
    said = subprocess.run(call, cwd=tmp_path / "out", capture_output=True, text=True, timeout=100, check=True)
    plan, theirs = json.loads(said.stdout), json.loads((FIXTURES / f"{name}_plan.json").read_text())
    assert without_python(plan) == without_python(theirs)


def without_python(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: without_python(item) for key, item in node.items()}
    if isinstance(node, list):
        return [without_python(item) for item in node]
    return "python" if isinstance(node, str) and Path(node).name.startswith("python") else node


def test_the_plan_of_an_online_run_captures_what_the_draft_states(tmp_path: Path) -> None:
    """Of the plan that SpecForge printed: the layers and the room that the order asked for."""
    written(tmp_path, **GOLDEN["online"])
    plan = json.loads((FIXTURES / "online_plan.json").read_text())
    argv = plan["services"][1]["command"]["argv"]
    draft = json.loads((tmp_path / "out" / "draft_config.json").read_text())
    ids = draft["eagle_config"]["eagle_aux_hidden_state_layer_ids"]
    at = argv.index("--spec-capture-aux-layer-ids")
    assert argv[at + 1 : at + 4] == [str(i) for i in ids]
    assert argv[argv.index("--tp-size") + 1] == "2"


def test_the_folder(tmp_path: Path) -> None:
    result = written(tmp_path, evaluate_steps=2)
    out = tmp_path / "out"
    assert sorted(path.name for path in out.iterdir()) == [
        *("commands.sh", "draft_config.json", "features", "held_out", "manifest.json", "order.json", "run.yaml"),
        *("target", "vocab_mapping.pt"),
    ]
    assert len(list(out.glob("features/*/*.ckpt"))) == 4
    assert len(list(out.glob("held_out/*/*.ckpt"))) == 2
    held = read_features(out / "features" / "00000" / "00000000.ckpt")
    assert held["aux_hidden_state"].shape == (1, len(held["input_ids"]), 48)
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["data"]["samples"] == 4
    # 4 samples of 7, 5, 5 and 6 tokens of which 3, 3, 2 and 3 slots are judged.
    assert manifest["judged_share"] == pytest.approx(11 / 23)
    assert manifest["loss_mask"] == "shifted"
    assert [finding.rule for finding in result.findings if finding.severity != "note"] == []


def test_the_targets_folder_is_left_alone(tmp_path: Path) -> None:
    write_target(tmp_path / "target")
    before = sorted(path.name for path in (tmp_path / "target").iterdir())
    written(tmp_path)
    assert sorted(path.name for path in (tmp_path / "target").iterdir()) == before
    link = tmp_path / "out" / "target" / "model.safetensors"
    assert link.is_symlink() and link.resolve() == (tmp_path / "target" / "model.safetensors").resolve()


def test_a_target_with_an_index_is_used_as_it_is(tmp_path: Path) -> None:
    target = write_target(tmp_path / "target")
    linked(read_checkpoint(target), tmp_path / "made")
    shutil.copy(tmp_path / "made" / "model.safetensors.index.json", target)
    written(tmp_path)
    assert run_of(tmp_path)["model"]["target_model_path"] == str(target.resolve())
    assert not (tmp_path / "out" / "target").exists()


def test_tied_weights_are_read_from_the_embedding(tmp_path: Path) -> None:
    target = read_checkpoint(write_target(tmp_path / "target", tie_word_embeddings=True))
    assert head_key(target) == "model.embed_tokens.weight"
    assert index_fault(target.path, head_key(target)) == "no index.json"
    written(tmp_path)
    assert run_of(tmp_path)["model"]["lm_head_key"] == "model.embed_tokens.weight"
    draft = json.loads((tmp_path / "out" / "draft_config.json").read_text())
    assert draft["tie_word_embeddings"] is False
    assert "norm_output" not in draft
    assert draft["max_position_embeddings"] == 128
    assert index_fault(tmp_path / "out" / "target", head_key(target)) is None


def test_two_indices_are_one_too_many(tmp_path: Path) -> None:
    for name in ("a.index.json", "b.index.json"):
        (tmp_path / name).write_text("{}")
    assert index_fault(tmp_path, "x") == "2 files that end in index.json"
    (tmp_path / "b.index.json").unlink()
    assert index_fault(tmp_path, "x") == "a.index.json cannot be read"


def test_features_can_be_left_to_others(tmp_path: Path) -> None:
    result = written(tmp_path, features="list")
    out = tmp_path / "out"
    assert not (out / "features").exists()
    lines = [json.loads(line) for line in (out / "samples.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines][:2] == ["00000/00000000.ckpt", "00000/00000001.ckpt"]
    assert any("to be captured" in line for line in result.lines)


def test_a_write_goes_on_and_another_order_does_not_mix_in(tmp_path: Path) -> None:
    written(tmp_path)
    first = tmp_path / "out" / "features" / "00000" / "00000000.ckpt"
    first.unlink()
    written(tmp_path)
    assert first.is_file()
    with pytest.raises(UsageError, match="another order"):
        written(tmp_path, seed=3)


def test_a_folder_in_use_is_not_written_into(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    with pytest.raises(UsageError, match="is not empty"):
        written(tmp_path)


def test_commands(tmp_path: Path) -> None:
    written(tmp_path)
    lines = (tmp_path / "out" / "commands.sh").read_text().splitlines()
    assert "specforge train --config ./run.yaml --plan" in lines
    export = "specforge export --to sglang --checkpoint ./output --draft-config ./draft_config.json"
    assert f"{export} --output-dir ./drafter" in lines
    assert f"workbench check ./drafter --target {(tmp_path / 'target').resolve()}" in lines
    subprocess.run(["sh", "-n", str(tmp_path / "out" / "commands.sh")], check=True)


def test_settings_reach_run_yaml_and_wrong_ones_are_refused(tmp_path: Path) -> None:
    written(tmp_path, settings={"training.lr_scheduler": "constant", "runtime.producer_lease": 2})
    assert value(run_of(tmp_path), "training.lr_scheduler", V) == "constant"
    with pytest.raises(SpecError, match=r"training.lr_schedule no key"):
        write(order(tmp_path, settings={"training.lr_schedule": 1}), tmp_path / "b", Lines(quiet=True))
    with pytest.raises(SpecError, match="leads through a value"):
        write(order(tmp_path, settings={"run_id.x": 1}), tmp_path / "c", Lines(quiet=True))


@settings(max_examples=40)
@given(
    st.fixed_dictionaries(
        {
            "gpus": st.integers(1, 8),
            "batch_size": st.integers(1, 64),
            "accumulation_steps": st.integers(1, 64),
            "learning_rate": st.floats(1e-9, 1.0),
            "warmup": st.floats(0, 0.99),
            "seed": st.integers(-(2**40), 2**40),
            "mode": st.sampled_from(["offline", "online"]),
            "tracking": st.sampled_from(["none", "wandb", "tensorboard", "swanlab", "mlflow"]),
            "name": st.text(st.characters(exclude_characters="/\\", exclude_categories=("C",)), min_size=1, max_size=9),
        }
    ),
    st.integers(1, 10**6),
)
def test_what_is_written_comes_back(changes: dict[str, Any], steps: int) -> None:
    keys = {"target": "t", "corpus": "c", "epochs": 1, "draft_vocab_size": 9, **changes}
    try:
        asked = Order.model_validate(keys)
    except ValueError:
        return
    content = run_content(asked, target="./target", keys={}, epochs=1, steps=steps, cut=True)
    back = yaml.safe_load(yaml.safe_dump(content, sort_keys=False))
    assert back == content
    assert faults(back, V) == []
    assert value(back, "training.learning_rate", V) == changes["learning_rate"]


# --- the order ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"steps": 3}, "exactly one of epochs and steps"),
        ({"conversations": "c"}, "exactly one of corpus and conversations"),
        ({"vocab_from": "d"}, "exactly one of draft_vocab_size and vocab_from"),
        ({"corpus": None, "conversations": "c"}, "make a corpus"),
        ({"mode": "online", "evaluate_steps": 2}, "evaluate_steps needs"),
        ({"capture": (1, 2)}, "exactly three different layers"),
        ({"settings": {"tracking.wandb_key": "k"}}, "does not belong into a file"),
    ],
)
def test_orders_that_cannot_be(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        order(tmp_path, **changes)


def test_an_order_file(tmp_path: Path) -> None:
    path = tmp_path / "o.yaml"
    path.write_text("name: a\ntarget: t\ncorpus: c\nepochs: 1\ndraft_vocab_size: 9\n")
    assert read_order(path, ["seed=4"]).seed == 4
    with pytest.raises(SpecError, match="Extra inputs"):
        read_order(path, ["sed=4"])
    path.write_text("- a")
    with pytest.raises(SpecError, match="holds no keys"):
        read_order(path)


def test_a_draft_never_says_norm_output(tmp_path: Path) -> None:
    target = read_checkpoint(write_target(tmp_path / "t"))
    with pytest.raises(UsageError, match="norm_output"):
        draft_config(target, vocab_size=9, capture=(0, 1, 2), dtype="bfloat16", changes={"norm_output": True})
