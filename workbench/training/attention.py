"""Causal attention over packed sequences, and the draft's: a shared prefix and the keys that a slot's own chain wrote.

On a GPU in half precision the prefix runs through PyTorch's flash attention for sequences of different lengths;
anywhere else sequence by sequence. The own keys are joined to it by the log-sum-exp of the prefix, and the backward
pass hands flash attention the joined result and log-sum-exp in place of its own: with those its formulas give the
gradients of one softmax over both parts.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from workbench.training.compiled import Compiled
from workbench.training.packs import Spans

_FLASH_DTYPES = (torch.bfloat16, torch.float16)


def causal(q: Tensor, k: Tensor, v: Tensor, queries: Spans, keys: Spans) -> Tensor:
    """Attention of the last ``queries`` of each sequence to what stands at or before them in it; without gradients.

    ``q`` [rows, heads, D]; ``k``, ``v`` [slots, kv_heads, D]; the result [rows, heads * D].
    """
    mixed, _ = _forward(q, k, v, queries, keys)
    return mixed.flatten(1)


class DraftAttention:
    """As `causal`, with gradients and one softmax that also runs over each row's own keys."""

    def __init__(self, compiled: Compiled) -> None:
        rows, own = (0,), (0, 1)
        self._join = compiled(join, {0: rows, 1: rows, 2: rows, 3: own, 4: own})
        self._join_backward = compiled(join_backward, {0: rows, 1: rows, 2: rows, 3: own, 4: own, 5: rows, 6: rows})

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, own: tuple[Tensor, Tensor] | None, queries: Spans, keys: Spans
    ) -> Tensor:
        """``own`` are keys and values [passes so far, rows, kv_heads, D]."""
        own_k, own_v = own if own is not None else (None, None)
        how = queries, keys, self._join, self._join_backward
        mixed: Tensor = _Joined.apply(q, k, v, own_k, own_v, how)  # type: ignore[no-untyped-call]
        return mixed.flatten(1)


class _Joined(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, own_k: Tensor | None, own_v: Tensor | None, how: tuple[Any, ...]
    ) -> Tensor:
        queries, keys, joined, _ = how
        out, lse = _forward(q, k, v, queries, keys)
        if own_k is not None:
            out, lse = joined(q, out, lse, own_k, own_v)
        ctx.save_for_backward(q, k, v, own_k, own_v, out, lse)
        ctx.how = how
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, own_k, own_v, out, lse = ctx.saved_tensors
        queries, keys, _, joined_backward = ctx.how
        grad = grad.contiguous()
        grad_q, grad_k, grad_v = _backward(grad, q, k, v, out, lse, queries, keys)
        if own_k is None:
            return grad_q, grad_k, grad_v, None, None, None
        grad_q, grad_own_k, grad_own_v = joined_backward(grad, grad_q, q, own_k, own_v, out, lse)
        return grad_q, grad_k, grad_v, grad_own_k, grad_own_v, None


