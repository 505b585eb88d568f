"""What the converters share: deterministic gzip, spans in a server log, settings from the server_args line."""

from __future__ import annotations

import ast
import gzip
import io
import re
from collections.abc import Sequence
from pathlib import Path

from workbench.spec import CampaignInfo, Drafter, Range, ServerConfig, SpecDecodeConfig
from workbench.store import SERVERS, write_json

Span = tuple[int, int]

_REQUEST_DONE = re.compile(rb'^[^\n]*"POST /generate HTTP[^\n]*\n', re.MULTILINE)
_FLUSH = re.compile(rb"^[^\n]*Cache flushed successfully!", re.MULTILINE)
_DECODE = re.compile(rb"^[^\n]*Decode batch, #running-req: (\d+)", re.MULTILINE)
_TIME = re.compile(rb"^\[(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)", re.MULTILINE)


def exactly(value: float) -> Range:
    return Range(low=value, high=value)


def write_campaign(folder: Path, info: CampaignInfo, drafters: Sequence[Drafter]) -> None:
    write_json(folder / "campaign.json", info)
    write_json(folder / "drafters.json", [d.model_dump(mode="json", exclude_none=True) for d in drafters])


def write_server_log(campaign: Path, server_id: str, log: bytes) -> str:
    """Store a log once for its server start and return its name as seen from a run folder."""
    path = campaign / SERVERS / server_id / "server.log.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzipped(log))
    return f"../{SERVERS}/{server_id}/server.log.gz"


def gzipped(data: bytes) -> bytes:
    """Gzip without a name or a time stamp, so that the same data gives the same bytes."""
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=buffer, mtime=0) as file:
        file.write(data)
    return buffer.getvalue()


# --- spans -------------------------------------------------------------------------------------------------------


def flushes(log: bytes) -> list[int]:
    """Byte offsets of the lines that report an emptied cache: the client flushed before each pass."""
    return [match.start() for match in _FLUSH.finditer(log)]


def after_requests(log: bytes, start: int, count: int) -> int:
    """Byte offset behind the line that reports the ``count``-th finished request after ``start``."""
    ends = [match.end() for match in _REQUEST_DONE.finditer(log, start)]
    return ends[count - 1]


def check_span(log: bytes, span: Span, *, requests: int, concurrency: int, steps: int | None = None) -> None:
    """Refuse a span that does not hold just these requests at this concurrency.

    ``steps`` are the decode steps that the requests report. Overlap scheduling runs one step more for every request
    and a line stands for `decode_log_interval` = 10 steps, so the number of decode lines is known within one.
    """
    part = log[span[0] : span[1]]
    done = len(_REQUEST_DONE.findall(part))
    running = [int(value) for value in _DECODE.findall(part)]
    if done != requests:
        raise ValueError(f"{done} requests in span {span}, expected {requests}")
    if not running or max(running) != concurrency:
        raise ValueError(f"running requests up to {max(running, default=0)} in span {span}, expected {concurrency}")
    if steps is not None and abs(len(running) - (steps + requests) / 10) > 1:
        raise ValueError(f"{len(running)} decode lines in span {span}, expected about {(steps + requests) / 10}")


def first_time(log: bytes, span: Span) -> str | None:
    """The first time stamp in a span as ISO 8601; the log does not state its time zone."""
    match = _TIME.search(log, *span)
    return None if match is None else b"T".join(match.groups()).decode()


# --- settings ----------------------------------------------------------------------------------------------------


def server_arg(log: bytes, name: str) -> str | int | float | bool | None:
    """One plain value of the ``server_args=ServerArgs(...)`` line."""
    line = next(line for line in log.splitlines() if b"server_args=ServerArgs(" in line).decode()
    match = re.search(rf"[( ]{name}=('[^']*'|[^,)]*)", line)
    if match is None:
        raise ValueError(f"server_args has no {name}")
    value = ast.literal_eval(match[1])
    if value is not None and not isinstance(value, str | int | float | bool):
        raise TypeError(f"server_args has a {type(value).__name__} as {name}")
    return value


def server_config(log: bytes, *, flags: Sequence[str], env: dict[str, str] | None = None) -> ServerConfig:
    """The settings that bear on speed, ``flags`` being those without a field of their own."""
    fields = (
        "tp_size",
        "dp_size",
        "cuda_graph_max_bs_decode",
        "max_running_requests",
        "mem_fraction_static",
        "attention_backend",
        "context_length",
        "decode_log_interval",
    )
    settings: dict[str, object] = {name: server_arg(log, name) for name in fields}
    settings["cuda_graph"] = not (server_arg(log, "disable_cuda_graph") or server_arg(log, "disable_decode_cuda_graph"))
    settings["flags"] = {name: server_arg(log, name) for name in flags}
    settings["env"] = env or {}
    return ServerConfig.model_validate(settings)


def spec_decode(log: bytes, *, simulated: float | None = None) -> SpecDecodeConfig | None:
    """The speculative settings, ``None`` for a server without speculation."""
    if server_arg(log, "speculative_algorithm") is None:
        return None
    names = (
        "speculative_algorithm",
        "speculative_num_steps",
        "speculative_eagle_topk",
        "speculative_num_draft_tokens",
    )
    settings = {name: server_arg(log, name) for name in names}
    return SpecDecodeConfig.model_validate({**settings, "simulated_accept_length": simulated})
