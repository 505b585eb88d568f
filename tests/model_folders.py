"""Writes tiny model folders by hand: safetensors as the format's README describes it, no library involved."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

# A draft small enough to work out by hand: H 8, T 8, A 3, 2 heads and 1 kv head of 4, I 12, V 16, D 6.
CONFIG: dict[str, object] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "dtype": "bfloat16",
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 4,
    "num_hidden_layers": 1,
    "vocab_size": 16,
    "draft_vocab_size": 6,
    "tie_word_embeddings": False,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 5], "use_aux_hidden_state": True},
}
TARGET_CONFIG: dict[str, object] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "dtype": "bfloat16",
    "hidden_size": 8,
    "num_attention_heads": 2,
    "num_hidden_layers": 9,
    "vocab_size": 16,
    "max_position_embeddings": 4096,
    "rope_theta": 10000.0,
}
# Draft ids 0..5 stand for the target ids 0, 1, 4, 5, 10, 15.
TARGET_IDS = (0, 1, 4, 5, 10, 15)
SHAPES: dict[str, tuple[int, ...]] = {
    "fc.weight": (8, 24),
    "lm_head.weight": (6, 8),
    "midlayer.hidden_norm.weight": (8,),
    "midlayer.input_layernorm.weight": (8,),
    "midlayer.post_attention_layernorm.weight": (8,),
    "midlayer.mlp.gate_proj.weight": (12, 8),
    "midlayer.mlp.up_proj.weight": (12, 8),
    "midlayer.mlp.down_proj.weight": (8, 12),
    "midlayer.self_attn.q_proj.weight": (8, 16),
    "midlayer.self_attn.k_proj.weight": (4, 16),
    "midlayer.self_attn.v_proj.weight": (4, 16),
    "midlayer.self_attn.o_proj.weight": (8, 8),
    "norm.weight": (8,),
}

Tensor = tuple[str, tuple[int, ...], bytes]


def ones(*shape: int) -> Tensor:
    """A bfloat16 tensor of ones."""
    return "BF16", shape, b"\x80\x3f" * math.prod(shape)


def zeros(*shape: int) -> Tensor:
    return "BF16", shape, bytes(2 * math.prod(shape))


def int64(values: Iterable[int]) -> Tensor:
    values = list(values)
    return "I64", (len(values),), struct.pack(f"<{len(values)}q", *values)


def booleans(true_at: Iterable[int], length: int) -> Tensor:
    true_at = set(true_at)
    return "BOOL", (length,), bytes(i in true_at for i in range(length))


def offsets(ids: Iterable[int]) -> Tensor:
    """d2t as trainers store it: target id minus draft id."""
    return int64(target - draft for draft, target in enumerate(ids))


def draft_tensors(**changes: Tensor | None) -> dict[str, Tensor]:
    """The tensors of a correct draft; ``None`` leaves one out. Dots are written as double underscores."""
    tensors = {name: ones(*shape) for name, shape in SHAPES.items()}
    tensors |= {"d2t": offsets(TARGET_IDS), "t2d": booleans(TARGET_IDS, 16)}
    for key, tensor in changes.items():
        name = key.replace("__", ".")
        tensors.pop(name, None)
        if tensor is not None:
            tensors[name] = tensor
    return tensors


def safetensors_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    position = 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [position, position + len(data)]}
        position += len(data)
    return with_header(header, b"".join(data for _, _, data in tensors.values()))


def with_header(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def write_folder(
    folder: Path, config: object, tensors: Mapping[str, Tensor] | None = None, *, name: str = "model.safetensors"
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if tensors is not None:
        (folder / name).write_bytes(safetensors_bytes(tensors))
    return folder
