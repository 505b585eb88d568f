"""A training run's state on disk, so that a killed run goes on with the same weights as one that was never killed."""

from __future__ import annotations

import pickle
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from workbench.errors import InputError, UsageError
from workbench.files import replacing
from workbench.training.config import TrainConfig

NAME = "state.pt"


@dataclass(slots=True)
class Position:
    """How far a run is. ``epoch`` and ``in_epoch`` name its next step; ``seconds`` are those that count."""

    step: int = 0
    epoch: int = 0
    in_epoch: int = 0
    samples: int = 0
    tokens: int = 0
    response_tokens: int = 0
    seconds: float = 0.0


def save(folder: Path, config: TrainConfig, digest: str, position: Position, parts: dict[str, Any]) -> None:
    """Write the state, whole or not at all."""
    content = {"config": config.identity, "digest": digest, "position": asdict(position), **parts}
    with replacing(folder / NAME) as temporary:
        torch.save(content, temporary)


def load(folder: Path, config: TrainConfig, digest: str, device: torch.device) -> tuple[Position, dict[str, Any]]:
    """Position and parts of a state.

    Raises
    ------
    InputError
        When it cannot be read.
    UsageError
        When it is of a run with another config, or other data.
    """
    path = folder / NAME
    try:
        content = torch.load(path, map_location=device, weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise InputError(f"cannot be read ({error})", where=path, next_step="remove it and train anew") from error
    changed = [key for key, value in config.identity.items() if content["config"].get(key) != value]
    if changed or content["digest"] != digest:
        what = ", ".join(changed) or "the corpus"
        raise UsageError(
            f"the run that began here differs in {what}",
            where=path,
            next_step="go on with its config, or train into another folder",
        )
    return Position(**content["position"]), content
