"""GGUF files made by hand, by the format's description."""

from __future__ import annotations

import struct


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def key(name: str, kind: int, payload: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + payload


def gguf(keys: list[bytes], tensors: list[tuple[str, tuple[int, ...], int, bytes]], *, version: int = 3) -> bytes:
    """A file by the format's description: header, infos with reversed shapes, data at multiples of 32."""
    infos, data = b"", b""
    for name, shape, kind, raw in tensors:
        infos += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape))
        infos += struct.pack("<IQ", kind, len(data))
        data += raw + bytes(-len(raw) % 32)
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys)) + b"".join(keys) + infos
    return head + bytes(-len(head) % 32) + data
