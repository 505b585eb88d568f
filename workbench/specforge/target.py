"""The target as SpecForge reads it: which tensor is its head, and a folder with the index that it insists on."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.checkpoint import INDEX_NAME, Checkpoint
from workbench.errors import CheckpointError
from workbench.files import read_small, replacing
from workbench.plain import from_json

HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
_UNWANTED = (".bin", ".pt", ".pth", ".ckpt", ".gguf")


def head_key(target: Checkpoint) -> str:
    """Name of the tensor that makes logits; of a target with tied weights the embedding's.

    Raises
    ------
    CheckpointError
        When the folder has neither.
    """
    tied = bool(target.text_config.get("tie_word_embeddings", target.config.get("tie_word_embeddings", False)))
    head = _ending(target, HEAD)
    return embedding_key(target) if head is None or (tied and head not in target.tensors) else head


def embedding_key(target: Checkpoint) -> str:
    """Name of the embedding.

    Raises
    ------
    CheckpointError
        When the folder has none.
    """
    found = _ending(target, "embed_tokens.weight")
    if found is None:
        raise CheckpointError(
            "no embed_tokens.weight among its tensors", where=target.path, next_step="use a folder with safetensors"
        )
    return found


def _ending(target: Checkpoint, name: str) -> str | None:
    """A multimodal target's text part has a prefix."""
    matches = [tensor for tensor in target.tensors if tensor == name or tensor.endswith(f".{name}")]
    return min(matches, key=len, default=None)


def index_fault(folder: Path, key: str) -> str | None:
    """Why SpecForge cannot read ``key`` of a target's folder; None where it can.

    SpecForge 0.2.0 reads the head through the one ``*.index.json`` of the folder (``modeling/target/target_head.py``).
    """
    indices = sorted(folder.glob("*.index.json"))
    if len(indices) != 1:
        return "no index.json" if not indices else f"{len(indices)} files that end in index.json"
    try:
        shards = from_json(read_small(indices[0]))["weight_map"]
        return None if key in shards else f"{key} is not in {indices[0].name}"
    except (OSError, ValueError, KeyError, TypeError):
        return f"{indices[0].name} cannot be read"


def linked(target: Checkpoint, folder: Path) -> Path:
    """A folder of links to the target's files with an index made from its headers; the target's own is left alone."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(target.path.iterdir()):
        if path.is_file() and not path.name.endswith(".index.json") and path.suffix not in _UNWANTED:
            _link(path, folder / path.name)
    content: Mapping[str, Any] = {
        "metadata": {"total_size": sum(info.size_bytes for info in target.tensors.values())},
        "weight_map": {name: info.file.name for name, info in sorted(target.tensors.items())},
    }
    with replacing(folder / INDEX_NAME) as temporary:
        temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return folder


def _link(path: Path, link: Path) -> None:
    if os.path.lexists(link):
        link.unlink()
    link.symlink_to(path.resolve())
