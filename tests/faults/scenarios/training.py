"""The state of a training, saved over the one before."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import torch
from training_files import config_for

from workbench.training.state import Position, load, save

_CONFIG = config_for(Path("/nowhere"))


def _parts(step: int) -> dict[str, Any]:
    weights = {"fc.weight": torch.full((64, 64), float(step))}
    optimiser = {"state": {0: {"exp_avg": torch.full((64, 64), float(-step))}}, "param_groups": [{"lr": 0.1}]}
    return {"weights": weights, "optimiser": optimiser}


def _save(root: Path, step: int) -> None:
    save(root, _CONFIG, "digest", Position(step=step), _parts(step))


def prepare(root: Path) -> None:
    root.mkdir()
    _save(root, 1)


def meanwhile(_: Path) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


def act(root: Path) -> None:
    with contextlib.suppress(OSError):
        _save(root, 2)


def read(root: Path) -> None:
    position, parts = load(root, _CONFIG, "digest", torch.device("cpu"))
    assert position.step in (1, 2), "LOST"
    assert torch.equal(parts["weights"]["fc.weight"], torch.full((64, 64), float(position.step)))
    assert torch.equal(parts["optimiser"]["state"][0]["exp_avg"], torch.full((64, 64), float(-position.step)))


def go_on(root: Path) -> None:
    _save(root, 3)
    assert load(root, _CONFIG, "digest", torch.device("cpu"))[0].step == 3
