from __future__ import annotations

import pytest
from model_folders import CONFIG, SHAPES, draft_tensors, ones

from workbench.preflight import Severity


def eagle(**changes: object) -> dict[str, object]:
    return {"eagle_config": {**CONFIG["eagle_config"], **changes}}  # type: ignore[dict-item]


@pytest.mark.parametrize("key", ["hidden_size", "intermediate_size", "vocab_size", "max_position_embeddings"])
def test_a_missing_number(bench, key):
    found = bench(drop=[key])["config-number"]
    assert found.severity is Severity.ERROR
    assert found.where.endswith(f"config.json: {key}")


@pytest.mark.parametrize("value", ["8", 8.0, True, 0, -8, [8], {}])
def test_a_number_that_is_none(bench, value):
    assert "hidden_size" in bench({"hidden_size": value})["config-number"].what


def test_optional_numbers_may_be_absent_or_null(bench):
    assert bench({"head_dim": None, "target_hidden_size": None}) == {}
    assert bench(drop=["head_dim"]) == {}


def test_draft_vocab_size_must_be_present(bench):
    found = bench(drop=["draft_vocab_size"])["draft-vocab-size"]
    assert found.severity is Severity.ERROR
    assert "AttributeError" in found.why


def test_null_draft_vocab_size_uses_the_targets_head(bench):
    tensors = draft_tensors(lm_head__weight=None, d2t=None, t2d=None)
    found = bench({"draft_vocab_size": None}, tensors)
    assert {rule: r.severity for rule, r in found.items()} == {"draft-vocab-size": Severity.NOTE}


def test_draft_vocab_size_above_the_vocabulary(bench):
    assert bench({"draft_vocab_size": 17})["draft-vocab-size"].severity is Severity.ERROR
    whole = draft_tensors(lm_head__weight=ones(16, 8), d2t=None, t2d=None)
    assert bench({"draft_vocab_size": 16}, whole) == {}


def test_tied_embeddings(bench):
    found = bench({"tie_word_embeddings": True}, draft_tensors(lm_head__weight=None))["tied-embeddings"]
    assert found.severity is Severity.ERROR
    assert "draft_vocab_size 6 below vocab_size 16" in found.what
    assert "rows are those of the whole vocabulary" in found.why
    whole = {"tie_word_embeddings": True, "draft_vocab_size": 16}
    tensors = draft_tensors(lm_head__weight=ones(16, 8), d2t=None, t2d=None)
    assert "a head of the draft's own" in bench(whole, tensors)["tied-embeddings"].what
    assert bench(whole, draft_tensors(lm_head__weight=None, d2t=None, t2d=None)) == {}


def two_layers() -> dict[str, object]:
    tensors = draft_tensors()
    for name, shape in SHAPES.items():
        if name.startswith("midlayer.") and "input_layernorm" not in name:
            # The second layer does not see the embedding: its q, k and v take H values, not 2 H.
            wide = name.split(".")[-2] in ("q_proj", "k_proj", "v_proj")
            tensors[name.replace("midlayer", "layers.1")] = ones(*(shape[0], 8) if wide else shape)
    return tensors


def test_more_than_one_layer_by_version(bench):
    two = {"num_hidden_layers": 2}
    assert bench(two, two_layers(), sglang_version="0.5.11")["layer-count"].severity is Severity.ERROR
    assert bench(two, two_layers())["layer-count"].severity is Severity.WARNING
    assert bench(two, two_layers(), sglang_version="0.5.12") == {}
    assert "tensor-missing" in bench(two, sglang_version="0.5.12")


@pytest.mark.parametrize("stated", [None, "ids", []])
def test_missing_eagle_config_falls_back_in_silence(bench, stated):
    found = bench({"eagle_config": stated})["eagle-config"]
    assert found.severity is Severity.WARNING
    assert "[2, n/2, n-3]" in found.why
    assert bench(drop=["eagle_config"])["eagle-config"].what == "no eagle_config"
    assert bench({"eagle_config": {}})["eagle-config"].what == "eagle_config names no layers to capture"


@pytest.mark.parametrize("ids", [[], [1, "3", 5], "1,3,5", [1.0, 3.0, 5.0], 3])
def test_ids_that_are_not_numbers(bench, ids):
    assert bench(eagle(eagle_aux_hidden_state_layer_ids=ids))["eagle-config"].severity is Severity.ERROR


def test_ids_at_the_top_level_are_ignored(bench):
    top = {"eagle_aux_hidden_state_layer_ids": [2, 3, 4]}
    assert "[1, 3, 5]" in bench(top)["ids-ignored"].why
    found = bench({**top, "eagle_config": {}})
    assert found["ids-ignored"].severity is Severity.ERROR
    assert "default" in found["ids-ignored"].why
    assert bench({"eagle_aux_hidden_state_layer_ids": [1, 3, 5]}) == {}


def test_aux_hidden_state_off(bench):
    assert set(bench(eagle(use_aux_hidden_state=False))) == {"aux-off"}


def test_a_stated_number_of_captured_layers_has_to_be_theirs(bench):
    tensors = draft_tensors(fc__weight=ones(8, 32))
    disagreeing = bench({"num_aux_hidden_states": 4}, tensors, sglang_version="0.5.12")
    assert "4 and 3 layers are captured" in disagreeing["aux-count"].what


def test_fc_is_skipped_where_widths_happen_to_agree(bench):
    # A draft of width 24 for a target of width 8: three states side by side are as wide as its embedding.
    assert "fc-skipped" in bench({"hidden_size": 24, "target_hidden_size": 8})
    assert "fc-skipped" not in bench()


@pytest.mark.parametrize(
    ("change", "first", "before"),
    [
        ({"fc_norm": True}, "0.5.12", "0.5.11"),
        ({"use_aux_norm": True}, "0.5.12", "0.5.11"),
        ({"norm_output": True}, "0.5.12", "0.5.11"),
        ({"num_aux_hidden_states": 4}, "0.5.12", "0.5.11"),
        ({"norm_before_fc": True}, "0.5.17", "0.5.16"),
        (eagle(norm_before_fc=True), "0.5.17", "0.5.16"),
    ],
)
def test_keys_that_older_versions_ignore(bench, change, first, before):
    assert bench(change, sglang_version=before)["key-ignored"].severity is Severity.ERROR
    assert bench(change)["key-ignored"].severity is Severity.WARNING
    assert "key-ignored" not in bench(change, sglang_version=first)
    off = {key: False for key in change if key != "eagle_config"}
    assert "key-ignored" not in bench(off, sglang_version=before)


def test_norms_before_fc_are_expected_as_tensors(bench):
    per_state = {f"fc_norm.{i}.weight": ones(8) for i in range(3)}
    assert bench({"fc_norm": True}, draft_tensors() | per_state, sglang_version="0.5.14") == {}
    legacy = {f"aux_norm_{name}.weight": ones(8) for name in ("low", "mid", "high")}
    assert bench({"use_aux_norm": True}, draft_tensors() | legacy, sglang_version="0.5.14") == {}
    assert "fc_norm.0.weight" in bench({"fc_norm": True}, sglang_version="0.5.14")["tensor-missing"].what
    whole = draft_tensors() | {"input_norm.weight": ones(24)}
    assert bench({"norm_before_fc": True}, whole, sglang_version="0.5.17") == {}


def test_norm_output_means_two_things(bench):
    assert bench({"norm_output": True}, sglang_version="0.5.14")["norm-output"].severity is Severity.WARNING
    assert bench({"norm_output": False}) == {}
