"""Start, warm up, serve until told to stop."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import urllib.request
from collections.abc import Sequence
from dataclasses import replace

import torch

from workbench import __version__
from workbench.errors import UsageError, WorkbenchError
from workbench.reference.arguments import SPEAKS, ServerArguments
from workbench.reference.engine import load_engine, resolve_device
from workbench.reference.server import Server, serve_in_thread
from workbench.reference.service import Service

log = logging.getLogger("workbench.reference")
_WARM_UP_S = 600
_WARM_UP_TOKENS = 8


class _Stop(BaseException):
    """Raised in the main thread by SIGTERM and SIGINT, wherever it is."""

    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__()


def serve(arguments: ServerArguments, warnings: Sequence[str]) -> int:
    """Run the server. Returns 0 after SIGTERM, 130 after SIGINT, 1 when it could not start or go on."""
    _set_up_logging(arguments.log_level)
    _stop_on_signals()
    service = Service(arguments)
    failed = threading.Event()
    try:
        server = _bind(arguments, service)
        device = resolve_device(arguments.device).type
        service.arguments = arguments = replace(arguments, port=server.server_address[1], device=device)
        for warning in warnings:
            log.warning(warning)
        _announce(arguments)
        service.begin(load_engine(arguments), failed.set)
        _listen(server)
        _warm_up(arguments, server)
        service.ready = True
        log.info("The server is fired up and ready to roll!")
        failed.wait()
        status = 1
    except WorkbenchError as error:
        log.error("%s", error.render())
        status = 1
    except _Stop as stop:
        log.info("Shutting down.")
        status = stop.status
    service.end()
    return status


def _stop_on_signals() -> None:
    def stop(number: int, frame: object) -> None:
        # The first one counts: what follows must not interrupt the way out.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise _Stop(0 if number == signal.SIGTERM else 128 + number)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)


def _set_up_logging(level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("[%(asctime)s] %(message)s", datefmt="%Y-%m-%d %H:%M:%S"))
    log.addHandler(handler)
    log.setLevel(level.upper())
    log.propagate = False


def _bind(arguments: ServerArguments, service: Service) -> Server:
    try:
        return Server(arguments.host, arguments.port, service)
    except OSError as error:
        raise UsageError(
            f"[Errno {error.errno}] error while attempting to bind on address ('{arguments.host}', {arguments.port}): "
            f"{(error.strerror or str(error)).lower()}",
            next_step="choose another --port, or end what listens there",
        ) from error


def _announce(arguments: ServerArguments) -> None:
    values = ", ".join(f"{name}={value!r}" for name, value in arguments.resolved().items())
    log.info("server_args=ServerArgs(%s)", values)
    log.info(
        "Embedded engine of workbench %s, torch %s, %d threads; log lines as SGLang %s prints them.",
        *(__version__, torch.__version__, torch.get_num_threads(), SPEAKS),
    )


def _listen(server: Server) -> None:
    host, port = server.server_address[:2]
    log.info("INFO:     Started server process [%d]", os.getpid())
    log.info("INFO:     Waiting for application startup.")
    serve_in_thread(server)
    log.info("INFO:     Application startup complete.")
    log.info("INFO:     Uvicorn running on http://%s:%s (Press CTRL+C to quit)", host, port)


def _warm_up(arguments: ServerArguments, server: Server) -> None:
    """One short request over HTTP, so that "ready" means that one was answered."""
    if arguments.skip_server_warmup:
        return
    host, port = str(server.server_address[0]), server.server_address[1]
    address = f"http://{'127.0.0.1' if host == '0.0.0.0' else host}:{port}/generate"  # noqa: S104
    prompt: dict[str, object] = {"input_ids": [0, 1]} if arguments.skip_tokenizer_init else {"text": "Hello there,"}
    body = {**prompt, "sampling_params": {"temperature": 0, "max_new_tokens": _WARM_UP_TOKENS}}
    request = urllib.request.Request(address, json.dumps(body).encode(), {"Content-Type": "application/json"})
    # A proxy from the environment must not be asked for this machine's own server.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=_WARM_UP_S) as reply:
        reply.read()
