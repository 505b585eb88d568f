"""Starts the embedded engine as a process of its own, on a tiny random model."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

START_S = 90


@dataclass(frozen=True, slots=True)
class Running:
    process: subprocess.Popen[bytes]
    url: str
    log: Path

    def generate(self, **changes: object) -> dict[str, Any]:
        reply = httpx.post(f"{self.url}/generate", json=body(**changes), timeout=60)
        assert reply.status_code == 200, reply.text
        return dict(reply.json())

    def text(self) -> str:
        return self.log.read_text()


def body(count: int = 24, **changes: object) -> dict[str, object]:
    params = {"temperature": 0, "max_new_tokens": count, "ignore_eos": True}
    return {"input_ids": [3, 1, 4, 1, 5], "sampling_params": params, **changes}


@contextmanager
def engine(folder: Path, argv: Sequence[str], env: Mapping[str, str]) -> Iterator[Running]:
    """Yield once the engine is ready; it is killed at the end if it still runs."""
    log = folder / "server.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "workbench.reference", "--port", "0", *argv], stderr=file, env=dict(env)
        )
    try:
        yield Running(process, _wait_until_ready(process, log), log)
    finally:
        process.kill()
        process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        text = log.read_text()
        if "fired up and ready to roll" in text:
            address = re.search(r"running on (http://\S+)", text)
            assert address is not None
            return address[1]
        assert process.poll() is None, text
        time.sleep(0.05)
    raise AssertionError(f"not ready after {START_S} s: {log.read_text()}")


def stream(url: str, content: Mapping[str, object]) -> list[dict[str, Any]]:
    """Chunks of a streamed reply; it must end with [DONE]."""
    with httpx.stream("POST", f"{url}/generate", json={**content, "stream": True}, timeout=60) as reply:
        lines = [line.removeprefix("data: ") for line in reply.iter_lines() if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]
