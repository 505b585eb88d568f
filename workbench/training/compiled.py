"""torch.compile for the parts between attention, or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


class Compiled:
    """Compiles functions when ``on``, and hands them back as they are otherwise.

    What is compiled is small (a layer without its attention, the loss of some rows), so that one compilation serves
    all layers and passes; lengths become symbolic by themselves with the second batch.
    """

    def __init__(self, on: bool) -> None:
        self.on = on

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        return torch.compile(function) if self.on else function
