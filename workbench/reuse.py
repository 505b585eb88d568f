"""Which pages need not be built again: a fingerprint of all that a page is made from is kept in its summary."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from workbench.files import read_small
from workbench.paths import reference_points_csv
from workbench.provenance import hash_path, versions
from workbench.summary import SUMMARY_SUFFIX, PageStatus, Summary

_PACKAGE = Path(__file__).parent
_UNKNOWN = "not known"


def fingerprints(
    pages: Iterable[tuple[Path, Mapping[str, object], Sequence[Path]]], hashed: Callable[[Path], str]
) -> list[str | None]:
    """A fingerprint for each (notebook, parameters, input folders): equal ones give the same page.

    They cover the contents of the notebook, of the inputs, of the reference points and of this package, and the
    versions of Python and of the libraries. ``None`` where something cannot be read.
    """
    common = [_package_hash(), hashed(reference_points_csv()), *(f"{name} {text}" for name, text in versions().items())]
    return [
        _fingerprint([json.dumps(dict(parameters), sort_keys=True), *map(hashed, [notebook, *inputs]), *common])
        for notebook, parameters, inputs in pages
    ]


def last_summary(page: Path) -> Summary | None:
    """The summary of a page that was built before; ``None`` when there is none that can be read."""
    try:
        return Summary.model_validate_json(read_small(page.with_suffix(SUMMARY_SUFFIX)))
    except (OSError, ValidationError):
        return None


def is_unchanged(page: Path, fingerprint: str | None) -> bool:
    """Whether a whole page of this fingerprint is there; a partial or failed one is always built again.

    So is one that is not the page that its summary tells of: two commands wrote it at once, or somebody changed it.
    """
    if fingerprint is None or not (page.is_file() and page.with_suffix(".ipynb").is_file()):
        return False
    summary = last_summary(page)
    if summary is None or summary.status is not PageStatus.OK or summary.made_from != fingerprint:
        return False
    return hash_path(page) == summary.page_sha256


def _fingerprint(parts: Sequence[str]) -> str | None:
    if any(part.startswith(_UNKNOWN) for part in parts):
        return None
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _package_hash() -> str:
    """Hash of the package's own files, templates among them; compiled files come and go."""
    files = sorted(path for path in _PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    listing = "\n".join(f"{path.relative_to(_PACKAGE).as_posix()} {hash_path(path)}" for path in files)
    return hashlib.sha256(listing.encode()).hexdigest()
