"""What a campaign holds already of the runs that are imported into it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath

from workbench.errors import InputError
from workbench.importing.found import NOT_STATED, Found, clean
from workbench.paths import slug
from workbench.spec import Drafter, RunSpec
from workbench.store import RunFolder, read_head, run_folders


def known_drafters(folder: Path) -> dict[str, Drafter]:
    """The drafters of a campaign by name.

    Raises
    ------
    InputError
        When not all of them can be read: what is written in place of the file would lose the others.
    """
    head = read_head(folder)
    path = str(folder / "drafters.json")
    for problem in head.problems:
        if problem.where.startswith(path):
            advice = "mend the file, or move it away"
            raise InputError(f"damaged, so nothing is imported: {problem.what}", where=problem.where, next_step=advice)
    return {drafter.name: drafter for drafter in head.drafters}


def tell_apart(runs: Sequence[Found], known: Mapping[str, Drafter]) -> list[Found]:
    """The runs with drafters of one path under one name, and of two paths (``a/epoch_3``, ``b/epoch_3``) under two."""
    paths = {name: (drafter.model_path or "").rstrip("/") for name, drafter in known.items()}
    named = []
    for run in runs:
        if run.drafter is None:
            named.append(run)
            continue
        path = (run.drafter.model_path or "").rstrip("/")
        name = next(name for name in _names(run.drafter.name, path) if paths.get(name, "") in ("", path))
        paths[name] = path
        named.append(replace(run, draft_name=name))
    return named


def _names(short: str, path: str) -> Iterator[str]:
    """``epoch_3``, ``runA-epoch_3``, ...; at last one that no other path has."""
    yield short
    parts = [part for part in PurePath(path).parts if part != "/"]
    for count in range(2, len(parts) + 1):
        yield slug("-".join(parts[-count:]))
    yield f"{short[:60]}-{hashlib.sha256(path.encode('utf-8', 'replace')).hexdigest()[:12]}"


def by_identity(folder: Path) -> dict[str, Path]:
    """Finished runs of a campaign by the end of their name, which for imported ones tells the result."""
    return {path.name.rpartition("-")[2]: path for path in run_folders(folder) if (path / "status.json").exists()}


def clash(there: RunFolder, spec: RunSpec) -> str | None:
    """Why a result that is there cannot be imported as ``spec``, too: one measurement is not two."""
    old, told = there.spec, clean(there.path.name)
    compared: Iterable[tuple[str, object, object]] = (
        ("", old.role, spec.role),
        ("target ", old.target.name, spec.target.name),
        ("prompts ", old.workload.prompt_set, spec.workload.prompt_set),
        ("requests at once ", old.workload.max_concurrency, spec.workload.max_concurrency),
    )
    for word, before, now in compared:
        if now != before and now is not None and not str(now).startswith(NOT_STATED):
            was = "unknown" if before is None else before
            return f"it is there already as {told} with {word}{was}, now {word}{now}: to change it, remove that folder"
    return None
