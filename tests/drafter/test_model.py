from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="the draft module needs torch (extra: reference)")

import torch
from naive_llama import draft_logits
from tiny_models import WIDTH, as_numpy, draft_config, draft_tensors, write_model

from workbench.drafter.checkpoint import load_draft
from workbench.drafter.layers import Rope, attention, causal_mask
from workbench.drafter.model import Eagle3Draft

SLOTS, UNROLL = 6, 4
CPU = torch.device("cpu")


@pytest.fixture
def draft(tmp_path: Path) -> Eagle3Draft:
    config = draft_config()
    return load_draft(write_model(tmp_path / "draft", config, draft_tensors(config)), dtype=torch.float64, device=CPU)


def unrolled(draft: Eagle3Draft, features: torch.Tensor, embeds: torch.Tensor, unroll: int) -> list[torch.Tensor]:
    """The training-time test: pass j of all slots at once, later passes seeing their own slot's chain only."""
    rope = Rope(draft.config.shape, 64, dtype=features.dtype, device=CPU)
    slots = features.shape[-2]
    mask = causal_mask(slots, 0, dtype=features.dtype, device=CPU)
    prefix: list[torch.Tensor] = []
    own: list[tuple[torch.Tensor, torch.Tensor]] = []

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if not prefix:
            prefix.extend((k.movedim(-3, -2), v.movedim(-3, -2)))
        else:
            own.append((k, v))
        return attention(q, prefix[0], prefix[1], mask, own)

    hidden, logits = draft.fuse(features), []
    for j in range(unroll):
        hidden = draft(hidden, embeds[..., j : j + slots, :], rope.at(slice(j, j + slots)), attend)
        logits.append(draft.logits(hidden))
    return logits


def test_the_unrolled_module_is_the_formula_of_eagle3(draft: Eagle3Draft) -> None:
    generator = torch.Generator().manual_seed(7)
    embed = torch.randn(12, WIDTH, generator=generator, dtype=torch.float64)
    features = torch.randn(SLOTS, 3 * WIDTH, generator=generator, dtype=torch.float64)
    ids = torch.randint(12, (SLOTS + UNROLL,), generator=generator)
    with torch.no_grad():
        found = unrolled(draft, features, embed[ids[1:]], UNROLL)
    config = draft_config()
    tensors = as_numpy(draft_tensors(config))
    expected = draft_logits(tensors, config, embed.numpy(), list(features.numpy()), ids.tolist(), unroll=UNROLL)
    for one, other in zip(found, expected, strict=True):
        assert np.isfinite(other).all()
        # The softmax runs in float32.
        assert torch.allclose(one, torch.from_numpy(other), atol=1e-4)


def test_a_batch_gives_what_its_members_give_alone_and_gradients_reach_every_weight(draft: Eagle3Draft) -> None:
    features = torch.randn(2, SLOTS, 3 * WIDTH, dtype=torch.float64)
    embeds = torch.randn(2, SLOTS + UNROLL, WIDTH, dtype=torch.float64)
    together = unrolled(draft, features, embeds, UNROLL)
    alone = unrolled(draft, features[1], embeds[1], UNROLL)
    assert all(torch.allclose(both[1], one, atol=1e-6) for both, one in zip(together, alone, strict=True))
    sum(logits.square().mean() for logits in together).backward()
    assert all(p.grad is not None and bool(p.grad.abs().sum() > 0) for p in draft.parameters())


def test_states_of_the_draft_s_own_width_pass_by_the_projection(draft: Eagle3Draft) -> None:
    features = torch.randn(SLOTS, WIDTH, dtype=torch.float64)
    assert draft.fuse(features) is features
