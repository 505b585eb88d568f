"""What a Llama layer is made of, for target and draft, serving and training alike. Leading dimensions are free."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from workbench.drafter.shape import LlamaShape

# Up to this many rows, W x^T streams the weights once, where x W^T on a CPU packs them first: 59 against 78 ms for the
# layers of SmolLM2-135M at 4 rows (Zen 3, one thread, torch 2.13), as long as the result is laid out row by row again:
# left transposed, it makes every operation behind it slower (106 ms). With the output layer and two threads: 60 against
# 114 ms at 8 rows, 95 against 128 at 16, 186 against 241 at 64.
_FEW_ROWS = 64


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """``x @ weight.T``."""
    if x.device.type == "cpu" and 1 < (rows := x.numel() // x.shape[-1]) <= _FEW_ROWS:
        flat = x.reshape(rows, -1)
        # Three columns are slower than four (66 against 49 ms).
        wide = functional.pad(flat, (0, 0, 0, 1)) if rows == 3 else flat
        return (weight @ wide.t()).t()[:rows].contiguous().view(*x.shape[:-1], -1)
    return functional.linear(x, weight)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return functional.rms_norm(x, weight.shape, weight, eps)


def gated_mlp(x: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    gate, up = linear(x, gate_up).chunk(2, -1)
    return linear(functional.silu(gate) * up, down)


class Rope:
    """Tables of rotary embeddings (halves one after the other, as in Hugging Face's Llama) for every position."""

    def __init__(self, shape: LlamaShape, length: int, *, dtype: torch.dtype, device: torch.device) -> None:
        frequencies = torch.tensor(shape.inverse_frequencies, dtype=torch.float64)
        angles = torch.outer(torch.arange(length, dtype=torch.float64), frequencies)
        cos, sin = angles.cos(), angles.sin()
        self._cos = torch.cat([cos, cos], -1).to(dtype=dtype, device=device)
        # The sign of "rotate half" is in the table: a roll then does the rest.
        self._sin = torch.cat([-sin, sin], -1).to(dtype=dtype, device=device)

    def at(self, positions: Tensor | slice) -> tuple[Tensor, Tensor]:
        """cos and sin of shape [T, 1, head_dim], to broadcast over heads."""
        return self._cos[positions].unsqueeze(-2), self._sin[positions].unsqueeze(-2)


def rotate(x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
    """Turn ``x`` [..., T, heads, head_dim] by the angles of its positions."""
    cos, sin = rope
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)


def causal_mask(rows: int, before: int, *, dtype: torch.dtype, device: torch.device) -> Tensor | None:
    """Additive mask of ``rows`` slots that follow ``before`` others; None where nothing is to be hidden."""
    if rows == 1:
        return None
    hidden = torch.full((rows, rows), float("-inf"), dtype=dtype, device=device).triu(1)
    return functional.pad(hidden, (before, 0))


def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, own: Sequence[tuple[Tensor, Tensor]] = ()
) -> Tensor:
    """Grouped-query attention over a shared prefix and, for each slot, keys and values of its own.

    Parameters
    ----------
    q
        [..., T, heads, head_dim]
    k, v
        [..., kv_heads, n, head_dim], seen by every slot as far as ``mask`` [T, n] lets it.
    own
        Pairs of [..., T, kv_heads, head_dim] that only the slot at the same place sees: the chain that a draft has
        grown from that slot (EAGLE-3's training-time test), or the branch of a tree.

    Returns
    -------
    Tensor
        [..., T, heads * head_dim]; one softmax, in float32, over both parts.
    """
    rows, heads, head_dim = q.shape[-3:]
    kv_heads, before = k.shape[-3:-1]
    group = heads // kv_heads
    q = (q * head_dim**-0.5).unflatten(-2, (kv_heads, group))
    scores = q.movedim(-4, -2).flatten(-3, -2) @ k.transpose(-1, -2)
    scores = scores.unflatten(-2, (group, rows))
    if mask is not None:
        scores = scores + mask
    if own:
        alone = torch.stack([(q * key.unsqueeze(-2)).sum(-1) for key, _ in own], -1)
        scores = torch.cat([scores, alone.movedim(-4, -2)], -1)
    weights = scores.softmax(-1, dtype=torch.float32).to(v.dtype)
    mixed: Tensor = (weights[..., :before].flatten(-3, -2) @ v).unflatten(-2, (group, rows)).movedim(-2, -4)
    for j, (_, value) in enumerate(own, before):
        mixed = mixed + weights[..., j].movedim(-1, -3).unsqueeze(-1) * value.unsqueeze(-2)
    return mixed.flatten(-3)
