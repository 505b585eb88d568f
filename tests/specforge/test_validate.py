from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch", reason="the embedded engine needs torch (extra: reference)")

from specforge_files import FIXTURES, GOLDEN

from workbench.errors import UsageError
from workbench.specforge.schema import BY_VERSION
from workbench.specforge.validate import faults, is_run, keys_of, value

V = "0.2.0"
REQUIRED, FACTORY = "<required>", "<factory>"
OFFLINE = {"model": {"target_model_path": "t"}, "data": {"hidden_states_path": "f"}}


def test_the_table_is_that_of_specforges_own_models() -> None:
    theirs = json.loads((FIXTURES / "schema_0.2.0.json").read_text())
    ours = BY_VERSION[V]
    assert ours.keys() == theirs.keys()
    for path, said in theirs.items():
        key, default = ours[path], said.get("default")
        if said["kind"] == "bool":
            default = bool(default)
        assert (key.kind, key.optional, list(key.choices)) == (
            said["kind"],
            said.get("optional", False),
            said.get("choices", []),
        ), path
        assert (key.low, key.above, key.high, key.filled) == (
            said.get("low"),
            said.get("above"),
            said.get("high"),
            bool(said.get("filled", False)),
        ), path
        assert key.required == (default == REQUIRED), path
        if default not in (REQUIRED, FACTORY):
            assert (key.default or False) == (default or False), path


@pytest.mark.parametrize("name", [*GOLDEN, "trained"])
def test_what_specforge_accepted_has_no_fault(name: str) -> None:
    content = yaml.safe_load((FIXTURES / f"{name}_run.yaml").read_text())
    assert is_run(content)
    assert faults(content, V) == []


def changed(base: dict[str, Any], path: str, new: object) -> dict[str, Any]:
    content = copy.deepcopy(base)
    *sections, last = path.split(".")
    node = content
    for section in sections:
        node = node.setdefault(section, {})
    node[last] = new
    return content


@pytest.mark.parametrize(
    ("path", "new", "said"),
    [
        ("training.learning_rte", 1e-4, "no key of SpecForge's schema; learning_rate is"),
        ("training.learning_rate", 0, "is 0, not above 0"),
        ("training.learning_rate", "fast", "is 'fast', not a number"),
        ("training.warmup_ratio", -0.1, "is -0.1, below 0"),
        ("training.warmup_ratio", 2, "is 2, above 1"),
        ("training.batch_size", 1.5, "is '1.5', not a whole number"),
        ("training.batch_size", True, "is 'True', not a whole number"),
        ("training.batch_size", None, "is empty"),
        ("training.fsdp_sharding", "NONE", "is 'NONE', not one of SHARD_GRAD_OP, FULL_SHARD, NO_SHARD"),
        ("training.compact_teacher", "yes", "is 'yes', not true or false"),
        ("training.attention_backend", "eager", "EAGLE-3 supports sdpa, flex_attention, fa, usp"),
        ("training.strategy", "dflash", "is 'dflash'; only eagle3 is served here"),
        ("training.eval_interval", 5, "goes together with data.eval_hidden_states_path"),
        ("training.tp_size", 2, "must be 1"),
        ("model.aux_hidden_state_layer_ids", [1, 1, 2], "are [1, 1, 2], not three different layers"),
        ("model.aux_hidden_state_layer_ids", ["1"], "is '1', not a whole number"),
        ("model.aux_hidden_state_layer_ids", 3, "is '3', not a list"),
        ("model.draft_num_hidden_layers", 2, "must be 1 for eagle3"),
        ("model", [], "is '[]', not a section"),
        ("data.prompts_path", "p", "names 2 sources, not exactly one of the three"),
        ("deployment.mode", "disaggregated", "goes together with deployment.mode: disaggregated"),
    ],
)
def test_faults_are_named(path: str, new: object, said: str) -> None:
    found = faults(changed(OFFLINE, path, new), V)
    assert said in [fault.what for fault in found]


def test_a_missing_required_key_is_named() -> None:
    assert [(f.where, f.what) for f in faults({"model": {}, "data": {"prompts_path": "p"}}, V)] == [
        ("model.target_model_path", "is missing")
    ]


@pytest.mark.parametrize(
    ("path", "new", "said"),
    [
        ("model.vocab_mapping_path", "", "is required with deployment.mode: disaggregated"),
        ("deployment.disaggregated.backend", "shared_dir", "must be mooncake for online training"),
        ("deployment.mode", "local_colocated", "must be disaggregated for online training"),
        ("deployment.trainer.nproc_per_node", 2, "names 1 GPUs for 2 processes"),
        (
            "deployment.disaggregated.managed_local.trainer_cuda_visible_devices",
            ["2"],
            "uses a GPU twice",
        ),
    ],
)
def test_faults_of_online_runs(path: str, new: object, said: str) -> None:
    online = yaml.safe_load((FIXTURES / "online_run.yaml").read_text())
    assert said in [fault.what for fault in faults(changed(online, path, new), V)]


def test_values_are_read_as_specforge_reads_them() -> None:
    # YAML takes 1e-4 for text, pydantic takes that for a number.
    content = yaml.safe_load("model: {target_model_path: t}\ntraining: {learning_rate: 1e-4, batch_size: '2'}")
    assert value(content, "training.learning_rate", V) == 1e-4
    assert value(content, "training.batch_size", V) == 2
    assert value(content, "training.ttt_length", V) == 7
    assert value(content, "deployment.trainer.nproc_per_node", V) == 1
    assert value(content, "data.hidden_states_path", V) == ""


def test_versions() -> None:
    assert keys_of(V) is BY_VERSION[V]
    with pytest.raises(UsageError, match="PR 563"):
        keys_of("0.1.0")
    with pytest.raises(UsageError, match="not known here"):
        keys_of("0.3.0")


def test_a_campaign_is_no_run() -> None:
    assert not is_run({"target": {"name": "m"}, "sweep": []})
    assert not is_run([])


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["mode", "trainer", "batch_size", "port", "x"]) | st.text(max_size=3), inner)
    ),
    max_leaves=8,
)


@given(st.sampled_from(sorted(BY_VERSION[V])), json_like)
def test_any_content_gets_an_answer(path: str, new: object) -> None:
    content = changed(yaml.safe_load((FIXTURES / "online_run.yaml").read_text()), "x", None)
    del content["x"]
    try:
        content = changed(content, path.replace("[]", ""), new)
    except (TypeError, AttributeError):
        return
    assert all(fault.where and fault.what for fault in faults(content, V))
