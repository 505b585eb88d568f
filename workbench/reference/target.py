"""The target: a Llama in plain PyTorch, with a cache of keys and values and captured hidden states."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from workbench.checkpoint import read_checkpoint
from workbench.drafter.layers import Rope, attention, gated_mlp, linear, rms_norm, rotate
from workbench.drafter.shape import LlamaShape, read_shape
from workbench.errors import CheckpointError

TARGET_CLASS = "LlamaForCausalLM"


@dataclass(frozen=True, slots=True)
class Layer:
    input_norm: Tensor
    qkv: Tensor
    o: Tensor
    post_norm: Tensor
    gate_up: Tensor
    down: Tensor


class KVCache:
    """Keys and values of one sequence, [layers, kv_heads, size, head_dim] each, allocated once.

    Rows behind what the caller counts as valid are overwritten by the next forward pass; nothing is ever cleared.
    """

    def __init__(self, shape: LlamaShape, layers: int, size: int, *, dtype: torch.dtype, device: torch.device) -> None:
        dimensions = (layers, shape.num_kv_heads, size, shape.head_dim)
        self.keys = torch.empty(dimensions, dtype=dtype, device=device)
        self.values = torch.empty(dimensions, dtype=dtype, device=device)

    @property
    def size_bytes(self) -> int:
        return 2 * self.keys.nbytes

    def write(self, layer: int, start: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store [T, kv_heads, head_dim] from row ``start`` on; returns all rows up to their end."""
        end = start + len(k)
        self.keys[layer, :, start:end] = k.transpose(0, 1)
        self.values[layer, :, start:end] = v.transpose(0, 1)
        return self.upto(layer, end)

    def upto(self, layer: int, end: int) -> tuple[Tensor, Tensor]:
        return self.keys[layer, :, :end], self.values[layer, :, :end]

    def gather(self, start: int, rows: Tensor) -> None:
        """Move rows ``start + rows`` to ``start``, ``start + 1``, ..."""
        end = start + len(rows)
        self.keys[:, :, start:end] = self.keys[:, :, start + rows]
        self.values[:, :, start:end] = self.values[:, :, start + rows]


class Target:
    """Weights of a target, fused where one product can do for several. Inference only."""

    def __init__(
        self,
        shape: LlamaShape,
        layers: list[Layer],
        *,
        embed: Tensor,
        norm: Tensor,
        lm_head: Tensor,
        eos: frozenset[int],
    ) -> None:
        self.shape = shape
        self.layers = layers
        self.embed = embed
        self.norm = norm
        self.lm_head = lm_head
        self.eos_token_ids = eos

    @property
    def size_bytes(self) -> int:
        tied = self.lm_head.data_ptr() == self.embed.data_ptr()
        whole = [self.embed, self.norm, *([] if tied else [self.lm_head])]
        return sum(t.nbytes for t in whole) + sum(
            t.nbytes for x in self.layers for t in (x.input_norm, x.qkv, x.o, x.post_norm, x.gate_up, x.down)
        )

    def new_cache(self, size: int) -> KVCache:
        return KVCache(self.shape, len(self.layers), size, dtype=self.embed.dtype, device=self.embed.device)

    def forward(
        self,
        ids: Tensor,
        cache: KVCache,
        start: int,
        *,
        rope: tuple[Tensor, Tensor],
        mask: Tensor | None,
        capture: tuple[int, ...] = (),
    ) -> tuple[Tensor, Tensor]:
        """Run ``ids`` [T] behind the first ``start`` rows of the cache, and store their keys and values there.

        Parameters
        ----------
        capture
            Layers whose input is wanted; the number of layers means the last layer's output.

        Returns
        -------
        tuple of Tensor
            The normed last states [T, H], and the captured ones side by side [T, captured * H]; without ``capture``
            the normed states again, which is what an EAGLE-1 draft gets.
        """
        heads, kv_heads, eps = self.shape.num_heads, self.shape.num_kv_heads, self.shape.rms_norm_eps
        x = self.embed[ids]
        inputs = []
        for i, layer in enumerate(self.layers):
            if i in capture:
                inputs.append(x)
            qkv = linear(rms_norm(x, layer.input_norm, eps), layer.qkv)
            qkv = qkv.unflatten(-1, (heads + 2 * kv_heads, self.shape.head_dim))
            qk = rotate(qkv[:, : heads + kv_heads], rope)
            k, v = cache.write(i, start, qk[:, heads:], qkv[:, heads + kv_heads :])
            x = x + linear(attention(qk[:, :heads], k, v, mask), layer.o)
            x = x + gated_mlp(rms_norm(x, layer.post_norm, eps), layer.gate_up, layer.down)
        if len(self.layers) in capture:
            inputs.append(x)
        normed = rms_norm(x, self.norm, eps)
        return normed, torch.cat(inputs, -1) if inputs else normed

    def logits(self, normed: Tensor) -> Tensor:
        return linear(normed, self.lm_head)

    def rope(self, length: int) -> Rope:
        return Rope(self.shape, length, dtype=self.embed.dtype, device=self.embed.device)


