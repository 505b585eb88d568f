"""Which runs and logs are as they were when they were read: names, sizes, times and inodes of their files tell."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from workbench.table.shelf import Entry, Segment

Stat = list[int]
Place = tuple[Segment, int]
KnownLogs = dict[str, tuple[Path, int]]
"""Where the summaries of logs are: index of a segment, place in it."""


class State:
    """How the files of a campaign are now; each is looked at once."""

    def __init__(self, campaign: Path, drafters: Mapping[str, str]) -> None:
        self._campaign, self._drafters = campaign, drafters
        self._logs: dict[str, Stat | None] = {}

    def log(self, name: str) -> Stat | None:
        if name not in self._logs:
            self._logs[name] = stat_of(self._campaign / name)
        return self._logs[name]

    def current(self, segments: Sequence[Segment], folders: Sequence[Path]) -> dict[str, Place]:
        """Where the runs are that are as they were."""
        held: dict[str, list[Place]] = {}
        for segment in segments:
            for at, run in enumerate(segment.runs):
                held.setdefault(run["name"], []).append((segment, at))
        found = {}
        for folder in folders:
            places = held.get(folder.name, ())
            files = files_of(folder)[0] if places else ""
            same = (place for place in places if self._is_same(place[0].runs[place[1]], files))
            if (place := next(same, None)) is not None:
                found[folder.name] = place
        return found

    def known_logs(self, segments: Sequence[Segment]) -> KnownLogs:
        """Where the summaries are of logs that are as they were."""
        known: KnownLogs = {}
        for segment in segments:
            places = {log["path"]: at for at, log in enumerate(segment.logs) if log["text"] is not None}
            for run in segment.runs:
                at = places.get(run["log_path"])
                if at is not None and run["log_stat"] is not None and run["log_stat"] == self.log(run["log"]):
                    known[run["log_path"]] = (segment.index, at)
        return known

    def _is_same(self, run: Entry, files: str) -> bool:
        if run["files"] != files or run["drafter_as"] != self._drafters.get(run["drafter"] or "", ""):
            return False
        return run["log"] is None or (run["log_stat"] is not None and run["log_stat"] == self.log(run["log"]))


def files_of(folder: Path) -> tuple[str, float]:
    """What identifies the files of a run folder, and when the last of them changed."""
    said, latest = [], 0.0
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                stat = entry.stat()
            except OSError:  # a link to nowhere
                said.append(f"{entry.name}\0-")
                continue
            latest = max(latest, stat.st_mtime)
            said.append(f"{entry.name}\0{stat.st_size}\0{stat.st_mtime_ns}\0{stat.st_ino}")
    return hash_text("\n".join(sorted(said))), latest


def stat_of(path: Path) -> Stat | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return [stat.st_size, stat.st_mtime_ns, stat.st_ino]


def hash_text(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
