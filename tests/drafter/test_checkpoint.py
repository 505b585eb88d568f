from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the draft module needs torch (extra: reference)")

import torch
from safetensors.torch import load_file
from tiny_models import draft_config, draft_tensors, write_model

from workbench.checkpoint import read_checkpoint
from workbench.drafter.checkpoint import load_draft, read_draft_config, save_draft
from workbench.errors import CheckpointError

FLOAT = {"dtype": torch.float32, "device": torch.device("cpu")}


def test_what_is_saved_is_what_was_loaded(tmp_path: Path) -> None:
    config = draft_config()
    tensors = draft_tensors(config)
    draft = load_draft(write_model(tmp_path / "one", config, tensors), **FLOAT)
    save_draft(draft, tmp_path / "two", dtype=torch.float32)
    written = load_file(str(tmp_path / "two" / "model.safetensors"))
    assert written.keys() == tensors.keys()
    assert all(torch.equal(written[name], tensor) for name, tensor in tensors.items())
    again = read_draft_config(read_checkpoint(tmp_path / "two"))
    assert again == draft.config


def test_the_written_config_is_what_sglang_needs(tmp_path: Path) -> None:
    config = draft_config()
    save_draft(load_draft(write_model(tmp_path / "one", config, draft_tensors(config)), **FLOAT), tmp_path / "two")
    written = json.loads((tmp_path / "two" / "config.json").read_text())
    assert written["architectures"] == ["LlamaForCausalLMEagle3"]
    assert written["tie_word_embeddings"] is False
    assert written["draft_vocab_size"] == 9
    assert written["dtype"] == "bfloat16"
    assert written["rope_theta"] == written["rope_parameters"]["rope_theta"] == 10000.0
    assert written["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [0, 1, 3]
    assert not {"norm_output", "fc_norm", "norm_before_fc"} & written.keys()
    assert load_file(str(tmp_path / "two" / "model.safetensors"))["fc.weight"].dtype is torch.bfloat16


def test_the_other_spelling_of_names_is_read_too(tmp_path: Path) -> None:
    config = draft_config()
    tensors = draft_tensors(config)
    renamed = {f"model.{name}".replace("midlayer.", "layers.0."): tensor for name, tensor in tensors.items()}
    one = load_draft(write_model(tmp_path / "one", config, tensors), **FLOAT)
    two = load_draft(write_model(tmp_path / "two", config, renamed), **FLOAT)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert torch.equal(one.target_ids, two.target_ids)


def test_target_ids_are_draft_ids_plus_offsets(tmp_path: Path) -> None:
    config = draft_config(draft_vocab=3)
    tensors = {**draft_tensors(config), "d2t": torch.tensor([1, 3, 8])}
    draft = load_draft(write_model(tmp_path / "d", config, tensors), **FLOAT)
    assert draft.target_ids.tolist() == [1, 4, 10]


@pytest.mark.parametrize(
    ("tensors", "named"),
    [
        ({"norm.weight": None}, "missing tensors: norm.weight"),
        ({"midlayer.extra.weight": torch.ones(1)}, "unknown tensors: midlayer.extra.weight"),
        ({"fc.weight": torch.ones(16, 16)}, r"fc.weight has shape \[16, 16\]"),
        ({"d2t": None}, "without d2t"),
        ({"d2t": torch.full((9,), 5)}, "vocabulary"),
        ({"d2t": torch.zeros(4, dtype=torch.long)}, "vocabulary"),
    ],
)
def test_tensors_that_do_not_fit_are_named(tmp_path: Path, tensors: dict[str, object], named: str) -> None:
    config = draft_config()
    changed = {**draft_tensors(config), **tensors}
    kept = {name: tensor for name, tensor in changed.items() if isinstance(tensor, torch.Tensor)}
    with pytest.raises(CheckpointError, match=named):
        load_draft(write_model(tmp_path / "d", config, kept), **FLOAT)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"architectures": ["LlamaForCausalLMEagle"]}, "LlamaForCausalLMEagle3"),
        ({"num_hidden_layers": 2}, "2 layers"),
        ({"fc_norm": True}, "fc_norm"),
        ({"norm_output": True}, "norm_output"),
        ({"tie_word_embeddings": True}, "tie_word_embeddings"),
        ({"target_hidden_size": 32}, "width"),
        ({"draft_vocab_size": 13}, "draft_vocab_size"),
    ],
)
def test_another_kind_of_draft_is_refused_by_name(tmp_path: Path, change: dict[str, object], named: str) -> None:
    config = draft_config()
    folder = write_model(tmp_path / "d", {**config, **change}, draft_tensors(config))
    with pytest.raises(CheckpointError, match=named):
        load_draft(folder, **FLOAT)
