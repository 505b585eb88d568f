"""Greedy decoding of one sequence: plain, or with drafts that the target verifies."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from workbench.drafter.layers import causal_mask
from workbench.drafter.model import Eagle3Draft
from workbench.reference.drafting import ROOT, Drafting, Proposal
from workbench.reference.target import Target

CHUNK_TOKENS = 512
SIMULATED_TOKEN = 100
"""What SGLang puts in place of every token when the acceptance is simulated."""


@dataclass(frozen=True, slots=True)
class Speculation:
    """How to draft. ``capture`` are target layers whose input the draft gets; empty: the target's last state.

    ``simulated_accept_length`` replaces the verdict of the target; the text is then without meaning.
    """

    num_steps: int
    eagle_topk: int
    num_draft_tokens: int
    capture: tuple[int, ...]
    simulated_accept_length: float | None = None
    simulation_method: str = "match-expected"


@dataclass(frozen=True, slots=True)
class Step:
    """Tokens that one decoding step added (without drafts always one), and how many of them were correct drafts."""

    tokens: tuple[int, ...]
    correct_drafts: int


class Decoder:
    """Holds the caches for one sequence at a time; `prefill` begins the next one.

    Parameters
    ----------
    context_len
        Longest sequence, prompt included. `step` must not be called when fewer than one token is left.
    seed
        Of the simulated acceptance, the only thing here that is random.
    """

    def __init__(
        self,
        target: Target,
        context_len: int,
        *,
        draft: Eagle3Draft | None = None,
        speculation: Speculation | None = None,
        seed: int = 0,
    ) -> None:
        room = context_len + (speculation.num_draft_tokens if speculation else 1)
        self.context_len = context_len
        self._target = target
        self._cache = target.new_cache(room)
        self._rope = target.rope(room)
        self._speculation = speculation
        self._drafting = Drafting(draft, target.embed, room) if draft is not None and speculation is not None else None
        self._random = random.Random(seed)  # noqa: S311 - no secret hangs on it
        self._length = 0
        self._last = torch.zeros(1, dtype=torch.long, device=target.embed.device)

    @property
    def num_tokens(self) -> int:
        """Verified tokens in the cache."""
        return self._length

    @property
    def kv_bytes(self) -> int:
        return self._cache.size_bytes

    @torch.inference_mode()
    def prefill(self, prompt: Sequence[int]) -> int:
        """Run a prompt and return the first token of the answer."""
        ids = torch.tensor(prompt, dtype=torch.long, device=self._last.device)
        for start in range(0, len(ids), CHUNK_TOKENS):
            chunk = ids[start : start + CHUNK_TOKENS]
            mask = causal_mask(len(chunk), start, dtype=self._target.embed.dtype, device=chunk.device)
            normed, features = self._forward(chunk, start, mask=mask)
            self._last = self._target.logits(normed[-1:]).argmax(-1)
            if self._drafting is not None:
                following = torch.cat([ids[start + 1 : start + 1 + len(chunk)], self._last])[: len(chunk)]
                self._drafting.extend(following, features, start)
        self._length = len(ids)
        return int(self._last)

    @torch.inference_mode()
    def step(self) -> Step:
        """One forward pass of the target: one more token, or the accepted drafts and one more token."""
        if self._drafting is None or self._speculation is None:
            normed, _ = self._forward(self._last, self._length)
            self._last = self._target.logits(normed).argmax(-1)
            self._length += 1
            return Step((int(self._last),), 0)
        proposal = self._propose(self._drafting, self._speculation)
        return self._verify(proposal, self._drafting)

    def _propose(self, drafting: Drafting, plan: Speculation) -> Proposal:
        if plan.eagle_topk == 1:
            return drafting.grow_chain(plan.num_steps)
        return drafting.grow_tree(plan.num_steps, plan.eagle_topk, plan.num_draft_tokens - 1)

    def _verify(self, proposal: Proposal, drafting: Drafting) -> Step:
        start = self._length
        ids = torch.cat([self._last, proposal.tokens])
        depths = _depths(proposal.parents)
        mask = self._mask(proposal, start)
        positions = None if proposal.chain else torch.tensor(depths, device=ids.device) + start
        normed, features = self._forward(ids, start, mask=mask, positions=positions)
        predicted = self._target.logits(normed).argmax(-1)
        path, tokens = self._accept(ids.tolist(), proposal.parents, predicted.tolist())
        rows = torch.tensor(path, device=ids.device)
        if path[-1] != len(path) - 1:
            self._cache.gather(start, rows)
        self._last = torch.tensor(tokens[-1:], device=ids.device)
        self._length = start + len(path)
        drafting.extend(torch.tensor(tokens, device=ids.device), features[rows], start)
        return Step(tuple(tokens), len(path) - 1)

    def _accept(self, ids: list[int], parents: tuple[int, ...], predicted: list[int]) -> tuple[list[int], list[int]]:
        """Accepted nodes from the root on, and the tokens that they and the target's last word add."""
        plan = self._speculation
        if plan is not None and plan.simulated_accept_length is not None:
            length = min(simulated_length(plan, self._random), len(ids))
            token = SIMULATED_TOKEN % self._target.shape.vocab_size
            return list(range(length)), [token] * length
        path = longest_path(ids, parents, predicted)
        return path, [*(ids[node] for node in path[1:]), predicted[path[-1]]]

    def _mask(self, proposal: Proposal, start: int) -> Tensor | None:
        embed = self._target.embed
        count = len(proposal.parents) + 1
        if proposal.chain:
            return causal_mask(count, start, dtype=embed.dtype, device=embed.device)
        return tree_mask(proposal.parents, start, like=embed)

    def _forward(
        self, ids: Tensor, start: int, *, mask: Tensor | None = None, positions: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        where = slice(start, start + len(ids)) if positions is None else positions
        capture = self._speculation.capture if self._speculation is not None else ()
        return self._target.forward(ids, self._cache, start, rope=self._rope.at(where), mask=mask, capture=capture)


def longest_path(ids: Sequence[int], parents: Sequence[int], predicted: Sequence[int]) -> list[int]:
    """Walk from the root to the child that holds the target's own next token, as far as there is one."""
    path = [ROOT]
    while True:
        wanted, node = predicted[path[-1]], path[-1]
        found = next((i for i, parent in enumerate(parents, 1) if parent == node and ids[i] == wanted), None)
        if found is None:
            return path
        path.append(found)


def simulated_length(plan: Speculation, source: random.Random) -> int:
    """Tokens of a step, 1 to steps + 1, by SGLang's rules for SGLANG_SIMULATE_ACC_METHOD."""
    wanted, most = plan.simulated_accept_length or 1.0, plan.num_steps + 1
    if plan.simulation_method == "multinomial":
        return round(min(most, max(1.0, source.gauss(wanted, 1.0))))
    wanted = min(most, max(1.0, wanted))
    low = int(wanted)
    return low + (source.random() < wanted - low)


def _depths(parents: Sequence[int]) -> list[int]:
    depths = [0]
    for parent in parents:
        depths.append(depths[parent] + 1)
    return depths


def tree_mask(parents: Sequence[int], before: int, *, like: Tensor) -> Tensor:
    """Additive mask [N, before + N]: a node sees everything before the tree, its ancestors and itself."""
    count = len(parents) + 1
    hidden = torch.full((count, before + count), float("-inf"))
    hidden[:, : before + 1] = 0
    for node, parent in enumerate(parents, 1):
        hidden[node] = hidden[parent]
        hidden[node, before + node] = 0
    return hidden.to(dtype=like.dtype, device=like.device)
