"""Whether a server answers, and servers that never come to an end of it."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from workbench.launch.ready import answers


@contextlib.contextmanager
def talking(talk: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that says to the first who comes what ``talk`` says."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with contextlib.suppress(OSError):
                connection, _ = listening.accept()
                with connection:
                    talk(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            thread.join()


def drip(connection: socket.socket) -> None:
    for letter in b"HTTP/1.1 200 " + b"O" * 1000:
        connection.sendall(bytes([letter]))
        time.sleep(0.05)


def go_on(connection: socket.socket) -> None:
    while True:
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        time.sleep(0.01)


@pytest.mark.parametrize("talk", [drip, go_on])
def test_a_server_that_never_ends_its_answer_gives_none(talk: Callable[[socket.socket], None]) -> None:
    with talking(talk) as url:
        began = time.monotonic()
        assert not answers(url, 0.4)
        assert time.monotonic() - began < 5


def test_one_that_says_200_answers() -> None:
    with talking(lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")) as url:
        assert answers(url, 5.0)


@pytest.mark.parametrize("url", ["http://a..b:1", f"http://{'a' * 80}.example:1", "http://127.0.0.1:1/\u00e9"])
def test_names_that_no_server_can_have_do_not_answer(url: str) -> None:
    assert not answers(url, 1.0)
