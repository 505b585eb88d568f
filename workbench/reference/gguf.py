"""GGUF files: metadata and dequantised tensors, with numpy alone.

Layout and block formats as in ggml's ``docs/gguf.md`` and ``ggml-quants``: version 2 and 3, little-endian; a Q4_1 block
holds 32 values as fp16 scale, fp16 minimum and 16 bytes of nibbles, a Q8_0 block as fp16 scale and 32 signed bytes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from workbench.errors import CheckpointError

Floats = NDArray[np.float32]
_MAX_COUNT = 1 << 20
# GGUF value types: struct codes of the scalars, then string and array.
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
# Tensor types: name, values a block, bytes a block.
_TYPES = {0: ("F32", 1, 4), 1: ("F16", 1, 2), 3: ("Q4_1", 32, 20), 8: ("Q8_0", 32, 34)}
_NEXT_STEP = "use a file of F32, F16, Q4_1 or Q8_0 tensors, or convert it to safetensors"


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """``shape`` is row-major, as numpy has it (the file stores it reversed); ``start`` counts from the file's start."""

    shape: tuple[int, ...]
    type: str
    start: int
    size_bytes: int


class Gguf:
    """A whole file in memory; a tensor is dequantised when asked for.

    Raises
    ------
    CheckpointError
        When the file is no GGUF, is cut short, or holds a tensor of another type than the four known here.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._data = path.read_bytes()
        self._position = 0
        try:
            self.metadata, self.tensors = self._read_header()
        except (struct.error, UnicodeDecodeError, MemoryError) as error:
            raise self._fault(f"damaged header ({error})") from error

    def _read_header(self) -> tuple[Mapping[str, object], Mapping[str, GgufTensor]]:
        if self._take(4) != b"GGUF":
            raise self._fault("does not begin with GGUF")
        version, num_tensors, num_keys = self._unpack("IQQ")
        if version not in (2, 3) or max(num_tensors, num_keys) > _MAX_COUNT:
            raise self._fault(f"version {version} with {num_tensors} tensors is not known here")
        metadata = {self._string(): self._value(self._unpack("I")[0]) for _ in range(num_keys)}
        entries = [self._tensor_entry() for _ in range(num_tensors)]
        alignment = metadata.get("general.alignment", 32)
        step = alignment if isinstance(alignment, int) and alignment > 0 else 32
        data_start = -(-self._position // step) * step
        return metadata, {name: self._located(name, entry, data_start) for name, *entry in entries}

    def _tensor_entry(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._string()
        (dimensions,) = self._unpack("I")
        reversed_shape = self._unpack(f"{dimensions}Q")
        kind, offset = self._unpack("IQ")
        return name, tuple(reversed(reversed_shape)), kind, offset

    def _located(self, name: str, entry: list[object], data_start: int) -> GgufTensor:
        shape, kind, offset = entry
        assert isinstance(shape, tuple) and isinstance(kind, int) and isinstance(offset, int)
        if kind not in _TYPES:
            raise self._fault(f"tensor {name!r} has type {kind}, which is not read here")
        type_name, values, size = _TYPES[kind]
        count = math.prod(shape)
        size_bytes = count // values * size
        if count % values or data_start + offset + size_bytes > len(self._data):
            raise self._fault(f"tensor {name!r} does not lie inside the file")
        return GgufTensor(shape, type_name, data_start + offset, size_bytes)

    def read(self, name: str) -> Floats:
        """One tensor as float32."""
        info = self.tensors[name]
        raw = np.frombuffer(self._data, np.uint8, info.size_bytes, info.start)
        values: Floats = _DEQUANTISE[info.type](raw).reshape(info.shape)
        return values

    # ---- the header's parts ----------------------------------------------------------------------------------------

    def _take(self, size: int) -> bytes:
        piece = self._data[self._position : self._position + size]
        if len(piece) < size:
            raise self._fault("ends inside its header")
        self._position += size
        return piece

    def _unpack(self, codes: str) -> tuple[int, ...]:
        return struct.unpack(f"<{codes}", self._take(struct.calcsize(f"<{codes}")))

    def _string(self) -> str:
        (length,) = self._unpack("Q")
        return self._take(length).decode("utf-8")

    def _value(self, kind: int) -> object:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            item, count = self._unpack("IQ")
            if item in _SCALARS:
                return list(self._unpack(f"{count}{_SCALARS[item]}"))
            return [self._value(item) for _ in range(count)]
        if kind not in _SCALARS:
            raise self._fault(f"metadata of type {kind} is not known here")
        return self._unpack(_SCALARS[kind])[0]

    def _fault(self, what: str) -> CheckpointError:
        return CheckpointError(what, where=self.path, next_step=_NEXT_STEP)


# ---- blocks to numbers -------------------------------------------------------------------------------------------


def _nibbles(blocks: NDArray[np.uint8]) -> Floats:
    """Low halves of the 16 bytes are values 0 to 15, high halves 16 to 31."""
    return np.concatenate([blocks & 15, blocks >> 4], axis=1).astype(np.float32)


def _half(blocks: NDArray[np.uint8]) -> Floats:
    return np.ascontiguousarray(blocks).view(np.float16).astype(np.float32)


def _q4_1(raw: NDArray[np.uint8]) -> Floats:
    blocks = raw.reshape(-1, 20)
    return _half(blocks[:, :2]) * _nibbles(blocks[:, 4:]) + _half(blocks[:, 2:4])


def _q8_0(raw: NDArray[np.uint8]) -> Floats:
    blocks = raw.reshape(-1, 34)
    return _half(blocks[:, :2]) * np.ascontiguousarray(blocks[:, 2:]).view(np.int8).astype(np.float32)


_DEQUANTISE = {
    "F32": lambda raw: raw.view(np.float32),
    "F16": lambda raw: raw.view(np.float16).astype(np.float32),
    "Q4_1": _q4_1,
    "Q8_0": _q8_0,
}
