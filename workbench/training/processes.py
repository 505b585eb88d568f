"""The processes of one training run: one, or those that torchrun started."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
from torch import Tensor, distributed

from workbench.errors import UsageError


@dataclass(frozen=True, slots=True)
class Processes:
    rank: int
    world: int
    device: torch.device

    @property
    def leads(self) -> bool:
        """Whether this one writes files and speaks."""
        return self.rank == 0

    def total(self, values: Tensor) -> Tensor:
        """The sum over all processes."""
        if self.world > 1:
            values = values.clone()
            distributed.all_reduce(values)
        return values

    def agreed(self, value: float) -> float:
        """What the leading process says."""
        if self.world == 1:
            return value
        shared = torch.tensor([value], dtype=torch.float64, device=self.device)
        distributed.broadcast(shared, 0)
        return float(shared)

    def leave(self) -> None:
        if self.world > 1:
            distributed.destroy_process_group()


def join(device: str) -> Processes:
    """This process's place, by the variables RANK, WORLD_SIZE and LOCAL_RANK that torchrun sets.

    Raises
    ------
    UsageError
        When a GPU is asked for and there is none for this process.
    """
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    local = int(os.environ.get("LOCAL_RANK", "0"))
    gpus = torch.cuda.device_count() if device != "cpu" else 0
    if device == "cuda" and local >= gpus:
        raise UsageError(
            f"process {local} of this machine needs a GPU, PyTorch sees {gpus}",
            where="device",
            next_step="start fewer processes, or set device to cpu",
        )
    place = torch.device("cuda", local) if gpus > local else torch.device("cpu")
    if place.type == "cuda":
        torch.cuda.set_device(place)
    if world > 1:
        distributed.init_process_group("nccl" if place.type == "cuda" else "gloo")
    return Processes(rank, world, place)
