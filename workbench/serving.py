"""Which server a start gets: one of its own, a resident one that takes its shape, or one that somebody else runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from workbench.attached import Attachment, attached_server
from workbench.launch.argv import server_argv, server_env
from workbench.launch.places import claim, reserved_port
from workbench.launch.process import serve
from workbench.launch.ready import OwnLog
from workbench.launch.resident import Resident
from workbench.launch.sharing import Company
from workbench.models import weights_of
from workbench.paths import project_root
from workbench.progress import Say
from workbench.recording import Served
from workbench.sweep import CampaignSpec, Start

READY_TIMEOUT_S = {"reference": 300.0, "sglang": 3600.0}


@dataclass(frozen=True, slots=True)
class Servers:
    """Where the servers of a campaign come from; ``company`` is who works on the machine meanwhile."""

    campaign: CampaignSpec
    place: Attachment | None = None
    resident: Resident | None = None
    company: Company = field(default_factory=Company)


@contextlib.contextmanager
def served_by(servers: Servers, start: Start, log: Path, say: Say) -> Iterator[Served]:
    """The server of a start, ready, for the time of the block.

    Raises
    ------
    LaunchError
        When it does not start.
    """
    if servers.place is not None:
        with attached_server(servers.place, log) as (server, copy):
            yield Served(server) if copy is None else Served(server, (), (), copy.catch_up, copy.faults)
    elif servers.resident is not None:
        with _resident(servers, servers.resident, start, log, say) as served:
            yield served
    else:
        with _own(servers, start, log, say) as served:
            yield served


@contextlib.contextmanager
def _own(servers: Servers, start: Start, log: Path, say: Say) -> Iterator[Served]:
    campaign = servers.campaign
    gpus_needed = start.server.tp_size * start.server.dp_size if campaign.engine == "sglang" else 0
    with claim(gpus_needed, on_wait=say) as gpus, reserved_port() as port:
        argv, weights = server_argv(start, campaign, port=port, gpus=gpus or None), weights_of(start, campaign)
        with serve(
            argv,
            env=server_env(start, version=campaign.sglang_version),
            log=log,
            url=f"http://127.0.0.1:{port}",
            ready_timeout_s=_ready_timeout_s(campaign),
            gpus=gpus or None,
            on_phase=lambda phase: say(f"    {phase}"),
            cwd=project_root(),
        ) as server:
            grown = OwnLog(log)
            yield Served(server, tuple(argv), gpus, grown.size, grown.faults, servers.company, weights)


@contextlib.contextmanager
def _resident(servers: Servers, resident: Resident, start: Start, log: Path, say: Say) -> Iterator[Served]:
    campaign = servers.campaign
    with resident.serve(
        lambda port: server_argv(start, campaign, port=port),
        env=server_env(start, version=campaign.sglang_version),
        log=log,
        ready_timeout_s=_ready_timeout_s(campaign),
        on_phase=lambda phase: say(f"    {phase}"),
        cwd=project_root(),
    ) as (server, argv):
        grown, weights = OwnLog(log), weights_of(start, campaign)
        yield Served(server, tuple(argv), (), grown.size, grown.faults, servers.company, weights)


def _ready_timeout_s(campaign: CampaignSpec) -> float:
    return campaign.ready_timeout_s or READY_TIMEOUT_S[campaign.engine]
