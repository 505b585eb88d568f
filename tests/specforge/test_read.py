"""Runs read back. The log is real; its checkpoint is stood for by an empty file, since it is never opened."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the embedded engine needs torch (extra: reference)")

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from specforge_files import FIXTURES, order

from workbench.cli import main
from workbench.errors import CheckpointError, InputError, UsageError, WorkbenchError
from workbench.spec import Drafter
from workbench.specforge.read import make_record, save, text
from workbench.specforge.run_folder import export_command, look
from workbench.specforge.write import write
from workbench.terminal import Lines

RECIPE = "SpecForge 0.2.0, 3 passes, learning rate 0.0003, 2 samples a step, 2 epochs, masks shifted"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "sf"
    for step in (4, 8, 12, 13):
        checkpoint = folder / "output" / f"tiny-sf-step{step}"
        checkpoint.mkdir(parents=True)
        (checkpoint / "training_state.pt").touch()
    # As a save leaves that was broken off.
    (folder / "output" / "tiny-sf-step16").mkdir()
    (folder / "output" / "tiny-sf-latest").symlink_to("tiny-sf-step13")
    for name, to in (("trained_run.yaml", "run.yaml"), ("trained_manifest.json", "manifest.json"), ("train.log",) * 2):
        shutil.copy(FIXTURES / name, folder / to)
    return folder


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    folder = tmp_path / "drafter"
    folder.mkdir()
    shutil.copy(FIXTURES / "trained_draft_config.json", folder / "config.json")
    save_file({"fc.weight": torch.zeros(1)}, str(folder / "model.safetensors"))
    return folder


@pytest.mark.parametrize("inside", ["", "output"])
def test_the_record_of_a_real_run(run: Path, inside: str) -> None:
    record = make_record(look(run / inside, logs=[run / "train.log"]))
    assert record["trainer"] == "SpecForge 0.2.0"
    # 13 steps of 2 samples; 13 samples in all.
    assert record["seen"] == {"optimizer_steps": 13, "samples": 26, "epochs": 2.0}
    assert record["curve"][-1] == {
        "step": 12,
        "loss": 5.47634220123291,
        "gradient_norm": 2.4107742309570312,
        "learning_rate": 4.422989402888078e-06,
        "samples_per_s": 0.11317431439615323,
        "accuracy_by_pass": [0.1875, 0.21875, 0.09375],
        "acceptance_by_pass": [0.02971089445054531, 0.030489765107631683, 0.0297413170337677],
    }
    # 1 + a0 + a0 a1 + a0 a1 a2, and the target's own token.
    by_hand = 1 + 0.140625 + 0.140625**2 + 0.140625**2 * 0.078125
    assert record["evaluations"][-1]["simulated_accept_length"] == pytest.approx(by_hand, abs=1e-12)
    assert "ended_with" not in record and "tracking" not in record["config"]["specforge"]
    json.dumps(record, allow_nan=False)


def test_it_is_a_campaigns_drafter(run: Path) -> None:
    drafter = Drafter.model_validate(make_record(look(run), name="sf")["drafter"])
    assert drafter == Drafter(
        name="sf",
        target="smollm2-135m-instruct",
        training_samples=13,
        response_tokens=357,
        seed=0,
        optimizer_steps=13,
        epochs=2.0,
        draft_vocab_size=4096,
        data_mix="mt_bench; answers by the target at temperature 0, at most 32 tokens (corpus 318c00beaa8d3fc5)",
        recipe=RECIPE,
        design="fixed epochs",
    )


def test_without_our_manifest_less_is_known(run: Path) -> None:
    (run / "manifest.json").unlink()
    record = make_record(look(run))
    assert record["trainer"] == "SpecForge"
    assert record["seen"] == {"optimizer_steps": 13, "samples": 26}
    assert record["data"] == {}
    assert record["drafter"].keys() == {"name", "target", "seed", "optimizer_steps", "recipe"}
    assert record["drafter"]["recipe"].startswith("SpecForge, version not stated, 3 passes")
    assert make_record(look(run), version="0.2.0")["trainer"] == "SpecForge 0.2.0"


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=5,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(["data", "specforge_version", "target", "draft_vocab_size", "judged_share", "steps"]), json_like)
def test_any_manifest_gives_a_record_or_an_error_of_ours(run: Path, key: str, new: object) -> None:
    manifest = json.loads((FIXTURES / "trained_manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps({**manifest, key: new}))
    try:
        left = look(run)
        text(make_record(left), left, None)
    except WorkbenchError:
        pass


def test_samples_are_counted_where_the_features_are(run: Path) -> None:
    (run / "manifest.json").unlink()
    (run / "features").mkdir()
    for i in range(26):
        (run / "features" / f"{i}.ckpt{'.gz' * (i % 2)}").touch()
    assert make_record(look(run))["seen"]["epochs"] == 1.0


def test_without_checkpoints_the_log_tells_whether_it_came_to_its_end(run: Path) -> None:
    shutil.rmtree(run / "output")
    assert make_record(look(run))["seen"]["optimizer_steps"] == 13
    log = run / "train.log"
    log.write_text("".join(line for line in log.read_text().splitlines(True) if "step 12:" not in line))
    assert "optimizer_steps" not in make_record(look(run))["seen"]


def test_tensorboard_alone_will_do(run: Path) -> None:
    (run / "train.log").unlink()
    (run / "output" / "runs").mkdir()
    shutil.copy(FIXTURES / "events.out.tfevents.1.host.1.0", run / "output" / "runs")
    curve = make_record(look(run))["curve"]
    assert [line["step"] for line in curve] == [2, 4, 6, 8, 10, 12]
    assert curve[0]["seconds"] == 0 and curve[-1]["seconds"] > 200


def test_a_log_only(tmp_path: Path) -> None:
    shutil.copy(FIXTURES / "train.log", tmp_path)
    record = make_record(look(tmp_path), name="x")
    assert record["drafter"] == {"name": "x", "recipe": "SpecForge, version not stated, settings not stated"}
    assert len(record["curve"]) == 6


def test_a_failed_run(run: Path) -> None:
    shutil.rmtree(run / "output")
    shutil.copy(FIXTURES / "no_index.log", run / "train.log")
    left = look(run)
    record = make_record(left)
    assert record["ended_with"].startswith("FileNotFoundError: No index.json file found")
    assert "it ended with: FileNotFoundError" in text(record, left, None)


def test_two_logs_of_one_run(run: Path) -> None:
    lines = (run / "train.log").read_text().splitlines(True)
    cut = next(i for i, line in enumerate(lines) if line.startswith("step 6:"))
    (run / "train.log").write_text("".join(lines[cut:]))
    (run / "z_first.log").write_text("".join(lines[:cut]))
    assert [line["step"] for line in make_record(look(run))["curve"]] == [2, 4, 6, 8, 10, 12]


def test_nothing_of_a_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing of a SpecForge run"):
        look(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        look(tmp_path / "x")


def test_the_record_goes_beside_the_exported_drafter(run: Path, exported: Path) -> None:
    left = look(run)
    assert save(make_record(left), left, exported) == exported / "training.json"
    assert json.loads((exported / "training.json").read_text())["drafter"]["recipe"] == RECIPE
    save(make_record(left, name="again"), left, exported)
    (exported / "training.json").write_text('{"name": "ours"}')
    with pytest.raises(UsageError, match="training of ours"):
        save(make_record(left), left, exported)


def test_pickles_are_not_opened_but_the_export_is_named(run: Path, tmp_path: Path) -> None:
    left = look(run)
    out = tmp_path / "d"
    command = export_command(left, out)
    assert command == (
        f"specforge export --to sglang --checkpoint {run}/output/tiny-sf-step13 "
        f"--draft-config {run}/draft_config.json --output-dir {out}"
    )
    with pytest.raises(CheckpointError, match="no exported drafter") as caught:
        save(make_record(left), left, out)
    assert caught.value.next_step == command
    out.mkdir()
    shutil.copy(FIXTURES / "trained_draft_config.json", out / "config.json")
    (out / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'exit 1'\ntR.")
    with pytest.raises(CheckpointError, match="pickles are not opened"):
        save(make_record(left), left, out)


def test_the_commands(run: Path, exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["specforge", "read", str(run), "--as", "sf", "--out", str(exported)]) == 0
    said = capsys.readouterr().out
    assert "sf: SpecForge 0.2.0, samples 13, optimizer steps 13, epochs 2.0" in said
    assert f"model_path: {exported}" in said.replace("\n    ", " ")
    order(tmp_path)
    keys = order(tmp_path).model_dump(mode="json", exclude_defaults=True)
    (tmp_path / "order.yaml").write_text(json.dumps(keys))
    assert main(["specforge", "write", str(tmp_path / "order.yaml"), "--out", str(tmp_path / "new"), "--quiet"]) == 0
    assert "4 samples, 8 steps" in capsys.readouterr().out
    assert main(["specforge", "read", str(tmp_path)]) == 3


def test_a_folder_just_written_can_be_read(tmp_path: Path) -> None:
    write(order(tmp_path), tmp_path / "out", Lines(quiet=True))
    record = make_record(look(tmp_path / "out"))
    assert record["data"]["samples"] == 4
    assert (record["curve"], record["seen"]) == ([], {})
