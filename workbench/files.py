"""Bytes in and out of files: written whole or not at all, read in bounded pieces, gzip unpacked on the way."""

from __future__ import annotations

import errno
import gzip
import os
import shutil
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import cast

from workbench.errors import LogError, Problem, RunFolderError

CHUNK_BYTES = 1 << 18
STDIN = "-"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file that takes the place of ``path`` when the block ends, and goes when the block fails.

    Readers see the old file or the new one, never a part. Of a link the target is replaced. What is no file (a device,
    a pipe) stays and is written into.
    """
    if _is_no_file(path):
        with _poured_into(path) as temporary:
            yield temporary
        return
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".writing-", suffix=".tmp")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


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
            next_step = "copy the file again" if _is_gzip_fault(error) else "check the path and its permissions"
            raise LogError(what, where=_shown(path), next_step=next_step) from error
        problems.append(Problem(_shown(path), f"{what}: only the first {size:,} bytes of its text are used"))


def _unpacked(raw: BufferedReader) -> Iterator[bytes]:
    gzipped = raw.peek(2)[:2] == b"\x1f\x8b"
    file = gzip.GzipFile(fileobj=raw) if gzipped else raw
    while chunk := file.read1(CHUNK_BYTES):
        yield chunk


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


def _fault(error: Exception) -> str:
    if isinstance(error, EOFError):
        return "the gzip file is cut off"
    if _is_gzip_fault(error):
        return f"the gzip file is damaged ({error})"
    return f"cannot be read ({error.strerror or error})" if isinstance(error, OSError) else str(error)


def _shown(path: Path | str) -> str:
    return "standard input" if str(path) == STDIN else str(path)


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
