"""`workbench publish`: the pages as a folder or a zip that can be put anywhere, with nothing of this machine in it.

Copied are pages, their summaries and an index of just these; executed notebooks stay behind. Links between pages are
relative, and pages hold their pictures and downloads, so a folder works from a web server, a mail or a USB stick alike.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import quote, unquote_to_bytes

from workbench.analysis.wording import count
from workbench.errors import InputError, UsageError
from workbench.files import MOST_SMALL_BYTES, as_text, read_small, replacing, write_advice
from workbench.index import INDEX, Entry, build_index, read_entries
from workbench.paths import project_root, reports_dir
from workbench.public import cleaner
from workbench.summary import SUMMARY_SUFFIX

MARKER = "published-by-workbench.txt"
_MARK = (
    "Made by `workbench publish`, which replaces the files named below and leaves all others. Start with index.html.\n"
)
_STAGING = ".publish-"
_OTHER_ARCHIVES = frozenset({".gz", ".tgz", ".tar", ".xz", ".bz2", ".7z", ".rar", ".zst"})
_COPY = re.compile(r", executed copy [^<\n]{1,300} beside this page")


@dataclass(frozen=True, slots=True)
class Published:
    """Where the pages lie now, and how many; ``changed`` files named this machine or its folders.

    ``left_out`` says of each page that was not published why.
    """

    path: Path
    num_pages: int
    num_bytes: int
    changed: int
    left_out: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        named = f"; what named this machine was taken out of {count(self.changed, 'file')}" if self.changed else ""
        size = f"{self.num_bytes / 1e6:.1f} MB"
        start = self.path if _is_zip(self.path) else self.path / INDEX
        left_out = "".join(f"Left out: {words}\n" for words in self.left_out)
        return f"{left_out}{count(self.num_pages, 'page')} and an index, {size}{named}. Open:\n{start}"


def publish(target: Path, *, campaigns: Sequence[str] = ()) -> Published:
    """Write the pages (of the named campaigns, or all) into a folder, or into a zip where ``target`` ends in .zip.

    Of an earlier publication those files are replaced that it wrote; whatever else lies in the folder stays.

    Raises
    ------
    UsageError
        When there are files that no publication wrote, or the target lies in a folder of the project's own.
    InputError
        When there is nothing to publish, or it cannot be written.
    """
    source = reports_dir()
    try:
        place = _resolved(target)
        written = _check(target, place)
        entries, unlisted = _chosen(source, campaigns)
        staging = place if place.is_dir() else place.parent
        staging.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=_STAGING, dir=staging) as work:
            folder = Path(work) / (target.stem.strip(".") or "reports")
            changed, left_out = _fill(folder, source, entries)
            size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            if _is_zip(target):
                _pack(folder, place)
            else:
                _put(folder, place, written)
    except OSError as error:
        raise InputError(
            f"cannot be written ({error.strerror or error})", where=target, next_step=write_advice(error)
        ) from error
    return Published(target, len(entries) - len(left_out), size, changed, (*left_out, *unlisted))


def _resolved(target: Path) -> Path:
    try:
        return target.resolve()
    except RuntimeError as error:
        raise UsageError("links that lead to each other", where=target, next_step="name another folder") from error


def _is_zip(target: Path) -> bool:
    return target.suffix.lower() == ".zip"


def _chosen(source: Path, campaigns: Sequence[str]) -> tuple[list[Entry], list[str]]:
    """The pages to publish, and, where all are wanted, what cannot be listed."""
    entries, problems = read_entries(source) if source.is_dir() else ([], [])
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
    return chosen, [] if campaigns else [f"{as_text(problem.where)} ({problem.what})" for problem in problems]


def _check(target: Path, place: Path) -> frozenset[str]:
    """The files of an earlier publication in the folder, which may be replaced; ``place`` is the target resolved."""
    for name, what in (("reports", "the pages"), ("data", "the data"), ("notebooks", "the notebooks")):
        if place.is_relative_to((project_root() / name).resolve()):
            raise UsageError(f"lies in the folder of {what}", where=target, next_step="name a folder elsewhere")
    if target.suffix.lower() in _OTHER_ARCHIVES:
        raise UsageError("only a zip or a folder is written", where=target, next_step="name a file that ends in .zip")
    if not place.exists():
        return frozenset()
    if _is_zip(target):
        if not (place.is_file() and _is_published_zip(place)):
            raise UsageError("is there and not a zip of workbench publish", where=target, next_step="name a new file")
        return frozenset()
    if not place.is_dir():
        raise UsageError("is a file", where=target, next_step="name a folder, or a file that ends in .zip")
    written = _written(place)
    if written is None and any(not path.name.startswith(_STAGING) for path in place.iterdir()):
        raise UsageError(
            "holds other files, and no list of those that publishing wrote",
            where=target,
            next_step="name a new or empty folder, or an earlier publication",
        )
    return written or frozenset()


def _is_published_zip(path: Path) -> bool:
    """Whether all that is in a zip was written by publishing."""
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            names = archive.namelist()
            top = names[0].partition("/")[0] if names else ""
            # Other packings are none of ours, and have faults of their own.
            if archive.getinfo(f"{top}/{MARKER}").compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                return False
            with archive.open(f"{top}/{MARKER}") as marker:
                listed = _listed(marker.read(MOST_SMALL_BYTES))
        return set(names) <= {f"{top}/{as_text(name)}" for name in listed}
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, ValueError, RuntimeError):
        return False


def _written(place: Path) -> frozenset[str] | None:
    """The files that the marker names; ``None`` without a marker, or with one that names what no publication writes."""
    try:
        names = _listed(read_small(place / MARKER))
    except (OSError, ValueError):
        return None
    return names if all(_lies_inside(place, name) for name in names) else None


def _listed(marker: bytes) -> frozenset[str]:
    first, *lines = marker.decode("ascii").splitlines() or [""]
    names = frozenset(os.fsdecode(unquote_to_bytes(line)) for line in lines) | {MARKER}
    if first + "\n" != _MARK or not all(map(_is_ours, names)):
        raise ValueError("no list of published files")
    return names


def _is_ours(name: str) -> bool:
    parts = name.split("/")
    return name == MARKER or (
        name.endswith((".html", SUMMARY_SUFFIX))
        and "\0" not in name
        and all(p and not p.startswith(".") for p in parts)
    )


def _lies_inside(place: Path, name: str) -> bool:
    return (place / name).parent.resolve().is_relative_to(place)


def _mark(names: Iterable[str]) -> str:
    return _MARK + "".join(f"{quote(os.fsencode(name))}\n" for name in sorted(names))


def _fill(folder: Path, source: Path, entries: Sequence[Entry]) -> tuple[int, tuple[str, ...]]:
    """Write the pages; returns how many files were changed, and which pages were left out."""
    clean = cleaner()
    changed = 0
    left_out: list[str] = []
    for entry in entries:
        names = {entry.name: clean.page, entry.name.removesuffix(".html") + SUMMARY_SUFFIX: clean.json}
        try:
            texts = {name: _read(source / name) for name in names}
        except (OSError, UnicodeDecodeError) as error:
            words = "not UTF-8" if isinstance(error, UnicodeDecodeError) else error.strerror or str(error)
            left_out.append(f"{as_text(entry.name)} ({words})")
            continue
        for name, text in texts.items():
            public = names[name](text)
            changed += public != text
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(_COPY.sub("", public), encoding="utf-8")
    if len(left_out) == len(entries):
        raise InputError(f"no page can be published: {', '.join(left_out)}", where=source, next_step="build them again")
    build_index(folder)
    (folder / MARKER).write_text(_mark([*_files(folder), MARKER]), encoding="ascii")
    return changed, tuple(left_out)


def _read(path: Path) -> str:
    if path.is_symlink():
        raise OSError(errno.ELOOP, "a link", str(path))
    return read_small(path).decode("utf-8")


def _files(folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]


def _pack(folder: Path, place: Path) -> None:
    with replacing(place) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.write(path, as_text(path.relative_to(folder.parent).as_posix()))


def _put(folder: Path, place: Path, written: frozenset[str]) -> None:
    """The new files in place of those written earlier, one by one; nothing is removed before all of them are there."""
    if not place.exists():
        folder.chmod(0o755)
        folder.rename(place)
        return
    if (_written(place) or frozenset()) != written:
        advice = "wait until it has ended, and publish again"
        raise InputError("another publish has written there meanwhile", where=place, next_step=advice)
    new = frozenset(_files(folder))
    for name in sorted(new):
        if _is_taken(place, name, written):
            raise UsageError("not written by publishing", where=place / name, next_step="move it, or name a new folder")
    final = (folder / MARKER).read_bytes()
    (folder / MARKER).write_text(_mark(new | written), encoding="ascii")
    (folder / MARKER).replace(place / MARKER)  # first, so that the next one knows what a killed one wrote
    for name in sorted(new - {MARKER}):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).replace(place / name)
    for name in written - new:
        if not (place / name).is_dir() or (place / name).is_symlink():
            (place / name).unlink(missing_ok=True)
        for parent in PurePosixPath(name).parents[:-1]:
            with contextlib.suppress(OSError):  # not empty
                (place / parent).rmdir()
    (folder / MARKER).write_bytes(final)
    (folder / MARKER).replace(place / MARKER)


def _is_taken(place: Path, name: str, written: frozenset[str]) -> bool:
    path = place / name
    there = path.is_symlink() or path.exists()
    parents = [place / parent for parent in PurePosixPath(name).parents]
    return (
        (there and (name not in written or path.is_dir()))
        or not _lies_inside(place, name)
        or any(parent.exists() and not parent.is_dir() for parent in parents)
    )