def join(q: Tensor, out: Tensor, lse: Tensor, own_k: Tensor, own_v: Tensor) -> tuple[Tensor, Tensor]:
    """The prefix's values [rows, heads, D] and log-sum-exp [rows, heads], with a row's own keys taken in."""
    scores = _own_scores(q, own_k)
    whole = torch.logaddexp(lse, scores.logsumexp(0))
    mixed = (lse - whole).exp().unsqueeze(-1) * _wide(out)
    mixed = mixed + ((scores - whole).exp().unsqueeze(-1) * _wide(_spread(own_v, q.shape[1] // own_v.shape[2]))).sum(0)
    return mixed.to(out.dtype), whole


def join_backward(
    grad: Tensor, grad_q: Tensor, q: Tensor, own_k: Tensor, own_v: Tensor, out: Tensor, lse: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q (the prefix's part given) and of the own keys and values."""
    kv_heads = own_k.shape[2]
    group = q.shape[1] // kv_heads
    wide = _wide(grad)
    weights = (_own_scores(q, own_k) - lse).exp()
    through = (wide * _wide(_spread(own_v, group))).sum(-1) - (wide * _wide(out)).sum(-1)
    grad_scores = (weights * through * _scale(q)).unsqueeze(-1)
    of_q = (_wide(grad_q) + (grad_scores * _wide(_spread(own_k, group))).sum(0)).to(q.dtype)
    of_k = (grad_scores * _wide(q)).unflatten(2, (kv_heads, group)).sum(3).to(q.dtype)
    of_v = (weights.unsqueeze(-1) * wide).unflatten(2, (kv_heads, group)).sum(3).to(q.dtype)
    return of_q, of_k, of_v


def _own_scores(q: Tensor, own_k: Tensor) -> Tensor:
    """[passes so far, rows, heads]"""
    scores: Tensor = (_wide(q) * _wide(_spread(own_k, q.shape[1] // own_k.shape[2]))).sum(-1)
    return scores * _scale(q)


def _scale(q: Tensor) -> float:
    return 1 / math.sqrt(q.shape[-1])


def _wide(x: Tensor) -> Tensor:
    """In float32 at least."""
    return x if x.dtype == torch.float64 else x.float()


def _spread(x: Tensor, group: int) -> Tensor:
    """A copy of each key-value head for every query head that reads it."""
    return x if group == 1 else x.repeat_interleave(group, -2)


# ---- the prefix ----------------------------------------------------------------------------------------------------


def _forward(q: Tensor, k: Tensor, v: Tensor, queries: Spans, keys: Spans) -> tuple[Tensor, Tensor]:
    """The mixed values [rows, heads, D] and the log-sum-exp of the scaled scores [rows, heads]; keys as they are."""
    if not _flash(q):
        return _plain_forward(q, k, v, queries, keys)
    # Causal with fewer queries than keys: the last query sees the last key (flash attention 2.1 and later).
    found = torch.ops.aten._flash_attention_forward(
        q, k, v, queries.ends, keys.ends, queries.longest, keys.longest, 0.0, True, False, scale=_scale(q)
    )
    return found[0], found[1].transpose(0, 1)


def _backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, queries: Spans, keys: Spans
) -> tuple[Tensor, Tensor, Tensor]:
    if not _flash(q):
        return _plain_backward(grad, q, k, v, out, lse, queries, keys)
    # Read for dropout alone, and there is none.
    random, unused = torch.empty(2, dtype=torch.uint64, device=q.device), torch.empty(0, device=q.device)
    found = torch.ops.aten._flash_attention_backward(
        grad,
        q,
        k,
        v,
        out,
        lse.transpose(0, 1).contiguous(),
        queries.ends,
        keys.ends,
        queries.longest,
        keys.longest,
        0.0,
        True,
        random,
        unused,
        scale=_scale(q),
    )
    return found[0], found[1], found[2]


def _flash(q: Tensor) -> bool:
    return bool(q.is_cuda) and q.dtype in _FLASH_DTYPES and q.shape[-1] % 8 == 0


def _plain_forward(q: Tensor, k: Tensor, v: Tensor, queries: Spans, keys: Spans) -> tuple[Tensor, Tensor]:
    out, lse = torch.empty_like(q), q.new_empty(q.shape[:2], dtype=torch.float32)
    group = q.shape[1] // k.shape[1]
    by_head = [x.transpose(0, 1) for x in (q, _spread(k, group), _spread(v, group))]
    for rows, slots in _pieces(queries, keys):
        q1, k1, v1 = by_head[0][:, rows], by_head[1][:, slots], by_head[2][:, slots]
        scores = _scores(q1, k1)
        whole = scores.logsumexp(-1)
        lse[rows] = whole.transpose(0, 1)
        out[rows] = ((scores - whole.unsqueeze(-1)).exp().to(v.dtype) @ v1).transpose(0, 1)
    return out, lse


def _plain_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, queries: Spans, keys: Spans
) -> tuple[Tensor, Tensor, Tensor]:
    group = q.shape[1] // k.shape[1]
    k, v = _spread(k, group), _spread(v, group)
    grad_q, grad_k, grad_v = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    through = (grad.float() * out.float()).sum(-1).transpose(0, 1).unsqueeze(-1)
    whole = lse.transpose(0, 1).unsqueeze(-1)
    by_head = [x.transpose(0, 1) for x in (q, k, v, grad)]
    for rows, slots in _pieces(queries, keys):
        q1, k1, v1, grad1 = by_head[0][:, rows], by_head[1][:, slots], by_head[2][:, slots], by_head[3][:, rows]
        weights = (_scores(q1, k1) - whole[:, rows]).exp()
        of_weights = (grad1 @ v1.transpose(1, 2)).float()
        of_scores = (weights * (of_weights - through[:, rows]) * _scale(q)).to(q.dtype)
        grad_q[rows] = (of_scores @ k1).transpose(0, 1)
        grad_k[slots] = (of_scores.transpose(1, 2) @ q1).transpose(0, 1)
        grad_v[slots] = (weights.to(v.dtype).transpose(1, 2) @ grad1).transpose(0, 1)
    return grad_q, *(x.unflatten(1, (-1, group)).sum(2) for x in (grad_k, grad_v))


def _scores(q: Tensor, k: Tensor) -> Tensor:
    """Scaled scores [heads, rows, slots] in float32; what stands behind a row is hidden."""
    rows, slots = q.shape[1], k.shape[1]
    hidden = torch.full((rows, slots), float("-inf"), device=q.device).triu(slots - rows + 1)
    scores: Tensor = (q @ k.transpose(1, 2)).float()
    return scores * _scale(q) + hidden


def _pieces(queries: Spans, keys: Spans) -> list[tuple[slice, slice]]:
    pieces, row, slot = [], 0, 0
    for rows, slots in zip(queries.lengths, keys.lengths, strict=True):
        pieces.append((slice(row, row + rows), slice(slot, slot + slots)))
        row, slot = row + rows, slot + slots
    return pieces
