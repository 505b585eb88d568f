"""What a target computes over whole samples: the states that a draft is fed with, and those that its head reads."""

from __future__ import annotations

import torch
from torch import Tensor

from workbench.drafter.layers import Rope, gated_mlp, linear, rms_norm, rotate
from workbench.reference.target import Target
from workbench.training.attention import causal
from workbench.training.compiled import Compiled
from workbench.training.packs import Pack


class Features:
    """A target's forward pass over packs, without a cache. ``capture`` are layers whose input is wanted."""

    def __init__(self, target: Target, capture: tuple[int, ...], length: int, compiled: Compiled) -> None:
        self._target = target
        self._capture = capture
        self._rope = Rope(target.shape, length, dtype=torch.float32, device=target.embed.device)
        self._before = compiled(_before, {0: (0,), 3: (0,)})
        self._after = compiled(_after, {0: (0,), 1: (0,)})

    @torch.no_grad()
    def __call__(self, pack: Pack) -> tuple[Tensor, Tensor]:
        """The captured states side by side [N, captured * H], and the normed last states [N, H]."""
        target, shape = self._target, self._target.shape
        sizes = (shape.num_heads, shape.num_kv_heads, shape.head_dim)
        rope, eps = self._rope.at(pack.places), shape.rms_norm_eps
        x = target.embed[pack.ids]
        inputs = []
        for i, layer in enumerate(target.layers):
            if i in self._capture:
                inputs.append(x)
            q, k, v = self._before(x, layer.input_norm, layer.qkv, rope, sizes, eps)
            mixed = causal(q, k, v, pack.tokens, pack.tokens)
            x = self._after(x, mixed, layer.o, layer.post_norm, layer.gate_up, layer.down, eps)
        if len(target.layers) in self._capture:
            inputs.append(x)
        return torch.cat(inputs, -1), rms_norm(x, target.norm, eps)


# Weights come one by one, so that one compiled function serves every layer.


def _before(
    x: Tensor, norm: Tensor, weight: Tensor, rope: tuple[Tensor, Tensor], sizes: tuple[int, int, int], eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    heads, kv_heads, head_dim = sizes
    qkv = linear(rms_norm(x, norm, eps), weight).unflatten(-1, (heads + 2 * kv_heads, head_dim))
    qk = rotate(qkv[:, : heads + kv_heads], rope).to(x.dtype)
    return qk[:, :heads], qk[:, heads:], qkv[:, heads + kv_heads :]


def _after(x: Tensor, mixed: Tensor, o: Tensor, norm: Tensor, gate_up: Tensor, down: Tensor, eps: float) -> Tensor:
    x = x + linear(mixed, o)
    return x + gated_mlp(rms_norm(x, norm, eps), gate_up, down)
