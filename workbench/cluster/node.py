"""A start measured on a node, by the process that measures one locally (`workbench.place`), in a folder of its own.

What runs here only passes on: should it be killed, that process hears its input end, and the server ends with it.
"""

from __future__ import annotations

import contextlib
import os
import select
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from workbench import __version__
from workbench.cluster.parcels import Event, Outgoing, Over, Parcel, Said
from workbench.errors import LaunchError, UsageError
from workbench.launch import state
from workbench.launch.argv import server_env
from workbench.launch.places import reserved_share
from workbench.launch.redaction import secret_values
from workbench.launch.sharing import cpu_shares
from workbench.packing import JOB, STOP, STOP_LIMIT_S, FromElsewhere, Job, Place
from workbench.paths import ROOT_ENV, project_root

POLL_S = 0.3
_THREADS = "OMP_NUM_THREADS"


def measured(parcel: Parcel, prompts: bytes) -> Iterator[Event]:
    """Measure a start here; what is said and what is left of it, as it comes.

    Parameters
    ----------
    prompts
        JSON: the texts by what runs call their set.

    Raises
    ------
    LaunchError
        When the process that measures does not come to its end, or this node cannot measure for that command.
    """
    if parcel.version != __version__:
        what = f"this node has workbench {__version__}, the command {parcel.version}"
        raise LaunchError(what, next_step="install the same version on both")
    places = 1 if parcel.start.alone else parcel.campaign.places
    with _own_folder() as base, _share(places) as cpus:
        folder, texts = base / parcel.campaign.name, base / "prompts.json"
        folder.mkdir()
        texts.write_bytes(prompts)
        job = Job(folder, parcel.campaign, parcel.start, cpus, 1, FromElsewhere(texts, parcel.allow_refused))
        env = _environment(base)
        outgoing = Outgoing(folder, parcel.start, _secrets(parcel, env))
        place = Place.begun(env)
        try:
            place.order(JOB.dump_json(job))
            yield from _followed(place, outgoing)
        finally:
            _end(place)
        yield from outgoing.rest()
        if place.ended is None:
            raise _broken(place)
    # Told last of all: whoever hears it may take this process away, and the folder must be gone before.
    yield Over()


def _followed(place: Place, outgoing: Outgoing) -> Iterator[Event]:
    assert place.process.stdout is not None
    said: list[str] = []
    ray, lives = os.getppid(), True
    while lives:
        # Ray lets this process go on for a minute when the node's own is gone, while another node takes the start up.
        if os.getppid() != ray:
            raise LaunchError("the node's own process is gone")
        if select.select([place.process.stdout], [], [], POLL_S)[0]:
            lives = place.hear(said.append)
        if said:
            yield Said(tuple(said))
            said.clear()
        yield from outgoing.due()


def _end(place: Place) -> None:
    """Stop it as Ctrl-C does, should it still run."""
    if place.process.returncode is not None:
        return
    assert place.process.stdout is not None
    place.order(STOP)
    deadline = time.monotonic() + STOP_LIMIT_S
    while (left_s := deadline - time.monotonic()) > 0:
        if select.select([place.process.stdout], [], [], left_s)[0] and not place.hear(lambda _: None):
            return
    place.kill()


def _broken(place: Place) -> LaunchError:
    if place.fault is not None:
        return LaunchError(place.fault.what, where=place.fault.where)
    return LaunchError(place.how_it_ended)


@contextlib.contextmanager
def _own_folder() -> Iterator[Path]:
    """A folder for the time of a start. Those of processes that were killed are removed."""
    base = Path(tempfile.gettempdir()) / f"workbench-starts-{os.getuid()}"
    base.mkdir(mode=0o700, exist_ok=True)
    with state.own_folder(base) as folder:
        yield folder


@contextlib.contextmanager
def _share(places: int) -> Iterator[tuple[int, ...]]:
    """CPUs that no other place of this machine has; none where a node has one place or they cannot be shared out."""
    shares = cpu_shares(places) if places > 1 else ()
    if not shares:
        yield ()
        return
    with reserved_share(len(shares)) as number:
        yield () if number is None else tuple(sorted(shares[number]))


def _environment(base: Path) -> dict[str, str]:
    """This process's, without a number of threads of Ray's making: servers that are started locally get none.

    A package that is installed without its checkout has no project folder, and here it needs none but its own.
    """
    env = dict(os.environ)
    with contextlib.suppress(psutil.Error, OSError):
        if _THREADS not in psutil.Process(os.getppid()).environ():
            env.pop(_THREADS, None)
    try:
        project_root()
    except UsageError:
        env[ROOT_ENV] = str(base)
    return env


def _secrets(parcel: Parcel, env: dict[str, str]) -> tuple[str, ...]:
    """Those that the log of a server may hold."""
    campaign = parcel.campaign
    variables = server_env(parcel.start, version=campaign.sglang_version)
    return secret_values(campaign.launch_prefix, {**env, **variables})
