"""The engine of the scripted server: one batch, one step at a time, and the log lines that it prints."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
import time
import zlib
from collections import deque
from dataclasses import dataclass, field

VOCABULARY = 32_000


def say(text: str, *, stamp: bool = True) -> None:
    head = time.strftime("[%Y-%m-%d %H:%M:%S] ") if stamp else ""
    # SGLang's lines go through logging, which lives on where nothing can be written.
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{head}{text}\n")
        sys.stderr.flush()


@dataclass
class Request:
    rid: str
    ids: list[int]
    prompt_tokens: int
    stops_itself: bool
    accepts: list[int]
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    done: int = 0
    verify_ct: int = 0
    histogram: list[int] = field(default_factory=list)
    gone: bool = False

    @property
    def finished(self) -> bool:
        return self.done >= len(self.ids)

    def step(self, *, speculative: bool) -> int:
        before = self.done
        correct = 0
        if speculative and before:
            correct = self.accepts[self.verify_ct % len(self.accepts)]
            self.histogram[correct] += 1
            self.verify_ct += 1
        self.done = min(len(self.ids), self.done + 1 + correct)
        self.changed.set()
        return self.done - before


class Engine:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.steps = (options.speculative_num_steps or 3) if options.speculative_algorithm else 0
        self.draft_tokens = options.speculative_num_draft_tokens or self.steps + 1
        self.limit = options.max_running_requests or (48 if self.steps else 1 << 30)
        self.running: list[Request] = []
        self.waiting: deque[Request] = deque()
        self.wake = asyncio.Event()
        self.slower = 1
        self.frozen = False
        self.totals = dict.fromkeys(("generation_tokens", "prompt_tokens", "num_requests", "spec_verify_calls"), 0)
        self.forget()

    def forget(self) -> None:
        self.window = [0, 0, 0]  # tokens, decode tokens, verify steps
        self.num_steps = 0
        self.since = time.monotonic()
        self.last_speed = 0.0
        self.accept_length: float | None = None

    def request(self, body: dict[str, object], rid: str) -> Request:
        prompt = body.get("input_ids") or body.get("text") or ""
        sampling = body.get("sampling_params") or {}
        assert isinstance(sampling, dict)
        seed = zlib.crc32(json.dumps(prompt).encode())
        limit, within = int(sampling.get("max_new_tokens", 128)), self.options.stop_within
        natural = 1 + seed % within if within and not sampling.get("ignore_eos") else limit + 1
        ids = [(seed + 31 * i * i + 17 * i) % VOCABULARY for i in range(min(limit, natural))]
        length = len(prompt) if isinstance(prompt, list) else len(str(prompt).split())
        request = Request(rid, ids, length, natural <= limit, self._accepts(), histogram=[0] * (self.steps + 1))
        self.waiting.append(request)
        self.wake.set()
        return request

    def _accepts(self) -> list[int]:
        forced = float(os.environ.get("SGLANG_SIMULATE_ACC_LEN", "-1"))
        if forced >= 1:
            return [min(self.steps, round(forced) - 1)]
        if self.options.accepts:
            return [min(self.steps, int(number)) for number in self.options.accepts.split(",")]
        return list(range(self.steps + 1))

    async def run(self) -> None:
        while True:
            if self.frozen or not (self.running or self.waiting):
                self.wake.clear()
                await self.wake.wait()
                continue
            await self._prefill()
            await asyncio.sleep(self.options.step_ms * self.slower / 1000)
            self._decode()

    async def _prefill(self) -> None:
        while self.waiting and len(self.running) < self.limit:
            request = self.waiting.popleft()
            if self.options.prefill_ms:
                await asyncio.sleep(self.options.prefill_ms * self.slower / 1000)
            self.window[0] += request.step(speculative=False)
            say(
                f"Prefill batch, #new-seq: 1, #new-token: {request.prompt_tokens}, #cached-token: 0, token usage: 0.00,"
                f" #running-req: {len(self.running)}, #queue-req: {len(self.waiting)}, #pending-token: 0, "
                "cuda graph: False, input throughput (token/s): 100.00"
            )
            self.running.append(request)
        self._settle()

    def _decode(self) -> None:
        if not self.running:
            return
        for request in self.running:
            tokens = request.step(speculative=bool(self.steps))
            self.window = [self.window[0] + tokens, self.window[1] + tokens, self.window[2] + 1]
        self.num_steps += 1
        if self.num_steps % self.options.decode_log_interval == 0:
            self._report()
        self._settle()

    def _settle(self) -> None:
        for request in [r for r in self.running if r.finished or r.gone]:
            self.running.remove(request)
            self.totals["generation_tokens"] += request.done
            self.totals["prompt_tokens"] += request.prompt_tokens
            self.totals["num_requests"] += 1
            self.totals["spec_verify_calls"] += request.verify_ct

    def _report(self) -> None:
        now = time.monotonic()
        tokens, decoded, verified = self.window
        self.last_speed = tokens / max(now - self.since, 1e-6)
        self.window, self.since = [0, 0, 0], now
        accept = ""
        if self.steps and verified:
            self.accept_length = decoded / verified
            rate = (self.accept_length - 1) / max(self.draft_tokens - 1, 1)
            accept = f"accept len: {self.accept_length:.2f}, accept rate: {rate:.2f}, "
        held = sum(r.prompt_tokens + r.done for r in self.running)
        graph = not self.options.disable_cuda_graph
        say(
            f"Decode batch, #running-req: {len(self.running)}, #token: {held}, token usage: 0.00, {accept}"
            f"cuda graph: {graph}, gen throughput (token/s): {self.last_speed:.2f}, #queue-req: {len(self.waiting)}"
        )
