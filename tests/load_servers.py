"""Servers to drive in tests: the scripted one as a process, and answers written down here."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from workbench.prompts import Prompt
from workbench.spec import Workload

SCRIPTED = Path(__file__).parent / "scripted_server.py"


def prompts(count: int) -> tuple[Prompt, ...]:
    return tuple(Prompt(index, f"say {index}") for index in range(count))


def workload(*, concurrency: int = 1, num_prompts: int | None = None, max_new_tokens: int = 10) -> Workload:
    return Workload(
        prompt_set="made",
        num_prompts=num_prompts,
        temperature=0.0,
        max_new_tokens=max_new_tokens,
        ignore_eos=True,
        max_concurrency=concurrency,
    )


@contextmanager
def scripted(*options: str) -> Iterator[str]:
    """The URL of a scripted server that listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, str(SCRIPTED), "--port", str(port), *options], stderr=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: listens(port), process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes] | None = None) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert process is None or process.poll() is None, "the server ended"
        assert time.monotonic() < deadline, "waited 20 s"
        time.sleep(0.02)


@contextmanager
def answering(handle: Callable[[BaseHTTPRequestHandler, bytes], None]) -> Iterator[str]:
    """The URL of a server in this process that hands each POST and GET, with its body, to ``handle``."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            handle(self, self.rfile.read(int(self.headers.get("Content-Length") or 0)))

        do_GET = do_POST

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 1024

        def handle_error(self, *_: object) -> None:
            """A client that has gone away is part of the tests."""

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def send(handler: BaseHTTPRequestHandler, content: object, *, status: int = 200) -> None:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)
