"""Starts side by side: each in a process of its own on its own CPUs, handed out in order, stopped together.

A process a place, because clients that share an interpreter would wait for each other. It hears over standard input
what to measure and how many places work, and tells over standard output, a line of JSON at a time; when the input ends
its parent is gone, and it ends with its server.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from workbench.errors import InputError
from workbench.gpu import open_gpus, usable_gpus
from workbench.launch.sharing import MIN_CPUS, cpu_shares, inherited, listed, room_for
from workbench.progress import OVERWRITE, Say
from workbench.recording import Ended, commit_missing, is_measured
from workbench.spec import RunState
from workbench.sweep import CampaignSpec, Start

STOP_LIMIT_S = 28.0
"""For all places to end their servers after Ctrl-C, which they do at once; what is left then is killed."""
_MODULE = "workbench.place"
_LAST_LINES = 5


@dataclass(frozen=True, slots=True)
class Job:
    """What a place is told; ``places`` work when it begins, ``cpus`` is empty where it is not pinned."""

    folder: Path
    campaign: CampaignSpec
    start: Start
    cpus: tuple[int, ...]
    places: int


JOB = TypeAdapter(Job)
STOP = b"stop"
"""The order to end as after Ctrl-C. A signal could come before the process is ready for it."""


@dataclass(frozen=True, slots=True)
class Task:
    """A start, and what is said when its turn comes."""

    start: Start
    said: tuple[str, ...]


def side_by_side(folder: Path, campaign: CampaignSpec, tasks: Sequence[Task], say: Say) -> dict[str, list[Ended]]:
    """Measure starts in up to ``campaign.places`` places at once; what came of each, by its server id.

    A start that is to be alone waits until all before it have ended, and those behind it wait for it. One that fails,
    also with the whole process that measures it, does not disturb the others.

    Raises
    ------
    InputError
        When nothing can be written any more; the other places are stopped.
    """
    places = _places(campaign, say)
    crew = _Crew(folder, campaign, deque(tasks), places, _shares(campaign, places, say), say)
    try:
        while crew.waiting or crew.busy:
            crew.fill()
            crew.hear()
    except BaseException:
        crew.stop()
        raise
    finally:
        crew.selector.close()
    return crew.ended


def _places(campaign: CampaignSpec, say: Say) -> int:
    """So many as have GPUs of their own: one that waits for them would count as a neighbour."""
    each = campaign.server.tp_size * campaign.server.dp_size if campaign.engine == "sglang" else 0
    with open_gpus() as found:
        gpus = usable_gpus(found)
    room = room_for(campaign.places, gpus, each)
    if room < campaign.places:
        say(f"{campaign.places} places are asked for; {len(gpus)} GPUs are enough for {room} of {each}")
    return room


def _shares(campaign: CampaignSpec, places: int, say: Say) -> tuple[frozenset[int], ...]:
    shares = cpu_shares(places)
    if not shares:
        say(f"{places} places are not pinned: there are no {MIN_CPUS} CPUs for each of them here")
        return (frozenset(),) * places
    for number, cpus in enumerate(shares, 1):
        say(f"{number}| CPUs {listed(cpus)}")
    if not inherited(campaign.launch_prefix):
        say(f"servers behind {campaign.launch_prefix[0]} are not pinned, only the clients: pin them in launch_prefix")
    return shares


# --- the places --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Place:
    number: int
    start: Start
    process: subprocess.Popen[bytes]
    heard: bytes = b""
    others: deque[str] = field(default_factory=lambda: deque(maxlen=_LAST_LINES))
    ended: list[Ended] | None = None
    fault: InputError | None = None

    def order(self, line: bytes) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended, which is seen elsewhere
            self.process.stdin.write(line + b"\n")
            self.process.stdin.flush()

    def take(self, line: bytes, say: Say) -> None:
        try:
            facts = json.loads(line)
            kind, content = next(iter(facts.items()))
        except (ValueError, AttributeError, StopIteration):
            self.others.append(line.decode("utf-8", "replace").strip())
            return
        if kind == "say":
            passing = OVERWRITE if content.startswith(OVERWRITE) else ""
            say(f"{passing}{self.number}| {content.removeprefix(OVERWRITE)}")
        elif kind == "ended":
            self.ended = [Ended(run_id, RunState(state), reason) for run_id, state, reason in content]
        elif kind == "fault":
            self.fault = InputError(content["what"], where=content["where"], next_step=content["next_step"])


@dataclass(slots=True)
class _Crew:
    folder: Path
    campaign: CampaignSpec
    waiting: deque[Task]
    places: int
    shares: tuple[frozenset[int], ...]
    say: Say
    busy: list[_Place] = field(default_factory=list)
    ended: dict[str, list[Ended]] = field(default_factory=dict)
    selector: selectors.DefaultSelector = field(default_factory=selectors.DefaultSelector)

    def fill(self) -> None:
        """Begin whatever may begin now, in order."""
        while self.waiting and self._may_begin(self.waiting[0].start):
            self._begin(self.waiting.popleft())

    def _may_begin(self, start: Start) -> bool:
        if not self.busy:
            return True
        return len(self.busy) < self.places and not start.alone and not any(place.start.alone for place in self.busy)

    def _begin(self, task: Task) -> None:
        number = min(set(range(1, self.places + 1)) - {place.number for place in self.busy})
        for line in task.said:
            self.say(f"{number}| {line}")
        # -P: the working folder must not come before installed packages. In a session of its own: a Ctrl-C of the
        # terminal must reach it once, from here.
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        place = _Place(number, task.start, process)
        self.busy.append(place)
        assert process.stdout is not None
        self.selector.register(process.stdout, selectors.EVENT_READ, place)
        cpus = tuple(sorted(self.shares[number - 1]))
        place.order(JOB.dump_json(Job(self.folder, self.campaign, task.start, cpus, len(self.busy))))
        self._tell_company()

    def _tell_company(self) -> None:
        for place in self.busy:
            place.order(str(len(self.busy)).encode())

    def hear(self, timeout_s: float | None = None) -> None:
        """Wait for the next words of any place, and pass them on; of one that has ended take the outcome."""
        for place in self._listen(timeout_s):
            self.ended[place.start.server_id] = self._outcome(place)
            self._tell_company()

    def _listen(self, timeout_s: float | None) -> list[_Place]:
        gone = []
        for key, _ in self.selector.select(timeout_s):
            place: _Place = key.data
            data = os.read(key.fd, 1 << 16)
            *lines, place.heard = (place.heard + data).split(b"\n")
            for line in lines:
                place.take(line, self.say)
            if not data:
                self.selector.unregister(key.fileobj)
                place.process.wait()
                self._close(place)
                gone.append(place)
        return gone

    def _close(self, place: _Place) -> None:
        self.busy.remove(place)
        for pipe in (place.process.stdin, place.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _outcome(self, place: _Place) -> list[Ended]:
        if place.fault is not None:
            raise place.fault
        if place.ended is not None:
            return place.ended
        code = place.process.returncode
        reason = f"the process that measured it ended with {code}" + "".join(
            f": {line}" for line in [*place.others][-1:]
        )
        self.say(f"{place.number}|     failed: {reason}")
        runs, alone = place.start.runs, place.start.alone
        done = [run for run in runs if is_measured(self.folder / run.run_id, run, alone=alone)]
        left = [run for run in runs if run not in done]
        missing = commit_missing(self.folder, self.campaign, left, RunState.FAILED, reason)
        return [*(Ended(run.run_id, RunState.OK) for run in done), *missing]

    def stop(self) -> None:
        """Stop all places as Ctrl-C does; a further Ctrl-C is passed on to them, and takes the grace away."""
        deadline = time.monotonic() + STOP_LIMIT_S
        told = False
        while self.busy and time.monotonic() < deadline:
            try:
                if not told:
                    told = True
                    for place in self.busy:
                        place.order(STOP)
                self._listen(max(0.0, deadline - time.monotonic()))
            except KeyboardInterrupt:
                told = False
        for place in list(self.busy):
            place.process.kill()
            place.process.wait()
            self._close(place)
