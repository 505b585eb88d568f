"""Model folders read without torch: config.json, safetensors headers and small integer tensors.

The safetensors layout: 8 bytes little-endian header length N, N bytes of JSON
``{name: {dtype, shape, data_offsets: [begin, end)}}`` padded with spaces, then the data; offsets count from the end of
the header and cover the data without gap or overlap (huggingface/safetensors README, "Format").
Nothing in a folder is trusted, and a pickle (``.bin``, ``.pt``) is never opened.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from workbench.errors import CheckpointError
from workbench.files import unique_keys

INDEX_NAME = "model.safetensors.index.json"
# The largest index met in the wild (some 200,000 tensors of a mixture of experts) stays below 32 MB.
MAX_JSON_BYTES = 64 << 20
MAX_INTS = 1 << 22
_MAX_DIMENSIONS = 64
_CHUNK_BYTES = 1 << 20
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
_SHARD_NAME = re.compile(r"[^/\\\x00-\x1f:]{1,200}\.safetensors")
# The language model's part of a multimodal config, in the order in which SGLang looks for it.
_TEXT_CONFIGS = ("thinker_config", "llm_config", "language_config", "text_config")
_DTYPE_BITS = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 16),
    **dict.fromkeys(("I32", "U32", "F32"), 32),
    **dict.fromkeys(("I64", "U64", "F64", "C64"), 64),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}
_INT_CODES = {
    "BOOL": "B",
    "U8": "B",
    "I8": "b",
    "U16": "H",
    "I16": "h",
    "U32": "I",
    "I32": "i",
    "U64": "Q",
    "I64": "q",
}
_EXPORT = "export the checkpoint again in the usual safetensors layout"
_DAMAGED = "the file is damaged or cut short: copy or download it again"


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor: ``start`` is its first byte in ``file``, ``size_bytes`` its length there."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    start: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model folder. ``tensors`` is empty when it holds no safetensors; ``pickles`` were seen and not opened."""

    path: Path
    config: Mapping[str, object]
    tensors: Mapping[str, TensorInfo] = field(default_factory=dict)
    pickles: tuple[Path, ...] = ()

    @property
    def text_config(self) -> Mapping[str, object]:
        """The language model's part of the config, the whole config where it is not nested."""
        config = self.config
        for key in _TEXT_CONFIGS:
            nested = config.get(key)
            if isinstance(nested, dict) and nested:
                config = nested
        return config

    def read_ints(self, name: str) -> list[int]:
        """All values of an integer or boolean tensor, in storage order.

        Raises
        ------
        CheckpointError
            When there is no such tensor, it is not of integers, or it has more than `MAX_INTS` values.
        """
        info = self._tensor(name)
        where = f"{info.file}: {name}"
        if info.dtype not in _INT_CODES:
            raise CheckpointError(f"holds {info.dtype}, not integers", where=where, next_step=_EXPORT)
        count = math.prod(info.shape)
        if count > MAX_INTS:
            raise CheckpointError(
                f"{count} values are more than a vocabulary map can have", where=where, next_step=_EXPORT
            )
        return list(struct.unpack(f"<{count}{_INT_CODES[info.dtype]}", b"".join(_data_chunks(info))))

    def is_zero(self, name: str) -> bool:
        """Whether every byte of a tensor is zero; reads no further than the first chunk that is not."""
        return not any(chunk.strip(b"\x00") for chunk in _data_chunks(self._tensor(name)))

    def _tensor(self, name: str) -> TensorInfo:
        if name not in self.tensors:
            raise CheckpointError(f"no tensor {name!r}", where=self.path, next_step=_EXPORT)
        return self.tensors[name]


def read_checkpoint(folder: Path, *, weights: bool = True) -> Checkpoint:
    """Read ``config.json`` and, unless ``weights`` is false, every safetensors header of a model folder.

    The files are those that SGLang would load: the shards that ``model.safetensors.index.json`` names, without an
    index every ``*.safetensors``. A target needs only its config.

    Raises
    ------
    CheckpointError
        When the folder, its config or any of these files is missing, damaged or inconsistent.
    """
    try:
        return _read_folder(folder, weights=weights)
    except OSError as error:
        raise _unreadable(error, folder) from error


