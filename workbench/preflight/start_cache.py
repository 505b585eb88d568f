"""Keys and values of the draft: what SGLang sets aside for them per token, and what they take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from workbench.checkpoint import Checkpoint
from workbench.preflight.case import MLA_CLASS, architecture, size
from workbench.preflight.result import CheckResult, Severity
from workbench.preflight.start_case import StartCase
from workbench.sglang_rules.versions import at_least

PLANNED_SINCE = "0.5.14"
"""Before, nothing is set aside for a draft (0.5.9, 0.5.12 and 0.5.13 read)."""

_MUCH = 0.1
_SMALL = 0.05
_ABSURD = 10**9
_KIB, _GIB = 1 << 10, 1 << 30
_SHARED_CACHE = frozenset({"EAGLE", "EAGLE3", "NEXTN", "STANDALONE"})
"""Algorithms whose draft has room for as many tokens as the target."""
_VALUE_BYTES = {
    "auto": 2,
    "bfloat16": 2,
    "bf16": 2,
    "float16": 2,
    "half": 2,
    "float32": 4,
    "float": 4,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
}
# In such models not every layer keeps all tokens; they are planned in other ways.
_MIXED_LAYERS = (
    "full_attention_interval",
    "hybrid_override_pattern",
    "hybrid_layer_pattern",
    "linear_attn_config",
    "attention_chunk_size",
    "attn_layer_period",
    "sliding_window_pattern",
)


@dataclass(frozen=True, slots=True)
class _Cache:
    """Bytes per token on one GPU: of the target, what is set aside for the draft, what the draft takes."""

    target: int
    set_aside: int
    draft: int

    @property
    def planned(self) -> int:
        return self.target + self.set_aside

    @property
    def unplanned(self) -> int:
        return self.draft - self.set_aside


def draft_cache(case: StartCase) -> Iterator[CheckResult]:
    """A draft whose layers keep more than the target's: SGLang counts a draft layer as one of the target.

    Source: DefaultPoolConfigurator in model_executor/pool_configurator.py of 0.5.14 to 0.5.23.
    """
    cache = _cache(case)
    if cache is None or cache.unplanned <= _MUCH * cache.planned:
        return
    gpu = min(case.machine.gpu_memory_bytes or (0,)) if case.serves_here else 0
    capped = _limit(case)
    most = _tokens(case, cache, gpu)
    if gpu and most is not None and most * cache.draft < _SMALL * gpu:
        return
    if capped is not None and not gpu:
        severity = Severity.NOTE
    else:
        severity = Severity.ERROR if _cannot_fit(case, cache, gpu) else Severity.WARNING
    total = "" if most is None else f", {most * cache.draft / _GIB:.1f} GiB for {most:,} tokens"
    yield CheckResult(
        "draft-kv",
        severity,
        f"the draft keeps {_kib(cache.draft)} per token{total}; SGLang sets {_kib(cache.set_aside)} aside for it "
        f"beside {_kib(cache.target)} of the target",
        "server.flags.max-total-tokens" if capped is not None else "server.mem_fraction_static",
        _next_step(case, cache, gpu),
        f"{_why(case)}; the other {_kib(cache.unplanned)} per token come on top of mem_fraction_static: where there "
        "is no room for them the server ends at its start, out of memory"
        + ("" if case.version else "; the version is not known here"),
    )


def _why(case: StartCase) -> str:
    if case.version is not None and not at_least(case.version, PLANNED_SINCE):
        return f"before {PLANNED_SINCE} nothing is set aside for a draft"
    return f"from {PLANNED_SINCE} on a layer of the draft is counted as one of the target"


def _next_step(case: StartCase, cache: _Cache, gpu: int) -> str:
    most = f" at {_down(int(_SMALL * gpu / cache.draft))}" if gpu else ""
    latent = case.target is not None and "kv_lora_rank" in case.target.text_config
    return f"cap it by max-total-tokens in server.flags{most}, or lower mem_fraction_static" + (
        ", or serve an MLA draft" if latent else ""
    )


def _cache(case: StartCase) -> _Cache | None:
    target, draft = case.target, case.draft
    if not case.is_sglang or target is None or draft is None or case.algorithm not in _SHARED_CACHE:
        return None
    pipeline = case.number("pp_size") or 1
    if pipeline > 1 or _is_mixed(target.text_config) or _is_mixed(draft.config):
        return None
    # Of a config, float32 and nothing mean float16.
    loaded = _VALUE_BYTES.get(case.campaign.target.dtype or "auto")
    value_bytes = _value_bytes(case, "kv_cache_dtype", loaded)
    draft_bytes = _value_bytes(case, "speculative_draft_kv_cache_dtype", value_bytes)
    layers, draft_layers = _size(target.text_config, "num_hidden_layers"), _size(draft.config, "num_hidden_layers")
    a_layer = _layer_values(case, target.text_config, latent="kv_lora_rank" in target.text_config)
    a_draft_layer = _layer_values(case, draft.config, latent=architecture(draft.config) == MLA_CLASS)
    if not (value_bytes and draft_bytes and layers and draft_layers and a_layer and a_draft_layer):
        return None
    per_layer = a_layer * value_bytes + _indexer_bytes(target)
    counts_draft = case.version is None or at_least(case.version, PLANNED_SINCE)
    return _Cache(
        layers * per_layer,
        draft_layers * per_layer if counts_draft else 0,
        draft_layers * a_draft_layer * draft_bytes,
    )


def _layer_values(case: StartCase, config: Mapping[str, object], *, latent: bool) -> int | None:
    """How many numbers one layer keeps per token on one GPU; a latent is kept whole on each."""
    if latent:
        rank, rope = _size(config, "kv_lora_rank"), _size(config, "qk_rope_head_dim")
        return None if rank is None or rope is None else rank + rope
    heads, hidden = _size(config, "num_attention_heads"), _size(config, "hidden_size")
    kept = _size(config, "num_key_value_heads") or heads
    width = _size(config, "head_dim") or (hidden // heads if hidden and heads else None)
    if kept is None or width is None:
        return None
    split = case.tp_size // case.dp_size if case.flags.get("enable_dp_attention") else case.tp_size
    return max(1, kept // max(1, split)) * (width + (_size(config, "v_head_dim") or width))


def _size(config: Mapping[str, object], key: str) -> int | None:
    """As the configs of models state it; what is absurd is not known."""
    value = size(config, key)
    return value if value is not None and value < _ABSURD else None


def _indexer_bytes(target: Checkpoint) -> int:
    """Of sparse attention (DeepSeek V3.2, GLM-5): fp8 keys, and a scale of four bytes for each 128 of them."""
    width = _size(target.text_config, "index_head_dim") if "index_topk" in target.text_config else None
    return 0 if width is None else width + width // 128 * 4


def _is_mixed(config: Mapping[str, object]) -> bool:
    kinds = config.get("layer_types")
    windowed = isinstance(kinds, list) and any(kind != "full_attention" for kind in kinds)
    return windowed or any(config.get(key) for key in _MIXED_LAYERS)


def _value_bytes(case: StartCase, setting: str, otherwise: int | None) -> int | None:
    """``None`` for a format that is not known here (fp4 has scales beside it)."""
    asked = case.flags.get(setting)
    return otherwise if asked in (None, "auto") else _VALUE_BYTES.get(str(asked))


def _weight_bytes(case: StartCase) -> float | None:
    """Of both models on one GPU, as if every weight were split evenly; ``None`` where files do not show them."""
    models = [model for model in (case.target, case.draft) if model is not None]
    if not all(model.tensors for model in models):
        return None
    return sum(info.size_bytes for model in models for info in model.tensors.values()) / case.tp_size


def _tokens(case: StartCase, cache: _Cache, gpu: int, *, more_weights: float = 1.0) -> int | None:
    """For how many tokens SGLang would make room at most; ``None`` when neither a limit nor the memory is known."""
    fraction = case.flags.get("mem_fraction_static", case.server.mem_fraction_static)
    weights, capped = _weight_bytes(case), _limit(case)
    found = [] if capped is None else [capped]
    if gpu and weights is not None and isinstance(fraction, float) and 0 < fraction <= 1:
        found.append(max(0, int((fraction * gpu - more_weights * weights) / cache.planned)))
    return min(found, default=None)


def _limit(case: StartCase) -> int | None:
    asked = case.number("max_total_tokens")
    return asked if asked is not None and 0 < asked < _ABSURD else None


def _cannot_fit(case: StartCase, cache: _Cache, gpu: int) -> bool:
    """Whether it is more than a GPU has, also if weights take a tenth more than an even split of them."""
    weights, tokens = _weight_bytes(case), _tokens(case, cache, gpu, more_weights=1 + _MUCH)
    if case.version is None or not gpu or weights is None or tokens is None:
        return False
    return (1 + _MUCH) * weights + tokens * (cache.target + cache.draft) > gpu


def _kib(number: int) -> str:
    return f"{number / _KIB:.1f} KiB"


def _down(tokens: int) -> int:
    """To a whole number of 1,024 tokens where there are so many."""
    return tokens // 1024 * 1024 or tokens
