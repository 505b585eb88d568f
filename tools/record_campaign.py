"""Turn a measured campaign of data/runs into recorded data that can be committed.

    python tools/record_campaign.py data/runs/CAMPAIGN --source TEXT [--name NAME] [--out data/recorded]
                                    [--machine TEXT] [--hide TEXT=NEUTRAL ...]

Finished, failed and refused runs are copied with their reasons; logs, requests, GPU samples and metrics are gzipped
(the same input gives the same bytes); origin becomes "recorded". What --hide names is replaced everywhere, in logs by
text of the same length, so that byte offsets stay. A campaign that exists there is replaced once the new one is whole.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from workbench.errors import InputError, UsageError, WorkbenchError
from workbench.paths import TUNED, recorded_dir, slug
from workbench.spec import Origin, Provenance, RunState, RunStatus
from workbench.store import SERVERS, write_json

TEXTS = ("spec.json", "windows.json")
PACKED = ("requests.jsonl", "gpu.jsonl", "resolved.json", "metrics.before.prom", "metrics.after.prom")
KEPT = (RunState.OK, RunState.FAILED, RunState.TIMED_OUT, RunState.SKIPPED)


def main() -> int:
    asked = _arguments()
    try:
        hidden = _hidden(asked.hide)
        target = _target(asked)
        # What is there stays until all of the new one is written.
        with tempfile.TemporaryDirectory(dir=_made(asked.out), prefix=".recording-") as scratch:
            made = Path(scratch) / target.name
            _record(asked, made, hidden)
            if target.exists():
                target.rename(Path(scratch) / "before")
            made.rename(target)
    except (WorkbenchError, OSError, ValueError) as error:
        sys.stderr.write(f"{asked.campaign}: not recorded: {error}\n")
        return 2 if isinstance(error, UsageError) else 1
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    sys.stdout.write(f"{target}: {size / 1e6:.2f} MB\n")
    return 0


def _hidden(pairs: Sequence[str]) -> dict[str, str]:
    for pair in pairs:
        text, _, neutral = pair.partition("=")
        if not text or not neutral:
            raise UsageError(f"{pair!r} is not TEXT=NEUTRAL", where="--hide")
    return dict(pair.split("=", 1) for pair in pairs)


def _target(asked: argparse.Namespace) -> Path:
    """Where it goes, once it is clear that there is something to record."""
    if not (asked.campaign / "campaign.json").is_file():
        raise UsageError("no measured campaign: it has no campaign.json", where=asked.campaign)
    if any(asked.campaign.glob("*/requests.jsonl.gz")):
        raise UsageError("is recorded already", where=asked.campaign, next_step="give the folder of data/runs")
    name: str = asked.name or asked.campaign.resolve().name
    if slug(name) != name:
        raise UsageError(f"{name!r} is no name of a campaign: letters, digits, '-', '_' and '.'", where="--name")
    if not asked.source.strip():
        raise UsageError("is empty: say by whom, with which command, when", where="--source")
    target: Path = asked.out / name
    if target.resolve() == asked.campaign.resolve():
        raise UsageError("would replace what it reads", where=target, next_step="give another --out or --name")
    return target


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _record(asked: argparse.Namespace, target: Path, hidden: Mapping[str, str]) -> None:
    source: Path = asked.campaign
    for name in ("campaign.json", "drafters.json", TUNED):
        _copy_text(source / name, target / name, hidden)
    titled = {key: value for key in ("title", "machine") if (value := getattr(asked, key))}
    _change(target / "campaign.json", name=target.name, source=asked.source, **titled)
    for check in sorted((source / "_checks").glob("*.json")):
        _copy_text(check, target / "_checks" / check.name, hidden)
    for run in sorted(path.parent for path in source.glob("*/status.json") if not path.parent.name.startswith("_")):
        _record_run(run, target / run.name, asked, hidden)


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
            if name.endswith(".json"):
                _require_json(run / name, (run / name).read_text(encoding="utf-8"))
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
        _require_json(source, text)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


def _require_json(source: Path, text: str) -> None:
    try:
        json.loads(text)
    except ValueError as error:
        raise InputError(f"is no JSON: {error}", where=source, next_step="mend or remove it") from error


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
    sys.exit(main())
