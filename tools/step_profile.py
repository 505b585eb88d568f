"""Where a decode step's time goes: SGLang's own profiler for some steps of one stream, reduced to a short account.

    python tools/step_profile.py URL --target DIR --out FILE --trace-dir DIR [--steps 40]

The server must run on this machine. Profiling slows the host side down: ``cycle_ms`` here is longer than in a run
without it; what holds is the time in which the GPU worked, and which calls the host spent its time on.
"""

from __future__ import annotations

import argparse
import gzip
import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from workbench.chat import load_chat
from workbench.errors import LaunchError
from workbench.load import drive
from workbench.load.wire import run_async
from workbench.prompts import prompt_set, with_token_ids
from workbench.spec import Workload

GPU_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
RUNTIME = ("cuda_runtime", "cuda_driver")
SHOWN = 12
WAIT_S = 90.0


def main() -> None:
    asked = _arguments()
    chat = load_chat(asked.target)
    prompts = with_token_ids(
        prompt_set("mt_bench").prompts[:6], lambda text: chat.prompt_ids([{"role": "user", "content": text}])
    )
    workload = Workload(prompt_set="mt_bench", num_prompts=6, temperature=0, max_new_tokens=2048, ignore_eos=True)
    load = threading.Thread(target=drive, args=(asked.url, prompts, workload))
    load.start()
    time.sleep(1.0)
    account = {"steps": asked.steps}
    for with_stack in (False, True):
        before = set(asked.trace_dir.rglob("*.json.gz"))
        _start(asked.url, asked.trace_dir, asked.steps, with_stack=with_stack)
        events = json.loads(gzip.decompress(_await_trace(asked.trace_dir, before).read_bytes()))["traceEvents"]
        account |= {"python": python_calls(events, asked.steps)} if with_stack else reduce(events, asked.steps)
        asked.out.write_text(json.dumps(account, indent=1) + "\n", encoding="utf-8")
    load.join()


def reduce(events: Iterable[dict[str, Any]], steps: int) -> dict[str, Any]:
    """Times a step in ms: from first to last GPU work, in which the GPU worked, by kernel, by call of the runtime."""
    gpu: list[tuple[float, float]] = []
    kernels: dict[str, list[float]] = defaultdict(list)
    calls: dict[str, list[float]] = defaultdict(list)
    for event in events:
        if event.get("ph") != "X":
            continue
        start, took = float(event["ts"]), float(event.get("dur", 0))
        if event.get("cat") in GPU_WORK:
            gpu.append((start, start + took))
            kernels[str(event["name"])[:80]].append(took)
        elif event.get("cat") in RUNTIME:
            calls[str(event["name"])].append(took)
    if not gpu:
        return {"cycle_ms": None, "gpu_busy_ms": None, "kernels": [], "runtime_calls": []}
    span = max(end for _, end in gpu) - min(start for start, _ in gpu)
    return {
        "cycle_ms": span / steps / 1000,
        "gpu_busy_ms": busy(gpu) / steps / 1000,
        "kernels_a_step": len(gpu) / steps,
        "kernels": _longest(kernels, steps),
        "runtime_calls": _longest(calls, steps),
    }


def python_calls(events: Iterable[dict[str, Any]], steps: int) -> list[dict[str, Any]]:
    """Functions of the scheduler's Python by the time spent in them, callees included. Tracing makes all slower."""
    spent: dict[str, list[float]] = defaultdict(list)
    for event in events:
        if event.get("ph") == "X" and event.get("cat") == "python_function":
            spent[str(event["name"])[-100:]].append(float(event.get("dur", 0)))
    return _longest(spent, steps, shown=60)


def busy(spans: Sequence[tuple[float, float]]) -> float:
    """Length of the union of spans."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def _longest(durations: dict[str, list[float]], steps: int, shown: int = SHOWN) -> list[dict[str, Any]]:
    order = sorted(durations.items(), key=lambda item: -sum(item[1]))[:shown]
    return [{"name": name, "ms_a_step": sum(took) / steps / 1000, "a_step": len(took) / steps} for name, took in order]


def _start(url: str, folder: Path, steps: int, *, with_stack: bool) -> None:
    async def post() -> int:
        body = {"output_dir": str(folder), "num_steps": steps, "activities": ["CPU", "GPU"], "with_stack": with_stack}
        async with aiohttp.ClientSession() as session, session.post(f"{url}/start_profile", json=body) as answer:
            return answer.status

    status = run_async(post)
    if status != 200:
        raise LaunchError(f"/start_profile answered {status}", where=url)


def _await_trace(folder: Path, before: set[Path]) -> Path:
    deadline, size = time.monotonic() + WAIT_S, -1
    while time.monotonic() < deadline:
        for trace in set(folder.rglob("*.json.gz")) - before:
            if trace.stat().st_size == size > 0:
                return trace
            size = trace.stat().st_size
        time.sleep(1.0)
    raise LaunchError("no trace was written", where=folder)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", metavar="URL")
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--trace-dir", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=40)
    asked = parser.parse_args()
    asked.url = asked.url.rstrip("/")
    asked.trace_dir.mkdir(parents=True, exist_ok=True)
    return asked


if __name__ == "__main__":
    main()
