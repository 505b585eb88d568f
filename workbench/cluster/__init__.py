"""A campaign on the nodes of a Ray cluster: ``workbench run --executor ray``.

`drive` hands the starts to Ray, `node` measures one on a node in the process that local places use, `parcels` is what
travels between the two, `sizes` what a start asks of a node. Only `drive` and `connection` import ray.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.errors import MissingToolError, UsageError
from workbench.packing import Task
from workbench.progress import Say
from workbench.prompts import Prompt
from workbench.recording import Ended
from workbench.sweep import CampaignSpec

LOCAL = "local"
"""The address that stands for a cluster of this machine alone, started for the campaign and ended after it."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where a campaign is measured, and what its starts bring along: prompts by the name of their set."""

    address: str
    prompts: Mapping[str, Sequence[Prompt]]
    allow_refused: bool = False


def check_ray(address: str) -> None:
    """Refuse an address that cannot work, and say how Ray is installed.

    Raises
    ------
    UsageError, MissingToolError
        Before anything is started.
    """
    if "://" in address:
        advice = "run this on a node of the cluster, or through `ray job submit`, with --ray-address auto"
        raise UsageError("is no address of a cluster itself: HOST:PORT or auto", where=address, next_step=advice)
    if importlib.util.find_spec("ray") is None:
        how = 'pip install "eagle3-workbench[ray]", here and on every node'
        raise MissingToolError("the executor ray needs the package ray", next_step=how)


def on_ray(
    folder: Path, campaign: CampaignSpec, tasks: Sequence[Task], say: Say, cluster: Cluster
) -> dict[str, list[Ended]]:
    """Measure starts on the nodes of a cluster; what came of each, by its server id.

    Raises
    ------
    UsageError, MissingToolError
        As `check_ray`.
    LaunchError
        When no cluster answers at the address.
    InputError
        When nothing can be written here any more; all nodes are stopped.
    """
    check_ray(cluster.address)
    from workbench.cluster import drive  # imports ray

    return drive.drive(folder, campaign, tasks, say, cluster)
