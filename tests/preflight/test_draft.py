from __future__ import annotations

import json
import math
import struct
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from model_folders import CONFIG, TARGET_CONFIG, draft_tensors, ones, write_folder

from workbench.checkpoint import Checkpoint, read_checkpoint
from workbench.preflight import Severity, check_draft

FIXTURES = Path(__file__).parent.parent / "fixtures" / "drafts"
ALL_SETTINGS = {
    "speculative_algorithm": "EAGLE3",
    "context_len": 4096,
    "sglang_version": "0.5.14",
    "tp_size": 2,
    "env": {},
}


def test_a_correct_draft_gets_nothing_but_the_captured_layers(bench):
    results = check_draft(bench.draft({"num_key_value_heads": 1}), bench.target(), **ALL_SETTINGS)
    assert [(r.rule, r.severity) for r in results] == [("capture-layers", Severity.NOTE)]


def test_a_correct_draft_alone_gets_nothing(bench):
    assert check_draft(bench.draft(), None) == []


def test_findings_come_in_the_order_of_the_checks(bench):
    found = bench({"draft_vocab_size": None, "dtype": "float16"}, speculative_algorithm="EAGLE", context_len=8192)
    order = ["algorithm", "draft-vocab-size", "d2t-shape", "tensor-shape", "context-length", "dtype"]
    assert [rule for rule in found if rule in order] == order


def recorded_draft(folder: Path) -> Checkpoint:
    """A published drafter's own config, tensor names and shapes; one byte a tensor set, the map made up."""
    (folder / "config.json").write_bytes((FIXTURES / "smollm2_135m_eagle3_config.json").read_bytes())
    described = json.loads((FIXTURES / "smollm2_135m_eagle3_tensors.json").read_text())
    width = {"I64": 8, "BF16": 2, "BOOL": 1}
    header, position = {}, 0
    for name, info in described.items():
        end = position + math.prod(info["shape"]) * width[info["dtype"]]
        header[name] = {**info, "data_offsets": [position, end]}
        position = end
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + position)
        for info in header.values():
            file.seek(8 + len(text) + info["data_offsets"][0])
            file.write(b"\x01")
        # Draft id i stands for target id 3 i: the offset is 2 i.
        file.seek(8 + len(text) + header["d2t"]["data_offsets"][0])
        file.write(struct.pack("<16384q", *range(0, 2 * 16384, 2)))
        file.seek(8 + len(text) + header["t2d"]["data_offsets"][0])
        file.write(b"\x01\x00\x00" * 16384)
    return read_checkpoint(folder)


def test_the_layout_of_a_real_drafter_passes(tmp_path):
    draft = recorded_draft(tmp_path)
    target = Checkpoint(
        tmp_path,
        {
            "architectures": ["LlamaForCausalLM"],
            "hidden_size": 576,
            "num_hidden_layers": 30,
            "vocab_size": 49152,
            "max_position_embeddings": 8192,
            "rope_theta": 100000.0,
            "torch_dtype": "bfloat16",
        },
    )
    results = check_draft(draft, target, speculative_algorithm="EAGLE3", sglang_version="0.5.14", tp_size=1)
    assert [r.rule for r in results] == ["capture-layers"]
    assert results[0].what == "captures layers 1, 14, 26 of 30"

    wrong = check_draft(draft, target, speculative_algorithm="EAGLE")
    assert [(r.rule, r.severity) for r in wrong] == [
        ("algorithm", Severity.ERROR),
        ("capture-layers", Severity.NOTE),
    ]


def test_weights_that_vanish_are_a_finding_and_not_an_exception(bench):
    draft = bench.draft()
    (draft.path / "model.safetensors").unlink()
    found = {r.rule: r for r in check_draft(draft, None)}
    assert found["unreadable"].severity is Severity.ERROR
    assert "model.safetensors" in found["unreadable"].where
    assert found["unreadable"].next_step


# --- any config at all -------------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(0, 20) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KEYS = [
    *CONFIG,
    *TARGET_CONFIG,
    "bias",
    "dtype",
    "eagle_aux_hidden_state_layer_ids",
    "fc_norm",
    "norm_before_fc",
    "norm_output",
    "num_aux_hidden_states",
    "quantization_config",
    "rope_parameters",
    "rope_scaling",
    "speculators_config",
    "target_hidden_size",
    "text_config",
]
IDS = st.lists(st.integers(-2, 12) | VALUES, max_size=4)
CHANGES = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6) | st.fixed_dictionaries(
    {"eagle_config": st.fixed_dictionaries({"eagle_aux_hidden_state_layer_ids": IDS})}
)
CLASSES = st.sampled_from(["LlamaForCausalLMEagle3", "Eagle3DeepseekV2ForCausalLM", "LlamaForCausalLMEagle"])
TARGETS = st.sampled_from(["LlamaForCausalLM", "DeepseekV3ForCausalLM", "GptOssForCausalLM", "?"])


@given(CHANGES, CHANGES, CLASSES, TARGETS, st.sampled_from([None, "0.4.9", "0.5.14", "today", ""]), st.integers(-1, 9))
@settings(max_examples=150, deadline=None)
def test_no_config_makes_a_check_raise(ours, theirs, draft_class, target_class, version, tp_size):
    with tempfile.TemporaryDirectory() as name:
        draft = read_checkpoint(
            write_folder(Path(name), {**CONFIG, "architectures": [draft_class], **ours}, draft_tensors())
        )
        target = Checkpoint(Path(name), {**TARGET_CONFIG, "architectures": [target_class], **theirs})
        results = check_draft(draft, target, sglang_version=version, tp_size=tp_size, context_len=tp_size)
    for result in results:
        assert result.what and result.where and result.next_step
        assert len(result.what) < 600 and len(result.why) < 600


@given(st.dictionaries(st.text(max_size=30), st.just(ones(2)), max_size=5))
@settings(max_examples=50, deadline=None)
def test_no_tensor_name_makes_a_check_raise(extra):
    with tempfile.TemporaryDirectory() as name:
        draft = read_checkpoint(write_folder(Path(name), CONFIG, {**extra, **draft_tensors()}))
        assert {r.rule for r in check_draft(draft, None)} <= {
            "d2t-shape",
            "tensor-twice",
            "tensor-unknown",
            "tensor-shape",
        }
