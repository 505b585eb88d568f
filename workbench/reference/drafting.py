"""The draft's side of a cycle, as SGLang runs it: extend over verified slots, then grow a chain or a tree.

Slot t holds (f_t, x_{t+1}) at position t; its output proposes x_{t+2}. Drafted slots follow at the next positions with
the output of the pass before as their hidden state. Only verified slots go into the cache, so nothing is rolled back.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from workbench.drafter.layers import Rope, attention, causal_mask
from workbench.drafter.model import Eagle3Draft
from workbench.reference.target import KVCache

ROOT = 0


@dataclass(frozen=True, slots=True)
class Proposal:
    """Drafted tokens of a cycle. Node 0 is the root, the newest verified token; drafts are nodes 1, 2, ...

    ``parents[i]`` is the node that draft i + 1 follows; a parent stands before its children. ``chain`` says that each
    draft follows the one before.
    """

    tokens: Tensor
    parents: tuple[int, ...]
    chain: bool


class Drafting:
    """A draft with its cache for one sequence. ``embed`` is the target's embedding table."""

    def __init__(self, draft: Eagle3Draft, embed: Tensor, size: int) -> None:
        shape = draft.config.shape
        dtype, device = embed.dtype, embed.device
        self._draft = draft
        self._embed = embed
        self._cache = KVCache(shape, 1, size, dtype=dtype, device=device)
        self._rope = Rope(shape, size, dtype=dtype, device=device)
        self._length = 0
        self._hidden = embed.new_zeros(1, shape.hidden_size)

    def extend(self, tokens: Tensor, features: Tensor, start: int) -> None:
        """Add verified slots from ``start`` on: ``tokens`` [T] are the ids that follow them, ``features`` theirs."""
        rows = len(tokens)
        mask = causal_mask(rows, start, dtype=self._embed.dtype, device=self._embed.device)

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return attention(q, *self._cache.write(0, start, k, v), mask)

        rope = self._rope.at(slice(start, start + rows))
        self._hidden = self._draft(self._draft.fuse(features), self._embed[tokens], rope, attend)[-1:]
        self._length = start + rows

    def grow_chain(self, steps: int) -> Proposal:
        """The draft's own greedy continuation, one token a step."""
        hidden = self._hidden
        own: list[tuple[Tensor, Tensor]] = []
        tokens = [self._draft.logits(hidden).argmax(-1)]
        for step in range(steps - 1):
            hidden = self._grow(self._draft.target_ids[tokens[-1]], hidden, step, own)
            tokens.append(self._draft.logits(hidden).argmax(-1))
        return Proposal(self._draft.target_ids[torch.cat(tokens)], tuple(range(steps)), chain=True)

    def grow_tree(self, steps: int, topk: int, count: int) -> Proposal:
        """The ``count`` likeliest nodes of a tree that keeps ``topk`` branches a step, likelihoods by the draft.

        As in SGLang, a branch that changes its parent goes on with the keys that its place in the list wrote before,
        not with the new parent's: only the hidden state moves.
        """
        nodes = _Nodes(topk)
        own: list[tuple[Tensor, Tensor]] = []
        scores, ids = self._best(self._hidden, topk)
        branches = nodes.add_first(scores[0], ids[0])
        hidden = self._hidden.expand(topk, -1)
        for step in range(steps - 1):
            hidden = self._grow(nodes.tokens_of(branches), hidden, step, own)
            scores, ids = self._best(hidden, topk)
            branches, places = nodes.add(branches, scores, ids)
            hidden = hidden[places]
        return nodes.best(count)

    def _best(self, hidden: Tensor, topk: int) -> tuple[Tensor, Tensor]:
        """Probabilities and target ids of the ``topk`` likeliest continuations of each row."""
        scores, ids = self._draft.logits(hidden).float().softmax(-1).topk(topk)
        return scores, self._draft.target_ids[ids]

    def _grow(self, tokens: Tensor, hidden: Tensor, step: int, own: list[tuple[Tensor, Tensor]]) -> Tensor:
        """One drafted slot for each row of ``hidden``: sees all verified slots and its own branch in ``own``."""

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            own.append((k, v))
            return attention(q, *self._cache.upto(0, self._length), own=own)

        position = self._length + step
        rope = self._rope.at(slice(position, position + 1))
        grown: Tensor = self._draft(hidden, self._embed[tokens], rope, attend)
        return grown


class _Nodes:
    """Every node that a growing tree offered, in the order of offering. A score is the product along its path."""

    def __init__(self, topk: int) -> None:
        self._topk = topk
        self._scores: list[Tensor] = []
        self._tokens: list[Tensor] = []
        self._parents: list[int] = []

    def add_first(self, scores: Tensor, tokens: Tensor) -> Tensor:
        """Children of the root; returns their node numbers, which are the first branches."""
        self._scores.append(scores)
        self._tokens.append(tokens)
        self._parents.extend([ROOT] * len(tokens))
        return torch.arange(1, len(tokens) + 1, device=tokens.device)

    def add(self, branches: Tensor, scores: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Children of all branches ([topk, topk] each); the next branches and the place of each one's parent."""
        before = len(self._parents)
        paths = (torch.cat(self._scores)[branches - 1].unsqueeze(1) * scores).flatten()
        self._scores.append(paths)
        self._tokens.append(tokens.flatten())
        self._parents.extend(parent for parent in branches.tolist() for _ in range(self._topk))
        chosen = paths.topk(self._topk).indices
        return chosen + before + 1, chosen // self._topk

    def tokens_of(self, nodes: Tensor) -> Tensor:
        return torch.cat(self._tokens)[nodes - 1]

    def best(self, count: int) -> Proposal:
        """The likeliest nodes in the order of offering. A parent is never less likely than its child, so it is kept."""
        kept = torch.cat(self._scores).topk(count).indices.sort().values
        number = {ROOT: ROOT} | {node + 1: place for place, node in enumerate(kept.tolist(), 1)}
        parents = tuple(number[self._parents[node]] for node in kept.tolist())
        return Proposal(torch.cat(self._tokens)[kept], parents, chain=False)
