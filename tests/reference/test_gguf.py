from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from gguf_files import gguf, key, text

from workbench.errors import CheckpointError
from workbench.reference.gguf import Gguf


def opened(tmp_path: Path, content: bytes) -> Gguf:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    return Gguf(path)


def test_metadata_of_every_kind(tmp_path: Path) -> None:
    words = struct.pack("<IQ", 8, 2) + text("a") + text("é")
    numbers = struct.pack("<IQ", 5, 3) + struct.pack("<3i", 1, -2, 3)
    keys = [
        key("name", 8, text("x")),
        key("layers", 4, struct.pack("<I", 30)),
        key("base", 6, struct.pack("<f", 0.5)),
        key("flag", 7, b"\x01"),
        key("words", 9, words),
        key("numbers", 9, numbers),
    ]
    found = opened(tmp_path, gguf(keys, [])).metadata
    expected = {"name": "x", "layers": 30, "base": 0.5, "flag": True, "words": ["a", "é"], "numbers": [1, -2, 3]}
    assert found == expected


def test_blocks_are_dequantised_by_hand_worked_values(tmp_path: Path) -> None:
    # Q4_1: scale 0.5, minimum -1; byte i holds i in its low half (value i) and 15 - i in its high half (value 16 + i).
    q4_1 = np.float16(0.5).tobytes() + np.float16(-1).tobytes() + bytes(i | (15 - i) << 4 for i in range(16))
    # Q8_0: scale 0.25; values -16 to 15.
    q8_0 = np.float16(0.25).tobytes() + np.arange(-16, 16, dtype=np.int8).tobytes()
    f16 = np.array([1.5, -2.0], dtype=np.float16).tobytes()
    f32 = np.arange(6, dtype=np.float32).tobytes()
    tensors = [("a", (1, 32), 3, q4_1), ("b", (32,), 8, q8_0), ("c", (2,), 1, f16), ("d", (2, 3), 0, f32)]
    file = opened(tmp_path, gguf([], tensors))
    low = [0.5 * i - 1 for i in range(16)]
    assert file.read("a").tolist() == [low + low[::-1]]
    assert file.read("b").tolist() == [0.25 * i for i in range(-16, 16)]
    assert file.read("c").tolist() == [1.5, -2.0]
    assert file.read("d").tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"", "ends inside"),
        (b"PK\x03\x04" + bytes(40), "does not begin"),
        (gguf([], [], version=9), "version 9"),
        (gguf([], [("a", (256,), 14, bytes(210))]), "type 14"),
        (gguf([], [("a", (64,), 0, bytes(256))])[:-40], "inside the file"),
        (gguf([key("name", 8, text("long" * 30))], [])[:60], "ends inside"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 40, 0), "not known"),
    ],
)
def test_damaged_and_foreign_files_are_named(tmp_path: Path, content: bytes, named: str) -> None:
    with pytest.raises(CheckpointError, match=named):
        opened(tmp_path, content)