def _read_folder(folder: Path, *, weights: bool) -> Checkpoint:
    if not folder.is_dir():
        raise CheckpointError(
            "no such model folder", where=folder, next_step="give the folder that holds config.json and the weights"
        )
    config = _read_json_object(
        folder / "config.json", "a model folder needs the config.json that its exporter or download wrote"
    )
    pickles = tuple(sorted(path for pattern in _PICKLES for path in folder.glob(pattern)))
    tensors: dict[str, TensorInfo] = {}
    for file in _weight_files(folder) if weights else ():
        for info in _read_header(file):
            if info.name in tensors:
                raise CheckpointError(
                    f"tensor {info.name!r} stands in {tensors[info.name].file.name} too",
                    where=file,
                    next_step="keep one set of weights in the folder",
                )
            tensors[info.name] = info
    return Checkpoint(folder, config, tensors, pickles)


# --- which files -------------------------------------------------------------------------------------------------


def _weight_files(folder: Path) -> list[Path]:
    index = folder / INDEX_NAME
    if not index.exists():
        return sorted(folder.glob("*.safetensors"))
    shards = _read_json_object(index, _DAMAGED).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise CheckpointError("no weight_map", where=index, next_step=_DAMAGED)
    names = sorted({_shard_name(name, index) for name in shards.values()})
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise CheckpointError(
            f"{len(missing)} of {len(names)} weight files are missing, the first is {missing[0]!r}",
            where=index,
            next_step="download the missing files",
        )
    return [folder / name for name in names]


def _shard_name(name: object, index: Path) -> str:
    """A bare file name: an index must not lead out of its folder."""
    if not isinstance(name, str) or not _SHARD_NAME.fullmatch(name) or not _encodable(name):
        raise CheckpointError(
            f"weight_map names {str(name)[:100]!r}, which is not a plain .safetensors file name",
            where=index,
            next_step="use an index whose files lie beside it",
        )
    return name


def _encodable(name: str) -> bool:
    """Whether the file system can hold the name (JSON may escape half a surrogate pair)."""
    try:
        return len(name.encode()) <= 255
    except UnicodeEncodeError:
        return False


# --- one file ----------------------------------------------------------------------------------------------------


def _read_header(file: Path) -> list[TensorInfo]:
    """The tensors of one safetensors file, in the order of their data."""
    size = _file_size(file)
    with file.open("rb") as handle:
        length, text = _header_text(handle, file, size)
    return _tensors(_parse_json_object(text, file), file, data_start=8 + length, data_size=size - 8 - length)


def _header_text(handle: BinaryIO, file: Path, size: int) -> tuple[int, bytes]:
    start = handle.read(8)
    if start.startswith(b"version "):
        raise CheckpointError("a Git LFS pointer, not the weights", where=file, next_step="run `git lfs pull`")
    if len(start) < 8:
        raise CheckpointError(f"only {size} bytes long", where=file, next_step=_DAMAGED)
    (length,) = struct.unpack("<Q", start)
    if length > min(MAX_JSON_BYTES, size - 8):
        raise CheckpointError(
            f"states a header of {length} bytes in a file of {size}: not safetensors", where=file, next_step=_DAMAGED
        )
    text = handle.read(length)
    if not text.startswith(b"{"):
        raise CheckpointError("its header is not a JSON object", where=file, next_step=_DAMAGED)
    return length, text


