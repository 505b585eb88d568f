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

import torch

from workbench import __version__
from workbench.errors import UsageError, WorkbenchError
from workbench.reference.arguments import SPEAKS, ServerArguments, parse_arguments
from workbench.reference.engine import load_engine
from workbench.reference.server import Server, serve_in_thread
from workbench.reference.service import Service

log = logging.getLogger("workbench.reference")
_WARM_UP_S = 600
_WARM_UP_TOKENS = 8


def main(argv: Sequence[str] | None = None) -> int:
    """Run the server; the exit status is 0 after SIGTERM, 130 after Ctrl-C, 1 when it could not go on."""
    arguments, warnings = parse_arguments(sys.argv[1:] if argv is None else argv)
    _set_up_logging(arguments.log_level)
    stop = _Stop()
    service = Service(arguments)
    try:
        server = _bind(arguments, service)
        for warning in warnings:
            log.warning(warning)
        _announce(arguments)
        service.begin(load_engine(arguments), stop.because_of_a_fault)
        _listen(server)
        _warm_up(arguments, server)
        service.ready = True
        log.info("The server is fired up and ready to roll!")
        stop.wait()
    except WorkbenchError as error:
        log.error("%s", error.render())
        return 1
    except KeyboardInterrupt:
        stop.status = 130
    log.info("Shutting down.")
    service.end()
    return stop.status


class _Stop:
    """What ends the server: SIGTERM, Ctrl-C or a fault of the engine."""

    def __init__(self) -> None:
        self.status = 0
        self._event = threading.Event()
        # A notebook's kernel ignores Ctrl-C for its children's sake; the server must not inherit that.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, self._on_sigterm)

    def _on_sigterm(self, signal_number: int, frame: object) -> None:
        # During loading nobody waits for the event yet.
        self.status = 0
        self._event.set()
        raise _Terminated

    def because_of_a_fault(self) -> None:
        self.status = 1
        self._event.set()

    def wait(self) -> None:
        self._event.wait()


class _Terminated(SystemExit):
    code = 0


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
    address = f"http://{'127.0.0.1' if host in ('0.0.0.0', '::') else host}:{port}/generate"  # noqa: S104
    prompt: dict[str, object] = {"input_ids": [0, 1]} if arguments.skip_tokenizer_init else {"text": "Hello there,"}
    body = {**prompt, "sampling_params": {"temperature": 0, "max_new_tokens": _WARM_UP_TOKENS}}
    request = urllib.request.Request(address, json.dumps(body).encode(), {"Content-Type": "application/json"})
    # A proxy from the environment must not be asked for this machine's own server.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=_WARM_UP_S) as reply:
        reply.read()
