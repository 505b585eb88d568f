"""What travels between a campaign's command and the nodes that measure: an order out; words and pieces of files back.

Files come in pieces of bounded size, a run's folder as soon as the run has ended: what has come is safe, whatever
becomes of the node. The command puts it in place as a whole.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pydantic import ValidationError

from workbench.errors import RunFolderError
from workbench.files import sync
from workbench.paths import ARRIVING
from workbench.recording import Ended, not_written, put_in_place
from workbench.spec import RunState, RunStatus
from workbench.store import SERVERS, read_run, write_json
from workbench.sweep import CampaignSpec, Start

PIECE_BYTES = 4 << 20
_STATUS = "status.json"


@dataclass(frozen=True, slots=True)
class Parcel:
    """The order to measure a start; ``version`` is this package's, which must be the node's."""

    version: str
    campaign: CampaignSpec
    start: Start
    allow_refused: bool


@dataclass(frozen=True, slots=True)
class Began:
    """A node has taken up the start."""

    node_id: str


@dataclass(frozen=True, slots=True)
class Said:
    """Lines for the progress."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes that follow those that came of this file before; the path is relative to the campaign's folder."""

    path: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Came:
    """All pieces of a run have been sent."""

    run_id: str


@dataclass(frozen=True, slots=True)
class Over:
    """All runs of the start have been sent, and its servers have ended."""


Event = Began | Said | Piece | Came | Over


class Outgoing:
    """What a start has left in a node's folder and is not sent yet.

    ``secrets`` are blanked out in what is sent of a log whose server still runs, as they are in the log itself when it
    has ended.
    """

    def __init__(self, folder: Path, start: Start, secrets: Sequence[str] = ()) -> None:
        self._folder = folder
        self._waiting = [run.run_id for run in start.runs]
        self._logs = folder / SERVERS / start.server_id
        self._secrets = tuple(secret.encode() for secret in secrets)
        self._sent: dict[Path, int] = {}

    def due(self) -> Iterator[Piece | Came]:
        """The runs that have ended since, each behind the log that it points into."""
        for run_id in [run_id for run_id in self._waiting if self._has_ended(run_id)]:
            yield from self._log_pieces(whole=False)
            yield from self._run_pieces(run_id)

    def rest(self) -> Iterator[Piece | Came]:
        """Everything else, when the servers have ended."""
        yield from self._log_pieces(whole=True)
        yield from self.due()

    def _has_ended(self, run_id: str) -> bool:
        try:
            status = RunStatus.model_validate_json((self._folder / run_id / _STATUS).read_bytes())
        except (OSError, ValidationError):
            return False
        return status.status not in (RunState.PENDING, RunState.RUNNING)

    def _run_pieces(self, run_id: str) -> Iterator[Piece | Came]:
        files = [path for path in sorted((self._folder / run_id).rglob("*")) if path.is_file()]
        for path in sorted(files, key=lambda path: path.name == _STATUS):
            yield Piece(self._name(path), b"")
            yield from self._pieces(path, 0, path.stat().st_size)
        self._waiting.remove(run_id)
        yield Came(run_id)

    def _log_pieces(self, *, whole: bool) -> Iterator[Piece]:
        # A secret that is being printed may not be complete yet.
        held_back = 0 if whole else max(map(len, self._secrets), default=1) - 1
        for path in sorted(self._logs.glob("*")):
            start, end = self._sent.get(path, 0), path.stat().st_size - held_back
            if end > start:
                yield from self._pieces(path, start, end)
                self._sent[path] = end

    def _pieces(self, path: Path, start: int, end: int) -> Iterator[Piece]:
        around = max(map(len, self._secrets), default=1) - 1
        with path.open("rb") as file:
            for at in range(start, end, PIECE_BYTES):
                first, stop = max(0, at - around), min(at + PIECE_BYTES, end)
                file.seek(first)
                data = self._blanked(file.read(stop + around - first))
                yield Piece(self._name(path), data[at - first : stop - first])

    def _blanked(self, data: bytes) -> bytes:
        for secret in self._secrets:
            data = data.replace(secret, b"*" * len(secret))
        return data

    def _name(self, path: Path) -> str:
        return path.relative_to(self._folder).as_posix()


class Arrivals:
    """What comes of a start: put together aside, and in its place when a run is complete."""

    def __init__(self, folder: Path, start: Start) -> None:
        self._folder = folder
        self._runs = {run.run_id: run for run in start.runs}
        self._aside = folder / ARRIVING / start.server_id
        self._log_folder = (SERVERS, start.server_id)
        self.ended: dict[str, Ended] = {}
        self.drop()

    def take(self, piece: Piece) -> None:
        """Append to a file.

        Raises
        ------
        InputError
            When nothing can be written any more.
        RunFolderError
            When the file does not belong to the start.
        """
        path = self._place_of(piece.path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab") as file:
                file.write(piece.data)
        except OSError as error:
            raise not_written(path, error) from error

    def put_in_place(self, run_id: str, *, node: str | None, places: int) -> Ended:
        """Make a run of what has come of it; the node and the neighbours on it are written into its provenance."""
        if run_id not in self._runs:
            raise RunFolderError("a node has sent a run that was not asked for", where=run_id)
        made = self._aside / run_id
        try:
            found = read_run(made, [])
            seen = found.provenance.places is not None
            changes = {"node": node, "places": places if seen else None}
            write_json(made / "provenance.json", found.provenance.model_copy(update=changes))
            for log in self._folder.joinpath(*self._log_folder).glob("*"):
                sync(log)
            put_in_place(self._folder / run_id, made, self._runs[run_id])
        except OSError as error:
            raise not_written(made, error) from error
        status = found.status
        reason = None if status.status is RunState.OK else status.reason
        self.ended[run_id] = Ended(run_id, status.status, reason)
        return self.ended[run_id]

    def drop(self) -> None:
        """Forget what came of runs that are not complete."""
        shutil.rmtree(self._aside, ignore_errors=True)
        with contextlib.suppress(OSError):
            self._aside.parent.rmdir()

    def _place_of(self, name: str) -> Path:
        parts = PurePosixPath(name).parts
        if ".." in parts or len(parts) < 2:
            raise RunFolderError("a node has sent a file that belongs nowhere", where=name)
        if parts[:2] == self._log_folder:
            return self._folder.joinpath(*parts)
        if parts[0] in self._runs:
            return self._aside.joinpath(*parts)
        raise RunFolderError("a node has sent a file that belongs nowhere", where=name)
