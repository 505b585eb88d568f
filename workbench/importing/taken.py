"""A given file, read once: what is judged and what is kept are the same bytes, however the file changes meanwhile."""

from __future__ import annotations

import hashlib
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from workbench.errors import InputError, Problem
from workbench.files import MOST_SMALL_BYTES, read_chunks, write_advice
from workbench.launch import state

_HEAD_BYTES = 4 << 20
_SCRATCH = "_importing-"
_UTF8_MARK, _UTF16_MARKS = b"\xef\xbb\xbf", (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True)
class Taken:
    """A copy of ``file``, unpacked and without a byte order mark. ``faults`` say what of it could not be unpacked."""

    file: Path
    copy: Path
    head: bytes
    digest: str
    faults: tuple[Problem, ...]

    @property
    def is_small(self) -> bool:
        return self.copy.stat().st_size <= MOST_SMALL_BYTES


@contextmanager
def scratch_in(folder: Path) -> Iterator[Path]:
    """A folder for copies beside the campaigns, so that a copy that is kept only has to be renamed.

    Those of commands that were killed are removed: they hold logs with their secrets.
    """
    with ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            made = held.enter_context(state.own_folder(folder, _SCRATCH))
        except OSError as error:
            what = f"cannot be written ({error.strerror or error})"
            raise InputError(what, where=folder, next_step=write_advice(error)) from error
        yield made


def take(file: Path, scratch: Path) -> Taken:
    """Copy a file into ``scratch``.

    Raises
    ------
    OSError, InputError
        When it cannot be read, or is no file: of a pipe one would wait for the end, and a device may have none.
    """
    kind = file.stat().st_mode
    if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
        raise InputError("a pipe or a device, no file: save what comes from it, and name that file", where=file)
    faults: list[Problem] = []
    digest, head = hashlib.sha256(), bytearray()
    with tempfile.NamedTemporaryFile(dir=scratch, suffix=".log", delete=False) as copy:
        for number, chunk in enumerate(read_chunks(file, faults)):
            digest.update(chunk)
            plain = chunk if number else chunk.removeprefix(_UTF8_MARK)
            head.extend(plain[: max(_HEAD_BYTES - len(head), 0)])
            copy.write(plain)
    if head.startswith(_UTF16_MARKS) or b"\0" in head[:2]:
        raise InputError("text in UTF-16: save it as UTF-8", where=file)
    return Taken(file, Path(copy.name), bytes(head), digest.hexdigest(), tuple(faults))
