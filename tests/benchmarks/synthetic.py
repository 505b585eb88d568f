"""Campaigns of any size for benchmarks: copies of recorded runs under other names, never to be taken for measured ones.

The origin of every copy is "simulated" and its source says what it is. Each copy of the campaign has servers and a
baseline group of its own, so that its runs are compared with its own baselines. Files that do not change (logs, request
records, samples) are links to the recorded ones, so that ten thousand runs take little room.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from workbench.paths import recorded_dir

SOURCE = "h200_step_cost"
NAME = "synthetic"
_WRITTEN = frozenset({"spec.json", "provenance.json", "status.json"})


def make_campaign(folder: Path, num_runs: int, *, source: str = SOURCE) -> Path:
    """Write a campaign of ``num_runs`` runs into ``folder``, which must not be there yet."""
    recorded = recorded_dir() / source
    folder.mkdir(parents=True)
    info = json.loads((recorded / "campaign.json").read_text())
    info |= {"name": folder.name, "title": f"{num_runs:,} copies of recorded runs, for benchmarks"}
    (folder / "campaign.json").write_text(json.dumps(info))
    if (recorded / "drafters.json").exists():
        shutil.copy(recorded / "drafters.json", folder)
    for run, number in islice(_copies(recorded), num_runs):
        _copy_run(run, folder, number)
    return folder


def change_run(run: Path) -> None:
    """Write a run's request records anew with one request less, as a new file in the place of the old one."""
    import gzip

    path = run / "requests.jsonl.gz"
    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    new = path.with_name("new.gz")
    new.write_bytes(gzip.compress(b"".join(lines[:-1]), 1))
    new.replace(path)


def runs_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if (path / "spec.json").exists())


def _copies(recorded: Path) -> Iterator[tuple[Path, int]]:
    runs = runs_of(recorded)
    number = 0
    while True:
        yield from ((run, number) for run in runs)
        number += 1


def _copy_run(run: Path, folder: Path, number: int) -> None:
    spec, status, provenance = (json.loads((run / name).read_text()) for name in sorted(_WRITTEN, key=_order))
    new = folder / f"{run.name}-copy{number:05}"
    new.mkdir()
    for file in run.iterdir():
        if file.name not in _WRITTEN:
            _link(file, new / file.name)
    if status.get("log_file", "").startswith("../_servers/"):
        server = Path(status["log_file"]).parts[2]
        log = folder / "_servers" / f"{server}-copy{number:05}" / Path(status["log_file"]).name
        _link(run / status["log_file"], log)
        status["log_file"] = os.path.relpath(log, new)
    spec |= {"campaign": folder.name, "run_id": new.name, "server_id": f"{spec['server_id']}-copy{number:05}"}
    spec["baseline_group"] = f"{spec['baseline_group']}-copy{number:05}"
    provenance |= {"origin": "simulated", "source": f"a copy of {run.name} for benchmarks: not a measurement"}
    for name, value in (("spec.json", spec), ("provenance.json", provenance), ("status.json", status)):
        (new / name).write_text(json.dumps(value))


def _order(name: str) -> int:
    return ("spec.json", "status.json", "provenance.json").index(name)


def _link(source: Path, target: Path) -> None:
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:  # another file system, or too many links
        shutil.copyfile(source, target)
