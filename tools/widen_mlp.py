"""Give a Llama-type model folder a wider MLP that computes the same: python tools/widen_mlp.py MODEL OUT --size N

Each layer's gate, up and down projection get zeros up to ``N`` intermediate units. A unit without weights adds nothing
to the residual stream, so the model says what it said, and a draft of it is accepted as before; but a pass reads the
zeros too. That gives a small model, and a draft that really was trained for it, the step time of a large one, for
questions that simulated acceptance cannot answer: trees, and what a prompt's accept length does to a search.

Widen the draft as well, or its layer costs less than a layer of its target. The zeros are holes in the file: on disk
it takes no more than before.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import struct
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from workbench.checkpoint import TensorInfo, read_checkpoint
from workbench.errors import WorkbenchError

WIDTH = "intermediate_size"
ALONG_ROWS = ("mlp.gate_proj.weight", "mlp.up_proj.weight")  # [I, H]
ALONG_COLUMNS = ("mlp.down_proj.weight",)  # [H, I]
FLOATS = {"BF16": 2, "F16": 2, "F32": 4}
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf")


def main() -> None:
    parser = argparse.ArgumentParser(description="A wider MLP that computes the same.")
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--size", type=int, required=True, help="intermediate units of the widened model")
    given = parser.parse_args()
    try:
        widen(given.model, given.out, given.size)
    except (WorkbenchError, OSError, OverflowError) as error:
        raise SystemExit(str(error)) from error


def widen(model: Path, out: Path, size: int) -> None:
    """``out`` must not exist: it becomes a model folder with ``size`` intermediate units and one weight file."""
    checkpoint = read_checkpoint(model)
    units = checkpoint.config.get(WIDTH)
    if not isinstance(units, int) or size <= units:
        raise SystemExit(f"--size {size}: {model / 'config.json'} has {WIDTH} {units}, and more are wanted")
    shapes = {name: _widened(tensor, units, size) for name, tensor in checkpoint.tensors.items()}
    _require_whole(model, checkpoint.tensors, shapes, units)
    if out.exists():
        raise SystemExit(f"{out} is there already: remove it, or name another folder")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".widening-") as scratch:
        made = Path(scratch) / "model"
        made.mkdir()
        for path in sorted(model.iterdir()):
            # What is not weights: tokenizer, chat template, generation config.
            if path.is_file() and path.suffix not in WEIGHTS and not path.name.endswith(".index.json"):
                shutil.copyfile(path, made / path.name)
        config = {**checkpoint.config, WIDTH: size}
        (made / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
        _write(made / "model.safetensors", checkpoint.tensors, shapes)
        made.rename(out)


def _require_whole(
    model: Path, tensors: Mapping[str, TensorInfo], shapes: Mapping[str, tuple[int, ...]], units: int
) -> None:
    """Every MLP must have been widened, and nothing of it left as wide as before: a mixture of both would not load."""
    wider = {name for name, shape in shapes.items() if shape != tensors[name].shape}
    if not wider:
        raise SystemExit(f"{model}: no mlp.gate_proj, up_proj and down_proj with {units} units in {', '.join(FLOATS)}")
    parts = (*ALONG_ROWS, *ALONG_COLUMNS)
    prefixes = {name.split("mlp.")[0] for name in wider}
    missing = [prefix + part for prefix in sorted(prefixes) for part in parts if prefix + part not in wider]
    other = [name for name in tensors if "mlp." in name and name not in wider]
    if odd := [*missing, *other]:
        raise SystemExit(f"{model}: {odd[0]} cannot be widened: only MLPs of three matrices without biases can")


def _widened(tensor: TensorInfo, units: int, size: int) -> tuple[int, ...]:
    if tensor.dtype not in FLOATS or len(tensor.shape) != 2:
        return tensor.shape
    rows, columns = tensor.shape
    if tensor.name.endswith(ALONG_ROWS) and rows == units:
        return size, columns
    if tensor.name.endswith(ALONG_COLUMNS) and columns == units:
        return rows, size
    return tensor.shape


def _write(path: Path, tensors: Mapping[str, TensorInfo], shapes: Mapping[str, tuple[int, ...]]) -> None:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    begins, end = {}, 0
    for name, tensor in tensors.items():
        grown = math.prod(shapes[name]) - math.prod(tensor.shape)
        begins[name], end = end, end + tensor.size_bytes + grown * FLOATS.get(tensor.dtype, 0)
        header[name] = {"dtype": tensor.dtype, "shape": list(shapes[name]), "data_offsets": [begins[name], end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        data = file.tell()
        file.truncate(data + end)
        for name, tensor in tensors.items():
            _put(file, data + begins[name], tensor, shapes[name])


def _put(file: BinaryIO, begin: int, tensor: TensorInfo, shape: tuple[int, ...]) -> None:
    """A tensor's bytes: in one piece, or row by row where its rows became longer."""
    with tensor.file.open("rb") as source:
        source.seek(tensor.start)
        values = source.read(tensor.size_bytes)
    rows = shape[0] if len(shape) == 2 and shape[1] != tensor.shape[1] else 1
    length = len(values) // rows
    stride = length * shape[-1] // tensor.shape[-1] if rows > 1 else 0
    for row in range(rows):
        file.seek(begin + row * stride)
        file.write(values[row * length : (row + 1) * length])


if __name__ == "__main__":
    main()
