"""The draft's tensors: SGLang drops unknown names and leaves missing ones uninitialised, both without a word."""

from __future__ import annotations

from collections.abc import Iterator

from workbench.preflight.case import DraftCase, brief, listing, place, size
from workbench.preflight.result import CheckResult, Severity

Shape = tuple[int | None, ...]

_LAYER_NAMES_SINCE = "0.5.12"
# Buffers that old exporters wrote and every reader recomputes.
_HARMLESS = "rotary_emb.inv_freq"
_DEAD_WHEN_ZERO = ("fc.weight", "lm_head.weight", "norm.weight")


def weights_present(case: DraftCase) -> Iterator[CheckResult]:
    if case.draft.tensors:
        return
    if case.draft.pickles:
        yield CheckResult(
            "pickle",
            Severity.WARNING,
            f"only pickled weights ({listing(path.name for path in case.draft.pickles)}), which are never loaded here "
            "because loading one runs code from it; no tensor was checked",
            str(case.draft.path),
            "convert it where you trust it: safetensors.torch.save_file(torch.load(f, weights_only=True), "
            "'model.safetensors')",
        )
    else:
        yield CheckResult(
            "no-weights",
            Severity.ERROR,
            "no *.safetensors file",
            str(case.draft.path),
            "give the folder that the trainer exported",
        )


def layer_name(case: DraftCase) -> Iterator[CheckResult]:
    """``layers.0.`` is understood since 0.5.12; before, ``midlayer.`` is the layer's only name."""
    old = case.before(_LAYER_NAMES_SINCE)
    newer = [name for name in case.draft.tensors if name.removeprefix("model.").startswith("layers.")]
    if newer and old is not False and not case.is_mla:
        yield CheckResult(
            "layer-name",
            Severity.ERROR if old else Severity.WARNING,
            f"{len(newer)} tensors are named layers.*",
            f"{case.draft.path}: {listing(newer, limit=2)}",
            f"rename layers.0 to midlayer, or use SGLang {_LAYER_NAMES_SINCE} or newer",
            f"before {_LAYER_NAMES_SINCE} these names are unknown and dropped, and the layer stays uninitialised"
            + ("" if old else "; the version is not known here"),
        )


def missing(case: DraftCase) -> Iterator[CheckResult]:
    absent = [name for name in expected_shapes(case) if name not in case.names]
    if absent and case.draft.tensors:
        yield CheckResult(
            "tensor-missing",
            Severity.ERROR,
            f"{len(absent)} tensors are missing: {listing(absent)}",
            str(case.draft.path),
            "export the draft again; check for a prefix that the exporter added to the names",
            "SGLang starts all the same and leaves them uninitialised",
        )


def unknown(case: DraftCase) -> Iterator[CheckResult]:
    if not _layer_is_checked(case):
        return
    known = {*expected_shapes(case), *_optional_shapes(case), "d2t", "t2d"}
    strange = [
        info.name for name, infos in case.names.items() for info in infos if name not in known and _HARMLESS not in name
    ]
    if strange:
        yield CheckResult(
            "tensor-unknown",
            Severity.WARNING,
            f"{len(strange)} tensors have names that SGLang does not know: {listing(strange)}",
            str(case.draft.path),
            "rename them, or make sure that the draft works without them",
            "unknown names are dropped without a word",
        )


def duplicates(case: DraftCase) -> Iterator[CheckResult]:
    for name, infos in case.names.items():
        if len(infos) > 1:
            yield CheckResult(
                "tensor-twice",
                Severity.ERROR,
                f"{listing(info.name for info in infos)} are all loaded as {name}",
                str(case.draft.path),
                "keep one of them",
                "the one that is read last wins",
            )


def shapes(case: DraftCase) -> Iterator[CheckResult]:
    for name, shape in {**expected_shapes(case), **_optional_shapes(case)}.items():
        info = case.tensor(name)
        if info is not None and name != "fc.weight" and not _fits(info.shape, shape):
            yield CheckResult(
                "tensor-shape",
                Severity.ERROR,
                f"{brief(info.name)} has shape {list(info.shape)}, not {['?' if d is None else d for d in shape]}",
                place(info),
                "make config.json say what the draft was trained with, or give the draft of this config",
                "the server stops with 'Attempted to load weight'",
            )


def fc_width(case: DraftCase) -> Iterator[CheckResult]:
    """fc takes the captured states side by side: A x T values."""
    info, shape = case.tensor("fc.weight"), expected_shapes(case)["fc.weight"]
    if info is not None and not _fits(info.shape, shape):
        yield CheckResult(
            "fc-width",
            Severity.ERROR,
            f"fc.weight has shape {list(info.shape)}; {case.aux_count} captured states of width "
            f"{case.input_hidden or '?'} make it [{case.hidden or '?'}, {shape[1] or '?'}]",
            place(info),
            "state the layers and the target_hidden_size that the draft was trained with",
            "the server stops with 'Attempted to load weight'",
        )


