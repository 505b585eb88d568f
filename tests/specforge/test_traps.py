"""Known traps, found in files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("torch", reason="the embedded engine needs torch (extra: reference)")

from specforge_files import order, write_target

from workbench.cli import main
from workbench.preflight.result import Severity
from workbench.specforge.traps import findings, read_run
from workbench.specforge.write import write
from workbench.terminal import Lines


def found(path: Path) -> dict[str, Severity]:
    return {finding.rule: finding.severity for finding in findings(read_run(path))}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write(order(tmp_path, checkpoint_steps=2), tmp_path / "out", Lines(quiet=True))
    return tmp_path / "out" / "run.yaml"


def change(path: Path, **keys: Any) -> None:
    content = yaml.safe_load(path.read_text()) if path.suffix == ".yaml" else json.loads(path.read_text())
    for key, new in keys.items():
        *sections, last = key.split("__")
        node = content
        for section in sections:
            node = node[section]
        if new is None:
            del node[last]
        else:
            node[last] = new
    path.write_text(yaml.safe_dump(content) if path.suffix == ".yaml" else json.dumps(content))


def test_what_is_written_here_has_only_notes(run: Path) -> None:
    assert found(run) == {"specforge-mask": Severity.NOTE, "specforge-loss-mean": Severity.NOTE}


def test_a_target_without_an_index(run: Path) -> None:
    change(run, model__target_model_path=str(run.parent.parent / "target"))
    assert found(run)["specforge-index"] is Severity.ERROR


def test_a_tied_head_under_its_usual_name(tmp_path: Path) -> None:
    write_target(tmp_path / "target", tie_word_embeddings=True)
    write(order(tmp_path), tmp_path / "out", Lines(quiet=True))
    run = tmp_path / "out" / "run.yaml"
    change(run, model__lm_head_key=None)
    (finding,) = [one for one in findings(read_run(run)) if one.rule == "specforge-index"]
    assert finding.what == "lm_head.weight is not in model.safetensors.index.json"
    assert "embedding's name" in finding.next_step


def test_norm_output_either_way(run: Path) -> None:
    for value in (True, False):
        change(run.parent / "draft_config.json", norm_output=value)
        assert found(run)["specforge-norm-output"] is Severity.ERROR


def test_fewer_positions_than_the_target(run: Path) -> None:
    change(run.parent / "draft_config.json", max_position_embeddings=64)
    assert found(run)["specforge-positions"] is Severity.ERROR


def test_masks_of_others_and_padding(run: Path) -> None:
    (run.parent / "manifest.json").unlink()
    change(run, training__batch_size=2)
    assert found(run) == {"specforge-mask": Severity.WARNING, "specforge-loss-mean": Severity.WARNING}


def test_layers_that_are_trained_and_others_served(run: Path) -> None:
    change(run, model__aux_hidden_state_layer_ids=[0, 1, 2])
    assert found(run)["specforge-capture"] is Severity.ERROR


def test_ids_that_a_target_takes_as_they_are(run: Path) -> None:
    target = run.parent.parent / "kimi"
    target.mkdir()
    config = {"architectures": ["DeepseekV3ForCausalLM"], "num_hidden_layers": 61, "max_position_embeddings": 128}
    (target / "config.json").write_text(json.dumps(config))
    change(run, model__target_model_path=str(target))
    change(run.parent / "draft_config.json", eagle_config={"eagle_aux_hidden_state_layer_ids": [2, 30, 58]})
    (finding,) = [one for one in findings(read_run(run)) if one.rule == "specforge-capture"]
    assert "outputs of layers [1, 29, 57]" in finding.what


def test_a_refused_file_says_only_that(run: Path) -> None:
    change(run, training__batch_size=0)
    assert found(run) == {"specforge-schema": Severity.ERROR}


def test_the_command(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(run)]) == 0
    assert "a run of SpecForge, 0 errors, 0 warnings, 2 notes" in capsys.readouterr().out
    change(run.parent / "draft_config.json", norm_output=True)
    assert main(["check", str(run)]) == 1
    assert main(["check", str(run), "--set", "a=1"]) == 2
