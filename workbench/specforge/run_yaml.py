"""run.yaml and the command lines that go with it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.errors import SpecError
from workbench.paths import under_root
from workbench.specforge.order import Order
from workbench.specforge.validate import faults

RUN, DRAFT, VOCABULARY = "run.yaml", "draft_config.json", "vocab_mapping.pt"
FEATURES, HELD_OUT, IDS = "features", "held_out", "samples.jsonl"
OUTPUT, EXPORTED, TRAIN_LOG, CONTROL = "output", "drafter", "train.log", "control"
_FIRST_PORT = 31000


def run_content(
    order: Order, *, target: str, keys: Mapping[str, str], epochs: int, steps: int, cut: bool
) -> dict[str, Any]:
    """run.yaml as a mapping; paths of what lies in its own folder are relative to that.

    Parameters
    ----------
    keys
        Names of the target's tensors that are not those of a Llama: ``embedding_key``, ``lm_head_key``.
    cut
        Whether the draft's vocabulary is smaller than the target's, so that it needs its map.

    Raises
    ------
    SpecError
        When SpecForge would refuse it.
    """
    online = order.mode == "online"
    content: dict[str, Any] = {
        "run_id": order.name,
        "output_dir": f"./{OUTPUT}",
        "model": {
            "target_model_path": target,
            "draft_model_config": f"./{DRAFT}",
            **keys,
            # Online, both sides must be given the same map even where nothing is cut.
            **({"vocab_mapping_path": f"./{VOCABULARY}"} if cut or online else {}),
            "torch_dtype": order.dtype,
        },
        "data": _data(order),
        "training": {
            "strategy": "eagle3",
            "num_epochs": epochs,
            "max_steps": steps,
            "batch_size": order.batch_size,
            "accumulation_steps": order.accumulation_steps,
            "learning_rate": order.learning_rate,
            "warmup_ratio": order.warmup,
            "max_grad_norm": order.clip,
            "ttt_length": order.passes,
            "seed": order.seed,
            "save_interval": order.checkpoint_steps,
            "log_interval": order.log_steps,
            **({"eval_interval": order.evaluate_steps} if order.evaluate_steps is not None else {}),
        },
        "tracking": {"report_to": order.tracking},
        "deployment": _deployment(order),
    }
    for path, value in order.settings.items():
        _set(content, path, value)
    found = faults(content, order.specforge_version)
    if found:
        raise SpecError(
            "; ".join(f"{fault.where} {fault.what}" for fault in found),
            where=RUN,
            next_step="change the order, or its `settings`",
        )
    return content


def _data(order: Order) -> dict[str, Any]:
    length = {"max_length": order.max_tokens}
    if order.mode == "offline":
        held = {"eval_hidden_states_path": f"./{HELD_OUT}"} if order.evaluate_steps is not None else {}
        return {"hidden_states_path": f"./{FEATURES}", **held, **length}
    if order.corpus is not None:
        return {"prompts_path": f"./{IDS}", **length}
    path = str(Path(under_root(str(order.conversations))).resolve())
    return {"train_data_path": path, "chat_template": order.chat_template, **length}


def _deployment(order: Order) -> dict[str, Any]:
    trainer = {"nproc_per_node": order.gpus}
    if order.mode == "offline":
        return {"mode": "local_colocated", "trainer": trainer}
    devices = [str(i) for i in range(order.gpus + order.capture_gpus)]
    server = {
        "port": _FIRST_PORT,
        "tp_size": order.capture_gpus,
        "cuda_visible_devices": devices[order.gpus :],
    }
    stack = {"trainer_cuda_visible_devices": devices[: order.gpus], "capture_servers": [server]}
    apart = {"control_dir": f"./{CONTROL}", "backend": "mooncake", "managed_local": stack}
    return {"mode": "disaggregated", "trainer": trainer, "disaggregated": apart}


def _set(content: dict[str, Any], path: str, value: Any) -> None:
    node = content
    *sections, last = str(path).split(".")
    for section in sections:
        node = node.setdefault(section, {})
        if not isinstance(node, dict):
            raise SpecError(f"{path} leads through a value", where="settings", next_step="name a key of run.yaml")
    node[last] = value


def commands(order: Order, target: str) -> str:
    """A shell script: the plan, the training with its log kept, the export, the check."""
    version = order.specforge_version
    needs = (
        f"{order.gpus} GPU{'s' if order.gpus > 1 else ''}; SpecForge starts torchrun itself when there are several"
        if order.mode == "offline"
        else f"{order.gpus + order.capture_gpus} GPUs, SGLang with SpecForge's capture patch, and mooncake_master"
    )
    checkpoint = [
        "specforge",
        "export",
        "--to",
        "sglang",
        "--checkpoint",
        f"./{OUTPUT}",
        "--draft-config",
        f"./{DRAFT}",
    ]
    return "\n".join(
        [
            "#!/bin/sh",
            f"# SpecForge {version} (pip install specforge=={version}; torch 2.11.0 with CUDA, transformers 5.8.1).",
            f"# Needs {needs}.",
            "set -e",
            'cd "$(dirname "$0")"',
            f"specforge train --config ./{RUN} --plan",
            # A pipe into tee would hide that the training failed; dash has no pipefail.
            f"specforge train --config ./{RUN} > {TRAIN_LOG} 2>&1",
            shlex.join([*checkpoint, "--output-dir", f"./{EXPORTED}"]),
            f"workbench check ./{EXPORTED} --target {shlex.quote(target)}",
            f"workbench specforge read . --out ./{EXPORTED}",
            "",
        ]
    )
