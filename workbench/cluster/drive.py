"""The command's side: starts are handed to Ray, in order, and what the nodes send is put in place.

Each start is one Ray task that yields what happens (`parcels`); Ray chooses the node. One that is lost with its node or
its process is given to Ray again with the runs that have not come; what has come stays.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError

from workbench import __version__
from workbench.cluster import Cluster
from workbench.cluster.connection import Nodes, connected, first_line
from workbench.cluster.node import measured
from workbench.cluster.parcels import Arrivals, Began, Came, Event, Over, Parcel, Piece, Said
from workbench.cluster.sizes import Ask, ask_for, gpus_of
from workbench.cluster.unpack import TEXTS
from workbench.errors import InputError
from workbench.packing import STOP_LIMIT_S, Task, labelled
from workbench.progress import Say
from workbench.recording import Ended, commit_missing
from workbench.spec import RunSpec, RunState
from workbench.sweep import CampaignSpec

TRIES = 3
"""How often a start is begun at most, should nodes or processes die under it."""
NODES_WAIT_S = 60.0
"""For a node that can take a start, when there is none any more."""
SAID_WAIT_S = 20.0
_POLL_S = 1.0
_FETCH_S = 120.0
_KILLED_S = 5.0
_UNREAD = 8
"""Pieces of a start that may wait to be taken, of at most `parcels.PIECE_BYTES` each."""


def drive(
    folder: Path, campaign: CampaignSpec, tasks: Sequence[Task], say: Say, cluster: Cluster
) -> dict[str, list[Ended]]:
    """As `cluster.on_ray` says."""
    texts = TEXTS.dump_json({name: tuple(prompts) for name, prompts in cluster.prompts.items()})
    with connected(cluster.address):
        crew = _Crew(folder, campaign, deque(tasks), cluster.allow_refused, ray.put(texts), say, Nodes(say))
        try:
            while crew.waiting or crew.busy:
                crew.fill()
                crew.hear()
        except BaseException:
            crew.stop()
            raise
    return {task.start.server_id: crew.outcome(task) for task in tasks}


def _task(parcel: Parcel, texts: bytes) -> Iterator[Event]:
    """What Ray runs on a node."""
    yield Began(ray.get_runtime_context().get_node_id())
    yield from measured(parcel, texts)


@dataclass(slots=True)
class _Try:
    """A start that Ray was given. ``most`` is how many were on its node at once since its last run came."""

    task: Task
    arrivals: Arrivals
    ask: Ask
    stream: Any
    asked_at: float
    node: int | None = None
    slot: int = 1
    most: int = 1

    @property
    def left(self) -> tuple[RunSpec, ...]:
        return tuple(run for run in self.task.start.runs if run.run_id not in self.arrivals.ended)


@dataclass(slots=True)
class _Crew:
    folder: Path
    campaign: CampaignSpec
    waiting: deque[Task]
    allow_refused: bool
    texts: Any
    say: Say
    nodes: Nodes
    busy: list[_Try] = field(default_factory=list)
    tries: dict[str, int] = field(default_factory=dict)
    arrivals: dict[str, Arrivals] = field(default_factory=dict)
    missing: dict[str, list[Ended]] = field(default_factory=dict)
    without_since: float | None = None
    said_wait: bool = False

    # --- giving ---

    def fill(self) -> None:
        """Give Ray what may find room now, in order, and one start more: by that a cluster sees that it may grow."""
        while self.waiting:
            ask = ask_for(self.waiting[0].start, self.nodes.alive(), self.campaign.places, self.campaign.engine)
            if ask is None and not self.busy:
                if self._may_wait():
                    return
                task = self.waiting.popleft()
                self._give_up(task, task.start.runs, self._no_node(task))
            elif ask is None or len(self.busy) > ask.room:
                return
            else:
                self.without_since = None
                self._begin(self.waiting.popleft(), ask)

    def _may_wait(self) -> bool:
        """Whether a node that can take a start may still come back. Where there never was one, none is waited for."""
        if not self.tries:
            return False
        if self.without_since is None:
            self.without_since = time.monotonic()
            self.say(f"no node is left that can take a start; one is waited for, {NODES_WAIT_S:.0f} s")
        time.sleep(_POLL_S)
        return time.monotonic() - self.without_since < NODES_WAIT_S

    def _no_node(self, task: Task) -> str:
        gpus = gpus_of(task.start, self.campaign.engine)
        there = "; ".join(map(str, self.nodes.alive())) or "none"
        return f"no node of the cluster has {f'{gpus} GPUs and ' if gpus else ''}a CPU to give (there are: {there})"

    def _begin(self, task: Task, ask: Ask) -> None:
        start = task.start
        self.tries[start.server_id] = self.tries.get(start.server_id, 0) + 1
        arrivals = self.arrivals.setdefault(start.server_id, Arrivals(self.folder, start))
        remote = ray.remote(
            num_cpus=ask.cpus,
            num_gpus=ask.gpus,
            max_retries=0,  # Ray would begin with what has come already
            num_returns="streaming",
            scheduling_strategy="SPREAD",
            _generator_backpressure_num_objects=_UNREAD,
            name=f"workbench {start.server_id}",
        )(_task)
        stream = remote.remote(Parcel(__version__, self.campaign, start, self.allow_refused), self.texts)
        self.busy.append(_Try(task, arrivals, ask, stream, time.monotonic()))

    # --- hearing ---

    def hear(self) -> None:
        """Wait a moment for what the nodes send, and take it."""
        for each in self._ready(_POLL_S):
            try:
                event = ray.get(next(each.stream), timeout=_FETCH_S)
            except (RayError, StopIteration) as error:
                self._lost(each, _words(error))
            else:
                self._take(each, event)
        self._say_what_is_waited_for()

    def _ready(self, timeout_s: float) -> list[_Try]:
        if not self.busy:
            return []
        streams = [each.stream for each in self.busy]
        ready, _ = ray.wait(streams, num_returns=1, timeout=timeout_s)
        return [each for each in self.busy if any(each.stream is stream for stream in ready)]

    def _take(self, each: _Try, event: Event) -> None:
        match event:
            case Began():
                self._taken_up(each, event.node_id)
            case Said():
                for line in event.lines:
                    self.say(labelled(line, self._label(each)))
            case Piece():
                each.arrivals.take(event)
            case Came():
                each.arrivals.put_in_place(event.run_id, node=f"Ray node {each.node}", places=each.most)
                each.most = self._on_node(each)
            case Over():
                self._close(each)

    def _taken_up(self, each: _Try, node_id: str) -> None:
        self.nodes.alive()
        number = self.nodes.numbers.get(node_id, 0)
        taken = {other.slot for other in self.busy if other.node == number}
        each.slot = next(slot for slot in range(1, len(self.busy) + 1) if slot not in taken)
        each.node = number
        for other in self.busy:
            if other.node == number:
                other.most = max(other.most, self._on_node(other))
        for line in each.task.said:
            self.say(labelled(line, self._label(each)))

    def _on_node(self, each: _Try) -> int:
        return sum(other.node == each.node for other in self.busy)

    def _label(self, each: _Try) -> str:
        return f"{each.node}" if self.campaign.places == 1 else f"{each.node}.{each.slot}"

    def _say_what_is_waited_for(self) -> None:
        late = [each for each in self.busy if each.node is None and time.monotonic() - each.asked_at > SAID_WAIT_S]
        begun = sum(each.node is not None for each in self.busy)
        if late and not self.said_wait and begun < late[0].ask.room:
            self.said_wait = True
            self.say(f"waiting for a node with {late[0].ask}: others use the cluster, or its processes start slowly")

    # --- what goes wrong ---

    def _lost(self, each: _Try, why: str) -> None:
        """The start again with the runs that have not come, as long as it may be tried."""
        with contextlib.suppress(RayError):
            ray.cancel(each.stream, force=True)
        self._close(each)
        server_id, left = each.task.start.server_id, each.left
        if not left:
            return
        where = server_id if each.node is None else f"{server_id} on node {each.node}"
        begun = self.tries[server_id]
        if begun >= TRIES:
            self._give_up(each.task, left, f"lost {begun} times, at last: {why}")
            return
        self.say(f"{where} is lost: {why}")
        again = f"{server_id} again ({begun + 1} of {TRIES} times): {len(left)} runs"
        self._take_back()
        self.waiting.appendleft(Task(replace(each.task.start, runs=left), (again,)))

    def _take_back(self) -> None:
        """What no node has taken up yet was asked for by the measure of a cluster that was another one."""
        for each in [each for each in self.busy if each.node is None]:
            with contextlib.suppress(RayError):
                ray.cancel(each.stream, force=True)
            self._close(each)
            self.tries[each.task.start.server_id] -= 1
            self.waiting.appendleft(each.task)

    def _give_up(self, task: Task, runs: Sequence[RunSpec], why: str) -> None:
        server_id = task.start.server_id
        self.say(f"{server_id} failed: {why}")
        missing = commit_missing(self.folder, self.campaign, runs, RunState.FAILED, why)
        self.missing.setdefault(server_id, []).extend(missing)

    def _close(self, each: _Try) -> None:
        self.busy.remove(each)
        each.arrivals.drop()

    def stop(self) -> None:
        """Stop all as Ctrl-C does; a further Ctrl-C takes the grace away."""
        began = [each for each in self.busy if each.node is not None]
        for force, limit_s in ((False, STOP_LIMIT_S), (True, _KILLED_S)):
            with contextlib.suppress(KeyboardInterrupt, InputError):
                self._end_all(time.monotonic() + limit_s, force=force)
        why = "stopped before it came back from its node"
        for each in began:
            with contextlib.suppress(InputError):
                commit_missing(self.folder, self.campaign, each.left, RunState.INTERRUPTED, why)

    def _end_all(self, deadline: float, *, force: bool) -> None:
        for each in self.busy:
            with contextlib.suppress(RayError):
                ray.cancel(each.stream, force=force)
        while self.busy and (left_s := deadline - time.monotonic()) > 0:
            for each in self._ready(left_s):
                try:
                    ray.get(next(each.stream), timeout=max(0.1, deadline - time.monotonic()))
                except GetTimeoutError:
                    return
                except (RayError, StopIteration):
                    self._close(each)

    def outcome(self, task: Task) -> list[Ended]:
        """What came of the runs of a start, in their order."""
        server_id = task.start.server_id
        found = dict(self.arrivals[server_id].ended) if server_id in self.arrivals else {}
        found |= {one.run_id: one for one in self.missing.get(server_id, [])}
        return [found[run.run_id] for run in task.start.runs if run.run_id in found]


def _words(error: Exception) -> str:
    """Why a task is lost, in a line."""
    if isinstance(error, StopIteration):
        return "it ended without telling what came of it"
    cause = error.cause if isinstance(error, RayTaskError) else error
    name = "" if isinstance(error, RayTaskError) and not isinstance(cause, ImportError) else f"{type(cause).__name__}: "
    return f"{name}{first_line(cause)}"
