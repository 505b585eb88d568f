"""Llama and EAGLE-3 draft written out slot by slot in numpy, from the formulas and without any cache: an oracle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Config = Mapping[str, Any]


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    return x / np.sqrt(np.mean(x * x) + eps) * weight


def turn(x: Array, position: int, theta: float) -> Array:
    """Rotary embedding of one head, pair by pair: dimension i goes with i + half."""
    half = len(x) // 2
    out = np.empty_like(x)
    for i in range(half):
        angle = position * theta ** (-2 * i / len(x))
        out[i] = x[i] * np.cos(angle) - x[i + half] * np.sin(angle)
        out[i + half] = x[i + half] * np.cos(angle) + x[i] * np.sin(angle)
    return out


def split_heads(x: Array, head_dim: int) -> list[Array]:
    return [x[i : i + head_dim] for i in range(0, len(x), head_dim)]


def mix(q: Sequence[Array], keys: Sequence[Sequence[Array]], values: Sequence[Sequence[Array]]) -> Array:
    """Attention of one slot: q by head; keys and values by visible slot, then by key-value head."""
    out = []
    for head, query in enumerate(q):
        kv = head // (len(q) // len(keys[0]))
        scores = np.array([query @ key[kv] for key in keys]) / np.sqrt(len(query))
        weights = np.exp(scores - scores.max())
        weights /= weights.sum()
        out.append(sum(w * value[kv] for w, value in zip(weights, values, strict=True)))
    return np.concatenate(out)


def mlp(x: Array, w: Mapping[str, Array], prefix: str) -> Array:
    gate, up = w[f"{prefix}gate_proj.weight"] @ x, w[f"{prefix}up_proj.weight"] @ x
    return w[f"{prefix}down_proj.weight"] @ (gate / (1 + np.exp(-gate)) * up)


def target_states(w: Mapping[str, Array], config: Config, ids: Sequence[int]) -> tuple[list[list[Array]], Array]:
    """Inputs of every layer and the last one's output, as [layer][slot]; and the logits [slot, vocabulary]."""
    eps, theta, head_dim = config["rms_norm_eps"], config["rope_theta"], config["head_dim"]
    x = [w["model.embed_tokens.weight"][i] for i in ids]
    states = [list(x)]
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}."
        normed = [rms_norm(slot, w[f"{name}input_layernorm.weight"], eps) for slot in x]
        q, k, v = (
            [split_heads(w[f"{name}self_attn.{p}_proj.weight"] @ slot, head_dim) for slot in normed] for p in "qkv"
        )
        q = [[turn(head, t, theta) for head in heads] for t, heads in enumerate(q)]
        k = [[turn(head, t, theta) for head in heads] for t, heads in enumerate(k)]
        o = w[f"{name}self_attn.o_proj.weight"]
        x = [slot + o @ mix(q[t], k[: t + 1], v[: t + 1]) for t, slot in enumerate(x)]
        post = w[f"{name}post_attention_layernorm.weight"]
        x = [slot + mlp(rms_norm(slot, post, eps), w, f"{name}mlp.") for slot in x]
        states.append(list(x))
    head = w.get("lm_head.weight", w["model.embed_tokens.weight"])
    return states, np.array([head @ rms_norm(slot, w["model.norm.weight"], eps) for slot in x])


def draft_logits(
    w: Mapping[str, Array], config: Config, embed: Array, features: Sequence[Array], ids: Sequence[int], *, unroll: int
) -> list[Array]:
    """Logits of the unrolled draft, [unroll][slot, draft vocabulary], fed with the given tokens (EAGLE-3, section 3).

    Slot t takes features[t]; its input token in pass j is ids[t + 1 + j]. In pass j it sees the first pass's keys of
    slots 0 to t and its own keys of passes 1 to j. Slots whose token does not exist are NaN.
    """
    eps, theta, head_dim = config["rms_norm_eps"], config["rope_theta"], config["head_dim"]
    slots = len(features)
    hidden = [w["fc.weight"] @ f for f in features]
    first_k: list[list[Array]] = []
    first_v: list[list[Array]] = []
    own: list[tuple[list[list[Array]], list[list[Array]]]] = [([], []) for _ in range(slots)]
    result = []
    for j in range(unroll):
        logits = np.full((slots, len(w["lm_head.weight"])), np.nan)
        for t in range(slots):
            if t + 1 + j >= len(ids):
                continue
            e = rms_norm(embed[ids[t + 1 + j]], w["midlayer.input_layernorm.weight"], eps)
            a = np.concatenate([e, rms_norm(hidden[t], w["midlayer.hidden_norm.weight"], eps)])
            q, k, v = (split_heads(w[f"midlayer.self_attn.{p}_proj.weight"] @ a, head_dim) for p in "qkv")
            q, k = ([turn(head, t + j, theta) for head in heads] for heads in (q, k))
            (first_k if j == 0 else own[t][0]).append(k)
            (first_v if j == 0 else own[t][1]).append(v)
            mixed = mix(q, first_k[: t + 1] + own[t][0], first_v[: t + 1] + own[t][1])
            r = hidden[t] + w["midlayer.self_attn.o_proj.weight"] @ mixed
            post = rms_norm(r, w["midlayer.post_attention_layernorm.weight"], eps)
            hidden[t] = r + mlp(post, w, "midlayer.mlp.")
            logits[t] = w["lm_head.weight"] @ rms_norm(hidden[t], w["norm.weight"], eps)
        result.append(logits)
    return result
