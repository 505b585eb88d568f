"""`workbench publish`: the pages as a folder or a zip that can be put anywhere, with nothing of this machine in it.

Copied are pages, their summaries and an index of just these; executed notebooks stay behind. Links between pages are
relative, and pages hold their pictures and downloads, so a folder works from a web server, a mail or a USB stick alike.
"""

from __future__ import annotations

import base64
import binascii
import re
import shutil
import socket
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.analysis.wording import count
from workbench.errors import InputError, UsageError
from workbench.files import as_text, replacing, write_advice
from workbench.index import INDEX, Entry, build_index, read_entries
from workbench.paths import reports_dir
from workbench.provenance import redact
from workbench.summary import SUMMARY_SUFFIX

MARKER = "published-by-workbench.txt"
_MARK = "Made by `workbench publish`, which replaces this folder as a whole. Start with index.html.\n"
# Downloads inside a page are text that may name the machine; pictures are left as they are.
_DATA = re.compile(r"(data:[a-z]+/[a-z+.-]+(?:;charset=[\w-]+)?;base64,)([A-Za-z0-9+/=]+)")
_COPY = re.compile(r", executed copy [^<\n]{1,300} beside this page")


@dataclass(frozen=True, slots=True)
class Published:
    """Where the pages lie now, and how many; ``changed`` of them named this machine or its folders."""

    path: Path
    num_pages: int
    num_bytes: int
    changed: int

    @property
    def text(self) -> str:
        named = f"; what named this machine was taken out of {count(self.changed, 'file')}" if self.changed else ""
        size = f"{self.num_bytes / 1e6:.1f} MB"
        start = self.path if self.path.suffix == ".zip" else self.path / INDEX
        return f"{count(self.num_pages, 'page')} and an index, {size}{named}. Open:\n{start}"


def publish(target: Path, *, campaigns: Sequence[str] = ()) -> Published:
    """Write the pages (of the named campaigns, or all) into a folder, or into a zip where ``target`` ends in .zip.

    Raises
    ------
    UsageError
        When the folder holds anything but an earlier publication, or lies in ``reports/``.
    InputError
        When there is nothing to publish, or it cannot be written.
    """
    source = reports_dir()
    _check(target, source)
    entries = _chosen(source, campaigns)
    try:
        target.resolve().parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".publish-", dir=target.resolve().parent) as work:
            folder = Path(work) / (target.stem or "reports")
            changed = _fill(folder, source, entries)
            size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            if target.suffix.lower() == ".zip":
                _pack(folder, target)
            else:
                _replace(target, folder, Path(work) / "before")
    except OSError as error:
        raise InputError(
            f"cannot be written ({error.strerror or error})", where=target, next_step=write_advice(error)
        ) from error
    return Published(target, len(entries), size, changed)


def _chosen(source: Path, campaigns: Sequence[str]) -> list[Entry]:
    entries, _ = read_entries(source) if source.is_dir() else ([], [])
    chosen = [entry for entry in entries if not campaigns or entry.summary.campaign in campaigns]
    missing = sorted(set(campaigns) - {str(entry.summary.campaign) for entry in chosen})
    there = ", ".join(sorted({entry.summary.campaign for entry in entries if entry.summary.campaign}))
    if missing:
        raise InputError(
            f"no page of {' and of '.join(map(repr, missing))}",
            where=source,
            next_step=f"there are pages of {there or 'no campaign'}; workbench report --campaign NAME makes others",
        )
    if not chosen:
        raise InputError("no pages to publish", where=source, next_step="build them first, with workbench report")
    return chosen


def _check(target: Path, source: Path) -> None:
    if target.resolve().is_relative_to(source.resolve()):
        raise UsageError("lies in the folder of the pages", where=target, next_step="name a folder elsewhere")
    if target.suffix.lower() == ".zip" or not target.exists():
        return
    if not target.is_dir():
        raise UsageError("is a file", where=target, next_step="name a folder, or a file that ends in .zip")
    if any(target.iterdir()) and not (target / MARKER).is_file():
        raise UsageError(
            "holds other files, which publishing would remove",
            where=target,
            next_step="name a new or empty folder, or an earlier publication",
        )


def _fill(folder: Path, source: Path, entries: Sequence[Entry]) -> int:
    clean = _cleaner()
    changed = 0
    for entry in entries:
        for name in (entry.name, entry.name.removesuffix(".html") + SUMMARY_SUFFIX):
            text = (source / name).read_text(encoding="utf-8")
            public = clean(text)
            changed += public != text
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(_COPY.sub("", public), encoding="utf-8")
    (folder / MARKER).write_text(_MARK, encoding="utf-8")
    build_index(folder)
    return changed


def _cleaner() -> Callable[[str], str]:
    """Takes this machine's folders, its name and secrets out of a page, and out of the downloads in it."""
    host = socket.gethostname()
    named = re.compile(rf"(?<![\w.-]){re.escape(host)}(?![\w-])")
    general = {"", "localhost", "localhost.localdomain"}

    def of_text(text: str) -> str:
        text = redact(text)
        return text if host in general else named.sub("(this machine)", text)

    def of_data(found: re.Match[str]) -> str:
        head, data = found[1], found[2]
        if head.startswith("data:image/"):
            return found[0]
        try:
            text = base64.b64decode(data, validate=True).decode("utf-8")
        except (binascii.Error, UnicodeDecodeError):
            return found[0]
        public = of_text(text)
        return found[0] if public == text else head + base64.b64encode(public.encode()).decode()

    def of_page(page: str) -> str:
        parts, end = [], 0
        for found in _DATA.finditer(page):
            parts += [of_text(page[end : found.start()]), of_data(found)]
            end = found.end()
        return "".join([*parts, of_text(page[end:])])

    return of_page


def _pack(folder: Path, target: Path) -> None:
    with replacing(target) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.write(path, as_text(path.relative_to(folder.parent).as_posix()))


def _replace(target: Path, folder: Path, aside: Path) -> None:
    """The new folder in place of the old one, which a reader misses for a moment only."""
    if target.exists():
        shutil.move(target, aside)
    folder.chmod(0o755)
    shutil.move(folder, target)
