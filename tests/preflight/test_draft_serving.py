from __future__ import annotations

import pytest
from model_folders import draft_tensors, ones

from workbench.preflight import Severity, check_draft

MANY_HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 2}


@pytest.mark.parametrize(
    ("config", "tp_size", "key"),
    [
        ({}, 4, "num_attention_heads"),
        (MANY_HEADS | {"num_key_value_heads": 3}, 2, "num_key_value_heads"),
        (MANY_HEADS | {"num_key_value_heads": 3}, 4, "num_key_value_heads"),
        (MANY_HEADS | {"intermediate_size": 13}, 2, "intermediate_size"),
    ],
)
def test_what_does_not_divide_over_the_gpus(bench, config, tp_size, key):
    results = check_draft(bench.draft(config), None, tp_size=tp_size)
    found = [r for r in results if r.rule == "tensor-parallel"]
    assert [r.where.split(": ")[-1] for r in found] == [key]
    assert found[0].severity is Severity.ERROR


def test_key_value_heads_may_be_fewer_than_gpus(bench):
    # 1 kv head on 2 GPUs is copied; 4 heads, 2 kv heads and 12 inner units divide by 4, 2 and 2.
    assert bench(tp_size=2) == {}
    assert bench(tp_size=1) == {}
    tensors = draft_tensors()
    assert "tensor-parallel" not in bench(MANY_HEADS, tensors, tp_size=4)


def test_quantised_target_with_a_plain_draft(bench):
    found = bench(target={"quantization_config": {"quant_method": "awq"}}, sglang_version="0.5.14")
    assert set(found) == {"quantization"}
    assert "--speculative-draft-model-quantization unquant" in found["quantization"].next_step
    assert "awq" in found["quantization"].what


def test_quantisation_of_a_multimodal_target_may_be_nested(bench):
    nested = {
        "text_config": {
            "quantization_config": {"quant_method": "compressed-tensors"},
            "hidden_size": 8,
            "vocab_size": 16,
            "dtype": "bfloat16",
        }
    }
    assert "compressed-tensors" in bench(target=nested)["quantization"].what


def test_quantised_draft_is_noted(bench):
    both = {"quantization_config": {"quant_method": "fp8"}}
    assert set(bench(both, target=both)) == {"draft-quantized"}


def test_modelopt_keeps_its_quantisation_in_a_file(bench, tmp_path):
    draft, target = bench.draft(), bench.target()
    assert "quantization" not in {r.rule for r in check_draft(draft, target)}
    (target.path / "hf_quant_config.json").write_text("{}")
    assert "quantization" in {r.rule for r in check_draft(draft, target)}


@pytest.mark.parametrize(
    ("config", "drop", "ours"),
    [
        ({"dtype": "float16"}, [], "float16"),
        ({"dtype": "float32"}, [], "float16"),
        ({}, ["dtype"], "float16"),
        ({"torch_dtype": "float32"}, ["dtype"], "float16"),
    ],
)
def test_draft_in_another_dtype_than_its_target(bench, config, drop, ours):
    found = bench(config, drop=drop)
    assert {rule: r.severity for rule, r in found.items()} == {"dtype": Severity.WARNING}
    assert f"would run in {ours}" in found["dtype"].what
    assert "the target in bfloat16" in found["dtype"].what


@pytest.mark.parametrize("ours", ["float16", "bfloat16"])
def test_a_target_that_states_no_dtype_is_a_note(bench, ours):
    results = check_draft(bench.draft({"dtype": ours}), bench.target(drop=["dtype", "torch_dtype"]))
    (found,) = [result for result in results if result.rule == "dtype"]
    assert found.severity is Severity.NOTE
    assert found.what == "the target's config does not state dtype; SGLang would use float16"
    assert "leave the draft as it is" in found.next_step


def test_what_a_server_loaded_counts_more_than_the_configs(bench):
    stripped = bench.target(drop=["dtype", "torch_dtype"])
    half = bench.draft({"dtype": "float16"})
    rules = {r.rule: r for r in check_draft(half, stripped, target_dtype="bfloat16", draft_dtype="bfloat16")}
    assert "dtype" not in rules
    rules = {r.rule: r for r in check_draft(half, stripped, target_dtype="bfloat16")}
    assert rules["dtype"].severity is Severity.WARNING
    assert "the target in bfloat16" in rules["dtype"].what


def test_dtype_under_its_older_name(bench):
    assert bench({"torch_dtype": "torch.bfloat16"}, drop=["dtype"]) == {}


def test_serving_checks_hold_for_a_draft_of_another_width(bench):
    config = {"target_hidden_size": 10}
    tensors = draft_tensors(fc__weight=ones(8, 30), embed_tokens__weight=ones(16, 8))
    assert bench(config, tensors, target={"hidden_size": 10}, tp_size=2) == {}
