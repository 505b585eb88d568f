"""The tables that are kept of a campaign: written anew, and added to."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pandas as pd
from log_samples import N4_GRAPH
from run_folders import SPECULATIVE, write_campaign, write_run

from workbench.table import kept

REQUESTS = [{"prompt_index": number, "completion_tokens": 9, "spec_verify_ct": 4} for number in range(3)]


_TABLES = ("requests", "settings", "windows")
_ANEW: dict[str, pd.DataFrame] = {}


def prepare(root: Path) -> None:
    (root / "notebooks").mkdir(parents=True)
    folder = write_campaign(root / "data" / "runs" / "c", drafters=[{"name": "d"}])
    write_run(folder / "a", requests=REQUESTS, log=N4_GRAPH, **SPECULATIVE)
    held(root, "shelf")
    write_run(folder / "b", requests=REQUESTS[:2], log=N4_GRAPH, **SPECULATIVE)
    (root / "shelf").rename(root / "data" / "shelf")
    anew = held(root, "another")
    assert anew is not None
    _ANEW.update({name: getattr(anew, name)() for name in _TABLES})
    assert len(_ANEW["requests"]) == 5


def held(root: Path, shelf: str) -> kept.Held | None:
    return kept.hold(root / "data" / "runs" / "c", shelf=root / shelf)


def meanwhile(_: Path) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


def act(root: Path) -> None:
    with contextlib.suppress(OSError):  # what `load_tables` does without a place to keep them
        held(root, "data/shelf")


def read(root: Path) -> None:
    found = held(root, "data/shelf")
    assert found is not None
    assert [run.run_id for run in found.runs] == ["a", "b"]
    for name in _TABLES:
        pd.testing.assert_frame_equal(getattr(found, name)(), _ANEW[name])


def go_on(root: Path) -> None:
    read(root)
