"""What is written down of a training run: training_log.jsonl on the way, training.json at the end."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from workbench.files import replacing
from workbench.plain import from_json
from workbench.provenance import code_version

LOG, RECORD = "training_log.jsonl", "training.json"
_PACKAGES = ("torch", "numpy", "safetensors")


def append_log(out: Path, line: Mapping[str, Any]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with (out / LOG).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def cut_log(out: Path, step: int) -> None:
    """Leave out what a killed run logged behind the state that the run goes on from."""
    path = out / LOG
    if not path.is_file():
        return
    kept = [line for line in read_log(out) if line["step"] <= step]
    with replacing(path) as temporary:
        temporary.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")


def read_log(out: Path) -> list[dict[str, Any]]:
    """The lines of a log, but for a last one that was not written to its end."""
    lines = []
    path = out / LOG
    for text in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            lines.append(from_json(text))
        except ValueError:
            continue
    return lines


def write_record(out: Path, record: Mapping[str, Any]) -> None:
    with replacing(out / RECORD) as temporary:
        temporary.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def machine(device: torch.device) -> dict[str, Any]:
    """Where it ran and with what."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    versions = {package: metadata.version(package) for package in _PACKAGES}
    return {"device": device.type, "device_name": name, "python": platform.python_version(), **versions} | {
        "code": code_version()
    }
