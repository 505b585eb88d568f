"""One request to ``/generate`` and every way in which it can fail."""

from __future__ import annotations

from collections.abc import Callable

import aiohttp

from workbench.load.answer import Answer, AnswerFault, EventReader, read_answer, shown
from workbench.load.wire import auth_headers, whole

_HEADERS = {"Content-Type": "application/json"}
_CONNECT_S = 30.0
# Servers close idle connections after 5 s (uvicorn's default); one that is about to go must not be used again.
_KEEP_ALIVE_S = 2.0
_SHOWN = 300
_READ_BYTES = 4096


def open_session(timeout_s: float) -> aiohttp.ClientSession:
    """Connections without a limit of their own; ``timeout_s`` is from sending to the last byte."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_S),
        timeout=aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(_CONNECT_S, timeout_s)),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers=_HEADERS | auth_headers(),
    )


async def ask(
    session: aiohttp.ClientSession,
    url: str,
    body: bytes,
    *,
    most_tokens: int,
    timeout_s: float,
    clock: Callable[[], float] | None = None,
) -> tuple[Answer | None, str | None]:
    """The answer, or ``kind: detail`` of what went wrong. With ``clock`` it is streamed, and its events are timed.

    ``most_tokens`` is what was asked for; an answer that claims far more is none. Redirects are not followed: whoever
    answers there was not asked for.
    """
    try:
        async with session.post(url, data=body, allow_redirects=False) as response:
            if response.status != 200:
                said = (await response.content.read(_READ_BYTES)).decode("utf-8", "replace").strip()
                return None, f"HTTP {response.status}: {shown(said, _SHOWN)}"
            if clock is None:
                return read_answer(await whole(response), most_tokens), None
            reader = EventReader(most_tokens)
            async for chunk in response.content.iter_any():
                reader.feed(chunk, clock())
            return reader.finish(), None
    except AnswerFault as fault:
        return None, str(fault)
    except TimeoutError:
        return None, f"timeout: no whole answer within {timeout_s:g} s"
    except aiohttp.ClientConnectorError as error:
        return None, f"no connection: {error.os_error.strerror or _words(error)}"
    except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, OSError) as error:
        return None, f"connection closed: {_words(error)}"
    except aiohttp.ClientError as error:
        return None, f"not HTTP: {_words(error)}"


def _words(error: Exception) -> str:
    """What it says, which may quote the server."""
    return shown(str(error), _SHOWN) or type(error).__name__
