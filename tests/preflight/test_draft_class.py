from __future__ import annotations

import pytest
from model_folders import TARGET_IDS, draft_tensors, offsets, ones

from workbench.preflight import Severity

EAGLE1 = {"architectures": ["LlamaForCausalLMEagle"]}
MLA = {"architectures": ["Eagle3DeepseekV2ForCausalLM"], "model_type": "kimi_k2"}


@pytest.mark.parametrize("flag", ["EAGLE", "NEXTN"])
def test_eagle_flag_with_an_eagle3_class_is_refused_with_the_flag_to_use(bench, flag):
    found = bench(speculative_algorithm=flag)["algorithm"]
    assert found.severity is Severity.ERROR
    assert found.next_step == "use --speculative-algorithm EAGLE3"
    assert "LlamaForCausalLMEagle3" in found.what
    assert "accept length 1.00" in found.why


def test_eagle3_flag_with_an_eagle1_class(bench):
    found = bench(EAGLE1, speculative_algorithm="EAGLE3")
    assert found["algorithm"].severity is Severity.ERROR
    assert "--speculative-algorithm EAGLE " in found["algorithm"].next_step
    assert found["not-eagle3"].severity is Severity.NOTE


def test_another_algorithm_with_an_eagle3_class(bench):
    assert "does not use an EAGLE-3 draft" in bench(speculative_algorithm="STANDALONE")["algorithm"].why


def test_right_flags_are_silent(bench):
    assert bench(speculative_algorithm="EAGLE3") == {}
    assert set(bench(EAGLE1, speculative_algorithm="EAGLE")) == {"not-eagle3"}


def test_an_eagle1_draft_gets_no_eagle3_checks(bench):
    assert set(bench(EAGLE1, {}, drop=["draft_vocab_size", "eagle_config"])) == {"not-eagle3"}


def test_lower_case_flag(bench):
    found = bench(speculative_algorithm="eagle3")
    assert set(found) == {"algorithm-case"}
    assert found["algorithm-case"].severity is Severity.WARNING


def test_a_version_without_the_algorithm(bench):
    assert bench(speculative_algorithm="EAGLE3", sglang_version="0.4.4")["algorithm-version"].severity is Severity.ERROR
    assert "algorithm-version" not in bench(speculative_algorithm="EAGLE3", sglang_version="0.4.4.post4")


@pytest.mark.parametrize("architectures", [None, [], "LlamaForCausalLMEagle3", [3]])
def test_no_architecture(bench, architectures):
    found = bench({"architectures": architectures})
    assert found["architecture"].severity is Severity.ERROR
    assert set(found) == {"architecture"}


def test_a_class_name_of_another_project_is_still_checked_as_eagle3(bench):
    found = bench(
        {"architectures": ["LlamaEagle3DraftModel"]}, speculative_algorithm="EAGLE", drop=["draft_vocab_size"]
    )
    assert "LlamaForCausalLMEagle3" in found["architecture"].next_step
    assert {"architecture", "algorithm", "draft-vocab-size"} <= set(found)


def test_speculators_format(bench):
    found = bench({"speculators_model_type": "eagle3", "norm_before_residual": True})
    assert found["foreign-format"].severity is Severity.ERROR
    assert found["norm-before-residual"].severity is Severity.ERROR
    assert "norm-before-residual" not in bench({"norm_before_residual": False})


def test_no_model_type(bench):
    assert bench(drop=["model_type"])["model-type"].severity is Severity.ERROR


def test_a_text_that_is_no_version_counts_as_unknown(bench):
    found = bench({"num_hidden_layers": 2}, sglang_version="latest")
    assert found["version"].severity is Severity.WARNING
    assert found["layer-count"].severity is Severity.WARNING


def test_latent_attention_draft_is_marked_as_partly_checked(bench):
    found = bench(MLA, sglang_version="0.5.12")
    assert found["mla-partly-checked"].severity is Severity.NOTE
    assert "mla-class" not in found
    assert "tensor-missing" not in found
    assert bench(MLA, sglang_version="0.5.11")["mla-class"].severity is Severity.ERROR
    assert "mla-partly-checked" not in bench()


def test_latent_attention_draft_gets_vocabulary_and_fc_checks(bench):
    found = bench({**MLA, "hidden_size": 9, "vocab_size": 15, "num_hidden_layers": 2}, sglang_version="0.5.14")
    assert {"fc-width", "vocab-size", "layer-count", "d2t-range", "t2d-shape"} <= set(found)


def test_latent_attention_draft_takes_its_width_from_ids_at_the_top_level_too(bench):
    # Ignored for capturing, and yet counted when its fc is built: two states of 8.
    config = {**MLA, "eagle_config": {}, "eagle_aux_hidden_state_layer_ids": [1, 3]}
    found = bench(config, draft_tensors(fc__weight=ones(8, 16)), sglang_version="0.5.14")
    assert "fc-width" not in found
    assert "ids-ignored" in found
    assert "fc-width" in bench(config, sglang_version="0.5.14")
    nested = {**config, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 5]}}
    assert "fc-width" not in bench(nested, sglang_version="0.5.14")
    plain = {"eagle_config": {}, "eagle_aux_hidden_state_layer_ids": [1, 3]}
    assert "fc-width" not in bench(plain, sglang_version="0.5.14")


def test_names_of_the_vocabulary_map(bench):
    # The plain class takes any name that holds "d2t", the latent one only the name itself, with or without a prefix.
    for config, name, is_found in [
        ({}, "draft.d2t_map", True),
        (MLA, "draft.d2t_map", False),
        (MLA, "draft.d2t", True),
    ]:
        tensors = draft_tensors(d2t=None) | {name: offsets(TARGET_IDS)}
        assert ("d2t-missing" not in bench(config, tensors)) is is_found


def test_latent_attention_draft_has_exactly_one_layer(bench):
    found = bench({**MLA, "num_hidden_layers": 2}, sglang_version="0.5.14")["layer-count"]
    assert found.severity is Severity.ERROR
    assert found.next_step == "use a draft of one layer"
