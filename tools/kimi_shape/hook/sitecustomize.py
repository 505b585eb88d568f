"""With ROUTER_NOISE=1 experts are chosen by random router logits: dummy weights would collapse on few experts."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

TOPK = "sglang.srt.layers.moe.topk"


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != TOPK:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def with_noise(module: ModuleType) -> None:
                execute(module)
                _add_noise(module)

            spec.loader.exec_module = with_noise  # type: ignore[method-assign]
        return spec


def _add_noise(module: Any) -> None:
    import torch

    choose = module.select_experts

    def noisy(hidden_states: Any, router_logits: Any, *args: Any, **options: Any) -> Any:
        return choose(hidden_states, torch.randn_like(router_logits), *args, **options)

    module.select_experts = noisy
    sys.stderr.write("router noise: the choice of experts is random\n")


if os.environ.get("ROUTER_NOISE") == "1":
    sys.meta_path.insert(0, _Finder())
