"""Hashes of files and folders. Of a large folder only files are read that changed since they were last hashed.

What was hashed is kept in ``reports/.cache/hashes``: size, time and inode of a file tell whether it is as it was.
The id of a checkpoint is another thing: a sample of its bytes, for it may be a terabyte.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path

from workbench.checkpoint import Checkpoint, TensorInfo, read_checkpoint
from workbench.errors import CheckpointError, UsageError
from workbench.files import replacing
from workbench.paths import project_root, reports_dir, slug

_FEW_FILES = 200  # are hashed as quickly as they are looked up
_SETTLED_S = 2.0
_PIECE_BYTES = 1 << 14
_PIECES = 32
Known = Mapping[str, list[object]]


def hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_folder(folder: Path, *, without: Set[str] = frozenset()) -> str:
    """SHA-256 of the names and hashes of all files in a folder but those in folders (or files) ``without`` names.

    Raises
    ------
    OSError
        When something in it cannot be read.
    """
    found = sorted(
        (item for item in _files(folder, "") if item[0].split("/", 1)[0] not in without),
        key=lambda item: item[0].split("/"),
    )
    kept_in = _kept_in(folder) if len(found) > _FEW_FILES else None
    known = _read(kept_in)
    listing, now, seen = hashlib.sha256(), time.time(), {}
    for name, stat in found:
        state = [stat.st_size, stat.st_mtime_ns, stat.st_ino]
        before = known.get(name, [])
        own = str(before[3]) if before[:3] == state and len(before) == 4 else hash_file(folder / name)
        if now - stat.st_mtime > _SETTLED_S:
            seen[name] = [*state, own]
        listing.update(f"{name}\0{own}\n".encode(errors="backslashreplace"))
    if kept_in is not None and seen != known:
        _write(kept_in, seen)
    return listing.hexdigest()


def weights_id(folder: Path) -> str | None:
    """16 hex digits that tell a checkpoint from what lay in its folder before; ``None`` without readable safetensors.

    A SHA-256 over the bytes of ``config.json`` and of each safetensors file its name, size, header and a sample of its
    data: the first and the last 16 KiB, and 16 KiB from the middle of each tensor, of 32 of them at most. Training
    changes all of these at once; a change of single values elsewhere is not seen.
    """
    try:
        checkpoint = read_checkpoint(folder)
        return _sampled(checkpoint) if checkpoint.tensors else None
    except (CheckpointError, OSError, ValueError):  # a path with a NUL in it
        return None


def _sampled(checkpoint: Checkpoint) -> str:
    files: dict[Path, list[TensorInfo]] = {}
    for tensor in checkpoint.tensors.values():
        files.setdefault(tensor.file, []).append(tensor)
    digest = hashlib.sha256((checkpoint.path / "config.json").read_bytes())
    for path, tensors in files.items():
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            digest.update(f"\0{path.name}\0{size}\0".encode())
            for start, length in _pieces(tensors, size):
                file.seek(start)
                digest.update(file.read(length))
    return digest.hexdigest()[:16]


def _pieces(tensors: Sequence[TensorInfo], size: int) -> Iterator[tuple[int, int]]:
    """Where to read in a file, and how much: tensors are in the order of their data, which follows the header."""
    yield 0, tensors[0].start + _PIECE_BYTES
    for tensor in tensors[:: -(-len(tensors) // _PIECES)]:
        length = min(tensor.size_bytes, _PIECE_BYTES)
        yield tensor.start + (tensor.size_bytes - length) // 2, length
    yield max(0, size - _PIECE_BYTES), _PIECE_BYTES


def _files(folder: Path | str, inside: str) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            name = f"{inside}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                yield from _files(entry.path, f"{name}/")
            elif entry.is_file():
                yield name, entry.stat()


def _kept_in(folder: Path) -> Path | None:
    """Where hashes of a folder's files are kept; ``None`` for one that is not in this project."""
    try:
        path = folder.resolve()
        if not path.is_relative_to(project_root().resolve()):
            return None
        name = f"{slug(path.name)}-{hashlib.sha256(os.fsencode(path)).hexdigest()[:12]}.json"
        return reports_dir() / ".cache" / "hashes" / name
    except (UsageError, OSError, RuntimeError):
        return None


def _read(path: Path | None) -> Known:
    try:
        held = json.loads(path.read_bytes()) if path is not None else {}
    except (OSError, ValueError, RecursionError):
        return {}
    is_sound = isinstance(held, dict) and all(isinstance(value, list) for value in held.values())
    return held if is_sound else {}


def _write(path: Path, hashes: Known) -> None:
    with contextlib.suppress(OSError), replacing(path) as temporary:
        temporary.write_text(json.dumps(hashes), encoding="utf-8", errors="backslashreplace")
