"""A training run's state on disk, so that a killed run goes on with the same weights as one that was never killed.

One safetensors file: the weights, the optimizer's tensors by the number of their weight, all else as JSON in its
metadata. Nothing is pickled.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from workbench.errors import InputError, UsageError
from workbench.files import replacing
from workbench.plain import from_json
from workbench.training.config import TrainConfig

NAME = "state.safetensors"
_WEIGHT, _MOMENT = "weight.", "moment."


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
    """Write the state, whole or not at all: ``weights`` and ``optimiser`` are state dicts of PyTorch's."""
    optimiser = parts["optimiser"]
    tensors = {f"{_WEIGHT}{name}": tensor for name, tensor in parts["weights"].items()}
    tensors |= {f"{_MOMENT}{i}.{name}": held for i, of in optimiser["state"].items() for name, held in of.items()}
    said = {"config": config.identity, "digest": digest, "position": asdict(position)}
    about = json.dumps({**said, "param_groups": optimiser["param_groups"]})
    # Two names of one tensor cannot be saved.
    whole = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    with replacing(folder / NAME) as temporary:
        save_file(whole, temporary, metadata={"state": about})


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
        with safe_open(path, framework="pt", device=str(device)) as file:
            content = from_json(file.metadata()["state"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
        position, groups = Position(**content["position"]), list(content["param_groups"])
        asked, data = dict(content["config"]), content["digest"]
    except (OSError, SafetensorError, ValueError, TypeError, KeyError) as error:
        raise InputError(f"cannot be read ({error})", where=path, next_step="remove it and train anew") from error
    changed = [key for key, value in config.identity.items() if asked.get(key) != value]
    if changed or data != digest:
        what = ", ".join(changed) or "the corpus"
        raise UsageError(
            f"the run that began here differs in {what}",
            where=path,
            next_step="go on with its config, or train into another folder",
        )
    return position, _parts(tensors, groups)


def _parts(tensors: dict[str, torch.Tensor], groups: list[Any]) -> dict[str, Any]:
    weights = {name.removeprefix(_WEIGHT): held for name, held in tensors.items() if name.startswith(_WEIGHT)}
    moments: dict[int, dict[str, torch.Tensor]] = {}
    for name, held in tensors.items():
        if name.startswith(_MOMENT):
            number, _, kind = name.removeprefix(_MOMENT).partition(".")
            moments.setdefault(int(number), {})[kind] = held
    return {"weights": weights, "optimiser": {"state": moments, "param_groups": groups}}
