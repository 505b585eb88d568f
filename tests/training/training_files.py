"""Tiny targets with corpora of their own greedy answers. Needs torch and safetensors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tiny_models import target_config, target_tensors, write_model

from workbench.hashes import hash_file
from workbench.reference.target import Target, load_target
from workbench.training.config import TrainConfig
from workbench.training.corpus import write_about
from workbench.training.greedy import answers
from workbench.training.parts import Sample, write_part

CPU = torch.device("cpu")
CAPTURE_IDS = (0, 1, 3)
CAPTURE = (1, 2, 4)
VOCAB = 24
TASKS = {"odd": 0, "even": 1}


def tiny_target(folder: Path, *, sureness: float = 1.0) -> Target:
    """``sureness`` scales its logits: the surer it is, the fewer steps teach a draft what it says."""
    config = target_config(vocab=VOCAB)
    tensors = target_tensors(config)
    tensors["lm_head.weight"] = tensors["lm_head.weight"] * sureness
    return load_target(write_model(folder, config, tensors), dtype=torch.float32, device=CPU)


def greedy_samples(target: Target, count: int, *, new_tokens: int = 20, seed: int = 0) -> list[Sample]:
    random = np.random.default_rng(seed)
    prompts = [random.integers(1, VOCAB, int(random.integers(5, 9))).tolist() for _ in range(count)]
    found = answers(target, prompts, max_new_tokens=new_tokens, say=lambda _: None)
    return [sample(p + a, len(p), i) for i, (p, a) in enumerate(zip(prompts, found, strict=True))]


def sample(ids: Sequence[int], prompt_tokens: int, prompt: int = 0) -> Sample:
    return Sample(np.array(ids, np.uint16), prompt_tokens, prompt, 0, ("even", "odd")[prompt % 2])


def write_corpus(folder: Path, samples: Sequence[Sample], **about: Any) -> Path:
    folder.mkdir(parents=True)
    part = folder / "part-00000.npz"
    write_part(part, samples, tasks=TASKS, run="r", vocab_size=VOCAB)
    said = {"finished": True, "tasks": list(TASKS), "run": "r", "vocab_size": VOCAB, "temperature": 0.0}
    write_about(folder, {**said, "parts": {part.name: hash_file(part)}, **about})
    return folder


def config_for(folder: Path, **changes: Any) -> TrainConfig:
    """Of a run in ``folder``, which holds ``target`` and ``corpus``."""
    keys: dict[str, Any] = {
        "name": "tiny",
        "target": str(folder / "target"),
        "corpus": str(folder / "corpus"),
        "out": str(folder / "draft"),
        "held_out": 0,
        "passes": 3,
        "max_tokens": 64,
        "tokens_per_step": 128,
        "steps": 6,
        "learning_rate": 5e-3,
        "draft_vocab_size": 20,
        "capture": CAPTURE_IDS,
        "device": "cpu",
    }
    return TrainConfig.model_validate({**keys, **changes})


def silent(_: str) -> None:
    pass
