"""The optimizer: float32 weights behind those that the passes use, and gradients added up over processes."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import distributed
from torch.nn.utils import clip_grad_norm_

from workbench.drafter.model import Eagle3Draft
from workbench.training.config import TrainConfig


class Optimiser:
    """AdamW on ``master``; ``draft`` is what the passes use, a copy in their precision (or ``master`` itself)."""

    def __init__(self, master: Eagle3Draft, draft: Eagle3Draft, config: TrainConfig) -> None:
        self._master: list[torch.Tensor] = list(master.parameters())
        self._used: list[torch.Tensor] = list(draft.parameters())
        self._clip = config.clip
        on_gpu = self._master[0].is_cuda
        self._adam = torch.optim.AdamW(
            self._master,
            lr=config.learning_rate,
            betas=config.betas,
            weight_decay=config.weight_decay,
            fused=on_gpu or None,
        )

    def step(self, rate: float) -> torch.Tensor:
        """Apply the gradients of ``draft``, and forget them. Returns their norm before clipping."""
        for used, master in zip(self._used, self._master, strict=True):
            # A process without a sample of its own still has its part in the sum.
            found = torch.zeros_like(master) if used.grad is None else used.grad.to(master.dtype)
            used.grad = None
            master.grad = found
        _add_up([master.grad for master in self._master if master.grad is not None])
        norm = clip_grad_norm_(self._master, self._clip)
        for group in self._adam.param_groups:
            group["lr"] = rate
        self._adam.step()
        self._adam.zero_grad()
        self.refresh()
        return norm

    @torch.no_grad()
    def refresh(self) -> None:
        """Bring the weights that the passes use up to date."""
        if self._used[0] is not self._master[0]:
            torch._foreach_copy_(self._used, self._master)

    def state(self) -> dict[str, Any]:
        return self._adam.state_dict()

    def restore(self, state: dict[str, Any]) -> None:
        self._adam.load_state_dict(state)
        self.refresh()


def rate(config: TrainConfig, progress: float) -> float:
    """The learning rate at ``progress`` (0 to 1) of the whole run: linear warm-up, then a cosine."""
    if progress < config.warmup:
        return config.learning_rate * progress / config.warmup
    along = min(1.0, (progress - config.warmup) / (1 - config.warmup))
    floor = config.final_rate
    return config.learning_rate * (floor + (1 - floor) * (1 + math.cos(math.pi * along)) / 2)


def _add_up(tensors: list[torch.Tensor]) -> None:
    """Sum over processes, in one message."""
    if not distributed.is_initialized():
        return
    flat = torch.cat([tensor.flatten() for tensor in tensors])
    distributed.all_reduce(flat)
    for tensor, whole in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
        tensor.copy_(whole.view_as(tensor))
