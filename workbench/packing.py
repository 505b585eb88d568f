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
from collections.abc import Mapping, Sequence
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
class FromElsewhere:
    """What a start brings along to another machine: a file with its prompts, and that preflight is for that machine."""

    prompts: Path
    allow_refused: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """What a place is told; ``places`` work when it begins, ``cpus`` is empty where it is not pinned."""

    folder: Path
    campaign: CampaignSpec
    start: Start
    cpus: tuple[int, ...]
    places: int
    brought: FromElsewhere | None = None


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
class Place:
    """The process of a place: what it is told, and what it tells.

    ``ended`` is what came of its runs, ``fault`` why nothing can be written any more, ``others`` the last lines that
    are not of its own making.
    """

    process: subprocess.Popen[bytes]
    heard: bytes = b""
    others: deque[str] = field(default_factory=lambda: deque(maxlen=_LAST_LINES))
    ended: list[Ended] | None = None
    fault: InputError | None = None

    @classmethod
    def begun(cls, env: Mapping[str, str] | None = None) -> Place:
        # -P: the working folder must not come before installed packages. In a session of its own: a Ctrl-C of the
        # terminal must reach it once, from here.
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=env,
        )
        return cls(process)

    def order(self, line: bytes) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended, which is seen elsewhere
            self.process.stdin.write(line + b"\n")
            self.process.stdin.flush()

    def hear(self, say: Say) -> bool:
        """Take what can be read, which must be something; whether it still runs."""
        assert self.process.stdout is not None
        data = os.read(self.process.stdout.fileno(), 1 << 16)
        *lines, self.heard = (self.heard + data).split(b"\n")
        for line in lines:
            self._take(line, say)
        if not data:
            self.process.wait()
            self._close()
        return bool(data)

    def _take(self, line: bytes, say: Say) -> None:
        try:
            facts = json.loads(line)
            kind, content = next(iter(facts.items()))
        except (ValueError, AttributeError, StopIteration):
            self.others.append(line.decode("utf-8", "replace").strip())
            return
        if kind == "say":
            say(content)
        elif kind == "ended":
            self.ended = [Ended(run_id, RunState(state), reason) for run_id, state, reason in content]
        elif kind == "fault":
            self.fault = InputError(content["what"], where=content["where"], next_step=content["next_step"])

    @property
    def how_it_ended(self) -> str:
        """In a sentence, of one that ended without saying what came of its runs."""
        last = "".join(f": {line}" for line in [*self.others][-1:])
        return f"the process that measured it ended with {self.process.returncode}{last}"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._close()

    def _close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def labelled(text: str, label: object) -> str:
    """A line with the place that says it; one that only stands until the next comes stays one."""
    passing = OVERWRITE if text.startswith(OVERWRITE) else ""
    return f"{passing}{label}| {text.removeprefix(OVERWRITE)}"


@dataclass(slots=True)
class _Numbered:
    number: int
    start: Start
    place: Place

    def sayer(self, say: Say) -> Say:
        return lambda text: say(labelled(text, self.number))


@dataclass(slots=True)
class _Crew:
    folder: Path
    campaign: CampaignSpec
    waiting: deque[Task]
    places: int
    shares: tuple[frozenset[int], ...]
    say: Say
    busy: list[_Numbered] = field(default_factory=list)
    ended: dict[str, list[Ended]] = field(default_factory=dict)
    selector: selectors.DefaultSelector = field(default_factory=selectors.DefaultSelector)

    def fill(self) -> None:
        """Begin whatever may begin now, in order."""
        while self.waiting and self._may_begin(self.waiting[0].start):
            self._begin(self.waiting.popleft())

    def _may_begin(self, start: Start) -> bool:
        if not self.busy:
            return True
        return len(self.busy) < self.places and not start.alone and not any(one.start.alone for one in self.busy)

    def _begin(self, task: Task) -> None:
        number = min(set(range(1, self.places + 1)) - {one.number for one in self.busy})
        for line in task.said:
            self.say(f"{number}| {line}")
        one = _Numbered(number, task.start, Place.begun())
        self.busy.append(one)
        assert one.place.process.stdout is not None
        self.selector.register(one.place.process.stdout, selectors.EVENT_READ, one)
        cpus = tuple(sorted(self.shares[number - 1]))
        one.place.order(JOB.dump_json(Job(self.folder, self.campaign, task.start, cpus, len(self.busy))))
        self._tell_company()

    def _tell_company(self) -> None:
        for one in self.busy:
            one.place.order(str(len(self.busy)).encode())

    def hear(self, timeout_s: float | None = None) -> None:
        """Wait for the next words of any place, and pass them on; of one that has ended take the outcome."""
        for one in self._listen(timeout_s):
            self.ended[one.start.server_id] = self._outcome(one)
            self._tell_company()

    def _listen(self, timeout_s: float | None) -> list[_Numbered]:
        gone = []
        for key, _ in self.selector.select(timeout_s):
            one: _Numbered = key.data
            if not one.place.hear(one.sayer(self.say)):
                self.selector.unregister(key.fileobj)
                self.busy.remove(one)
                gone.append(one)
        return gone

    def _outcome(self, one: _Numbered) -> list[Ended]:
        if one.place.fault is not None:
            raise one.place.fault
        if one.place.ended is not None:
            return one.place.ended
        reason = one.place.how_it_ended
        self.say(f"{one.number}|     failed: {reason}")
        runs, alone = one.start.runs, one.start.alone
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
                    for one in self.busy:
                        one.place.order(STOP)
                self._listen(max(0.0, deadline - time.monotonic()))
            except KeyboardInterrupt:
                told = False
        for one in self.busy:
            one.place.kill()
