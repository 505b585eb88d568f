"""The EAGLE-3 draft module: one decoder layer over captured target states and token embeddings.

It computes what SGLang's ``LlamaForCausalLMEagle3`` does (its options ``fc_norm``, ``norm_before_fc`` and
``norm_output`` are not supported) and holds no state: caller and `Attend` decide what a slot sees, so that serving, the
unrolled training step and offline evaluation run the same module.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from workbench.drafter.layers import gated_mlp, linear, rms_norm, rotate
from workbench.drafter.shape import LlamaShape

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Rotated q [..., T, heads, D], rotated k and v [..., T, kv_heads, D] to the mixed values [..., T, heads * D]."""


@dataclass(frozen=True, slots=True)
class DraftConfig:
    """``capture_ids`` are 0-based target layers whose output is captured; None: the server's default."""

    shape: LlamaShape
    draft_vocab_size: int
    num_captured: int = 3
    capture_ids: tuple[int, ...] | None = None


class Eagle3Draft(nn.Module):
    """With target states f_t and tokens x, slot t takes (f_t, embedding of x_{t+1}) and proposes x_{t+2}.

    ``target_ids`` [draft vocabulary] are the target's ids of the draft's ids (arange + ``d2t`` of a checkpoint).
    """

    target_ids: Tensor

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        shape = config.shape
        width, heads, kv_heads, head_dim = shape.hidden_size, shape.num_heads, shape.num_kv_heads, shape.head_dim
        self.config = config
        self.fc = _projection(width * config.num_captured, width)
        self.input_layernorm = _scale(width)
        self.hidden_norm = _scale(width)
        self.qkv_proj = _projection(2 * width, (heads + 2 * kv_heads) * head_dim)
        self.o_proj = _projection(heads * head_dim, width)
        self.post_attention_layernorm = _scale(width)
        self.gate_up_proj = _projection(width, 2 * shape.intermediate_size)
        self.down_proj = _projection(shape.intermediate_size, width)
        self.norm = _scale(width)
        self.lm_head = _projection(width, config.draft_vocab_size)
        self.register_buffer("target_ids", torch.arange(config.draft_vocab_size))

    def fuse(self, features: Tensor) -> Tensor:
        """Captured states [..., T, captured * H], lowest layer first, to [..., T, H].

        States that already have the draft's width pass as they are. That is SGLang's rule, and what happens to an
        EAGLE-3 draft that is served with the algorithm EAGLE.
        """
        return features if features.shape[-1] == self.config.shape.hidden_size else linear(features, self.fc)

    def forward(self, hidden: Tensor, embeds: Tensor, rope: tuple[Tensor, Tensor], attend: Attend) -> Tensor:
        """One pass of the layer.

        Parameters
        ----------
        hidden
            [..., T, H]: fused target states in the first pass, then what the pass before returned.
        embeds
            [..., T, H]: the target's embeddings of the tokens that follow the slots.
        rope
            cos and sin at the positions of the slots: t in the first pass, one more in each later one.

        Returns
        -------
        Tensor
            [..., T, H] before the final norm: the next pass's ``hidden``, and what `logits` takes.
        """
        q, k, v = self.project(hidden, embeds, rope)
        return self.absorb(hidden, attend(q, k, v))

    def project(self, hidden: Tensor, embeds: Tensor, rope: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """What `forward` does before attention: rotated q and k, and v."""
        shape = self.config.shape
        heads, kv_heads = shape.num_heads, shape.num_kv_heads
        eps = shape.rms_norm_eps
        both = torch.cat([rms_norm(embeds, self.input_layernorm, eps), rms_norm(hidden, self.hidden_norm, eps)], -1)
        qkv = linear(both, self.qkv_proj).unflatten(-1, (heads + 2 * kv_heads, shape.head_dim))
        qk = rotate(qkv[..., : heads + kv_heads, :], rope)
        return qk[..., :heads, :], qk[..., heads:, :], qkv[..., heads + kv_heads :, :]

    def absorb(self, hidden: Tensor, mixed: Tensor) -> Tensor:
        """What `forward` does behind attention."""
        # The residual is the state as it came, not its norm.
        hidden = hidden + linear(mixed, self.o_proj)
        normed = rms_norm(hidden, self.post_attention_layernorm, self.config.shape.rms_norm_eps)
        return hidden + gated_mlp(normed, self.gate_up_proj, self.down_proj)

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., T, draft vocabulary]"""
        return linear(rms_norm(hidden, self.norm, self.config.shape.rms_norm_eps), self.lm_head)


def _scale(width: int) -> nn.Parameter:
    return nn.Parameter(torch.ones(width))


def _projection(width_in: int, width_out: int) -> nn.Parameter:
    weight = torch.empty(width_out, width_in)
    return nn.Parameter(nn.init.normal_(weight, std=0.02))