def embedding(case: DraftCase) -> Iterator[CheckResult]:
    """The draft's embedding is replaced by the target's unless the two differ in width."""
    own = case.tensor("embed_tokens.weight")
    if own is not None and not _needs_own_embedding(case):
        yield CheckResult(
            "embedding-replaced",
            Severity.NOTE,
            "embed_tokens.weight is replaced by the target's",
            place(own),
            "leave it out of the export to save memory and loading time",
            "a draft that was trained with an embedding of its own loses it",
        )


def zero_weights(case: DraftCase) -> Iterator[CheckResult]:
    zero = [name for name in expected_shapes(case) if (info := case.tensor(name)) and case.draft.is_zero(info.name)]
    if zero:
        yield CheckResult(
            "tensor-zero",
            Severity.ERROR if any(name in _DEAD_WHEN_ZERO for name in zero) else Severity.WARNING,
            f"{len(zero)} tensors hold nothing but zeros: {listing(zero)}",
            str(case.draft.path),
            "export the draft again from a trained state",
            "nothing passes through them: the draft cannot see the target's states, or cannot tell tokens apart",
        )


# --- what should be there ----------------------------------------------------------------------------------------


def expected_shapes(case: DraftCase) -> dict[str, Shape]:
    """Tensors that the draft must have, by the name inside SGLang. ``None`` stands for an unknown size."""
    hidden, states = case.hidden, _times(case.aux_count, case.input_hidden)
    result: dict[str, Shape] = {"fc.weight": (hidden, states), "norm.weight": (hidden,)}
    if case.config.get("bias"):
        result["fc.bias"] = (hidden,)
    if not case.config.get("tie_word_embeddings") and not case.uses_target_head:
        result["lm_head.weight"] = (case.draft_vocab, hidden)
    if case.config.get("fc_norm") or case.config.get("use_aux_norm"):
        result |= {f"fc_norm.{i}.weight": (case.input_hidden,) for i in range(case.aux_count)}
    if not case.is_mla and case.eagle_config.get("norm_before_fc", case.config.get("norm_before_fc")):
        result["input_norm.weight"] = (states,)
    if _needs_own_embedding(case):
        result["embed_tokens.weight"] = (case.vocab, hidden)
    if _layer_is_checked(case):
        # A layer count beyond any draft's is a fault of its own and must not become a list of that length.
        for layer in range(min(size(case.config, "num_hidden_layers") or 1, 64)):
            result |= _layer_shapes(case, layer)
    return result


def _layer_shapes(case: DraftCase, layer: int) -> dict[str, Shape]:
    hidden, prefix = case.hidden, f"layers.{layer}."
    heads = size(case.config, "num_attention_heads")
    width = size(case.config, "head_dim") or (hidden // heads if hidden and heads else None)
    query = _times(heads, width)
    key_value = _times(size(case.config, "num_key_value_heads") or heads, width)
    # Only the first layer sees the embedding beside the state.
    incoming = _times(2, hidden) if layer == 0 else hidden
    inner_key = "intermediate_size_mlp" if case.config.get("model_type") == "llama4_text" else "intermediate_size"
    inner = size(case.config, inner_key)
    result: dict[str, Shape] = {
        "self_attn.q_proj.weight": (query, incoming),
        "self_attn.k_proj.weight": (key_value, incoming),
        "self_attn.v_proj.weight": (key_value, incoming),
        "self_attn.o_proj.weight": (hidden, query),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
        "hidden_norm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
    }
    if layer == 0:
        result["input_layernorm.weight"] = (hidden,)
    if case.config.get("attention_bias") or case.config.get("bias"):
        result["self_attn.o_proj.bias"] = (hidden,)
    return {prefix + name: shape for name, shape in result.items()}


def _optional_shapes(case: DraftCase) -> dict[str, Shape]:
    head: Shape = (case.draft_vocab, case.hidden)
    layers = min(size(case.config, "num_hidden_layers") or 1, 64)
    unused_norms: dict[str, Shape] = {f"layers.{i}.input_layernorm.weight": (case.hidden,) for i in range(1, layers)}
    return {"embed_tokens.weight": (case.vocab, case.hidden), "lm_head.weight": head, **unused_norms}


def _needs_own_embedding(case: DraftCase) -> bool:
    return case.input_hidden is not None and case.input_hidden != case.hidden


def _layer_is_checked(case: DraftCase) -> bool:
    """Latent attention and quantised projections have other names and shapes."""
    return not case.is_mla and not case.is_quantized


def _times(a: int | None, b: int | None) -> int | None:
    return a * b if a is not None and b is not None else None


def _fits(shape: tuple[int, ...], expected: Shape) -> bool:
    return len(shape) == len(expected) and all(e is None or s == e for s, e in zip(shape, expected, strict=True))
