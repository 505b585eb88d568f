"""Changes to SGLang's choice of experts for models without weights, by environment variables of the server.

ROUTER_NOISE=1: experts are chosen by random router logits. Dummy weights would collapse on few experts.
ROUTER_COUNTS=FILE: every two seconds, how many distinct experts a layer's forward pass reached, by its number of
tokens: a JSON object {tokens: {"passes": p, "experts": mean}}. Counts CUDA-graph replays too; it makes passes slower.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

TOPK = "sglang.srt.layers.moe.topk"
EXPERTS = 384
MOST_TOKENS = 1024
WRITE_EVERY_S = 2.0


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

            def changed(module: ModuleType) -> None:
                execute(module)
                _change(module)

            spec.loader.exec_module = changed  # type: ignore[method-assign]
        return spec


def _change(module: Any) -> None:
    import torch

    choose = module.select_experts
    noise = os.environ.get("ROUTER_NOISE") == "1"
    counts = os.environ.get("ROUTER_COUNTS")
    counter = Counter(Path(counts)) if counts else None

    def select(hidden_states: Any, router_logits: Any, *args: Any, **options: Any) -> Any:
        if noise:
            # float32: bf16 has so few values at the top that ties would prefer experts.
            router_logits = torch.randn(router_logits.shape, dtype=torch.float32, device=router_logits.device)
        chosen = choose(hidden_states, router_logits, *args, **options)
        if counter is not None:
            counter.add(chosen.topk_ids)
        return chosen

    module.select_experts = select
    sys.stderr.write(f"choice of experts: noise {noise}, counts {counts}\n")


class Counter:
    """Distinct experts by number of tokens; on the device, so that it can be part of a CUDA graph.

    ``totals`` [tokens, 2] are passes and the sum of distinct experts. The copy to the host is part of the graph too:
    a thread that asked the device would break a capture.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.totals: Any = None
        self.host: Any = None

    def add(self, ids: Any) -> None:
        """``ids`` [rows, k]: the experts of every row; padding rows hold -1 or repeat, as SGLang leaves them."""
        import torch

        if self.totals is None:
            self._begin(ids.device)
        rows = ids.clamp(min=-1) + 1  # slot 0: padding
        reached = torch.zeros(EXPERTS + 1, dtype=torch.int64, device=ids.device)
        reached.scatter_(0, rows.flatten().long(), 1)
        tokens = (rows[:, 0] > 0).sum().clamp(max=MOST_TOKENS - 1)
        one = torch.stack([torch.ones_like(tokens), reached[1:].sum()]).unsqueeze(0)
        self.totals.index_add_(0, tokens.unsqueeze(0), one)
        self.host.copy_(self.totals, non_blocking=True)

    def _begin(self, device: Any) -> None:
        import torch

        self.totals = torch.zeros(MOST_TOKENS, 2, dtype=torch.int64, device=device)
        self.host = torch.zeros(MOST_TOKENS, 2, dtype=torch.int64, pin_memory=device.type == "cuda")
        threading.Thread(target=self._write_for_ever, daemon=True).start()

    def _write_for_ever(self) -> None:
        while True:
            time.sleep(WRITE_EVERY_S)
            self.write()

    def write(self) -> None:
        found = {
            tokens: {"passes": passes, "experts": experts / passes}
            for tokens, (passes, experts) in enumerate(self.host.tolist())
            if passes
        }
        partial = self.path.with_suffix(".part")
        partial.write_text(json.dumps(found) + "\n", encoding="utf-8")
        partial.replace(self.path)


if os.environ.get("ROUTER_NOISE") == "1" or os.environ.get("ROUTER_COUNTS"):
    sys.meta_path.insert(0, _Finder())