def load_target(folder: Path, *, dtype: torch.dtype, device: torch.device) -> Target:
    """A Llama from a Hugging Face folder: ``config.json`` and safetensors.

    Raises
    ------
    CheckpointError
        When the folder is no plain Llama, or a tensor is missing or has another shape than the config says.
    """
    checkpoint = read_checkpoint(folder)
    config, where = checkpoint.config, folder / "config.json"
    classes = config.get("architectures")
    if not isinstance(classes, list) or TARGET_CLASS not in classes:
        raise CheckpointError(
            f"its class is {classes!r}, not {TARGET_CLASS}",
            where=where,
            next_step="the embedded engine runs Llama models; serve any other one with SGLang",
        )
    shape = read_shape(config, where)
    tensors: dict[str, Tensor] = {}
    for file in sorted({info.file for info in checkpoint.tensors.values()}):
        tensors |= load_file(os.fspath(file), device=str(device))
    take = _Taker(tensors, folder, dtype)
    layers = [_layer(take, shape, f"model.layers.{i}.") for i in range(shape.num_layers)]
    embed = take("model.embed_tokens.weight", (shape.vocab_size, shape.hidden_size))
    tied = bool(config.get("tie_word_embeddings"))
    return Target(
        shape,
        layers,
        embed=embed,
        norm=take("model.norm.weight", (shape.hidden_size,)),
        lm_head=embed if tied else take("lm_head.weight", (shape.vocab_size, shape.hidden_size)),
        eos=_eos(config),
    )


class _Taker:
    """Hands out each tensor once, checked and converted, so that the two copies of a model never coexist whole."""

    def __init__(self, tensors: dict[str, Tensor], folder: Path, dtype: torch.dtype) -> None:
        self._tensors = tensors
        self._folder = folder
        self._dtype = dtype

    def __call__(self, name: str, size: tuple[int, ...]) -> Tensor:
        tensor = self._tensors.pop(name, None)
        if tensor is None or tuple(tensor.shape) != size:
            found = "missing" if tensor is None else f"of shape {list(tensor.shape)}, not {list(size)}"
            raise CheckpointError(
                f"{name} is {found}", where=self._folder, next_step="copy or download the checkpoint again"
            )
        return tensor.to(self._dtype)


def _layer(take: _Taker, shape: LlamaShape, prefix: str) -> Layer:
    width, inner, head_dim = shape.hidden_size, shape.intermediate_size, shape.head_dim
    rows = {"q": shape.num_heads * head_dim, "k": shape.num_kv_heads * head_dim, "v": shape.num_kv_heads * head_dim}
    return Layer(
        input_norm=take(f"{prefix}input_layernorm.weight", (width,)),
        qkv=torch.cat([take(f"{prefix}self_attn.{x}_proj.weight", (size, width)) for x, size in rows.items()]),
        o=take(f"{prefix}self_attn.o_proj.weight", (width, rows["q"])),
        post_norm=take(f"{prefix}post_attention_layernorm.weight", (width,)),
        gate_up=torch.cat([take(f"{prefix}mlp.{x}_proj.weight", (inner, width)) for x in ("gate", "up")]),
        down=take(f"{prefix}mlp.down_proj.weight", (width, inner)),
    )


def _eos(config: Mapping[str, object]) -> frozenset[int]:
    value = config.get("eos_token_id")
    values = value if isinstance(value, list) else [value]
    return frozenset(item for item in values if type(item) is int)
