from __future__ import annotations

import math

import pytest

pytest.importorskip("torch", reason="the draft module needs torch (extra: reference)")

import torch
from naive_llama import mix, turn

from workbench.drafter.layers import Rope, attention, causal_mask, linear, rotate
from workbench.drafter.shape import LlamaShape

SHAPE = LlamaShape(
    hidden_size=16,
    intermediate_size=24,
    num_layers=1,
    num_heads=4,
    num_kv_heads=2,
    head_dim=4,
    vocab_size=12,
    max_position_embeddings=64,
    rms_norm_eps=1e-5,
    rope_theta=10000.0,
    rope_scaling={},
)


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 6, 30])
def test_linear_is_the_product_for_any_number_of_rows(rows: int) -> None:
    x, weight = torch.randn(rows, 5, dtype=torch.float64), torch.randn(3, 5, dtype=torch.float64)
    assert torch.allclose(linear(x, weight), x @ weight.t())
    assert linear(x.reshape(1, rows, 5), weight).shape == (1, rows, 3)


def test_rotation_turns_pairs_by_position() -> None:
    x = torch.randn(3, 2, 4, dtype=torch.float64)
    rope = Rope(SHAPE, 20, dtype=torch.float64, device=torch.device("cpu"))
    turned = rotate(x, rope.at(slice(7, 10)))
    for slot in range(3):
        for head in range(2):
            expected = turn(x[slot, head].numpy(), 7 + slot, 10000.0)
            assert torch.allclose(turned[slot, head], torch.from_numpy(expected))
    assert torch.equal(rotate(x, rope.at(torch.tensor([7, 8, 9]))), turned)


def test_a_mask_hides_what_comes_later_and_nothing_before() -> None:
    mask = causal_mask(3, 2, dtype=torch.float32, device=torch.device("cpu"))
    hidden = -math.inf
    assert mask.tolist() == [[0, 0, 0, hidden, hidden], [0, 0, 0, 0, hidden], [0, 0, 0, 0, 0]]
    assert causal_mask(1, 5, dtype=torch.float32, device=torch.device("cpu")) is None


def test_attention_sees_the_prefix_and_its_own_slots_in_one_softmax() -> None:
    rows, before = 3, 5
    q = torch.randn(rows, 4, 4, dtype=torch.float64)
    k, v = torch.randn(2, 2, before, 4, dtype=torch.float64)
    own = [tuple(torch.randn(2, rows, 2, 4, dtype=torch.float64)) for _ in range(2)]
    mask = causal_mask(rows, before - rows, dtype=torch.float64, device=torch.device("cpu"))
    found = attention(q, k, v, mask, own)
    for slot in range(rows):
        seen = before - rows + slot + 1
        keys = [list(k[:, s].numpy()) for s in range(seen)] + [list(pair[0][slot].numpy()) for pair in own]
        values = [list(v[:, s].numpy()) for s in range(seen)] + [list(pair[1][slot].numpy()) for pair in own]
        expected = mix(list(q[slot].numpy()), keys, values)
        assert torch.allclose(found[slot].double(), torch.from_numpy(expected), atol=1e-6)


def test_attention_is_the_same_with_a_batch_in_front() -> None:
    q, k, v = torch.randn(3, 4, 4), torch.randn(2, 3, 4), torch.randn(2, 3, 4)
    own = [(torch.randn(3, 2, 4), torch.randn(3, 2, 4))]
    alone = attention(q, k, v, None, own)
    batched = attention(q[None], k[None], v[None], None, [(a[None], b[None]) for a, b in own])
    assert torch.allclose(batched[0], alone, atol=1e-6)
