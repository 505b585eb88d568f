"""One load by the client in a process of its own: python one_load.py PORT CONCURRENCY REQUESTS. Prints JSON.

A thread samples this process' memory once a second.
"""

from __future__ import annotations

import json
import statistics
import sys
import threading
import time

import psutil

from workbench.load import drive
from workbench.prompts import Prompt
from workbench.spec import Workload


def main() -> None:
    port, concurrency, count = map(int, sys.argv[1:4])
    prompts = [Prompt(number, "", input_ids=(number,)) for number in range(800)]
    work = Workload(
        prompt_set="made", num_prompts=count, max_concurrency=concurrency, temperature=0.0, max_new_tokens=16
    )
    done = threading.Event()
    finished = 0
    samples: list[tuple[float, int, int]] = []

    def on_record(_: object) -> None:
        nonlocal finished
        finished += 1

    def sample() -> None:
        process, began = psutil.Process(), time.monotonic()
        while not done.wait(1.0):
            samples.append((time.monotonic() - began, process.memory_info().rss, finished))

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    result = drive(f"http://127.0.0.1:{port}", prompts, work, stream=True, on_record=on_record)
    done.set()
    thread.join()
    late = [
        (record.finished_s, record.latency_s - record.e2e_latency_s)
        for record in result.records
        if record.e2e_latency_s is not None
    ]
    half = result.wall_s / 2
    figures = {
        "records": len(result.records),
        "failures": dict(result.failures),
        "wall_s": result.wall_s,
        "client_cpu_share": result.client_cpu_share,
        "prompts_asked": len({record.prompt_index for record in result.records}),
        "late_ms": {
            "first half": 1000 * statistics.median(late_s for at, late_s in late if at < half),
            "second half": 1000 * statistics.median(late_s for at, late_s in late if at >= half),
            "99 %": 1000 * statistics.quantiles((late_s for _, late_s in late), n=100)[-1],
            "least": 1000 * min(late_s for _, late_s in late),
        },
        "samples": samples,
    }
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