def _tensors(header: Mapping[str, object], file: Path, *, data_start: int, data_size: int) -> list[TensorInfo]:
    entries = [(*_tensor_entry(name, entry, file), name) for name, entry in header.items() if name != "__metadata__"]
    entries.sort(key=lambda entry: entry[:2])
    position = 0
    for begin, end, _, _, name in entries:
        if begin != position:
            fault = "overlaps another tensor" if begin < position else "leaves a gap before it"
            raise CheckpointError(f"the data of {name!r} {fault}", where=file, next_step=_DAMAGED)
        position = end
    if position != data_size:
        raise CheckpointError(
            f"the header describes {position} bytes of data and the file holds {data_size}",
            where=file,
            next_step=_DAMAGED,
        )
    return [
        TensorInfo(name, dtype, shape, file, data_start + begin, end - begin)
        for begin, end, dtype, shape, name in entries
    ]


def _tensor_entry(name: str, entry: object, file: Path) -> tuple[int, int, str, tuple[int, ...]]:
    if not isinstance(entry, dict):
        raise CheckpointError(f"the entry of {name!r} is not an object", where=file, next_step=_DAMAGED)
    dtype = entry.get("dtype")
    shape = _naturals(entry.get("shape"))
    offsets = _naturals(entry.get("data_offsets"))
    if not isinstance(dtype, str) or dtype not in _DTYPE_BITS:
        raise CheckpointError(f"{name!r} has the unknown dtype {str(dtype)[:40]!r}", where=file, next_step=_EXPORT)
    if shape is None or offsets is None or len(offsets) != 2:
        raise CheckpointError(f"the shape or data_offsets of {name!r} are invalid", where=file, next_step=_DAMAGED)
    begin, end = offsets
    if math.prod(shape) * _DTYPE_BITS[dtype] != (end - begin) * 8:
        raise CheckpointError(
            f"{name!r} of shape {list(shape)} and {dtype} does not fit its {end - begin} bytes",
            where=file,
            next_step=_DAMAGED,
        )
    return begin, end, dtype, shape


def _naturals(value: object) -> tuple[int, ...] | None:
    if not isinstance(value, list) or len(value) > _MAX_DIMENSIONS:
        return None
    # type() and not isinstance: JSON's true is an int to Python.
    return tuple(value) if all(type(item) is int and 0 <= item < 1 << 63 for item in value) else None


def _data_chunks(info: TensorInfo) -> Iterator[bytes]:
    left = info.size_bytes
    try:
        with info.file.open("rb") as handle:
            handle.seek(info.start)
            while left > 0:
                chunk = handle.read(min(left, _CHUNK_BYTES))
                if not chunk:
                    raise CheckpointError(f"ends inside {info.name!r}", where=info.file, next_step=_DAMAGED)
                left -= len(chunk)
                yield chunk
    except OSError as error:
        raise _unreadable(error, info.file) from error


# --- JSON --------------------------------------------------------------------------------------------------------


def _read_json_object(path: Path, next_step: str) -> dict[str, object]:
    if not path.exists():
        raise CheckpointError("missing", where=path, next_step=next_step)
    if _file_size(path) > MAX_JSON_BYTES:
        raise CheckpointError(f"larger than {MAX_JSON_BYTES} bytes", where=path, next_step=_DAMAGED)
    return _parse_json_object(path.read_bytes(), path)


def _parse_json_object(text: bytes, where: Path) -> dict[str, object]:
    try:
        value = json.loads(text.decode(), object_pairs_hook=unique_keys)
    except RecursionError as error:
        raise CheckpointError("JSON nested too deeply", where=where, next_step=_DAMAGED) from error
    except ValueError as error:
        raise CheckpointError(f"not valid JSON ({str(error)[:200]})", where=where, next_step=_DAMAGED) from error
    if not isinstance(value, dict):
        raise CheckpointError("not a JSON object", where=where, next_step=_DAMAGED)
    return value


def _file_size(path: Path) -> int:
    """Size of a regular file; a pipe or device would block or never end."""
    if not path.is_file():
        raise CheckpointError("missing, or not a regular file", where=path, next_step=_DAMAGED)
    return path.stat().st_size


def _unreadable(error: OSError, where: Path) -> CheckpointError:
    return CheckpointError(
        f"cannot be read ({error.strerror or error})",
        where=error.filename or where,
        next_step="check that it exists and may be read",
    )
