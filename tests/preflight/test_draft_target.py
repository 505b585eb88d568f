from __future__ import annotations

import pytest
from model_folders import draft_tensors, ones

from workbench.preflight import Severity, check_draft

KIMI = {"architectures": ["KimiK25ForConditionalGeneration"], "num_hidden_layers": 61}


def ids(*values: int) -> dict[str, object]:
    return {"eagle_config": {"eagle_aux_hidden_state_layer_ids": list(values)}}


def mapping(bench, config=None, *, target=None, version=None):
    results = check_draft(bench.draft(config), bench.target(target), sglang_version=version)
    return {r.rule: r for r in results}


def test_vocabularies_must_be_equal(bench):
    found = bench(target={"vocab_size": 17})
    assert set(found) == {"vocab-size"}
    assert found["vocab-size"].severity is Severity.ERROR
    assert "16 and the target's is 17" in found["vocab-size"].what


def test_width_of_another_target(bench):
    found = bench(target={"hidden_size": 10})
    assert set(found) == {"target-hidden-size"}
    assert '"target_hidden_size": 10' in found["target-hidden-size"].next_step
    assert "3 x 10 values arrive and fc takes 3 x 8" in found["target-hidden-size"].why
    stated = draft_tensors(fc__weight=ones(8, 36), embed_tokens__weight=ones(16, 8))
    found = bench({"target_hidden_size": 12}, stated, target={"hidden_size": 10})
    assert found["target-hidden-size"].where.endswith("target_hidden_size")


def test_sizes_of_a_multimodal_target_are_those_of_its_language_part(bench):
    text = {"hidden_size": 8, "vocab_size": 17, "num_hidden_layers": 9, "rope_theta": 10000.0}
    found = bench(target={"text_config": text, "vocab_size": 16})
    assert set(found) == {"vocab-size"}


# fc takes 2 x 8 and 4 x 8 values.
TWO = (ids(1, 3), draft_tensors(fc__weight=ones(8, 16)))
FOUR = (ids(1, 2, 3, 5), draft_tensors(fc__weight=ones(8, 32)))


@pytest.mark.parametrize("version", ["0.5.12", "0.5.13", "0.5.14"])
def test_before_0_5_15_the_target_says_how_many_states_arrive(bench, version):
    """Seen with 0.5.14: 'mat1 and mat2 shapes cannot be multiplied (64x21504 and 14336x7168)', 3 and 2 times 7168."""
    found = bench(*TWO, sglang_version=version)
    assert set(found) == {"aux-count"}
    said = found["aux-count"]
    assert said.severity is Severity.ERROR
    assert said.what == f"2 layers are captured, and SGLang {version} prepares for 3"
    assert said.where.endswith("target/config.json: num_aux_hidden_states")
    assert '"num_aux_hidden_states": 2 into the target' in said.next_step and "a draft of 3 layers" in said.next_step
    assert said.why.endswith("24 values arrive and fc takes 16")
    assert bench(*FOUR, sglang_version=version)["aux-count"].why.endswith("24 values arrive and fc takes 32")


def test_the_shape_of_kimi_k25_with_the_numbers_of_its_log(bench):
    wide = {"hidden_size": 7168}
    results = check_draft(bench.draft({**ids(2, 3), **wide}), bench.target(wide), sglang_version="0.5.14")
    (said,) = [result for result in results if result.rule == "aux-count"]
    assert said.why.endswith("21504 values arrive and fc takes 14336")


@pytest.mark.parametrize(
    "stated", [{"num_aux_hidden_states": 2}, {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [7, 8]}}]
)
def test_a_target_that_states_the_number(bench, stated):
    assert bench(*TWO, target=stated, sglang_version="0.5.14") == {}
    # Then a draft of three layers is the one that fails.
    three = bench(target=stated, sglang_version="0.5.14")["aux-count"]
    assert three.what == "3 layers are captured, and SGLang 0.5.14 prepares for 2"
    assert three.why.endswith("16 values arrive and fc takes 24")


def test_the_number_of_captured_layers_by_version(bench):
    assert bench(*FOUR, sglang_version="0.5.11")["aux-count"].why == "before 0.5.12 fc is built for exactly 3"
    assert bench(*FOUR, sglang_version="0.5.11")["aux-count"].severity is Severity.ERROR
    assert bench(*FOUR)["aux-count"].severity is Severity.WARNING
    assert "the version is not known here" in bench(*FOUR)["aux-count"].why
    # From 0.5.15 on the draft's own config is asked.
    for version in ("0.5.15", "0.5.23", "0.6.0"):
        assert bench(*FOUR, sglang_version=version) == {}, version


