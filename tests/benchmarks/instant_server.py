"""A server that answers every request at once, so that what is measured is the client. `python instant_server.py`.

Prints its port. Raw asyncio: it parses no more of a request than where it ends, and its answers are ready-made.
"""

from __future__ import annotations

import asyncio
import json
import sys

TOKENS = 16
EVENTS = (1, 4, 8, 12, 16)


def answer(tokens: int) -> bytes:
    reason = {"type": "length", "length": tokens} if tokens == TOKENS else None
    meta = {"id": "0" * 32, "finish_reason": reason, "prompt_tokens": 100, "completion_tokens": tokens}
    meta |= {"cached_tokens": 0, "e2e_latency": 0.001, "spec_verify_ct": 6}
    meta["spec_correct_drafts_histogram"] = [1, 1, 2, 2]
    content = {"text": "hello " * tokens, "output_ids": list(range(tokens)), "meta_info": meta}
    return json.dumps(content).encode()


def plain() -> bytes:
    body = answer(TOKENS)
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def stream() -> bytes:
    body = b"".join(b"data: " + answer(tokens) + b"\n\n" for tokens in EVENTS) + b"data: [DONE]\n\n"
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


class Instant(asyncio.Protocol):
    PLAIN, STREAM = plain(), stream()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport, self.rest = transport, b""

    def data_received(self, data: bytes) -> None:
        self.rest += data
        while (end := self.rest.find(b"\r\n\r\n")) >= 0:
            head = self.rest[:end].lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self.rest) < end + 4 + length:
                return
            body, self.rest = self.rest[end + 4 : end + 4 + length], self.rest[end + 4 + length :]
            streamed = body.find(b'"stream": true') >= 0
            self.transport.write(self.STREAM if streamed else self.PLAIN)


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Instant, "127.0.0.1", 0, backlog=4096)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
