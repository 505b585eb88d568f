"""What follows from logs alone, kept from report to report: of thousands of logs only the new ones are judged.

Kept beside the tables, by what the logs were made from and the version of the code that judges. Where that is not known
(tables that were put together by hand, a campaign of no project) everything is worked out anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

from filelock import FileLock

from workbench.errors import InputError, UsageError
from workbench.paths import reports_dir, slug
from workbench.store import write_atomic

_ANALYSIS = Path(__file__).parent
_AT_ONCE = 500
_SAVE_EVERY_S = 20.0

Json = object
Part = tuple[str | None, Callable[[], Json]]
"""What a value is made from (``None`` where that is not known), and how to work it out."""


def remembered(what: str, campaign: str, parts: Iterable[Part]) -> list[Json]:
    """The value of each part, worked out where it is not known yet.

    Parameters
    ----------
    what
        Names the kind of value; parts of one kind and campaign are kept together, those that are not asked for go.
    """
    held = list(parts)
    return remembered_together(
        what, campaign, [key for key, _ in held], lambda places: [held[place][1]() for place in places]
    )


def remembered_together(
    what: str, campaign: str, keys: Sequence[str | None], work_out: Callable[[Sequence[int]], Sequence[Json]]
) -> list[Json]:
    """The same for parts that are worked out together: ``work_out`` gives the values of those at some places.

    A value must not depend on the parts that it is worked out with.
    """
    path = _path(what, campaign) if any(key is not None for key in keys) else None
    before = _read(path) if path is not None else {}
    if path is None or all(key in before for key in keys):
        return _worked_out(path, before, keys, work_out)
    with _one_at_a_time(path):
        return _worked_out(path, _read(path), keys, work_out)


def _worked_out(
    path: Path | None,
    before: dict[str, Json],
    keys: Sequence[str | None],
    work_out: Callable[[Sequence[int]], Sequence[Json]],
) -> list[Json]:
    known = dict(before)
    values: list[Json] = [None if key is None else known.get(key) for key in keys]
    missing = [place for place, key in enumerate(keys) if key is None or key not in known]
    saved = time.monotonic()
    for begin in range(0, len(missing), _AT_ONCE):
        places = missing[begin : begin + _AT_ONCE]
        for place, value in zip(places, work_out(places), strict=True):
            values[place] = value
            if (key := keys[place]) is not None:
                known[key] = value
        if path is not None and time.monotonic() - saved > _SAVE_EVERY_S:
            _write(path, known)
            saved = time.monotonic()
    kept = {key: value for key, value in zip(keys, values, strict=True) if key is not None}
    if path is not None and before.keys() != kept.keys():
        _write(path, kept)
    return values


@contextlib.contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    """Pages that are built side by side want the same values: the second finds what the first has worked out."""
    lock = FileLock(path.with_name(f"{path.name.rsplit('.', 2)[0]}.lock"))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except (OSError, NotImplementedError):  # where nothing can be written, or locked, each works for itself
        yield
        return
    try:
        yield
    finally:
        lock.release()


def _path(what: str, campaign: str) -> Path | None:
    try:
        folder = reports_dir() / ".cache" / "findings"
    except UsageError:
        return None
    return folder / f"{slug(campaign)}-{hashlib.sha256(campaign.encode()).hexdigest()[:8]}.{what}.{version()}.json"


@cache
def version() -> str:
    """Changes with the code that judges."""
    said = hashlib.sha256()
    for file in sorted(_ANALYSIS.rglob("*.py")):
        said.update(file.relative_to(_ANALYSIS).as_posix().encode() + b"\0" + file.read_bytes())
    return said.hexdigest()[:12]


def _read(path: Path) -> dict[str, Json]:
    """What was kept; nothing where it cannot be read."""
    try:
        held = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return held if isinstance(held, dict) else {}


def _write(path: Path, values: dict[str, Json]) -> None:
    with contextlib.suppress(InputError):  # a full disk costs time the next time, and no page
        write_atomic(path, json.dumps(values, ensure_ascii=True))
        before = path.name.rsplit(".", 2)[0]
        for other in path.parent.glob(f"{before}.*.json"):
            if other != path:
                other.unlink(missing_ok=True)
