"""The training-time test: every slot drafts J tokens on, fed with its own outputs and the true tokens.

Pass 0 takes the target's states; pass j takes what pass j - 1 returned, the token j further, at the position j further.
A slot sees the keys that pass 0 wrote at its own place and before, and those that its own later passes wrote: what
extending over verified tokens and then drafting sees (EAGLE-3, section 3.2). Only the slots that are judged go through
the later passes; the prompt's other slots are keys and values alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

from workbench.drafter.layers import Rope
from workbench.drafter.model import Eagle3Draft
from workbench.training.attention import DraftAttention
from workbench.training.compiled import Compiled
from workbench.training.packs import Pack


class Unroll:
    """A draft's J passes over packs. ``embed`` is the target's embedding table, ``length`` the longest sample."""

    def __init__(self, draft: Eagle3Draft, embed: Tensor, passes: int, length: int, compiled: Compiled) -> None:
        self._draft = draft
        self._embed = embed
        self._passes = passes
        self._rope = Rope(draft.config.shape, length + passes, dtype=torch.float32, device=embed.device)
        self._project = compiled(self._projected, {0: (0,), 1: (0,), 2: (0,)})
        self._absorb = compiled(draft.absorb, {0: (0,), 1: (0,)})
        self._attention = DraftAttention(compiled)

    def __call__(self, pack: Pack, features: Tensor) -> list[Tensor]:
        """States before the final norm of every pass, [rows, H] each. ``features`` [N, captured * H]."""
        hidden = self._draft.fuse(features[pack.slot_tokens])
        embeds = self._embed[pack.ids[pack.slot_tokens + 1]]
        q, k, v = self._project(hidden, embeds, self._rope.at(pack.places[pack.slot_tokens]))
        q, k0, v0 = q.index_select(0, pack.rows), k, v
        first = hidden.index_select(0, pack.rows)
        hidden = self._absorb(first, self._attention(q, k0, v0, None, pack.queries, pack.slots))
        states, own_k, own_v = [hidden], [], []
        places = pack.places[pack.row_tokens]
        for j in range(1, self._passes):
            # Behind the end there is nothing to take, and nothing is judged.
            embeds = self._embed[pack.ids[torch.minimum(pack.row_tokens + 1 + j, pack.row_ends)]]
            q, k, v = self._project(hidden, embeds, self._rope.at(places + j))
            own_k.append(k)
            own_v.append(v)
            own = torch.stack(own_k), torch.stack(own_v)
            mixed = self._attention(q, k0, v0, own, pack.queries, pack.slots)
            hidden = self._absorb(hidden, mixed)
            states.append(hidden)
        return states

    def _projected(self, hidden: Tensor, embeds: Tensor, rope: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v in the passes' precision; turned in that of the angles."""
        q, k, v = self._draft.project(hidden, embeds, rope)
        return q.to(v.dtype), k.to(v.dtype), v
