from __future__ import annotations

import pytest

from workbench.preflight import Severity, check_draft
from workbench.preflight.draft_position import context_length

ENV = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"
SHORT = {"max_position_embeddings": 2048}


def test_context_longer_than_the_draft_is_refused(bench):
    found = bench(SHORT, context_len=8192)
    assert set(found) == {"context-length"}
    assert found["context-length"].severity is Severity.ERROR
    assert "2048 tokens and the context is 8192" in found["context-length"].what
    assert f"ValueError unless {ENV}=1" in found["context-length"].why


@pytest.mark.parametrize("value", ["1", "true", "YES"])
def test_context_with_the_override_is_a_warning_with_its_consequence(bench, value):
    found = bench(SHORT, context_len=8192, env={ENV: value})["context-length"]
    assert found.severity is Severity.WARNING
    assert "accept length falls" in found.why
    assert "ValueError" not in found.why


def test_an_override_that_is_off_is_none(bench):
    assert bench(SHORT, context_len=8192, env={ENV: "0"})["context-length"].severity is Severity.ERROR


def test_the_targets_context_counts_where_none_is_given(bench):
    assert "2048 tokens and the context is 4096" in bench(SHORT)["context-length"].what
    assert bench(SHORT, context_len=2048) == {}


def test_context_by_version(bench):
    # Up to 0.4.9 the override was on by default, and before 0.5.3 it did not lengthen the draft's rotary table.
    old = bench(SHORT, sglang_version="0.4.9.post6")["context-length"]
    assert old.severity is Severity.WARNING
    assert "rotary table stays that short" in old.why
    assert "rotary table stays that short" in bench(SHORT, sglang_version="0.5.2")["context-length"].why
    assert "positions it was not trained on" in bench(SHORT, sglang_version="0.5.3")["context-length"].why


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"max_position_embeddings": 2048}, 2048),
        ({"max_position_embeddings": 2048, "rope_scaling": {"type": "linear", "factor": 4.0}}, 8192),
        (
            {
                "max_position_embeddings": 2048,
                "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 64},
            },
            2048,
        ),
        ({"max_position_embeddings": 2048, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 2048),
        ({"max_position_embeddings": 2048, "rope_parameters": {"rope_type": "yarn", "factor": 2}}, 4096),
        ({"max_position_embeddings": 2048, "rope_scaling": {"factor": "2"}}, 2048),
        ({"max_position_embeddings": 2048, "model_max_length": 512}, 512),
        ({}, None),
    ],
)
def test_context_length_as_sglang_derives_it(config, expected):
    assert context_length(config) == expected


def test_theta_in_rope_parameters_only(bench):
    config = {"rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"}}
    target = {"rope_theta": 500000.0}
    for version, severity in (("0.5.9", Severity.ERROR), (None, Severity.WARNING)):
        found = bench(config, drop=["rope_theta"], target=target, sglang_version=version)
        assert {rule: r.severity for rule, r in found.items()} == {"rope-theta": severity}
    assert bench(config, drop=["rope_theta"], target=target, sglang_version="0.5.10") == {}
    base = {"rope_parameters": {"rope_theta": 10000.0}}
    assert bench(base, drop=["rope_theta"], sglang_version="0.5.9") == {}


def test_two_thetas_that_disagree(bench):
    found = bench({"rope_parameters": {"rope_theta": 500000.0}}, target={"rope_theta": 500000.0})
    assert found["rope-theta"].severity is Severity.ERROR
    assert "10000.0 and rope_parameters says 500000.0" in found["rope-theta"].what


def test_no_theta(bench):
    assert set(bench(drop=["rope_theta"])) == {"rope-theta"}


def test_theta_of_the_target(bench):
    found = bench(target={"rope_theta": 500000.0})
    assert {rule: r.severity for rule, r in found.items()} == {"rope-target": Severity.WARNING}
    assert "10000 and the target's 500000" in found["rope-target"].what


@pytest.mark.parametrize("config", [{}, {"rope_theta": 500000.0}])
def test_a_target_that_states_no_theta_is_a_note_and_no_advice_to_change_the_draft(bench, config):
    target = bench.target(drop=["rope_theta", "rope_scaling"])
    found = {result.rule: result for result in check_draft(bench.draft(config), target)}["rope-target"]
    assert found.severity is Severity.NOTE
    assert found.what.startswith("the target's config does not state rope_theta; SGLang would use 10000")
    assert found.where == f"{target.path / 'config.json'}: rope_theta"
    assert "leave the draft as it is" in found.next_step


def test_a_target_that_says_nothing_of_rotation_is_not_taken_for_one_without_scaling(bench):
    yarn = {"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}
    results = check_draft(bench.draft(yarn), bench.target(drop=["rope_theta", "rope_scaling"]))
    assert [r.severity for r in results if r.rule == "rope-target"] == [Severity.NOTE]


def test_a_plain_draft_differs_from_a_latent_target_by_design(bench):
    target = {"rope_theta": 50000.0, "kv_lora_rank": 512}
    assert bench(target=target)["rope-target"].severity is Severity.NOTE


def test_yarn_that_modelopt_adds(bench):
    yarn = {"rope_scaling": {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 2048}}
    found = bench(yarn)["rope-target"]
    assert found.severity is Severity.WARNING
    assert "modelopt" in found.next_step
    assert bench(yarn, target=yarn) == {}


def test_two_spellings_of_one_scaling_are_the_same(bench):
    older = {"rope_scaling": {"type": "linear", "factor": 2.0}}
    newer = {"rope_parameters": {"rope_theta": 10000.0, "rope_type": "linear", "factor": 2}}
    assert bench(older, target=newer) == {}
    assert bench({"rope_scaling": None}, target={"rope_parameters": {"rope_type": "default"}}) == {}


def test_sections_of_a_multimodal_target(bench):
    mrope = {"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}}
    assert "mrope_section" in bench(target=mrope)["rope-target"].what
    assert bench(mrope, target=mrope) == {}
