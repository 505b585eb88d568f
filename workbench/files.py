"""Bytes in and out of files: written whole or not at all, read in bounded pieces, gzip unpacked on the way."""

from __future__ import annotations

import contextlib
import difflib
import errno
import fcntl
import gzip
import io
import itertools
import os
import shutil
import stat
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import cast

from workbench.errors import InputError, LogError, Problem, RunFolderError

CHUNK_BYTES = 1 << 18
STDIN = "-"
MOST_SMALL_BYTES = 64 << 20
MOST_UNPACKED = 200
"""Times its size that a gzip file of more than 64 MiB of text may have; gzip itself ends at 1,032."""
_UNPACKED_BYTES = 64 << 20
_GZIP = b"\x1f\x8b"
_LOGS = ("*.log", "*.log.gz")
FULL_BELOW_BYTES = 1 << 20
_WRITING = ".writing-"
_LEFT_BEHIND_S = 3600.0
_swept: set[Path] = set()


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file that takes the place of ``path`` when the block ends, and goes when the block fails.

    Readers see the old file or the new one, never a part, also after a loss of power. Of a link the target is replaced.
    What is no file (a device, a pipe) stays and is written into.
    """
    if _is_no_file(path):
        with _poured_into(path) as temporary:
            yield temporary
        return
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    _sweep(path.parent)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=_WRITING, suffix=".tmp")
    temporary = Path(name)
    try:
        with suppress(OSError):  # some file systems have no locks; nothing is swept there
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield temporary
        sync(temporary)
        temporary.chmod(0o644)
        temporary.replace(path)
        with suppress(OSError):  # some file systems know no such order for a folder
            sync(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(handle)


def _sweep(folder: Path) -> None:
    """Remove temporary files of killed processes, once a process for each folder that it writes into.

    Who writes holds a lock, which goes with the process, also with one on another node. The age is for the moment
    before the lock, and for libraries that put a new file in the place of ours.
    """
    if folder in _swept:
        return
    _swept.add(folder)
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in [entry for entry in entries if entry.name.startswith(_WRITING)]:
            with suppress(OSError):
                if entry.is_file(follow_symlinks=False) and time.time() - entry.stat().st_mtime > _LEFT_BEHIND_S:
                    _remove_unlocked(Path(entry.path))


def _remove_unlocked(path: Path) -> None:
    handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    finally:
        os.close(handle)


def sync(path: Path) -> None:
    """Return when the content of a file, or the names in a folder, would outlast a loss of power.

    Raises
    ------
    OSError
        Also for a disk or a quota that turns out to be full only now, as network file systems tell it.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def require_space(folder: Path) -> None:
    """See that a disk has room for anything: a server that cannot write its log misbehaves in ways of its own.

    Raises
    ------
    OSError
        ENOSPC, when less than 1 MiB is left.
    """
    if is_full(folder):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))


def require_there(folder: Path) -> None:
    """See that a folder that was made is still there: what is written to its name now would begin another one.

    Raises
    ------
    InputError
        When somebody renamed or removed it.
    """
    if not folder.is_dir():
        raise InputError(
            "the folder is gone: it was renamed or removed while it was measured into",
            where=folder,
            next_step="give it its name again; the same command then goes on",
        )


def is_full(folder: Path) -> bool:
    """Whether less than 1 MiB is left on the disk of a folder; not where that cannot be told."""
    with suppress(OSError):
        return shutil.disk_usage(folder).free < FULL_BELOW_BYTES
    return False


def _is_no_file(path: Path) -> bool:
    """Whether something is there already that must not be renamed over; asked of a link's target."""
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return False


