from __future__ import annotations

import os

import pytest
from model_folders import CONFIG, SHAPES, draft_tensors, ones, write_folder, zeros

from workbench.checkpoint import read_checkpoint
from workbench.preflight import Severity, check_draft


@pytest.mark.parametrize("name", SHAPES)
def test_each_tensor_missing_and_of_the_wrong_shape(bench, name):
    inner = name.replace("midlayer", "layers.0")
    tensors = draft_tensors()
    del tensors[name]
    found = bench(None, tensors)["tensor-missing"]
    assert found.severity is Severity.ERROR
    assert found.what == f"1 tensors are missing: {inner}"

    shape = list(SHAPES[name])
    shape[-1] += 1
    wrong = bench(None, draft_tensors() | {name: ones(*shape)})
    rule = "fc-width" if name == "fc.weight" else "tensor-shape"
    assert set(wrong) == {rule}
    assert wrong[rule].severity is Severity.ERROR
    assert str(shape) in wrong[rule].what
    assert wrong[rule].where.endswith(f"model.safetensors: {name}")


def test_a_tensor_with_a_dimension_too_many(bench):
    assert "tensor-shape" in bench(None, draft_tensors(norm__weight=ones(8, 1)))


def test_fc_width_is_layers_times_the_targets_width(bench):
    found = bench(None, draft_tensors(fc__weight=ones(8, 16)))["fc-width"]
    assert "[8, 16]" in found.what
    assert "3 captured states of width 8 make it [8, 24]" in found.what


def test_width_of_a_head(bench):
    # Not stated: hidden_size / heads = 4. Stated as 3: q has 2 x 3 rows, k and v 1 x 3, o takes 2 x 3 values.
    narrow = {
        f"midlayer.self_attn.{name}.weight": ones(*shape)
        for name, shape in {"q_proj": (6, 16), "k_proj": (3, 16), "v_proj": (3, 16), "o_proj": (8, 6)}.items()
    }
    assert bench({"head_dim": 3}, draft_tensors() | narrow) == {}
    unstated = check_draft(bench.draft(None, draft_tensors() | narrow, drop=["head_dim"]), None)
    assert [r.what.split(" has ")[1] for r in unstated] == [
        "shape [6, 16], not [8, 16]",
        "shape [3, 16], not [4, 16]",
        "shape [3, 16], not [4, 16]",
        "shape [8, 6], not [8, 8]",
    ]


def test_biases_are_expected_where_the_config_asks_for_them(bench):
    assert "layers.0.self_attn.o_proj.bias" in bench({"attention_bias": True})["tensor-missing"].what
    biased = draft_tensors() | {"midlayer.self_attn.o_proj.bias": ones(8), "fc.bias": ones(8)}
    assert bench({"bias": True}, biased) == {}


def test_unknown_names_are_dropped(bench):
    extra = {"midlayer.self_attn.q_proj.bias": ones(8), "layer.0.norm.weight": ones(8)}
    found = bench(None, draft_tensors() | extra)
    assert set(found) == {"tensor-unknown"}
    assert found["tensor-unknown"].severity is Severity.WARNING
    assert "2 tensors" in found["tensor-unknown"].what
    assert "layer.0.norm.weight" in found["tensor-unknown"].what


def test_many_unknown_names_are_counted_and_not_all_listed(bench):
    extra = {f"x{i:03}" + "y" * 500: ones(1) for i in range(100)}
    what = bench(None, draft_tensors() | extra)["tensor-unknown"].what
    assert what.startswith("100 tensors")
    assert what.endswith("and 94 more")
    assert len(what) < 700


def test_recomputed_buffers_are_no_unknown_names(bench):
    assert bench(None, draft_tensors() | {"midlayer.self_attn.rotary_emb.inv_freq": ones(2)}) == {}


def test_a_prefix_of_the_exporter_leaves_everything_uninitialised(bench):
    found = bench(None, {f"draft_model.{name}": tensor for name, tensor in draft_tensors().items()})
    assert found["tensor-missing"].what.startswith("13 tensors are missing")
    # d2t and t2d are found by any name that holds theirs.
    assert found["tensor-unknown"].what.startswith("13 tensors")


def test_the_prefix_model_is_understood(bench):
    assert bench(None, {f"model.{name}": tensor for name, tensor in draft_tensors().items()}) == {}


def test_layers_0_by_version(bench):
    renamed = {name.replace("midlayer", "layers.0"): tensor for name, tensor in draft_tensors().items()}
    assert bench(None, renamed, sglang_version="0.5.11")["layer-name"].severity is Severity.ERROR
    assert bench(None, renamed)["layer-name"].severity is Severity.WARNING
    assert bench(None, renamed, sglang_version="0.5.12") == {}


def test_one_tensor_under_two_names(bench):
    found = bench(None, draft_tensors() | {"model.norm.weight": ones(8)})
    assert set(found) == {"tensor-twice"}
    assert "model.norm.weight, norm.weight" in found["tensor-twice"].what


def test_own_embedding_is_replaced(bench):
    found = bench(None, draft_tensors(embed_tokens__weight=ones(16, 8)))
    assert {rule: r.severity for rule, r in found.items()} == {"embedding-replaced": Severity.NOTE}


def test_own_embedding_is_needed_where_the_widths_differ(bench):
    config = {"target_hidden_size": 10}
    tensors = draft_tensors(fc__weight=ones(8, 30))
    target = {"hidden_size": 10}
    assert "embed_tokens.weight" in bench(config, tensors, target=target)["tensor-missing"].what
    assert bench(config, tensors | {"embed_tokens.weight": ones(16, 8)}, target=target) == {}
    wrong = bench(config, tensors | {"embed_tokens.weight": ones(16, 10)}, target=target)
    assert set(wrong) == {"tensor-shape"}


@pytest.mark.parametrize(
    ("name", "severity"),
    [
        ("fc.weight", Severity.ERROR),
        ("lm_head.weight", Severity.ERROR),
        ("norm.weight", Severity.ERROR),
        ("midlayer.mlp.down_proj.weight", Severity.WARNING),
    ],
)
def test_all_zero_tensors(bench, name, severity):
    found = bench(None, draft_tensors() | {name: zeros(*SHAPES[name])})
    assert {rule: r.severity for rule, r in found.items()} == {"tensor-zero": severity}


def test_a_quantised_draft_is_not_held_to_plain_shapes(bench):
    tensors = {name: t for name, t in draft_tensors().items() if "_proj" not in name}
    tensors["midlayer.mlp.up_proj.weight_packed"] = ones(3, 8)
    found = bench({"quantization_config": {"quant_method": "fp8"}}, tensors)
    assert {rule: r.severity for rule, r in found.items()} == {"draft-quantized": Severity.NOTE}


def test_pickled_weights_are_not_opened(bench, tmp_path):
    folder = write_folder(tmp_path / "pickled", CONFIG)
    os.mkfifo(folder / "pytorch_model.bin")
    results = check_draft(read_checkpoint(folder), None)
    assert [(r.rule, r.severity) for r in results] == [("pickle", Severity.WARNING)]
    assert "pytorch_model.bin" in results[0].what
    assert "safetensors" in results[0].next_step


def test_no_weights_at_all(tmp_path):
    results = check_draft(read_checkpoint(write_folder(tmp_path, CONFIG)), None)
    assert [(r.rule, r.severity) for r in results] == [("no-weights", Severity.ERROR)]
