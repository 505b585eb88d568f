"""From arguments to a running decoder: loads target and draft and says so in SGLang's words."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

from workbench.chat import Chat, load_chat
from workbench.drafter.checkpoint import DRAFT_CLASS, load_draft
from workbench.drafter.model import Eagle3Draft
from workbench.errors import CheckpointError, UsageError
from workbench.reference.arguments import SPEAKS, ServerArguments
from workbench.reference.decode import CHUNK_TOKENS, Decoder, Speculation
from workbench.reference.requests import ModelLimits
from workbench.reference.smollm2 import NAME, smollm2_folder
from workbench.reference.target import TARGET_CLASS, Target, load_target
from workbench.sglang_rules import captured_layers

log = logging.getLogger("workbench.reference")
SIMULATE_LENGTH = "SGLANG_SIMULATE_ACC_LEN"
SIMULATE_METHOD = "SGLANG_SIMULATE_ACC_METHOD"
_METHODS = ("match-expected", "multinomial")
_GB = 1 << 30
_DTYPES = {"float": torch.float32, "half": torch.float16}


@dataclass(frozen=True, slots=True)
class Engine:
    target: Target
    decoder: Decoder
    limits: ModelLimits
    chat: Chat | None
    device: torch.device
    dtype: torch.dtype
    memory_gb: Mapping[str, float]


def load_engine(arguments: ServerArguments, kept: Engine | None = None) -> Engine:
    """Load everything; of an engine that is kept, target and tokenizer stay and the draft is loaded.

    Raises
    ------
    WorkbenchError
        When a model cannot be used, or the two do not fit together.
    """
    device = resolve_device(arguments.device)
    dtype = _dtype(arguments.dtype, device)
    target, chat = (kept.target, kept.chat) if kept is not None else _load_models(arguments, device, dtype)
    context_len = arguments.context_length or target.shape.max_position_embeddings
    draft, speculation = _load_draft(arguments, target, context_len, device, dtype)
    decoder = Decoder(target, context_len, draft=draft, speculation=speculation, seed=arguments.random_seed)
    half = decoder.kv_bytes / 2 / _GB
    log.info(
        "KV Cache is allocated. dtype: %s, #tokens: %d, K size: %.2f GB, V size: %.2f GB",
        dtype,
        context_len,
        half,
        half,
    )
    log.info(
        "max_total_num_tokens=%d, chunked_prefill_size=%d, max_prefill_tokens=%d, max_running_requests=1, "
        "context_len=%d, available_%s_mem=%.2f GB",
        *(context_len, CHUNK_TOKENS, context_len, context_len, _memory_name(device), available_gb(device)),
    )
    memory = {"weight": round(target.size_bytes / _GB, 2), "kvcache": round(2 * half, 2)}
    limits = ModelLimits(target.shape.vocab_size, context_len, target.eos_token_ids)
    return Engine(target, decoder, limits, chat, device, dtype, memory)


def _load_models(arguments: ServerArguments, device: torch.device, dtype: torch.dtype) -> tuple[Target, Chat | None]:
    chat = None if arguments.skip_tokenizer_init else load_chat(resolve_model(arguments.tokenizer_path))
    return _load_target(resolve_model(arguments.model_path), device, dtype), chat


def resolve_model(path: str) -> Path:
    """A folder; the name of the built-in model is fetched and converted the first time."""
    return smollm2_folder() if path == NAME and not Path(path).exists() else Path(path)


def available_gb(device: torch.device) -> float:
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0]) / _GB
    return float(psutil.virtual_memory().available) / _GB


def _memory_name(device: torch.device) -> str:
    return "gpu" if device.type == "cuda" else "cpu"


def resolve_device(asked: str | None) -> torch.device:
    if asked == "cuda" and not torch.cuda.is_available():
        raise UsageError(
            "--device cuda: this torch sees no GPU", next_step="use --device cpu, or a CUDA build of torch"
        )
    return torch.device(asked or ("cuda" if torch.cuda.is_available() else "cpu"))


def _dtype(asked: str, device: torch.device) -> torch.dtype:
    if asked == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    found = _DTYPES.get(asked) or getattr(torch, asked)
    assert isinstance(found, torch.dtype)
    return found


def _load_target(folder: Path, device: torch.device, dtype: torch.dtype) -> Target:
    began = time.perf_counter()
    log.info("Load weight begin. avail mem=%.2f GB", available_gb(device))
    target = load_target(folder, dtype=dtype, device=device)
    _log_loaded(TARGET_CLASS, began, target.size_bytes, device)
    return target


def _log_loaded(class_name: str, began: float, size_bytes: int, device: torch.device) -> None:
    log.info(
        "Load weight end. elapsed=%.2f s, type=%s, avail mem=%.2f GB, mem usage=%.2f GB.",
        *(time.perf_counter() - began, class_name, available_gb(device), size_bytes / _GB),
    )


def _load_draft(
    arguments: ServerArguments, target: Target, context_len: int, device: torch.device, dtype: torch.dtype
) -> tuple[Eagle3Draft | None, Speculation | None]:
    path, steps = arguments.speculative_draft_model_path, arguments.speculative_num_steps
    topk, draft_tokens = arguments.speculative_eagle_topk, arguments.speculative_num_draft_tokens
    if path is None or steps is None or topk is None or draft_tokens is None or not arguments.speculative_algorithm:
        return None, None
    began = time.perf_counter()
    log.info("Load weight begin. avail mem=%.2f GB", available_gb(device))
    draft = load_draft(Path(path), dtype=dtype, device=device)
    _check_pair(draft, target, context_len, Path(path))
    _log_loaded(DRAFT_CLASS, began, sum(p.nbytes for p in draft.parameters()), device)
    eagle3 = arguments.speculative_algorithm == "EAGLE3"
    capture = _capture(draft, target) if eagle3 else ()
    if not eagle3:
        _serve_as_eagle1(draft, target)
    length, method = _simulation()
    return draft.requires_grad_(False), Speculation(steps, topk, draft_tokens, capture, length, method)


def _capture(draft: Eagle3Draft, target: Target) -> tuple[int, ...]:
    layers = captured_layers(TARGET_CLASS, draft.config.capture_ids, target.shape.num_layers, SPEAKS)
    if max(layers) > target.shape.num_layers or min(layers) < 0 or len(set(layers)) != draft.config.num_captured:
        raise CheckpointError(
            f"the draft captures layers {list(layers)}, the target has {target.shape.num_layers}",
            next_step="use a draft that was trained for this target",
        )
    return layers


def _serve_as_eagle1(draft: Eagle3Draft, target: Target) -> None:
    """What SGLang makes of an EAGLE-3 draft under the algorithm EAGLE, without a word.

    The target's last state has the draft's width, so that ``fc`` is passed by; ``d2t`` is not read; the target's head
    replaces the draft's and its logits are cut to the draft's vocabulary.
    """
    size = draft.config.draft_vocab_size
    draft.lm_head = torch.nn.Parameter(target.lm_head[:size])
    draft.target_ids.copy_(torch.arange(size))


def _check_pair(draft: Eagle3Draft, target: Target, context_len: int, folder: Path) -> None:
    mine, other = draft.config.shape, target.shape
    for name in ("hidden_size", "vocab_size"):
        if getattr(mine, name) != getattr(other, name):
            raise CheckpointError(
                f"{name} is {getattr(mine, name)}, the target's is {getattr(other, name)}",
                where=folder,
                next_step="use a draft that was trained for this target",
            )
    if mine.max_position_embeddings < context_len:
        raise CheckpointError(
            f"max_position_embeddings is {mine.max_position_embeddings}, below the context length of {context_len}",
            where=folder,
            next_step=f"start with --context-length {mine.max_position_embeddings}, or mend the draft's config",
        )


def _simulation() -> tuple[float | None, str]:
    """SGLang's environment variables for acceptance without a real draft; at or below 0 means off."""
    text, method = os.environ.get(SIMULATE_LENGTH, "-1"), os.environ.get(SIMULATE_METHOD, _METHODS[0])
    try:
        length = float(text)
    except ValueError as error:
        raise UsageError(f"{SIMULATE_LENGTH}={text!r} is no number", next_step="unset it or give a number") from error
    if method not in _METHODS:
        raise UsageError(f"{SIMULATE_METHOD}={method!r} is unknown", next_step=f"use one of {', '.join(_METHODS)}")
    return (length if length > 0 else None), method
