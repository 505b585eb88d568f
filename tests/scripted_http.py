"""The endpoints of the scripted server, with the faults of single requests."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
from dataclasses import dataclass
from itertools import count

from scripted_engine import Engine, Request, say

SLOWER = 10
TRACEBACK = 'Traceback (most recent call last):\n  File "/opt/sglang/srt/managers/scheduler.py", line 3011, in run\n'
SIGQUIT = "Received sigquit from a child process. It usually means the child failed."
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. "
    "GPU 0 has a total capacity of 139.81 GiB of which 3.10 GiB is free."
)


@dataclass(frozen=True)
class Fault:
    kind: str
    first: int = 1
    last: int | None = None
    every: int = 1

    def fits(self, number: int) -> bool:
        inside = number >= self.first and (self.last is None or number <= self.last)
        return inside and number % self.every == 0


def read_fault(text: str) -> Fault:
    match = re.fullmatch(r"([a-z0-9-]+)(?:@(\d+)(\+?)|%(\d+))?", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"not a fault: {text!r}")
    kind, at, onwards, every = match.groups()
    if every:
        return Fault(kind, every=int(every))
    return Fault(kind, int(at or 1), None if onwards or not at else int(at))


class Server:
    def __init__(self, options: argparse.Namespace, arguments: dict[str, object]) -> None:
        self.options, self.arguments = options, arguments
        self.engine = Engine(options)
        self.ready = False
        self.numbers = count(1)
        self.leaked: list[bytearray] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection's requests until it closes."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while (line := await reader.readline()).strip():
                method, path, _ = line.decode("latin-1").split(" ", 2)
                length = 0
                while (header := await reader.readline()).strip():
                    name, _, value = header.decode("latin-1").partition(":")
                    length = int(value) if name.lower() == "content-length" else length
                await self.answer(writer, method, path, await reader.readexactly(length))
        writer.close()

    async def answer(self, writer: asyncio.StreamWriter, method: str, path: str, body: bytes) -> None:
        if self.engine.frozen or self.options.start_fault == "deaf":
            await asyncio.sleep(3600)
        path = path.partition("?")[0]
        status = 200
        if method == "POST" and path == "/generate":
            status = await self.generate(writer, json.loads(body))
        elif path in ("/health", "/health_generate"):
            status = 200 if self.ready else 503
            self.send(writer, status, "")
        elif path in ("/server_info", "/get_server_info"):
            self.send(writer, 200, self.server_info())
        elif path in ("/model_info", "/get_model_info"):
            self.send(writer, 200, {"model_path": self.arguments.get("model_path"), "is_generation": True})
        elif path == "/flush_cache":
            status = self.flush(writer)
        elif path == "/metrics" and self.options.enable_metrics:
            self.send(writer, 200, self.metrics())
        else:
            status = 404
            self.send(writer, 404, {"detail": "Not Found"})
        await writer.drain()
        reason = {200: "OK", 500: "Internal Server Error", 503: "Service Unavailable"}.get(status, "Bad Request")
        say(f'INFO:     127.0.0.1:50000 - "{method} {path} HTTP/1.1" {status} {reason}')

    def send(self, writer: asyncio.StreamWriter, status: int, content: object) -> None:
        text = content if isinstance(content, str) else json.dumps(content)
        kind = "text/plain" if isinstance(content, str) else "application/json"
        data = text.encode()
        head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n"
        writer.write(head.encode() + data)

    def flush(self, writer: asyncio.StreamWriter) -> int:
        busy = bool(self.engine.running or self.engine.waiting)
        if busy:
            say("Cache not flushed because there are pending requests. #queue-req: 0, #running-req: 1")
        else:
            self.engine.forget()
            say("Cache flushed successfully!")
        self.send(writer, 400 if busy else 200, "Cache flushed.\n" if not busy else "Flush cache failed.\n")
        return 400 if busy else 200

    def server_info(self) -> dict[str, object]:
        state: dict[str, object] = {"last_gen_throughput": self.engine.last_speed}
        if self.engine.accept_length is not None:
            state["avg_spec_accept_length"] = self.engine.accept_length
        return {
            **self.arguments,
            "version": self.options.version,
            "max_total_num_tokens": 100_000,
            "internal_states": [state],
        }

    def metrics(self) -> str:
        engine = self.engine
        values = {f"{name}_total": value for name, value in engine.totals.items()}
        values |= {"num_running_reqs": len(engine.running), "num_queue_reqs": len(engine.waiting)}
        return "".join(f'sglang:{name}{{model_name="m",tp_rank="0"}} {float(v)}\n' for name, v in values.items())

    # --- /generate ---

    async def generate(self, writer: asyncio.StreamWriter, body: dict[str, object]) -> int:
        number = next(self.numbers)
        kind = next((fault.kind for fault in self.options.fault if fault.fits(number)), "")
        stream = bool(body.get("stream"))
        if kind in ("die", "oom"):
            if kind == "oom":
                say(f"Scheduler hit an exception: {TRACEBACK}{OOM}\n")
                say(SIGQUIT)
            os._exit(1)
        if kind == "hang":
            self.engine.frozen = True
            await asyncio.sleep(3600)
        if kind == "leak":
            self.leak()
        if kind == "slow":
            self.engine.slower = SLOWER
        if kind in ("http500", "http503"):
            self.send(writer, int(kind[4:]), "Internal Server Error")
            return int(kind[4:])
        if kind == "empty":
            self.send(writer, 200, "")
            return 200
        if stream:
            return await self.stream(writer, self.engine.request(body, f"{number:032x}"), kind)
        if kind in ("stall", "close"):
            await self.break_off(writer, kind)
        request = self.engine.request(body, f"{number:032x}")
        while not request.finished and kind not in ("error", "abort"):
            request.changed.clear()
            await request.changed.wait()
        answer = self.faulty(kind, self.chunk(request, 0, aborted=kind == "abort"))
        self.send(writer, 400 if kind == "error" else 200, answer)
        return 400 if kind == "error" else 200

    def leak(self) -> None:
        try:
            self.leaked.append(bytearray(64 << 20))
        except MemoryError:
            self.leaked.clear()
            say(f"Scheduler hit an exception: {TRACEBACK}MemoryError\n")
            say(SIGQUIT)
            os._exit(1)

    async def stream(self, writer: asyncio.StreamWriter, request: Request, kind: str) -> int:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        sent = 0
        try:
            for event in count():
                while not request.finished and request.done <= sent:
                    request.changed.clear()
                    await request.changed.wait()
                start = sent if self.options.incremental_streaming_output else 0
                chunk = self.chunk(request, start, aborted=kind == "abort")
                text = self.faulty(kind, chunk) if event > 0 or kind in ("error", "not-json", "no-meta") else chunk
                self.event(writer, text)
                await writer.drain()
                sent = request.done
                if kind in ("stall", "close") and event == 0:
                    await self.break_off(writer, kind)
                if request.finished or kind in ("error", "abort"):
                    break
        finally:
            request.gone = True
        self.event(writer, "[DONE]")
        writer.write(b"0\r\n\r\n")
        return 200

    @staticmethod
    def event(writer: asyncio.StreamWriter, content: object) -> None:
        text = content if isinstance(content, str) else json.dumps(content)
        data = f"data: {text}\n\n".encode()
        writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    @staticmethod
    async def break_off(writer: asyncio.StreamWriter, kind: str) -> None:
        if kind == "stall":
            await asyncio.sleep(3600)
        writer.close()
        raise ConnectionResetError

    @staticmethod
    def faulty(kind: str, answer: dict[str, object]) -> object:
        match kind:
            case "half-json":
                return json.dumps(answer)[:-20]
            case "not-json":
                return "<html>bad gateway</html>"
            case "no-meta":
                return {"text": answer["text"]}
            case "error":
                return {"error": {"message": "the scripted error", "type": "BadRequestError", "code": 400}}
        return answer

    def chunk(self, request: Request, start: int, *, aborted: bool) -> dict[str, object]:
        done = 0 if aborted else request.done
        ids = request.ids[start:done]
        reason: dict[str, object] | None = None
        if aborted:
            reason = {"type": "abort", "message": "the scripted abort", "status_code": 400}
        elif request.finished:
            by_itself = request.stops_itself
            reason = {"type": "stop", "matched": 2} if by_itself else {"type": "length", "length": done}
        meta: dict[str, object] = {
            "id": request.rid,
            "finish_reason": reason,
            "prompt_tokens": request.prompt_tokens,
            "completion_tokens": done,
            "cached_tokens": 0,
        }
        if request.verify_ct:
            name = "spec_accept_histogram" if self.options.old_fields else "spec_correct_drafts_histogram"
            meta |= {"spec_verify_ct": request.verify_ct, name: list(request.histogram)}
            meta["spec_accept_length"] = done / request.verify_ct
        return {"text": "".join(f" w{i}" for i in ids), "output_ids": ids, "meta_info": meta}
