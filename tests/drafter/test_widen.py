from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the draft module needs torch (extra: reference)")

import torch
from safetensors.torch import load_file
from tiny_models import INNER, TOKENS, WIDTH, draft_config, draft_tensors, target_config, target_tensors, write_model

from workbench.checkpoint import read_checkpoint
from workbench.drafter.checkpoint import load_draft
from workbench.reference.target import Target, load_target

sys.path.append(str(Path(__file__).parents[2] / "tools"))
import widen_mlp
from widen_mlp import widen

BIAS = "model.layers.0.mlp.gate_proj.bias"

CPU = torch.device("cpu")


def logits(folder: Path) -> torch.Tensor:
    target: Target = load_target(folder, dtype=torch.float32, device=CPU)
    ids = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6])
    normed, _ = target.forward(ids, target.new_cache(8), 0, rope=target.rope(8).at(slice(0, 8)), mask=None)
    return target.logits(normed)


def test_a_widened_target_says_the_same(tmp_path: Path) -> None:
    config = target_config()
    model = write_model(tmp_path / "m", config, target_tensors(config))
    widen(model, tmp_path / "w", 5 * INNER + 7)
    checkpoint = read_checkpoint(tmp_path / "w")
    assert checkpoint.config == {**read_checkpoint(model).config, "intermediate_size": 5 * INNER + 7}
    assert checkpoint.tensors["model.layers.4.mlp.gate_proj.weight"].shape == (5 * INNER + 7, WIDTH)
    assert checkpoint.tensors["model.layers.4.mlp.down_proj.weight"].shape == (WIDTH, 5 * INNER + 7)
    torch.testing.assert_close(logits(tmp_path / "w"), logits(model), rtol=1e-5, atol=1e-6)


def test_a_widened_draft_keeps_its_weights_and_its_vocabulary(tmp_path: Path) -> None:
    config = draft_config()
    model = write_model(tmp_path / "d", config, draft_tensors(config))
    widen(model, tmp_path / "w", 2 * INNER)
    ids = [
        load_draft(folder, dtype=torch.float32, device=CPU).target_ids.tolist() for folder in (model, tmp_path / "w")
    ]
    assert ids[0] == ids[1]
    old, new = load_file(model / "model.safetensors"), load_file(tmp_path / "w" / "model.safetensors")
    assert old.keys() == new.keys()
    for name, values in old.items():
        wider = new[name]
        kept = wider[tuple(slice(n) for n in values.shape)]
        assert torch.equal(kept, values), name
        assert wider.count_nonzero() == kept.count_nonzero(), name


def test_zeros_take_no_room_on_disk(tmp_path: Path) -> None:
    config = target_config(vocab=TOKENS)
    model = write_model(tmp_path / "m", config, target_tensors(config))
    widen(model, tmp_path / "w", 4_000_000)
    file = tmp_path / "w" / "model.safetensors"
    assert file.stat().st_size > 5 * 3 * 4 * 4_000_000 * WIDTH
    assert 512 * file.stat().st_blocks < 2_000_000


def test_what_cannot_be_widened_is_named(tmp_path: Path) -> None:
    config = target_config()
    model = write_model(tmp_path / "m", config, target_tensors(config))
    with pytest.raises(SystemExit, match=f"has intermediate_size {INNER}, and more are wanted"):
        widen(model, tmp_path / "w", INNER)
    biased = write_model(tmp_path / "b", config, {**target_tensors(config), BIAS: torch.zeros(INNER)})
    with pytest.raises(SystemExit, match=f"{BIAS} cannot be widened"):
        widen(biased, tmp_path / "w", 2 * INNER)
    (model / "config.json").write_text(json.dumps({**config, "intermediate_size": INNER - 1}))
    with pytest.raises(SystemExit, match=f"no mlp.gate_proj, up_proj and down_proj with {INNER - 1} units"):
        widen(model, tmp_path / "w", 2 * INNER)
    assert not (tmp_path / "w").exists()


def test_a_write_that_breaks_off_leaves_nothing_and_a_folder_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = target_config()
    model = write_model(tmp_path / "m", config, target_tensors(config))
    (model / "chat_template.jinja").write_text("{{ messages }}")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(widen_mlp, "_put", full)
        with pytest.raises(OSError, match="No space"):
            widen(model, tmp_path / "w", 2 * INNER)
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
    widen(model, tmp_path / "w", 2 * INNER)
    assert (tmp_path / "w" / "chat_template.jinja").read_text() == "{{ messages }}"
    with pytest.raises(SystemExit, match="is there already"):
        widen(model, tmp_path / "w", 2 * INNER)
