"""An event loop of its own, sockets enough for the load, and short requests beside it."""

from __future__ import annotations

import asyncio
import os
import resource
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

import aiohttp

from workbench.errors import UsageError
from workbench.load.answer import MOST_BYTES, shown

T = TypeVar("T")

# What the process opens besides one socket a request: its files, the notebook kernel's sockets, the server's pipes.
SPARE_FILES = 200
_SHOWN = 300


def run_async(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run ``main`` to its end on an event loop in a thread of its own: a notebook's kernel has a loop running already.

    Of errors in several of its tasks the first one is raised alone.
    Ctrl-C, or the kernel's interrupt, cancels it, waits until it has closed what it opened, and is raised again.
    """
    runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
    loop = runner.get_loop()
    result: Future[T] = Future()

    def run() -> None:
        if not result.set_running_or_notify_cancel():
            runner.close()
            return
        try:
            with runner:
                value = runner.run(main())
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
            result.set_exception(_first(error))
        else:
            result.set_result(value)

    thread = threading.Thread(target=run, name="workbench-load")
    try:
        # Ctrl-C may come while start() still waits for a thread that is already sending.
        thread.start()
        return result.result()
    except BaseException:
        if not result.cancel() and not result.done():
            with suppress(RuntimeError):  # the loop closed just now
                loop.call_soon_threadsafe(_cancel_all, loop)
        raise
    finally:
        with suppress(RuntimeError):  # it never started
            thread.join()


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    for task in asyncio.all_tasks(loop):
        task.cancel()


def allow_sockets(count: int) -> None:
    """Raise the process's limit of open files so that ``count`` connections fit.

    Raises
    ------
    UsageError
        When the system does not allow so many.
    """
    needed = count + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise UsageError(
            f"{count} requests at once need {needed} open files; this process may have {hard}",
            next_step=f"`ulimit -n {needed}` (a limit above {hard} is the administrator's to set)",
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def auth_headers() -> dict[str, str]:
    """What a server behind ``--api-key`` wants, from the variable WORKBENCH_API_KEY."""
    key = os.environ.get("WORKBENCH_API_KEY", "").strip()
    return {"Authorization": f"Bearer {key}"} if key else {}


async def whole(response: aiohttp.ClientResponse) -> bytes:
    """The body of a response.

    Raises
    ------
    aiohttp.ClientPayloadError
        When it is larger than any answer that is meant.
    """
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MOST_BYTES:
            raise aiohttp.ClientPayloadError(f"more than {MOST_BYTES:,} bytes")
    return bytes(body)


def fetch(url: str, *, method: str = "GET", timeout_s: float = 10.0) -> tuple[int, str]:
    """Status and text of one short request; status 0 and the reason when there is no answer.

    A redirect is an answer like any other: whoever it names was not asked for.
    """

    async def main() -> tuple[int, str]:
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        async with (
            aiohttp.ClientSession(timeout=timeout, headers=auth_headers()) as session,
            session.request(method, url, allow_redirects=False) as response,
        ):
            return response.status, (await whole(response)).decode("utf-8", "replace")

    try:
        return run_async(main)
    except TimeoutError:
        return 0, f"no answer within {timeout_s:g} s"
    except (aiohttp.ClientError, OSError, ValueError) as error:
        return 0, f"{type(error).__name__}: {shown(str(error), _SHOWN)}"
