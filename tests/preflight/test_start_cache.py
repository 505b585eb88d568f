"""Bytes per token worked out by hand; the case of four layers was seen on a node with SGLang 0.5.14."""

from __future__ import annotations

from typing import Any

import pytest
from model_folders import CONFIG, TARGET_CONFIG, draft_tensors, ones, write_folder

from workbench.preflight import Machine, Severity

GIB = 1 << 30
# A latent of 512 and 64 values per token and layer, in two bytes each: 1152 bytes.
KIMI = {"num_attention_heads": 64, "num_key_value_heads": 64, "kv_lora_rank": 512, "qk_rope_head_dim": 64}
KIMI = {**TARGET_CONFIG, "architectures": ["DeepseekV3ForCausalLM"], "qk_nope_head_dim": 128, "v_head_dim": 128, **KIMI}
PLAIN = {**dict.fromkeys(KIMI), **TARGET_CONFIG}
# 64 heads of 128 keys and 128 values, in two bytes each: 32768 bytes.
DRAFT = {**CONFIG, "num_attention_heads": 64, "num_key_value_heads": 64, "head_dim": 128}
H200 = Machine((139 * GIB,), "0.5.14")
LAPTOP = Machine()


@pytest.fixture
def caches(campaigns, tmp_path):
    """The finding about the draft's cache, of these two configs."""

    def check(
        machine: Machine, target: dict[str, Any], draft: dict[str, Any], *, weights: bool = False, **changes: Any
    ):
        big = {"model.w": ones(1000, 1000)} if weights else None
        stated = {key: value for key, value in {**KIMI, **target}.items() if value is not None}
        folder = str(write_folder(tmp_path / "t", stated, big))
        small = draft_tensors() if weights else None
        drafters = [{"name": "d", "model_path": str(write_folder(tmp_path / "d", {**DRAFT, **draft}, small))}]
        return campaigns(machine, target={"model_path": folder}, drafters=drafters, **changes).get("draft-kv")

    return check


def flags(**given: Any) -> dict[str, Any]:
    return {"server": {"flags": {name.replace("_", "-"): value for name, value in given.items()}}}


# --- figures -----------------------------------------------------------------------------------------------------


def test_a_gqa_draft_beside_four_mla_layers(caches) -> None:
    """4 x 1152 = 4608 and, for the draft, 1152 where it takes 32768: 31616 more."""
    found = caches(H200, {"num_hidden_layers": 4}, {})
    assert (found.severity, found.where) == (Severity.WARNING, "server.mem_fraction_static")
    assert found.what == (
        "the draft keeps 32.0 KiB per token; SGLang sets 1.1 KiB aside for it beside 4.5 KiB of the target"
    )
    assert "the other 30.9 KiB per token" in found.why and "from 0.5.14 on" in found.why
    # A twentieth of 139 GiB: 139 x 2^30 / 20 / 32768 = 227,737.6 tokens, in whole 1024 222.
    assert found.next_step == (
        "cap it by max-total-tokens in server.flags at 227328, or lower mem_fraction_static, or serve an MLA draft"
    )


def test_kimi_k25_on_one_and_on_eight_gpus(caches) -> None:
    """61 x 1152 = 70272 and 1152 for the draft: 71424. On eight GPUs it takes 4096, 2944 or 4 % more; on one 44 %."""
    found = caches(Machine((139 * GIB,) * 8, "0.5.14"), {"num_hidden_layers": 61}, {}, server={"tp_size": 8})
    assert found is None
    found = caches(H200, {"num_hidden_layers": 61}, {})
    assert found.severity is Severity.WARNING
    assert "32.0 KiB per token; SGLang sets 1.1 KiB aside for it beside 68.6 KiB" in found.what


def test_attention_that_is_not_split_counts_whole(caches) -> None:
    eight = {"tp_size": 8, "dp_size": 8, "flags": {"enable-dp-attention": True}}
    found = caches(Machine((139 * GIB,) * 64, "0.5.14"), {"num_hidden_layers": 61}, {}, server=eight)
    assert "32.0 KiB per token" in found.what


def test_before_0_5_14_nothing_is_set_aside(caches) -> None:
    found = caches(H200, {"num_hidden_layers": 4}, {}, sglang_version="0.5.13")
    assert "sets 0.0 KiB aside" in found.what and "before 0.5.14 nothing" in found.why
    assert "the version is not known" in caches(H200, {"num_hidden_layers": 4}, {}, sglang_version=None).why


