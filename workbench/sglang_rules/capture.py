"""EAGLE-3 drafts: their classes, and which hidden states of the target are captured for them, by version."""

from __future__ import annotations

import re
from collections.abc import Sequence

from workbench.sglang_rules.versions import at_least

EAGLE3_DRAFT_CLASSES = ("LlamaForCausalLMEagle3", "Eagle3DeepseekV2ForCausalLM")


def is_eagle3_class(name: str) -> bool:
    """Whether a model class is an EAGLE-3 draft. Names that end in ``Eagle`` alone are EAGLE-1 or 2."""
    return name in EAGLE3_DRAFT_CLASSES or "eagle3" in name.lower()


# Module names of SGLang's models; architectures of config.json are matched by the names without punctuation.
_CAPTURE_SINCE: tuple[tuple[str, str], ...] = (
    ("minimaxm3vl", "0.5.18"),
    ("minimaxm3", "0.5.16"),
    ("minimaxm2", "0.5.6"),
    ("glm4moelite", "0.5.13"),
    ("glm4moe", "0.5.6"),
    ("glm5next", "0.5.20"),
    ("kimik25", "0.5.10"),
    ("gptoss", "0.5.1"),
    ("qwen3next", "0.5.9"),
    ("qwen3vl", "0.5.11"),
    ("qwen3moe", "0.4.9"),
    ("qwen35", "0.5.20"),
    ("qwen3", "0.4.9"),
    ("qwen25vl", "0.5.4"),
    ("qwen2", "0.5.4"),
    ("apertus", "0.5.4"),
    ("longcat", "0.5.6"),
    ("bailing", "0.5.9"),
    ("exaonemoe", "0.5.9"),
    ("exaone", "0.5.9"),
    ("gemma3", "0.5.13"),
    ("gemma4", "0.5.13"),
    ("deepseekv", "0.5.6"),
    ("kimik2", "0.5.6"),  # served by the DeepSeek class
    ("llama4", "0.4.9"),
    ("mllama4", "0.4.9"),
    ("llama", "0.4.4.post4"),
)


def _arch_name(arch: str) -> str:
    return re.sub(r"[^a-z0-9]", "", arch.lower())


def eagle3_capture_since(target_arch: str) -> str | None:
    """First version whose target class has ``set_eagle3_layers_to_capture``; None when none is known to have it.

    ``target_arch`` is the ``architectures`` entry of config.json or the name of SGLang's module (``kimi_k25``).
    """
    name = _arch_name(target_arch)
    if "eagle" in name:
        return None
    return next((since for key, since in _CAPTURE_SINCE if name.startswith(key)), None)


def captured_layers(
    target_arch: str, ids: Sequence[int] | None, num_layers: int, version: str | None = None
) -> tuple[int, ...]:
    """Layers whose input is captured, from ``eagle_config.eagle_aux_hidden_state_layer_ids`` of the draft.

    Returns
    -------
    tuple of int
        i means: the hidden state entering layer i, which is the output of layer i - 1. ``num_layers`` itself means
        the final state. Without ids: ``(2, n // 2, n - 3)``.

    Notes
    -----
    Mostly id + 1. DeepSeek-V2/V3 classes (Kimi K2, Kimi K2.5) and glm4_moe_lite take the ids as they are since
    0.5.13 unless the first one is 1, so the same draft captures other layers before and after.
    gpt_oss takes them as they are since 0.5.17 when the last one is the number of layers (sglang PR 32334).
    """
    name = _arch_name(target_arch)
    if ids is None or not ids:
        defaults = (2, num_layers // 2, num_layers - 3)
        return tuple(i + 1 for i in defaults) if name.startswith("minimaxm3vl") else defaults
    if _takes_ids_as_is(name, ids, num_layers, version):
        return tuple(ids)
    return tuple(i + 1 for i in ids)


def _takes_ids_as_is(name: str, ids: Sequence[int], num_layers: int, version: str | None) -> bool:
    if name.startswith(("deepseekv", "kimik2", "glm4moelite")):
        return at_least(version, "0.5.13") and ids[0] != 1
    if name.startswith("gptoss"):
        return at_least(version, "0.5.17") and max(ids) == num_layers
    return False
