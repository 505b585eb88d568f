"""A server that answers each request after a time of its own, for tests of the client. `python timed_server.py`.

Prints its port. A request's time follows from its number in the prompt: 1.00 to 8.99 s; what it took by this process'
own monotonic clock is in the answer as ``e2e_latency``. Answers come as SGLang streams them, in five events.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

EVENTS = (1, 4, 8, 12, 16)


def seconds_of(number: int) -> float:
    return 1 + number * 7919 % 800 / 100


def event(tokens: int, took_s: float) -> bytes:
    reason = {"type": "length", "length": tokens} if tokens == EVENTS[-1] else None
    meta = {"finish_reason": reason, "prompt_tokens": 1, "completion_tokens": tokens, "e2e_latency": took_s}
    content = {"text": "hello " * tokens, "output_ids": list(range(tokens)), "meta_info": meta}
    data = b"data: " + json.dumps(content).encode() + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(data), data)


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            began = time.monotonic()
            if head.startswith(b"get"):
                writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                continue
            at = head.index(b"content-length:")
            body = json.loads(await reader.readexactly(int(head[at + 15 :].split(b"\r\n", 1)[0])))
            wait = seconds_of(body["input_ids"][0]) / len(EVENTS)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
            for tokens in EVENTS:
                await asyncio.sleep(wait)
                writer.write(event(tokens, time.monotonic() - began))
            writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=4096)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(main())