@pytest.mark.parametrize(
    ("target", "draft", "changes"),
    [
        # Like its target's layers, or smaller.
        ({}, {"architectures": ["Eagle3DeepseekV2ForCausalLM"], "kv_lora_rank": 512, "qk_rope_head_dim": 64}, {}),
        # Not known how they are planned.
        ({"layer_types": ["full_attention", "sliding_attention"]}, {}, {}),
        ({"full_attention_interval": 4}, {}, {}),
        ({}, {}, flags(kv_cache_dtype="fp4_e2m1")),
        ({}, {}, flags(pp_size=2)),
        ({"num_hidden_layers": 10**400}, {}, {}),
        # No cache of its own, no draft, another engine.
        ({}, {}, {"sweep": [{"speculative_algorithm": "NGRAM", "speculative_num_steps": 3}]}),
        ({}, {}, {"baseline": True}),
        ({}, {}, {"engine": "reference"}),
    ],
)
def test_silent(caches, target: dict[str, Any], draft: dict[str, Any], changes: dict[str, Any]) -> None:
    assert caches(H200, {"num_hidden_layers": 4, **target}, draft, **changes) is None


def test_a_wide_draft_beside_a_small_target(caches) -> None:
    """2 heads of 2 x 4 values in two bytes are 32 bytes, in 9 layers 288."""
    small = {**PLAIN, "num_hidden_layers": 9}
    assert caches(H200, small, {**CONFIG, "num_hidden_layers": 2}) is None, "nothing is missing: 2 x 16 of 2 x 32"
    # 4 heads of 2 x 16 values take 256 bytes, 224 more than the 32: 70 % of 320.
    found = caches(H200, small, {**CONFIG, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 16})
    assert "keeps 0.2 KiB per token; SGLang sets 0.0 KiB aside for it beside 0.3 KiB" in found.what
    assert "MLA" not in found.next_step


def test_a_cache_of_one_byte_a_value(caches) -> None:
    found = caches(H200, {"num_hidden_layers": 4}, {}, **flags(kv_cache_dtype="fp8_e4m3"))
    assert "keeps 16.0 KiB per token; SGLang sets 0.6 KiB aside for it beside 2.2 KiB" in found.what
    found = caches(
        H200, {"num_hidden_layers": 4}, {}, **flags(kv_cache_dtype="fp8_e4m3", speculative_draft_kv_cache_dtype="bf16")
    )
    assert "keeps 32.0 KiB per token; SGLang sets 0.6 KiB" in found.what


def test_sparse_attention_has_an_index_beside_the_latent(caches) -> None:
    """128 bytes and a scale of 4 on top of 1152: 4 x 1284 = 5136 bytes are 5.0 KiB."""
    found = caches(H200, {"num_hidden_layers": 4, "index_topk": 2048, "index_head_dim": 128}, {})
    assert "sets 1.3 KiB aside for it beside 5.0 KiB" in found.what


# --- a limit, and the memory of a GPU ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("machine", "tokens", "severity"),
    [
        (H200, 65536, None),  # 2 GiB are 1.4 % of it
        (H200, 262144, Severity.WARNING),  # 8 GiB are 5.8 %
        (LAPTOP, 65536, Severity.NOTE),
        (LAPTOP, None, Severity.WARNING),
        (H200, -1, Severity.WARNING),
        (H200, 10**400, Severity.WARNING),
    ],
)
def test_a_limit_of_tokens(caches, machine: Machine, tokens: int | None, severity: Severity | None) -> None:
    found = caches(machine, {"num_hidden_layers": 4}, {}, **flags(max_total_tokens=tokens))
    assert (found and found.severity) == severity
    if found is not None and tokens in (65536, 262144):
        assert found.where == "server.flags.max-total-tokens"
        assert f", {tokens / 32768:.1f} GiB for {tokens:,} tokens;" in found.what


@pytest.mark.parametrize(
    ("layers", "fraction", "severity"),
    [
        # 2 MB of weights, 10 MB of memory. 5760 bytes a token are planned: (9.0 - 2.2) MB are 1180 tokens,
        # and they take 37376 bytes each, 44 MB.
        (4, 0.9, Severity.ERROR),
        # 71424 are planned and 103040 taken: (5.0 - 2.2) MB are 39 tokens, 4.0 MB; with the weights 6.2 of 10 MB.
        (61, 0.5, Severity.WARNING),
        # (9.0 - 2.2) MB are 95 tokens, 9.8 MB.
        (61, 0.9, Severity.ERROR),
        # (3.0 - 2.0) MB are 14 tokens: the draft's are 0.46 MB, less than a twentieth.
        (61, 0.3, None),
    ],
)
def test_what_a_gpu_has(caches, layers: int, fraction: float, severity: Severity | None) -> None:
    machine = Machine((10_000_000,), "0.5.14")
    server = {"server": {"mem_fraction_static": fraction}}
    found = caches(machine, {"num_hidden_layers": layers}, {}, weights=True, **server)
    assert (found and found.severity) == severity
    # Nothing is sure of a version that is not known, or of GPUs elsewhere.
    unknown = caches(machine, {"num_hidden_layers": layers}, {}, weights=True, sglang_version=None, **server)
    assert unknown is None or unknown.severity is Severity.WARNING
    elsewhere = caches(machine, {"num_hidden_layers": layers}, {}, weights=True, launch_prefix=["ssh"], **server)
    assert elsewhere.severity is Severity.WARNING
