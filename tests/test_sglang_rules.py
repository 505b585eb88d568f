"""Expected values are from SGLang's releases and pull requests, worked out by hand, never from the code."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import workbench.sglang_rules as rules
from workbench.sglang_rules import (
    at_least,
    bracket_versions,
    captured_layers,
    default_max_running_requests,
    default_shape,
    eagle3_capture_since,
    effective_shape,
    infer_draft_tokens,
    intersect,
    is_eagle3_class,
    layout_features,
    own_accept_rate,
    printed_rate,
    read_rates,
    text_features,
    tree_candidates,
    version_before,
    version_key,
)

L_OVER_S_PLUS_1, L_OVER_N, DRAFTS = "L/(S+1)", "L/N", "(L-1)/(N-1)"


# ---- versions ----------------------------------------------------------------------------------------------------


def test_order_of_versions() -> None:
    order = ["0.3.6", "0.4.4", "0.4.4.post4", "0.4.9", "0.4.9.post1", "0.4.10", "0.5.0rc1", "0.5.0rc2", "0.5.1"]
    order += ["0.5.9", "0.5.10", "0.5.23"]
    assert sorted(reversed(order), key=version_key) == order
    assert version_key("v0.5.9") == version_key("0.5.9+cu129") == version_key(" 0.5.9 ")


@pytest.mark.parametrize("text", ["", "latest", "0", "0.5.x", "0.5.9 beta", "٠.٥.٩"])
def test_not_a_version(text: str) -> None:
    with pytest.raises(ValueError, match="not an SGLang version"):
        version_key(text)
    assert at_least(text, "0.5.23") and not version_before(text, "0.5.23")


def test_at_least_and_before() -> None:
    assert at_least("0.5.10", "0.5.9") and not at_least("0.5.9", "0.5.10") and at_least(None, "9.9.9")
    assert version_before("0.5.9", "0.5.10") and not version_before("0.5.10", "0.5.10")


def test_intersect() -> None:
    assert intersect((("0.3.6", "0.4.5"), ("0.5.9", "0.5.23")), (("0.4.3", "0.5.10"),)) == (
        ("0.4.3", "0.4.5"),
        ("0.5.9", "0.5.10"),
    )
    assert intersect((("0.3.6", "0.4.2"),), (("0.4.3", "0.5.0"),)) == ()


# ---- accept rates ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("definition", "length", "steps", "draft_tokens", "expected"),
    [
        (L_OVER_S_PLUS_1, 2.0, 3, None, 0.5),
        (L_OVER_N, 2.15, None, 16, 0.134375),
        (L_OVER_N, 1.0, 3, 4, 0.25),
        (DRAFTS, 2.5, None, 4, 0.5),
        (DRAFTS, 1.0, None, 4, 0.0),
        (DRAFTS, 1.0, None, 1, None),
        (L_OVER_N, 2.0, 3, None, None),
        (L_OVER_S_PLUS_1, 2.0, None, 4, None),
        ("unknown", 2.0, 3, 4, None),
    ],
)
def test_printed_rate(
    definition: str, length: float, steps: int | None, draft_tokens: int | None, expected: float | None
) -> None:
    assert printed_rate(definition, length, steps, draft_tokens) == expected


def test_own_accept_rate() -> None:
    assert own_accept_rate(2.5, 3) == 0.5
    assert own_accept_rate(1.0, 3) == 0.0
    assert own_accept_rate(2.0, 0) is None


@pytest.mark.parametrize(
    ("pairs", "steps", "draft_tokens", "definition", "found"),
    [
        # Nothing accepted: 1 / 4.
        ([(1.00, 0.25)], None, None, L_OVER_N, 4),
        ([(1.00, 0.25)], 3, 4, L_OVER_N, 4),
        # 2.15 / 16 = 0.134, 2.12 / 16 = 0.1325; at 17 the second is 0.1247, and (2.12 - 1) / 9 = 0.1244.
        ([(2.15, 0.13), (2.12, 0.13)], None, None, L_OVER_N, 16),
        ([(2.15, 0.13)], 5, 16, L_OVER_N, 16),
        # 83 tokens in 40 steps: 2.075 prints as 2.08, its fifth 0.415 as 0.41.
        ([(2.08, 0.41), (1.98, 0.40)], None, None, L_OVER_N, 5),
        # 1.40 / 3 = 0.467, 1.60 / 3 = 0.533
        ([(2.40, 0.47), (2.60, 0.53)], None, None, DRAFTS, 4),
        ([(2.40, 0.47)], 3, 4, DRAFTS, 4),
        # Rate 0 says which definition, not how many.
        ([(1.00, 0.00)], None, None, DRAFTS, None),
        # (2.15 - 1) / 9 = 0.128 as well: undecided.
        ([(2.15, 0.13)], None, None, None, None),
        # Fits none at 4.
        ([(2.00, 0.90)], 3, 4, None, None),
        ([], 3, 4, None, None),
        ([(0.0, 0.0)], 3, 4, None, None),
    ],
)
def test_read_rates(
    pairs: list[tuple[float, float]],
    steps: int | None,
    draft_tokens: int | None,
    definition: str | None,
    found: int | None,
) -> None:
    reading = read_rates(dict.fromkeys(pairs, 3), steps=steps, draft_tokens=draft_tokens)
    assert (reading.definition, reading.draft_tokens) == (definition, found)


def test_early_definition_only_shows_in_trees() -> None:
    # S 3, N 8: 2.16 / 4 = 0.54, 2.16 / 8 = 0.27, 1.16 / 7 = 0.17
    assert read_rates({(2.16, 0.54): 1}, steps=3, draft_tokens=8).definition == L_OVER_S_PLUS_1
    assert read_rates({(2.16, 0.54): 1}, steps=3, draft_tokens=4).definition == L_OVER_N


def test_infer_draft_tokens_under_a_known_definition() -> None:
    # 16 and 17 explain one line of 2.15 / 0.13 equally well; a power of two is the likelier choice of a user.
    assert infer_draft_tokens(L_OVER_N, {(2.15, 0.13): 1}) == 16
    assert infer_draft_tokens(DRAFTS, {(2.15, 0.13): 1}) == 10
    assert infer_draft_tokens(L_OVER_N, {(2.15, 0.90): 1}) is None


def test_a_few_odd_windows_do_not_hide_the_definition() -> None:
    pairs = {(2.40, 0.47): 50, (2.60, 0.53): 47, (2.00, 0.90): 3}
    assert read_rates(pairs, steps=3, draft_tokens=4).definition == DRAFTS
    pairs[(2.00, 0.90)] = 30
    assert read_rates(pairs, steps=3, draft_tokens=4).definition is None


# ---- steps, topk, draft tokens -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "arch", "expected"),
    [
        ("0.4.2", "LlamaForCausalLM", (5, 8, 64)),
        ("0.4.4", "DeepseekV3ForCausalLM", (5, 4, 8)),
        ("0.4.9", "DeepseekV3ForCausalLM", (3, 1, 4)),
        ("0.5.1", "GptOssForCausalLM", (3, 1, 4)),
        ("0.5.7", "Qwen3ForCausalLM", (5, 4, 8)),
        ("0.5.8", "Qwen3ForCausalLM", (3, 1, 4)),
        ("0.5.23", "LlamaForCausalLM", (5, 4, 8)),
        ("0.5.23", "Grok1ForCausalLM", (5, 4, 8)),
    ],
)
def test_default_shape(version: str, arch: str, expected: tuple[int, int, int]) -> None:
    assert default_shape(version, arch) == expected
    shape = effective_shape(None, None, None, version, target_arch=arch)
    assert (shape.num_steps, shape.eagle_topk, shape.num_draft_tokens) == expected
    assert shape.refused is None and len(shape.notes) == 1


def test_defaults_are_not_invented() -> None:
    shape = effective_shape(None, None, None)
    assert (shape.num_steps, shape.eagle_topk, shape.num_draft_tokens) == (None, None, None)
    assert shape.notes and shape.refused is None


@pytest.mark.parametrize("asked", [16, 5, None])
def test_chain_becomes_steps_plus_1(asked: int | None) -> None:
    shape = effective_shape(3, 1, asked)
    assert (shape.num_steps, shape.eagle_topk, shape.num_draft_tokens) == (3, 1, 4)
    assert len(shape.notes) == 1 and "becomes 4" in shape.notes[0]


def test_chain_that_fits_is_left_alone() -> None:
    shape = effective_shape(3, 1, 4)
    assert (shape.num_draft_tokens, shape.notes, shape.refused) == (4, (), None)


def test_chain_before_0_4_6() -> None:
    assert effective_shape(3, 1, 16, "0.4.5").num_draft_tokens == 16
    assert effective_shape(3, 1, None, "0.4.5").refused is not None


@pytest.mark.parametrize(
    ("steps", "topk", "draft_tokens", "word"),
    [
        (None, 4, None, "num_steps"),
        (None, None, 8, "num_steps"),
        (3, None, None, "eagle_topk"),
        (3, None, 8, "eagle_topk"),
        (3, 4, None, "no default"),
        (0, 1, 1, "at least 1"),
        (2, 2, 8, "offers 6"),  # 2 + (2 - 1) * 4 = 6 drafts, 7 needed
    ],
)
def test_refusals(steps: int | None, topk: int | None, draft_tokens: int | None, word: str) -> None:
    shape = effective_shape(steps, topk, draft_tokens)
    assert shape.refused is not None and word in shape.refused
    assert (shape.num_steps, shape.eagle_topk, shape.num_draft_tokens) == (steps, topk, draft_tokens)


def test_largest_tree_is_accepted() -> None:
    assert tree_candidates(2, 2) == 6
    assert tree_candidates(5, 8) == 8 + 4 * 64
    assert effective_shape(2, 2, 7).refused is None


def test_useless_depth_is_noted() -> None:
    shape = effective_shape(5, 4, 4)
    assert shape.refused is None and "deeper than 3" in shape.notes[0]


@pytest.mark.parametrize(
    ("version", "backend", "topk", "refused", "noted"),
    [
        ("0.4.8", "flashinfer", 1, False, True),  # topk becomes 1
        ("0.4.9", "flashinfer", 4, False, True),  # wrong results
        ("0.5.1", "flashinfer", 4, False, True),
        ("0.5.2", "flashinfer", 4, False, False),
        ("0.5.2", "fa3", 4, True, False),
        ("0.5.9", "fa3", 4, False, False),
        ("0.5.9", "triton", 4, True, False),
        ("0.5.12", "triton", 4, True, False),
        ("0.5.14", "triton", 4, False, False),
        ("0.5.23", "triton", 4, False, False),
        ("0.5.23", "trtllm_mla", 4, True, False),
    ],
)
def test_trees_with_pages(version: str, backend: str, topk: int, refused: bool, noted: bool) -> None:
    shape = effective_shape(5, 4, 8, version, page_size=64, attention_backend=backend)
    assert (shape.eagle_topk, shape.refused is not None, bool(shape.notes)) == (topk, refused, noted)


def test_pages_turn_a_tree_into_a_chain_before_0_4_9() -> None:
    shape = effective_shape(5, 4, 8, "0.4.8", page_size=64)
    assert (shape.num_steps, shape.eagle_topk, shape.num_draft_tokens, len(shape.notes)) == (5, 1, 6, 2)


@pytest.mark.parametrize(
    ("version", "refused", "noted"),
    [("0.5.6", False, False), ("0.5.7", True, False), ("0.5.10", True, False), ("0.5.11", False, True),
     ("0.5.12", False, True), ("0.5.13", False, False)],
)  # fmt: skip
def test_trees_with_spec_v2(version: str, refused: bool, noted: bool) -> None:
    shape = effective_shape(5, 4, 8, version, spec_v2=True)
    assert (shape.refused is not None, bool(shape.notes)) == (refused, noted)


def test_trees_with_trtllm_mha() -> None:
    assert effective_shape(5, 4, 8, "0.5.1", attention_backend="trtllm_mha").refused is not None
    assert effective_shape(5, 4, 8, "0.4.9", attention_backend="trtllm_mha").refused is None
    assert effective_shape(5, 1, 6, "0.5.1", attention_backend="trtllm_mha").refused is None


def test_default_max_running_requests() -> None:
    assert [default_max_running_requests(v) for v in ("0.4.4", "0.4.4.post4", "0.5.23", None)] == [32, 48, 48, 48]


# ---- capture layers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arch", "ids", "layers", "version", "expected"),
    [
        # The default: layers 2, n // 2 and n - 3.
        ("KimiK25ForConditionalGeneration", None, 61, None, (2, 30, 58)),
        ("LlamaForCausalLM", [], 32, None, (2, 16, 29)),
        # SpecForge's default ids [1, n // 2 - 1, n - 4] mean the same layers.
        ("LlamaForCausalLM", [1, 15, 28], 32, "0.5.9", (2, 16, 29)),
        ("Qwen3MoeForCausalLM", [1, 23, 44], 48, None, (2, 24, 45)),
        # DeepSeek classes: +1 until 0.5.12, then as they are unless the first is 1.
        ("DeepseekV3ForCausalLM", [2, 30, 58], 61, "0.5.12", (3, 31, 59)),
        ("DeepseekV3ForCausalLM", [2, 30, 58], 61, "0.5.13", (2, 30, 58)),
        ("kimi_k25", [2, 30, 58], 61, None, (2, 30, 58)),
        ("kimi_k25", [1, 29, 57], 61, "0.5.13", (2, 30, 58)),
        ("Glm4MoeLiteForCausalLM", [2, 20, 40], 47, "0.5.13", (2, 20, 40)),
        ("Glm4MoeForCausalLM", [2, 20, 40], 47, "0.5.13", (3, 21, 41)),
        # gpt-oss 120B: SpecForge's ids do not give the default layers.
        ("GptOssForCausalLM", [1, 17, 33], 36, None, (2, 18, 34)),
        ("GptOssForCausalLM", [24, 30, 36], 36, "0.5.17", (24, 30, 36)),
        ("GptOssForCausalLM", [24, 30, 36], 36, "0.5.16", (25, 31, 37)),
        ("minimax_m3_vl", None, 60, None, (3, 31, 58)),
    ],
)
def test_captured_layers(
    arch: str, ids: list[int] | None, layers: int, version: str | None, expected: tuple[int, ...]
) -> None:
    assert captured_layers(arch, ids, layers, version) == expected


@pytest.mark.parametrize(
    ("arch", "since"),
    [
        ("LlamaForCausalLM", "0.4.4.post4"),
        ("Llama4ForConditionalGeneration", "0.4.9"),
        ("Qwen2ForCausalLM", "0.5.4"),
        ("Qwen2_5_VLForConditionalGeneration", "0.5.4"),
        ("Qwen3ForCausalLM", "0.4.9"),
        ("Qwen3MoeForCausalLM", "0.4.9"),
        ("Qwen3NextForCausalLM", "0.5.9"),
        ("Qwen3VLForConditionalGeneration", "0.5.11"),
        ("Qwen3_5ForConditionalGeneration", "0.5.20"),
        ("GptOssForCausalLM", "0.5.1"),
        ("DeepseekV3ForCausalLM", "0.5.6"),
        ("KimiK25ForConditionalGeneration", "0.5.10"),
        ("Glm4MoeForCausalLM", "0.5.6"),
        ("Glm4MoeLiteForCausalLM", "0.5.13"),
        ("MiniMaxM2ForCausalLM", "0.5.6"),
        ("Gemma3ForCausalLM", "0.5.13"),
        ("kimi_k3", None),
        ("MambaForCausalLM", None),
        ("LlamaForCausalLMEagle3", None),
        ("LlavaLlamaForCausalLM", None),
        ("MllamaForConditionalGeneration", None),
    ],
)
def test_first_version_that_captures(arch: str, since: str | None) -> None:
    assert eagle3_capture_since(arch) == since


def test_draft_classes() -> None:
    assert is_eagle3_class("LlamaForCausalLMEagle3") and is_eagle3_class("Eagle3DeepseekV2ForCausalLM")
    for older in (
        "LlamaForCausalLMEagle",
        "Qwen2ForCausalLMEagle",
        "MistralLarge3ForCausalLMEagle",
        "LlamaForCausalLM",
    ):
        assert not is_eagle3_class(older)


# ---- layouts -----------------------------------------------------------------------------------------------------


def test_case_of_the_missing_comma() -> None:
    layout = (",", "#running-req", "#token", "token usage", "accept len", "accept rate", "cuda graph")
    features = layout_features("decode", (*layout, "gen throughput (token/s)", "#queue-req", ""))
    assert bracket_versions(features).versions == ("0.5.9", "0.5.23")
    bracket = bracket_versions(features, L_OVER_N)
    assert bracket.versions == ("0.5.9", "0.5.10")
    assert bracket.evidence == ("decode line ends without a comma", "accept rate is L/N")


def test_later_definition_closes_the_other_side() -> None:
    assert bracket_versions([], DRAFTS).versions == ("0.5.11", "0.5.23")
    assert bracket_versions([], L_OVER_N).versions == ("0.5.3.post2", "0.5.10")  # L/(S+1) looks the same in chains
    assert bracket_versions([], L_OVER_S_PLUS_1).versions == ("0.5.3.post2", "0.5.5.post2")
    assert bracket_versions([]).versions is None


def test_every_feature_that_lines_can_show_has_versions() -> None:
    keys = ["#running-req", *rules.layouts.KEY_SPANS, "accept len", "accept rate", "iteration"]  # type: ignore[attr-defined]
    for kind in ("decode", "prefill"):
        for end in ("", ",", "?"):
            for mark in (".", ","):
                for kept in (keys, keys[:1], ["accept len"], ["#pending-token", "cache hit rate"]):
                    bracket_versions(layout_features(kind, (mark, *kept, end)))
    assert layout_features("decode", ()) == frozenset()


def test_text_features() -> None:
    assert text_features("server_args=ServerArgs(a=1)") == {"server_args=ServerArgs(...)"}
    assert text_features("Capture draft CUDA graph end. elapsed=1 s") == {"'graph end' with elapsed="}
    assert text_features("Capture piecewise CUDA graph end. Time elapsed: 1 s") == {"'graph end' with Time elapsed:"}
    assert text_features("hello") == frozenset()


def test_spans_are_in_order() -> None:
    spans = [span for many in (*rules.LAYOUT_SPANS.values(), *(s for _, _, s in rules.EVENT_SPANS)) for span in many]
    assert all(version_key(since) <= version_key(until) for since, until in spans)


def test_imports_the_standard_library_only() -> None:
    for path in Path(rules.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                root = name.split(".")[0]
                assert root in sys.stdlib_module_names or name.startswith("workbench.sglang_rules"), (path, name)
