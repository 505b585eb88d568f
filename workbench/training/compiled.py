"""torch.compile for the parts between attention, or not."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


class Compiled:
    """Compiles functions when ``on``, and hands them back as they are otherwise.

    What is compiled is small (a layer without its attention, the loss of some rows), so that one compilation serves
    all layers, passes and batches.
    """

    def __init__(self, on: bool) -> None:
        self.on = on

    def __call__(self, function: Callable[P, R], varying: Mapping[int, tuple[int, ...]]) -> Callable[P, R]:
        """``varying`` are the dimensions, by argument, whose size is another in every batch.

        Without that word each function would be compiled for the first batch's sizes first, and again for all others.
        """
        if not self.on:
            return function
        compiled = torch.compile(function)

        @functools.wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            for place, dimensions in varying.items():
                _mark(args[place], dimensions)
            return compiled(*args, **kwargs)

        return run


def _mark(value: Any, dimensions: tuple[int, ...]) -> None:
    for tensor in value if isinstance(value, tuple) else (value,):
        for dimension in dimensions:
            torch._dynamo.maybe_mark_dynamic(tensor, dimension)
