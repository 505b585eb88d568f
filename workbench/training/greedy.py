"""Greedy answers of a target to many prompts at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from workbench.drafter.layers import gated_mlp, linear, rms_norm, rotate
from workbench.reference.target import Target

BATCH_TOKENS = {"cuda": 1 << 17, "cpu": 1 << 13}


@torch.inference_mode()
def answers(
    target: Target, prompts: Sequence[Sequence[int]], *, max_new_tokens: int, say: Callable[[str], None]
) -> list[list[int]]:
    """The answer to each prompt, ended by its closing token or cut at ``max_new_tokens``."""
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    found: list[list[int]] = [[] for _ in prompts]
    done = 0
    while done < len(order):
        # Sorted by length: the first one more than fits would be the longest.
        room = BATCH_TOKENS[target.embed.device.type]
        batch = [order[done]]
        for i in order[done + 1 :]:
            if (len(batch) + 1) * (len(prompts[i]) + max_new_tokens) > room:
                break
            batch.append(i)
        for i, answer in zip(batch, _answer(target, [prompts[i] for i in batch], max_new_tokens), strict=True):
            found[i] = answer
        done += len(batch)
        say(f"answers of the target: {done} of {len(order)}")
    return found


def _answer(target: Target, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> list[list[int]]:
    device = target.embed.device
    lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)
    longest = int(lengths.max())
    ids = torch.zeros(len(prompts), longest, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        ids[row, : len(prompt)] = torch.tensor(prompt)
    rows = _Rows(target, len(prompts), longest + max_new_tokens)
    # Behind a shorter prompt stand states of no meaning, each overwritten before it comes into sight.
    states = rows.forward(ids.to(device), torch.arange(longest, device=device).expand(len(prompts), -1))
    last = target.logits(states[torch.arange(len(prompts), device=device), lengths - 1]).argmax(-1)
    ends = torch.tensor(sorted(target.eos_token_ids), dtype=torch.long, device=device)
    made, over = [last], torch.isin(last, ends)
    for step in range(max_new_tokens - 1):
        # Looking costs a wait for the GPU.
        if step % 16 == 0 and bool(over.all()):
            break
        states = rows.forward(last.unsqueeze(1), (lengths + step).unsqueeze(1))
        last = target.logits(states[:, 0]).argmax(-1)
        over |= torch.isin(last, ends)
        made.append(last)
    return [_ended(row, target.eos_token_ids) for row in torch.stack(made, 1).tolist()]


def _ended(tokens: list[int], eos: frozenset[int]) -> list[int]:
    end = next((i for i, token in enumerate(tokens) if token in eos), len(tokens) - 1)
    return tokens[: end + 1]


class _Rows:
    """Keys and values of several sequences, [rows, kv_heads, size, head_dim] a layer."""

    def __init__(self, target: Target, rows: int, size: int) -> None:
        shape, embed = target.shape, target.embed
        self._target = target
        self._keys, self._values = (
            embed.new_zeros(len(target.layers), rows, shape.num_kv_heads, size, shape.head_dim) for _ in range(2)
        )
        self._rope = target.rope(size)
        self._size = size

    def forward(self, ids: Tensor, places: Tensor) -> Tensor:
        """Normed last states [rows, T, H] of tokens [rows, T] at ``places`` [rows, T]."""
        target, shape = self._target, self._target.shape
        heads, kv_heads, eps = shape.num_heads, shape.num_kv_heads, shape.rms_norm_eps
        rope = self._rope.at(places)
        seen = int(places.max()) + 1 if ids.shape[1] > 1 else self._size
        visible = (torch.arange(seen, device=ids.device) <= places.unsqueeze(-1)).unsqueeze(1)
        row = torch.arange(len(ids), device=ids.device).unsqueeze(1)
        x = target.embed[ids]
        for i, layer in enumerate(target.layers):
            qkv = linear(rms_norm(x, layer.input_norm, eps), layer.qkv)
            qkv = qkv.unflatten(-1, (heads + 2 * kv_heads, shape.head_dim))
            qk = rotate(qkv[..., : heads + kv_heads, :], rope)
            self._keys[i][row, :, places] = qk[..., heads:, :]
            self._values[i][row, :, places] = qkv[..., heads + kv_heads :, :]
            mixed = functional.scaled_dot_product_attention(
                qk[..., :heads, :].transpose(1, 2),
                self._keys[i][:, :, :seen],
                self._values[i][:, :, :seen],
                attn_mask=visible,
                enable_gqa=heads != kv_heads,
            )
            x = x + linear(mixed.transpose(1, 2).flatten(2), layer.o)
            x = x + gated_mlp(rms_norm(x, layer.post_norm, eps), layer.gate_up, layer.down)
        return rms_norm(x, target.norm, eps)