def test_without_the_target_the_number_is_only_likely_to_be_three(bench):
    found = {r.rule: r for r in check_draft(bench.draft(*FOUR), None, sglang_version="0.5.14")}["aux-count"]
    assert found.severity is Severity.WARNING
    assert found.where.endswith("eagle_config.eagle_aux_hidden_state_layer_ids")


def test_a_draft_of_the_last_state_alone_needs_no_number(bench):
    alone = {"eagle_config": {**TWO[0]["eagle_config"], "use_aux_hidden_state": False}}  # type: ignore[dict-item]
    assert set(bench(alone, TWO[1], sglang_version="0.5.14")) == {"aux-off"}


def test_captured_layers_are_shown(bench):
    shown = mapping(bench)["capture-layers"]
    assert shown.severity is Severity.NOTE
    assert shown.what == "captures layers 1, 3, 5 of 9"
    assert shown.why == "ids [1, 3, 5]; their outputs, counted from 0"
    # No ids: inputs of layers 2, 9 // 2, 9 - 3, which are the outputs of 1, 3 and 5.
    default = mapping(bench, {"eagle_config": None})["capture-layers"]
    assert default.what == "captures layers 1, 3, 5 of 9"
    assert default.why.startswith("by default")


def test_what_the_targets_config_does_not_state_is_named(bench):
    results = check_draft(bench.draft(), bench.target(drop=["vocab_size", "hidden_size"]))
    (note,) = [result for result in results if result.rule == "target-config"]
    assert note.severity is Severity.NOTE
    assert "does not state hidden_size, vocab_size" in note.what


@pytest.mark.parametrize("wrong", [(1, 3, 8), (1, 3, 20), (-2, 3, 5)])
def test_layers_that_the_target_does_not_have(bench, wrong):
    found = bench(ids(*wrong))["capture-range"]
    assert found.severity is Severity.ERROR
    assert "1 of the layers" in found.what


def test_the_last_captured_layer_that_is_possible(bench):
    assert bench(ids(1, 3, 7)) == {}


def test_final_state_only_for_gpt_oss_since_0_5_17(bench):
    gpt_oss = {"architectures": ["GptOssForCausalLM"], "num_hidden_layers": 36}
    final = ids(24, 30, 36)
    assert bench(final, target=gpt_oss, sglang_version="0.5.17") == {}
    assert "capture-range" in bench(final, target=gpt_oss, sglang_version="0.5.16")
    assert "capture-range" in bench(final, target={"num_hidden_layers": 36}, sglang_version="0.5.17")


def test_kimi_reads_ids_differently_from_0_5_13_on(bench):
    # [2, 30, 58]: up to 0.5.12 the inputs of 3, 31, 59; from 0.5.13 those of 2, 30, 58, outputs of 1, 29, 57.
    for version, outputs in (("0.5.12", "2, 30, 58"), ("0.5.13", "1, 29, 57")):
        found = mapping(bench, ids(2, 30, 58), target=KIMI, version=version)
        assert f"captures layers {outputs} of 61" == found["capture-layers"].what
        by_version = found["capture-by-version"]
        assert by_version.severity is Severity.WARNING
        assert "[3, 31, 59] up to SGLang 0.5.12 and of [2, 30, 58] from 0.5.13 on" in by_version.what
        assert version in by_version.why
    assert "not known here" in mapping(bench, ids(2, 30, 58), target=KIMI)["capture-by-version"].why


def test_kimi_ids_that_start_with_1_mean_the_same_in_every_version(bench):
    found = mapping(bench, ids(1, 29, 57), target=KIMI, version="0.5.14")
    assert "capture-by-version" not in found
    assert found["capture-layers"].what == "captures layers 1, 29, 57 of 61"


def test_ids_that_count_inputs(bench):
    found = bench(ids(2, 4, 6))
    assert set(found) == {"capture-convention"}
    assert "write [1, 3, 5]" in found["capture-convention"].next_step
    assert bench(ids(1, 3, 5)) == {}


def test_order_of_the_captured_layers(bench):
    assert bench(ids(5, 3, 1))["capture-order"].severity is Severity.WARNING
    assert bench(ids(1, 3, 3))["capture-order"].severity is Severity.ERROR


def test_targets_that_cannot_hand_out_states(bench):
    assert bench(target={"architectures": ["NoSuchForCausalLM"]})["target-support"].severity is Severity.WARNING
    old = bench(ids(1, 29, 57), target=KIMI, sglang_version="0.5.9")["target-support"]
    assert old.severity is Severity.ERROR
    assert "0.5.10" in old.next_step
    assert "target-support" not in bench(ids(1, 29, 57), target=KIMI, sglang_version="0.5.10")
