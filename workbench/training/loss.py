"""The loss: cross-entropy with the target's own distribution over the draft's vocabulary, for every pass.

At position u the target says p = softmax over the kept ids of its logits; pass j's slot gives q. With masks m over the
judged positions whose likeliest id (of all) is kept, l_j = mean of -sum p log q, and the loss is the mean of l_j
weighted by 0.8^j. Logits exist for some rows at a time: their gradient is made at once, with the head's, so that
neither logits nor distributions are kept for the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from workbench.drafter.layers import rms_norm
from workbench.drafter.model import Eagle3Draft
from workbench.reference.target import Target
from workbench.training.compiled import Compiled
from workbench.training.packs import Pack

DISCOUNT = 0.8
# So many logits, of all passes together, are in memory at a time.
_CHUNK_LOGITS = {"cuda": 1 << 28, "cpu": 1 << 23}


@dataclass(frozen=True, slots=True)
class Labels:
    """What the target says at the judged positions of a pack.

    ``states`` [L, H] are its normed states there, ``best`` its likeliest ids as the draft numbers them; a number from
    the draft vocabulary's size on is an id that is not kept.
    """

    states: Tensor
    best: Tensor


@dataclass(frozen=True, slots=True)
class Judgement:
    """The weighted loss, and by pass the sums that its figures are made of: [passes] each, without gradients."""

    loss: Tensor
    losses: Tensor
    hits: Tensor
    judged: Tensor


class Teacher:
    """The target's head with the kept ids first, so that the draft's vocabulary is the front of its logits."""

    def __init__(self, target: Target, target_ids: Tensor) -> None:
        rest = torch.ones(target.shape.vocab_size, dtype=torch.bool, device=target_ids.device)
        rest[target_ids] = False
        self._head = target.lm_head[torch.cat([target_ids, rest.nonzero().squeeze(1)])].contiguous()
        self.size = len(target_ids)

    @property
    def kept_head(self) -> Tensor:
        return self._head[: self.size]

    @torch.no_grad()
    def labels(self, states: Tensor) -> Labels:
        rows = _rows(self._head, 1)
        best = [functional.linear(piece, self._head).argmax(-1) for piece in states.split(rows)]
        return Labels(states, torch.cat(best))

    def counts(self, labels: Labels, pack: Pack, passes: int) -> Tensor:
        """Positions that enter the loss of each pass, [passes]."""
        return _reached(pack.depth, passes).logical_and(labels.best < self.size).sum(1)


def weights(counts: Tensor) -> Tensor:
    """What a position weighs in the loss, by pass; ``counts`` are those of the whole step."""
    discounts = DISCOUNT ** torch.arange(len(counts), dtype=torch.float32, device=counts.device)
    return discounts / discounts.sum() / counts.clamp(min=1)


class Judge:
    """Judges all passes of a draft. Its loss carries gradients to the draft."""

    def __init__(self, draft: Eagle3Draft, teacher: Teacher, compiled: Compiled) -> None:
        self._draft = draft
        self._teacher = teacher
        self._rows = compiled(cross_entropy, {0: (1,), 1: (0,), 2: (1,)})

    def __call__(self, states: Sequence[Tensor], pack: Pack, labels: Labels, weight: Tensor) -> Judgement:
        """``states`` are those of every pass before the final norm, ``weight`` [passes]."""
        normed = rms_norm(torch.stack(list(states)), self._draft.norm, self._draft.config.shape.rms_norm_eps)
        loss, losses, hits, judged = _Judged.apply(  # type: ignore[no-untyped-call]
            normed, self._draft.lm_head, self._teacher.kept_head, labels, pack, weight, self._rows
        )
        return Judgement(loss, losses, hits, judged)


Rows = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]


def cross_entropy(logits: Tensor, teacher_logits: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of logits [passes, n, V] with the softmax of the teacher's [n, V].

    Returns
    -------
    tuple of Tensor
        The losses [passes, n]; the draft's likeliest ids [passes, n]; and the gradient of the losses' sum, weighted by
        ``weight`` [passes, n], with respect to the logits.
    """
    drafted, truth = logits.float(), teacher_logits.float().softmax(-1)
    losses = drafted.logsumexp(-1) - (truth * drafted).sum(-1)
    grad = (drafted.softmax(-1) - truth) * weight.unsqueeze(-1)
    return losses, logits.argmax(-1), grad.to(logits.dtype)


class _Judged(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        head: Tensor,
        teacher_head: Tensor,
        labels: Labels,
        pack: Pack,
        weight: Tensor,
        rows: Rows,
    ) -> tuple[Tensor, ...]:
        passes, width = len(states), states.shape[-1]
        flat, grad_states = states.reshape(-1, width), torch.zeros_like(states)
        grad_head = torch.zeros_like(head, dtype=torch.float32)
        reached = _reached(pack.depth, passes)
        # Rows of all passes, one pass behind the other.
        column = _column(passes, pack.first)
        places = (pack.first - column).clamp(min=0) + column * states.shape[1]
        masked = reached.logical_and(labels.best < len(head))
        weights_there = weight.unsqueeze(1) * masked
        found: list[tuple[Tensor, Tensor]] = []
        size = _rows(head, passes)
        for start in range(0, len(labels.best), size):
            part = slice(start, start + size)
            inputs = flat[places[:, part]]
            logits, truth = functional.linear(inputs, head), functional.linear(labels.states[part], teacher_head)
            losses, top, grad = rows(logits, truth, weights_there[:, part].contiguous())
            found.append((losses, top))
            grad_states.view(-1, width).index_add_(0, places[:, part].flatten(), (grad @ head).flatten(0, 1))
            grad_head += grad.flatten(0, 1).t() @ inputs.flatten(0, 1)
        ctx.save_for_backward(grad_states, grad_head.to(head.dtype))
        each, top = (torch.cat(pieces, 1) for pieces in zip(*found, strict=True))
        losses = (each * masked).sum(1)
        hits, judged = (top == labels.best).logical_and(reached).sum(1).float(), reached.sum(1).float()
        ctx.mark_non_differentiable(losses, hits, judged)
        return losses @ weight, losses, hits, judged

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        grad_states, grad_head = ctx.saved_tensors
        return grad_states * grad, grad_head * grad, None, None, None, None, None


def _column(passes: int, like: Tensor) -> Tensor:
    return torch.arange(passes, device=like.device).unsqueeze(1)


def _reached(depth: Tensor, passes: int) -> Tensor:
    """Which positions [L] each pass has a slot for, [passes, L]."""
    return depth > _column(passes, depth)


def _rows(head: Tensor, passes: int) -> int:
    return max(1, _CHUNK_LOGITS[head.device.type] // (len(head) * passes))
