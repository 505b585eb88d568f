"""What a training run needs before its first step: target, samples, vocabulary, draft."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from workbench.drafter.checkpoint import load_draft
from workbench.drafter.model import DraftConfig, Eagle3Draft
from workbench.errors import UsageError
from workbench.paths import under_root
from workbench.reference.target import TARGET_CLASS, Target, load_target
from workbench.sglang_rules.capture import captured_layers
from workbench.training import order, vocabulary
from workbench.training.config import TrainConfig
from workbench.training.corpus import Corpus, Sample, read_corpus, split, subset

SMOLLM2 = "smollm2-135m-instruct"


@dataclass(frozen=True, slots=True)
class Setup:
    """``draft`` is what passes run with: ``master`` itself, or its copy in their precision.

    ``about`` is what training.json says of the data.
    """

    target: Target
    capture: tuple[int, ...]
    samples: list[Sample]
    held_out: list[Sample]
    master: Eagle3Draft
    draft: Eagle3Draft
    about: dict[str, Any]


def prepare(config: TrainConfig, device: torch.device) -> Setup:
    """Read and make everything that ``config`` names.

    Raises
    ------
    UsageError, InputError
        When it does not fit together, or cannot be read.
    """
    dtype = precision(config.dtype, device)
    target = load_target(model_folder(config.target), dtype=dtype, device=device)
    whole = read_corpus(Path(under_root(config.corpus)))
    training, held = split(whole, held_out=config.held_out, seed=config.split_seed)
    chosen = training if config.prompts == "all" else subset(training, config.prompts, seed=config.subset_seed)
    samples, left_out = order.usable(chosen, config.max_tokens, config.answers_per_prompt)
    if not samples:
        raise UsageError(f"no sample is left to train on: {left_out}", next_step="raise max_tokens, or add answers")
    held_out, _ = order.usable(held, config.max_tokens, 1)
    _check_ids(samples + held_out, target)
    master = _master(config, training, target, device)
    draft = master if dtype == torch.float32 else _copy(master, dtype)
    about = _about(whole, samples, left_out) | {
        "held_out_prompts": len({sample.prompt for sample in held_out}),
        "draft_vocab_coverage": vocabulary.coverage(training, master.target_ids.cpu().numpy()),
    }
    capture = captured(target, master.config.capture_ids)
    return Setup(target, capture, samples, held_out, master, draft, about)


def model_folder(name: str) -> Path:
    """A target's folder; the one model that the embedded engine knows by name is made when it is not there."""
    path = Path(under_root(name))
    if name == SMOLLM2 and not path.is_dir():
        from workbench.reference.smollm2 import smollm2_folder

        return smollm2_folder()
    return path


def precision(name: str, device: torch.device) -> torch.dtype:
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return torch.bfloat16 if name == "bfloat16" else torch.float32


def captured(target: Target, ids: tuple[int, ...] | None) -> tuple[int, ...]:
    """Target layers whose input is captured, by SGLang's rule."""
    return captured_layers(TARGET_CLASS, ids, target.shape.num_layers)


# ---- the draft -----------------------------------------------------------------------------------------------------


def _master(config: TrainConfig, training: Corpus, target: Target, device: torch.device) -> Eagle3Draft:
    """The draft in float32, as its training begins."""
    if config.init_from is not None:
        return load_draft(Path(under_root(config.init_from)), dtype=torch.float32, device=device)
    if config.vocab_from is not None:
        ids = vocabulary.of_draft(Path(under_root(config.vocab_from)))
    else:
        assert config.draft_vocab_size is not None
        ids = vocabulary.commonest(training, config.draft_vocab_size, target.shape.vocab_size)
    capture = _capture_ids(config, target)
    shape = replace(target.shape, num_layers=1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        draft = Eagle3Draft(DraftConfig(shape, len(ids), len(capture), capture))
    draft = draft.to(device)
    draft.target_ids.copy_(torch.from_numpy(ids))
    with torch.no_grad():
        # The target's own head reads normed states of its last layer, which the draft learns to make.
        draft.lm_head.copy_(target.lm_head[draft.target_ids])
        draft.norm.copy_(target.norm)
    return draft


def _capture_ids(config: TrainConfig, target: Target) -> tuple[int, ...]:
    """SGLang's default written down: it names inputs of layers, a draft's config names outputs."""
    layers = target.shape.num_layers
    ids = config.capture or tuple(layer - 1 for layer in captured(target, None))
    if len(set(ids)) != len(ids) or not all(0 <= i < layers for i in ids):
        raise UsageError(
            f"layers {list(ids)} cannot be captured of a target with {layers}",
            where="capture",
            next_step="name different layers of the target, such as [1, 14, 26]",
        )
    return ids


def _copy(master: Eagle3Draft, dtype: torch.dtype) -> Eagle3Draft:
    draft = Eagle3Draft(master.config)
    draft.load_state_dict(master.state_dict())
    return draft.to(device=master.target_ids.device, dtype=dtype)


# ---- the data ------------------------------------------------------------------------------------------------------


def _check_ids(samples: list[Sample], target: Target) -> None:
    highest = max(int(sample.ids.max()) for sample in samples)
    if highest >= target.shape.vocab_size:
        raise UsageError(
            f"the corpus has token {highest}, the target's vocabulary {target.shape.vocab_size}",
            where="corpus",
            next_step="name the target that made the answers",
        )


def _about(whole: Corpus, samples: list[Sample], left_out: dict[str, int]) -> dict[str, Any]:
    bulky = ("parts", "tasks")
    return {
        "samples": len(samples),
        "prompts": len({sample.prompt for sample in samples}),
        "response_tokens": sum(sample.response_tokens for sample in samples),
        "tokens": sum(len(sample.ids) for sample in samples),
        "left_out": left_out,
        "corpus": {"digest": whole.digest, **{key: said for key, said in whole.about.items() if key not in bulky}},
    }