@contextmanager
def _poured_into(path: Path) -> Iterator[Path]:
    """A temporary file of which the bytes are written to ``path`` when the block ends."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    with tempfile.TemporaryDirectory(prefix="writing-") as folder:
        temporary = Path(folder) / "content"
        yield temporary
        with temporary.open("rb") as whole, path.open("wb") as file:
            shutil.copyfileobj(whole, file)


def as_text(name: str) -> str:
    """A file name as text: on disk it may be any bytes; those that are no text become escapes."""
    return name.encode("utf-8", "backslashreplace").decode()


def write_advice(error: OSError) -> str:
    """What to do about a file that cannot be written."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return "free space or choose another folder" if full else "name a file in a folder of yours"


def read_small(path: Path, most: int = MOST_SMALL_BYTES, *, unpack: bool = False) -> bytes:
    """The bytes of a file that is held in memory whole; with ``unpack``, what is in it where it is gzip.

    Raises
    ------
    OSError
        When it cannot be read, is no file (of a pipe one would wait for the end) or is larger than ``most`` bytes.
    """
    about = path.stat()
    if stat.S_ISDIR(about.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(about.st_mode):
        raise OSError(errno.EINVAL, "Not a file", str(path))
    data = path.read_bytes() if about.st_size <= most else b""
    if unpack and data[:2] == _GZIP:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
            data = packed.read(most + 1)
    if about.st_size > most or len(data) > most:
        raise OSError(errno.EFBIG, f"Larger than {most:,} bytes", str(path))
    return data


def read_chunks(path: Path | str, problems: list[Problem] | None = None) -> Iterator[bytes]:
    """Unpacked bytes of a file in pieces of at most `CHUNK_BYTES`; gzip is told by its first bytes.

    Parameters
    ----------
    path
        ``-`` is standard input.
    problems
        Where to say that a gzip file is cut off or damaged behind what could be read of it. Without it that is an
        error like any other.

    Raises
    ------
    LogError
        When the file cannot be read.
    """
    size = 0
    try:
        with _opened(path) as raw:
            for chunk in _unpacked(raw):
                size += len(chunk)
                yield chunk
    except (EOFError, gzip.BadGzipFile, zlib.error, OSError) as error:
        what = _fault(error)
        if problems is None or size == 0:
            again = "unpack it and name the text" if isinstance(error, _Bomb) else "copy the file again"
            next_step = again if _is_gzip_fault(error) else _look_for(path, error)
            raise LogError(what, where=_shown(path), next_step=next_step) from error
        problems.append(Problem(_shown(path), f"{what}: only the first {size:,} bytes of its text are used"))


def _unpacked(raw: BufferedReader) -> Iterator[bytes]:
    if raw.peek(2)[:2] != _GZIP:
        while chunk := raw.read1(CHUNK_BYTES):
            yield chunk
        return
    packed, size = _Counted(raw), 0
    file = gzip.GzipFile(fileobj=cast(BufferedReader, packed))
    held = bytearray()  # 8 KiB are unpacked at a time; lines that come together are read faster
    try:
        while chunk := file.read1(CHUNK_BYTES - len(held)):
            size += len(chunk)
            if size > _UNPACKED_BYTES and size > MOST_UNPACKED * packed.count:
                raise _Bomb(f"the gzip file unpacks to more than {MOST_UNPACKED} times its size")
            held += chunk
            if len(held) == CHUNK_BYTES:
                yield bytes(held)
                held.clear()
    except (EOFError, zlib.error, OSError):
        if held:  # what came before the fault is whole
            yield bytes(held)
        raise
    if held:
        yield bytes(held)


class _Counted:
    """A file of which it is known how much was read."""

    def __init__(self, raw: BufferedReader) -> None:
        self._raw = raw
        self.count = 0

    def read(self, size: int = -1) -> bytes:
        data = self._raw.read(size)
        self.count += len(data)
        return data


class _Bomb(gzip.BadGzipFile):
    """A file that was made to fill memory or time: text of servers packs to a tenth, not to a thousandth."""


@contextmanager
def _opened(path: Path | str) -> Iterator[BufferedReader]:
    if str(path) != STDIN:
        with Path(path).open("rb") as file:
            yield file
    elif sys.stdin is None:
        raise LogError("standard input is closed", where=STDIN, next_step="pipe a log into the command, or name a file")
    else:
        yield cast(BufferedReader, sys.stdin.buffer)


def _is_gzip_fault(error: Exception) -> bool:
    return isinstance(error, EOFError | gzip.BadGzipFile | zlib.error)


def _look_for(path: Path | str, error: Exception) -> str:
    """What may have been meant by a path that is no file: a log in the folder, a name like it."""
    path = Path(path)
    with suppress(OSError):
        if isinstance(error, IsADirectoryError):
            logs = sorted(found for kind in _LOGS for depth in ("", "*/", "*/*/") for found in path.glob(depth + kind))
            more = f" (or one of {len(logs) - 1} others)" if len(logs) > 1 else ""
            return f"name the log in it: {logs[0]}{more}" if logs else "name a file; no log lies in this folder"
        if isinstance(error, FileNotFoundError) and path.parent.is_dir():
            there = [entry.name for entry in itertools.islice(path.parent.iterdir(), 1_000)]
            if near := difflib.get_close_matches(path.name, there, n=1):
                return f"did you mean {path.parent / near[0]}?"
    return "check the path and its permissions"


def _fault(error: Exception) -> str:
    if isinstance(error, EOFError):
        return "the gzip file is cut off"
    if isinstance(error, _Bomb):
        return str(error)
    if _is_gzip_fault(error):
        return f"the gzip file is damaged ({error})"
    return f"cannot be read ({error.strerror or error})" if isinstance(error, OSError) else str(error)


def _shown(path: Path | str) -> str:
    return "standard input" if str(path) == STDIN else str(path)


def is_file(path: Path) -> bool:
    """Whether a file is there; a name that no file can have has none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def first_there(*paths: Path) -> Path | None:
    """The first that is there, whatever it is: also a pipe, or a link to nowhere."""
    return next((path for path in paths if os.path.lexists(path)), None)


def real_file(path: Path, folder: Path) -> Path:
    """The file behind ``path``, which must lie in ``folder``.

    Raises
    ------
    RunFolderError
        When it does not, or is no file.
    """
    real = require_inside(path, folder)
    if not real.is_file():
        raise RunFolderError("is not a file" if real.exists() else "does not exist", where=path)
    return real


def require_inside(path: Path, folder: Path) -> Path:
    """Where ``path`` leads; a campaign that was copied from elsewhere must not lead to other files.

    Raises
    ------
    RunFolderError
        When it leads out of ``folder``.
    """
    try:
        # Also whether it is there: a name too long is found out only then.
        real = path.resolve()
        inside, _ = real.is_relative_to(folder.resolve()), real.exists()
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a name too long, a NUL in it
        raise RunFolderError(f"cannot be followed ({error})", where=path) from error
    if not inside:
        raise RunFolderError("leads out of the campaign folder", where=path)
    return real


def require_own(folder: Path) -> None:
    """That writing into a folder changes nothing elsewhere, and waits for nobody: a campaign may be a stranger's.

    Raises
    ------
    RunFolderError
        When an entry leads out of the folder, or is neither a file nor a folder.
    """
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        for entry in entries:
            path = Path(entry.path)
            if entry.is_symlink():
                require_inside(path, folder)
            elif not entry.is_file() and not entry.is_dir() and os.path.lexists(path):  # not one that is gone by now
                raise RunFolderError("is a pipe or a device, no file", where=path, next_step="remove it")


class KeyTwiceError(ValueError):
    """A key stands twice in an object of a JSON file."""


def unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """For ``json.loads(object_pairs_hook=...)``: readers differ in which of two equal keys wins, so none is believed.

    Raises
    ------
    KeyTwiceError
        When a key stands twice.
    """
    found: dict[str, object] = {}
    for name, value in pairs:
        if name in found:
            raise KeyTwiceError(f"key {name!r} stands twice")
        found[name] = value
    return found
