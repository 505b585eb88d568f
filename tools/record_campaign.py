"""Turn a measured campaign of data/runs into recorded data that can be committed.

    python tools/record_campaign.py data/runs/CAMPAIGN --source TEXT [--name NAME] [--out data/recorded]
                                    [--machine TEXT] [--hide TEXT=NEUTRAL ...]

Finished, failed and refused runs are copied with their reasons; logs, requests, GPU samples and metrics are gzipped
(the same input gives the same bytes); origin becomes "recorded". What --hide names is replaced everywhere, in logs by
text of the same length, so that byte offsets stay. A campaign that exists there is replaced.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from workbench.paths import recorded_dir
from workbench.spec import Origin, Provenance, RunState, RunStatus
from workbench.store import SERVERS, write_json

TEXTS = ("spec.json", "resolved.json", "windows.json")
PACKED = ("requests.jsonl", "gpu.jsonl", "metrics.before.prom", "metrics.after.prom")
KEPT = (RunState.OK, RunState.FAILED, RunState.TIMED_OUT, RunState.SKIPPED)


def main() -> None:
    asked = _arguments()
    source: Path = asked.campaign
    target = asked.out / (asked.name or source.name)
    hidden = dict(pair.split("=", 1) for pair in asked.hide)
    if target.exists():
        shutil.rmtree(target)
    for name in ("campaign.json", "drafters.json"):
        _copy_text(source / name, target / name, hidden)
    titled = {key: value for key in ("title", "machine") if (value := getattr(asked, key))}
    _change(target / "campaign.json", name=target.name, source=asked.source, **titled)
    for check in sorted((source / "_checks").glob("*.json")):
        _copy_text(check, target / "_checks" / check.name, hidden)
    for run in sorted(path.parent for path in source.glob("*/status.json") if not path.parent.name.startswith("_")):
        _record_run(run, target / run.name, asked, hidden)
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    sys.stdout.write(f"{target}: {size / 1e6:.2f} MB\n")


def _record_run(run: Path, target: Path, asked: argparse.Namespace, hidden: Mapping[str, str]) -> None:
    status = RunStatus.model_validate_json((run / "status.json").read_text(encoding="utf-8"))
    if status.status not in KEPT:
        sys.stdout.write(f"left out: {run.name} is {status.status}\n")
        return
    for name in TEXTS:
        _copy_text(run / name, target / name, hidden)
    _change(target / "spec.json", campaign=target.parent.name)
    for name in PACKED:
        if (run / name).is_file():
            _pack(run / name, target / f"{name}.gz", hidden, same_length=False)
    provenance = Provenance.model_validate_json((run / "provenance.json").read_text(encoding="utf-8"))
    forced = provenance.origin is Origin.SIMULATED
    changes = {
        "origin": Origin.SIMULATED if forced else Origin.RECORDED,
        "machine": asked.machine or provenance.machine,
        "source": asked.source,
    }
    write_json(target / "provenance.json", provenance.model_copy(update=changes))
    _copy_text(target / "provenance.json", target / "provenance.json", hidden)
    if status.log_file is not None:
        log = (run / status.log_file).resolve()
        packed = target.parent / SERVERS / log.parent.name / f"{log.name}.gz"
        if not packed.exists():
            _pack(log, packed, hidden, same_length=True)
        status = status.model_copy(update={"log_file": os.path.relpath(packed, target)})
    write_json(target / "status.json", status)


def _copy_text(source: Path, target: Path, hidden: Mapping[str, str]) -> None:
    if source.is_file():
        text = source.read_text(encoding="utf-8")
        for name, neutral in hidden.items():
            text = text.replace(name, neutral)
        json.loads(text)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


def _change(path: Path, **values: str) -> None:
    write_json(path, {**json.loads(path.read_text(encoding="utf-8")), **values})


def _pack(source: Path, target: Path, hidden: Mapping[str, str], *, same_length: bool) -> None:
    content = source.read_bytes()
    for name, neutral in hidden.items():
        old = name.encode()
        new = neutral.encode()
        content = content.replace(old, new.ljust(len(old), b"_")[: len(old)] if same_length else new)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(gzip.compress(content, compresslevel=9, mtime=0))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("campaign", type=Path)
    parser.add_argument("--out", type=Path, default=recorded_dir())
    parser.add_argument("--source", required=True, help="by whom, with which command, when")
    parser.add_argument("--name", help="of the recorded campaign, where it is another one")
    parser.add_argument("--title")
    parser.add_argument("--machine")
    parser.add_argument("--hide", action="append", default=[], metavar="TEXT=NEUTRAL")
    return parser.parse_args()


if __name__ == "__main__":
    main()
