"""The HTTP side: SGLang's endpoints over the standard library's threading server."""

from __future__ import annotations

import json
import logging
import select
import socket
import threading
import traceback
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

from workbench.reference.replies import Reply, chunk
from workbench.reference.requests import GenerateRequest, RefusedRequest, read_request
from workbench.reference.scheduler import Job
from workbench.reference.service import Service

log = logging.getLogger("workbench.reference")
MAX_BODY_BYTES = 16 << 20
_POLL_S = 0.25
_JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"
_STREAM = "text/event-stream; charset=utf-8"


class Server(ThreadingHTTPServer):
    """Bound at once, so that a taken port is known before a model is loaded; listens only after `server_activate`."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 1024

    def __init__(self, host: str, port: int, service: Service) -> None:
        self.service = service
        super().__init__((host, port), Handler, bind_and_activate=False)
        try:
            self.server_bind()
        except OSError:
            self.server_close()
            raise

    def handle_error(self, request: object, client_address: object) -> None:
        """The handler logs its own faults; what is left is a client that went away."""


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    server_version = "workbench-reference"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_GET(self) -> None:
        self._dispatch(self.GETS)

    def do_POST(self) -> None:
        self._dispatch(self.POSTS)

    def _dispatch(self, routes: Mapping[str, Callable[[Handler, bytes], None]]) -> None:
        path = self.path.partition("?")[0]
        try:
            body = self._read_body()
            if body is None:
                return
            if path in routes:
                routes[path](self, body)
            else:
                known = path in self.GETS or path in self.POSTS
                self._send_error(HTTPStatus.METHOD_NOT_ALLOWED if known else HTTPStatus.NOT_FOUND, "Not Found")
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            self.close_connection = True
        except Exception:  # noqa: BLE001 - one request must not take the server with it
            log.error("[http_server] Exception: %s", traceback.format_exc())
            self.close_connection = True
            self._send_error(HTTPStatus.INTERNAL_SERVER_ERROR, "see the server's log")

    def _read_body(self) -> bytes | None:
        """None: already answered, because the length is missing, malformed or too large."""
        stated = self.headers.get("Content-Length", "0")
        if self.headers.get("Transfer-Encoding") or not stated.isdecimal():
            self.close_connection = True
            self._send_error(HTTPStatus.LENGTH_REQUIRED, "send Content-Length")
            return None
        if int(stated) > MAX_BODY_BYTES:
            self.close_connection = True
            self._send_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is larger than {MAX_BODY_BYTES} bytes")
            return None
        return self.rfile.read(int(stated))

    # ---- endpoints -------------------------------------------------------------------------------------------------

    def _health(self, body: bytes) -> None:
        self._send(HTTPStatus.OK if self.server.service.is_healthy() else HTTPStatus.SERVICE_UNAVAILABLE, b"", _TEXT)

    def _server_info(self, body: bytes) -> None:
        self._send_json(HTTPStatus.OK, self.server.service.server_info())

    def _model_info(self, body: bytes) -> None:
        self._send_json(HTTPStatus.OK, self.server.service.model_info())

    def _models(self, body: bytes) -> None:
        self._send_json(HTTPStatus.OK, self.server.service.models())

    def _metrics(self, body: bytes) -> None:
        text = self.server.service.metrics()
        if text is None:
            self._send_error(HTTPStatus.NOT_FOUND, "start the server with --enable-metrics")
        else:
            self._send(HTTPStatus.OK, text.encode(), "text/plain; version=0.0.4; charset=utf-8")

    def _flush_cache(self, body: bytes) -> None:
        if self.server.service.scheduler.flush():
            self._send(HTTPStatus.OK, b"Cache flushed.\n", _TEXT)
        else:
            self._send(HTTPStatus.BAD_REQUEST, b"Cache not flushed: requests are running or waiting.\n", _TEXT)

    def _reshape(self, body: bytes) -> None:
        reshape = self.server.service.reshape
        if reshape is None:
            self._send_error(HTTPStatus.NOT_FOUND, "Not Found")
            return
        try:
            reshape(*_shape(_decode(body)))
        except RefusedRequest as error:
            self._send_error(HTTPStatus.BAD_REQUEST, str(error))
            return
        self._send(HTTPStatus.OK, b"Ready.\n", _TEXT)

    def _generate(self, body: bytes) -> None:
        service = self.server.service
        try:
            request = read_request(_decode(body), service.limits, service.chat)
        except RefusedRequest as error:
            log.error("[http_server] Error: %s", error)
            self._send_error(HTTPStatus.BAD_REQUEST, str(error))
            return
        job = service.scheduler.submit(request)
        try:
            if request.stream:
                self._stream(job, request)
            else:
                self._answer(job)
        finally:
            service.scheduler.cancel(job)

    # ---- replies ---------------------------------------------------------------------------------------------------

    def _answer(self, job: Job) -> None:
        with job.changed:
            while not job.done:
                job.changed.wait(_POLL_S)
                if self._client_is_gone():
                    self.close_connection = True
                    return
        self._send_json(HTTPStatus.OK, self.server.service.reply(job).whole())

    def _stream(self, job: Job, request: GenerateRequest) -> None:
        self._begin(HTTPStatus.OK, _STREAM, {"Transfer-Encoding": "chunked", "Cache-Control": "no-cache"})
        reply = self.server.service.reply(job)
        while not reply.finished:
            if not self._wait_for_more(job, reply):
                self.close_connection = True
                return
            self._write(chunk(b"data: " + json.dumps(reply.next()).encode() + b"\n\n"))
        self._write(chunk(b"data: [DONE]\n\n") + chunk(b""))

    def _wait_for_more(self, job: Job, reply: Reply) -> bool:
        """Wait until there is something to send; False when the client has gone."""
        with job.changed:
            while not reply.has_more():
                job.changed.wait(_POLL_S)
                if self._client_is_gone():
                    return False
        return True

    def _client_is_gone(self) -> bool:
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable) and self.connection.recv(1, socket.MSG_PEEK) == b""

    def _send_json(self, status: HTTPStatus, content: object) -> None:
        self._send(status, json.dumps(content).encode(), _JSON)

    def _send_error(self, status: HTTPStatus, message: str) -> None:
        kind = "invalid_request_error" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "internal_error"
        self._send_json(status, {"error": {"message": message, "type": kind, "code": int(status)}})

    def _send(self, status: HTTPStatus, content: bytes, kind: str) -> None:
        self._begin(status, kind, {"Content-Length": str(len(content))})
        self._write(content)

    def _begin(self, status: HTTPStatus, kind: str, headers: Mapping[str, str]) -> None:
        host, port = self.client_address[:2]
        log.info('INFO:     %s:%s - "%s" %d %s', host, port, self.requestline, status, status.phrase)
        self.send_response_only(status)
        self.send_header("Content-Type", kind)
        for name, value in headers.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()

    def _write(self, content: bytes) -> None:
        self.wfile.write(content)
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:
        """The access line is written when a reply begins; the base class would write another."""

    GETS: ClassVar[Mapping[str, Callable[[Handler, bytes], None]]] = {
        "/health": _health,
        "/health_generate": _health,
        "/server_info": _server_info,
        "/get_server_info": _server_info,
        "/model_info": _model_info,
        "/get_model_info": _model_info,
        "/v1/models": _models,
        "/metrics": _metrics,
        "/flush_cache": _flush_cache,
    }
    POSTS: ClassVar[Mapping[str, Callable[[Handler, bytes], None]]] = {
        "/generate": _generate,
        "/flush_cache": _flush_cache,
        "/reshape": _reshape,
    }


def _decode(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RefusedRequest(f"the body is not valid JSON ({str(error)[:100]})") from error


def _shape(asked: object) -> tuple[list[str], Path]:
    argv, log_file = (asked.get("argv"), asked.get("log")) if isinstance(asked, dict) else (None, None)
    words = isinstance(argv, list) and all(isinstance(word, str) for word in argv)
    if not words or not isinstance(log_file, str) or "\0" in log_file:
        raise RefusedRequest("argv has to be a list of words, log a path")
    return list(argv or ()), Path(log_file)


def serve_in_thread(server: Server) -> threading.Thread:
    server.server_activate()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, name="http", daemon=True)
    thread.start()
    return thread
