from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="training needs torch (extra: reference)")

import torch
from training_files import CPU, sample

from workbench.drafter.layers import attention, causal_mask
from workbench.training.attention import DraftAttention, causal
from workbench.training.compiled import Compiled
from workbench.training.packs import Pack, pack

HEADS, KV_HEADS, DIM, OWN = 4, 2, 8, 3
ATTENTION = DraftAttention(Compiled(on=False))


@pytest.fixture
def packed() -> Pack:
    return pack([sample([1] * 6, 4), sample([1] * 9, 5)], 2, frozenset(), CPU)


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def expected(packed: Pack, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, own: list[torch.Tensor]) -> torch.Tensor:
    """Sequence by sequence by the engine's attention, with whole rows of which the last ones are kept."""
    out, row, slot = [], 0, 0
    for rows, slots in zip(packed.queries.lengths, packed.slots.lengths, strict=True):
        mask = causal_mask(slots, 0, dtype=q.dtype, device=CPU)
        if mask is not None:
            mask = mask[slots - rows :]
        part, seen = slice(row, row + rows), slice(slot, slot + slots)
        pairs = [(own[0][i][part], own[1][i][part]) for i in range(len(own[0]))]
        out.append(attention(q[part], k[seen].transpose(0, 1), v[seen].transpose(0, 1), mask, pairs))
        row, slot = row + rows, slot + slots
    return torch.cat(out)


@pytest.mark.parametrize("own", [0, 1, OWN])
def test_values_and_gradients_are_those_of_one_softmax(packed: Pack, own: int) -> None:
    torch.manual_seed(0)
    rows, slots = sum(packed.queries.lengths), sum(packed.slots.lengths)
    inputs = [drawn(rows, HEADS, DIM), drawn(slots, KV_HEADS, DIM), drawn(slots, KV_HEADS, DIM)]
    chain = [drawn(own, rows, KV_HEADS, DIM), drawn(own, rows, KV_HEADS, DIM)]
    weight = torch.randn(rows, HEADS * DIM, dtype=torch.float64)
    mine = ATTENTION(*inputs, (chain[0], chain[1]) if own else None, packed.queries, packed.slots)
    other = expected(packed, *inputs, chain)
    # The engine's softmax runs in float32.
    assert torch.allclose(mine, other, atol=1e-6)
    wanted = inputs + (chain if own else [])
    found = torch.autograd.grad((mine * weight).sum(), wanted)
    true = torch.autograd.grad((other * weight).sum(), wanted)
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(found, true, strict=True))


def test_the_target_s_attention_sees_its_own_sequence_alone(packed: Pack) -> None:
    torch.manual_seed(0)
    tokens = sum(packed.tokens.lengths)
    q, k, v = torch.randn(tokens, HEADS, DIM), torch.randn(tokens, KV_HEADS, DIM), torch.randn(tokens, KV_HEADS, DIM)
    whole = causal(q, k, v, packed.tokens, packed.tokens)
    mask = causal_mask(9, 0, dtype=q.dtype, device=CPU)
    alone = attention(q[6:], k[6:].transpose(0, 1), v[6:].transpose(0, 1), mask)
    assert torch.allclose(whole[6:], alone, atol=1e-6)
