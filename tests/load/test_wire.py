from __future__ import annotations

import asyncio
import resource
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler

import pytest
from load_servers import answering, send

from workbench.errors import UsageError
from workbench.load.wire import SPARE_FILES, allow_sockets, fetch, run_async


async def answer() -> int:
    await asyncio.sleep(0)
    return 42


def test_it_runs_inside_a_running_loop() -> None:
    """As in a notebook, whose kernel runs one."""

    async def cell() -> int:
        return run_async(answer)

    # In a thread of its own: a browser under test leaves a loop running in this one.
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: asyncio.run(cell())).result() == 42
    assert run_async(answer) == 42


def test_errors_come_out_and_no_thread_stays() -> None:
    before = threading.active_count()

    async def fail() -> None:
        raise ZeroDivisionError("as asked")

    with pytest.raises(ZeroDivisionError, match="as asked"):
        run_async(fail)
    assert threading.active_count() == before


def test_of_errors_in_several_tasks_the_first_comes_out_alone() -> None:
    async def fail() -> None:
        raise ZeroDivisionError("as asked")

    async def all_at_once() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            group.create_task(asyncio.sleep(10))

    with pytest.raises(ZeroDivisionError, match="as asked"):
        run_async(all_at_once)


def test_an_interrupt_while_the_thread_starts_ends_what_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    """The new thread may run before ``Thread.start`` returns; Ctrl-C then comes out of ``start``."""
    before, sending, ended = threading.active_count(), threading.Event(), threading.Event()
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        sending.wait(10)
        raise KeyboardInterrupt

    async def send_for_ever() -> None:
        sending.set()
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_async(send_for_ever)
    assert ended.is_set()
    assert threading.active_count() == before


def test_the_limit_of_open_files_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    set_to: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: set_to.append(limits))
    allow_sockets(1024 - SPARE_FILES)
    assert set_to == []
    allow_sockets(2500)
    assert set_to == [(2500 + SPARE_FILES, 4096)]
    with pytest.raises(UsageError, match="4000 requests at once need 4200 open files; this process may have 4096"):
        allow_sockets(4000)


def test_a_server_behind_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    def handle(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        send(handler, (handler.headers.get("Authorization") or "none").encode())

    with answering(handle) as url:
        assert fetch(url) == (200, "none")
        monkeypatch.setenv("WORKBENCH_API_KEY", "k")
        assert fetch(url) == (200, "Bearer k")


def test_fetch() -> None:
    def handle(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        if handler.path == "/slow":
            time.sleep(0.5)
        send(handler, f"{handler.command} {handler.path}".encode(), status=404 if handler.path == "/absent" else 200)

    with answering(handle) as url:
        assert fetch(url + "/here") == (200, "GET /here")
        assert fetch(url + "/here", method="POST") == (200, "POST /here")
        assert fetch(url + "/absent") == (404, "GET /absent")
        assert fetch(url + "/slow", timeout_s=0.1) == (0, "no answer within 0.1 s")
    status, why = fetch(url + "/here")
    assert status == 0
    assert "ClientConnectorError" in why
    assert fetch("nonsense")[0] == 0
