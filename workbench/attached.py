"""A server that somebody else runs, as one start of a campaign: what it says it is, and a copy of its log.

Nothing is started or stopped; its cache is emptied before each window, as that of our own servers.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import BinaryIO

from workbench.errors import UsageError
from workbench.files import as_text
from workbench.launch.process import Server, attach
from workbench.launch.ready import server_address
from workbench.launch.redaction import blank_out, secret_values
from workbench.load.window import server_info
from workbench.paths import slug
from workbench.plain import whole_number
from workbench.provenance import without_secrets
from workbench.spec import MAX_COUNT, Drafter, RunSpec, ServerConfig, SpecDecodeConfig
from workbench.sweep import UNNAMED, CampaignSpec, Plan, Start, named

HEAD_BYTES = 4 << 20
"""Of a log from before we came, at most so much of its beginning is copied: where the server says what it is."""
PREFIX = "attached"
_KNOWN_BYTES = 256


@dataclass(frozen=True, slots=True)
class Attachment:
    """Where the server is. ``log`` is the file that it writes to, as seen from here."""

    url: str
    log: Path | None = None


def attachment(url: str, log: str = "") -> Attachment | None:
    """Where the server is, ``None`` for an empty URL.

    Raises
    ------
    UsageError
        When there is a log but no server, or the URL is none or holds a password.
    """
    if not url and log:
        raise UsageError("a log without a server to measure", where=log, next_step="give --attach URL with --log")
    if not url:
        return None
    server_address(url)
    return Attachment(url.rstrip("/"), Path(log) if log else None)


def attached_plan(campaign: CampaignSpec, place: Attachment) -> Plan:
    """The loads of a campaign on a server that already runs.

    Its configuration comes from ``/server_info``; what it does not say stays unknown, and a server that says nothing
    is compared with none.

    Raises
    ------
    LaunchError
        When nothing healthy answers.
    LogError
        When the log does not exist.
    UsageError
        When it is not the URL of a server.
    """
    server = attach(place.url, place.log)
    info = server_info(server.url)
    start = _start(campaign, info)
    loads = itertools.product(campaign.max_concurrency, campaign.workload.prompt_sets)
    start = replace(start, runs=tuple(_run(campaign, start, info, *load) for load in loads))
    if start.drafter is not None and start.drafter not in campaign.drafters:
        campaign = campaign.model_copy(update={"drafters": (*campaign.drafters, start.drafter)})
    return Plan(campaign, (start,), (), ())


@contextlib.contextmanager
def attached_server(place: Attachment, copy: Path) -> Iterator[tuple[Server, LogCopy | None]]:
    """The server for the time of a block, and the copy of its log, where it has one.

    Run folders may only lead to files of their own campaign, hence the copy. Secrets in it are blanked out.
    """
    server = attach(place.url, place.log)
    if place.log is None:
        yield server, None
        return
    info = server_info(server.url) or {}
    said = {name: value for name, value in info.items() if isinstance(value, str)}
    secrets = secret_values([], {**os.environ, **said})
    grown = LogCopy(place.log, copy)
    try:
        yield replace(server, log=copy), grown
    finally:
        grown.catch_up()
        blank_out(copy, secrets)


@dataclass(slots=True)
class LogCopy:
    """The beginning of a log, and all that is written to it from now on.

    ``faults`` says, each time that it was seen, what may be missing from the copy.
    """

    source: Path
    copy: Path
    position: int = field(default=0, init=False)
    beginning: bytes = field(default=b"", init=False)
    faults: list[str] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.copy.parent.mkdir(parents=True, exist_ok=True)
        with self.source.open("rb") as log, self.copy.open("wb") as file:
            head = log.read(HEAD_BYTES)
            self.beginning = head[:_KNOWN_BYTES]
            self.position = max(len(head), self.source.stat().st_size)
            if self.position > len(head):
                head = head[: head.rfind(b"\n") + 1]
            file.write(head)

    def catch_up(self) -> int:
        """Copy what is new; the size of the copy. Of a log that was emptied or replaced that is all of it."""
        try:
            log = self.source.open("rb")
        except OSError as error:
            self.faults.append(f"the server's log can no longer be read ({error.strerror or error}): lines are missing")
            return self.copy.stat().st_size
        with log, self.copy.open("ab") as file:
            log.seek(self._place(log))
            while chunk := log.read(1 << 20):
                file.write(chunk)
            self.position = log.tell()
        return self.copy.stat().st_size

    def _place(self, log: BinaryIO) -> int:
        """Where to go on. Another beginning tells a new file, also when it has become as long as the old one."""
        beginning = log.read(_KNOWN_BYTES)
        is_same = beginning.startswith(self.beginning) and os.fstat(log.fileno()).st_size >= self.position
        self.beginning = beginning
        if is_same:
            return self.position
        self.faults.append("the server's log was emptied or replaced (rotated, say): lines may be missing before that")
        return 0


# --- what it is --------------------------------------------------------------------------------------------------


def _start(campaign: CampaignSpec, info: Mapping[str, object] | None) -> Start:
    if info is None:
        return Start(f"{PREFIX}-unknown", ServerConfig(), None, None, ())
    algorithm = said_text(info, "speculative_algorithm")
    server = said_server(info, campaign.server)
    if algorithm is None:
        return Start(f"{PREFIX}-baseline", server, None, None, ())
    decode = SpecDecodeConfig(
        speculative_algorithm=algorithm,
        speculative_num_steps=said_count(info, "speculative_num_steps"),
        speculative_eagle_topk=said_count(info, "speculative_eagle_topk"),
        speculative_num_draft_tokens=said_count(info, "speculative_num_draft_tokens"),
    )
    drafter = _drafter(campaign, said_text(info, "speculative_draft_model_path"))
    numbers = (
        ("s", decode.speculative_num_steps),
        ("k", decode.speculative_eagle_topk),
        ("n", decode.speculative_num_draft_tokens),
    )
    parts = [PREFIX, algorithm.lower(), drafter.name if drafter else ""]
    parts += [f"{letter}{number}" for letter, number in numbers if number is not None]
    return Start(slug("-".join(filter(None, parts))), server, decode, drafter, ())


def _run(
    campaign: CampaignSpec,
    start: Start,
    info: Mapping[str, object] | None,
    concurrency: int,
    prompts: str | None = None,
) -> RunSpec:
    notes: str | None
    if info is None:
        notes = "The server does not say what it is (no /server_info): its configuration is unknown."
    else:
        notes = _other_model(said_text(info, "model_path"), campaign)
    workload = campaign.workload.at(concurrency, prompts)
    apart = f", {workload.prompt_set}" if campaign.workload.more_prompt_sets else ""
    spec = RunSpec(
        campaign=campaign.name,
        run_id=UNNAMED,
        server_id=start.server_id,
        engine="reference" if info is not None and info.get("engine") == "reference" else campaign.engine,
        sglang_version=said_text(info or {}, "version") or campaign.sglang_version,
        target=campaign.target,
        drafter=start.drafter.name if start.drafter else None,
        spec_decode=start.decode,
        server=start.server,
        workload=workload,
        baseline_group=_group(start.server, campaign.server) if info is not None else start.server_id,
        label=f"{start.server_id}{apart}, {concurrency} at once",
        notes=notes,
    )
    return named(spec, also=slug(workload.prompt_set) if apart else "")


def _other_model(served: str | None, campaign: CampaignSpec) -> str | None:
    """Said when the server's model is not called like the campaign's target."""
    names = [PurePath(path).name for path in (served, campaign.target.model_path) if path]
    if len(names) < 2 or names[0].lower() == names[1].lower():
        return None
    return f"The server serves {names[0]}; the campaign's target is {campaign.target.name} ({names[1]})."


def said_server(info: Mapping[str, object], usual: ServerConfig) -> ServerConfig:
    """The settings that the server states; its many other arguments are in ``resolved.json``, with what none can be."""
    # On a CPU there are no graphs to be off.
    off = info.get("disable_cuda_graph") if info.get("device") != "cpu" else None
    return ServerConfig(
        tp_size=said_count(info, "tp_size") or 1,
        dp_size=said_count(info, "dp_size") or 1,
        cuda_graph=not off if isinstance(off, bool) else usual.cuda_graph,
        cuda_graph_max_bs_decode=said_count(info, "cuda_graph_max_bs_decode") or said_count(info, "cuda_graph_max_bs"),
        max_running_requests=said_count(info, "max_running_requests"),
        mem_fraction_static=_fraction(info.get("mem_fraction_static")),
        attention_backend=said_text(info, "attention_backend"),
        context_length=said_count(info, "context_length"),
        decode_log_interval=said_count(info, "decode_log_interval"),
    )


def _group(server: ServerConfig, usual: ServerConfig) -> str:
    """The campaign's baselines that the server is compared with: those with the same choice of CUDA graphs."""
    off, usually_off = server.cuda_graph is False, usual.cuda_graph is False
    return "default" if off == usually_off else "nograph" if off else "graph"


def _drafter(campaign: CampaignSpec, path: str | None) -> Drafter | None:
    """The campaign's drafter of that folder, or one that is called like the folder."""
    if path is None:
        return None
    folder = PurePath(path).name
    named = (drafter for drafter in campaign.drafters if PurePath(drafter.model_path or drafter.name).name == folder)
    return next(named, None) or Drafter(name=slug(folder), model_path=path)


def said_text(info: Mapping[str, object], name: str) -> str | None:
    """A text that the server states, without secrets; it writes ``None`` and ``NONE`` for nothing."""
    value = info.get(name)
    stated = isinstance(value, str) and value and value.upper() != "NONE"
    return without_secrets(as_text(str(value))) if stated else None


def said_count(info: Mapping[str, object], name: str) -> int | None:
    """A whole number from 1 to `MAX_COUNT`; settings given to the scripted or an old server may be text."""
    value = info.get(name)
    number = whole_number(value) if isinstance(value, str) else value
    return number if isinstance(number, int) and not isinstance(number, bool) and 1 <= number <= MAX_COUNT else None


def _fraction(value: object) -> float | None:
    """A share of the memory."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 < value <= 1 else None
