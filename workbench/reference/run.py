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
from pathlib import Path

import torch

from workbench import __version__
from workbench.errors import UsageError, WorkbenchError
from workbench.reference.arguments import RESHAPE, SPEAKS, ServerArguments, parse_arguments
from workbench.reference.engine import load_engine, resolve_device
from workbench.reference.requests import RefusedRequest
from workbench.reference.server import Server, serve_in_thread
from workbench.reference.service import Service

log = logging.getLogger("workbench.reference")
_WARM_UP_S = 600
_WARM_UP_TOKENS = 8


_STAYS = ("model_path", "tokenizer_path", "skip_tokenizer_init", "device", "dtype", "served_model_name", "log_level")


class Reshaping:
    """Other speculative settings, and another log, for a server that runs: its target stays loaded.

    The new log reads as that of a server that was started so.
    """

    def __init__(self, service: Service, server: Server, failed: threading.Event) -> None:
        self._service, self._server, self._failed = service, server, failed
        self._one = threading.Lock()

    def __call__(self, argv: Sequence[str], log_file: Path) -> None:
        with self._one:
            self._take(self._read(argv), log_file)

    def _read(self, argv: Sequence[str]) -> ServerArguments:
        before = self._service.arguments
        try:
            asked, _ = parse_arguments(argv)
        except SystemExit as error:
            raise RefusedRequest("the command line is none of this engine's") from error
        asked = replace(asked, host=before.host, port=before.port, device=resolve_device(asked.device).type)
        changed = [name for name in _STAYS if getattr(asked, name) != getattr(before, name)]
        if changed:
            raise RefusedRequest(f"{changed[0]} stays what it is as long as the server runs")
        if self._service.scheduler.num_running or self._service.scheduler.num_queued:
            raise RefusedRequest("requests are running or waiting")
        return asked

    def _take(self, arguments: ServerArguments, log_file: Path) -> None:
        """From here on there is no way back: what fails ends the server."""
        try:
            _write_to(log_file)
        except OSError as error:
            raise RefusedRequest(f"{log_file}: {error.strerror}") from error
        try:
            self._service.end()
            self._service.arguments = arguments
            _announce(arguments)
            self._service.begin(load_engine(arguments, self._service.engine), self._failed.set)
            _fire_up(self._service, self._server)
        except WorkbenchError as error:
            log.error("%s", error.render())
            self._failed.set()
            raise RefusedRequest(error.what) from error


def _write_to(log_file: Path) -> None:
    """Standard output and error go to a new file from now on."""
    file = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
    sys.stdout.flush()
    sys.stderr.flush()
    for stream in (1, 2):
        os.dup2(file, stream)
    os.close(file)


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
        _fire_up(service, server)
        if os.environ.get(RESHAPE):
            service.reshape = Reshaping(service, server, failed)
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


def _fire_up(service: Service, server: Server) -> None:
    _warm_up(service.arguments, server)
    service.ready = True
    log.info("The server is fired up and ready to roll!")


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
