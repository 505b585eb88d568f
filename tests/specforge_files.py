"""Orders for SpecForge over a tiny target and a corpus, and what SpecForge 0.2.0 printed and left for such."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tiny_models import target_config, target_tensors, write_model
from training_files import VOCAB, sample, write_corpus

from workbench.specforge.order import Order
from workbench.training.corpus import Sample

FIXTURES = Path(__file__).parent / "fixtures" / "specforge"
EOS = 0
SAMPLES: list[Sample] = [
    sample([3, 4, 5, 6, 7, 8, EOS], 3, 0),
    sample([9, 10, 5, 6, 11], 2, 1),
    sample([12, 13, 14, 5, 6, 15, 16, EOS], 4, 2),
    sample([17, 18, 19, 5, 20], 3, 3),
    sample([21, 22, 23, 6, 5, EOS], 2, 4),
    sample([3, 9, 12, 17, 21, 22], 3, 5),
]


def write_target(folder: Path, **changes: Any) -> Path:
    config = target_config(vocab=VOCAB, **changes)
    tensors = target_tensors(config)
    if config["tie_word_embeddings"]:
        del tensors["lm_head.weight"]
    return write_model(folder, config, tensors)


def order(folder: Path, **changes: Any) -> Order:
    """Of a run over ``folder``/target and ``folder``/corpus, which are made where they are not there."""
    if not (folder / "target").exists():
        write_target(folder / "target")
    if not (folder / "corpus").exists():
        write_corpus(folder / "corpus", SAMPLES, prompt_set={"name": "tiny"}, target="tiny")
    keys: dict[str, Any] = {
        "name": "tiny",
        "target": str(folder / "target"),
        "corpus": str(folder / "corpus"),
        "held_out": 2,
        "max_tokens": 64,
        "passes": 3,
        "capture": (0, 1, 3),
        "draft_vocab_size": 20,
        "epochs": 2,
        "device": "cpu",
    }
    asked = {key: value for key, value in {**keys, **changes}.items() if value is not None}
    return Order.model_validate(asked)


GOLDEN: dict[str, dict[str, Any]] = {
    "offline": {},
    "two_gpus": {"gpus": 2, "epochs": None, "steps": 8, "evaluate_steps": 4, "checkpoint_steps": 4},
    "online": {"mode": "online", "gpus": 1, "capture_gpus": 2},
}
"""Orders whose run.yaml SpecForge 0.2.0 was given; it accepted each and printed the plan beside it."""


def read_features(path: Path) -> dict[str, torch.Tensor]:
    """A file of features as SpecForge opens it. The package itself only writes such files: they are pickles."""
    content = torch.load(path, map_location="cpu", weights_only=True)
    assert isinstance(content, dict)
    return content
