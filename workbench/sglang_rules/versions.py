"""SGLang versions: their order, and what first came with which."""

from __future__ import annotations

import re
from collections.abc import Mapping

FIRST_VERSION = "0.3.6"
LATEST_VERSION = "0.5.23"

Span = tuple[str, str]
"""First and last version of a range, both included."""

ALGORITHM_SINCE: Mapping[str, str] = {
    "EAGLE": "0.4.1",
    "NEXTN": "0.4.1",
    "EAGLE3": "0.4.4.post4",
    "STANDALONE": "0.5.2",
    "NGRAM": "0.5.3",
    "DFLASH": "0.5.11",
    "FROZEN_KV_MTP": "0.5.12",
    "DSPARK": "0.5.16",
    "UNO": "0.5.20",
}

_VERSION = re.compile(
    r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:\.?(rc|a|b|dev)(\d+))?(?:\.post(\d+))?(?:\.dev\d+)?(?:\+.*)?", re.A
)


def version_key(version: str) -> tuple[int, int, int, int, int, int]:
    """Sort key of a release such as ``0.5.5.post3``; pre-releases sort before their release.

    Raises
    ------
    ValueError
        When the text is not a version.
    """
    match = _VERSION.fullmatch(version.strip())
    if match is None:
        raise ValueError(f"not an SGLang version: {version!r}")
    major, minor, patch, pre, pre_number, post = match.groups()
    return (int(major), int(minor), int(patch or 0), 0 if pre else 1, int(pre_number or 0), int(post or 0))


def readable(version: str | None) -> str | None:
    """The version, ``None`` for a text that is none."""
    return version if version is not None and _VERSION.fullmatch(version.strip()) else None


def at_least(version: str | None, since: str) -> bool:
    """Whether a version has what came with ``since``. An unknown or unreadable version counts as the newest."""
    if version is None or _VERSION.fullmatch(version.strip()) is None:
        return True
    return version_key(version) >= version_key(since)


def intersect(left: tuple[Span, ...], right: tuple[Span, ...]) -> tuple[Span, ...]:
    """The ranges that both sets of ranges contain."""
    found = []
    for since_left, until_left in left:
        for since_right, until_right in right:
            since = max(since_left, since_right, key=version_key)
            until = min(until_left, until_right, key=version_key)
            if version_key(since) <= version_key(until):
                found.append((since, until))
    return tuple(found)


def version_before(version: str, first: str) -> bool:
    """Whether a version is older than ``first``. An unreadable version counts as the newest."""
    return not at_least(version, first)
