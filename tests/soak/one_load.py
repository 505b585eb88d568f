"""One load by the client in a process of its own: python one_load.py PORT CONCURRENCY REQUESTS SERVER_PID. Prints JSON.

A thread samples once a second this process' memory, and the processor time of all others but the server.
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
    port, concurrency, count, server_pid = map(int, sys.argv[1:5])
    prompts = [Prompt(number, "", input_ids=(number,)) for number in range(800)]
    work = Workload(
        prompt_set="made", num_prompts=count, max_concurrency=concurrency, temperature=0.0, max_new_tokens=16
    )
    done = threading.Event()
    finished = 0
    samples: list[tuple[float, int, int, float]] = []

    def on_record(_: object) -> None:
        nonlocal finished
        finished += 1

    def sample() -> None:
        process, server, began = psutil.Process(), psutil.Process(server_pid), time.monotonic()
        while not done.wait(1.0):
            others = busy_s() - sum(sum(each.cpu_times()[:2]) for each in (process, server))
            samples.append((time.monotonic() - began, process.memory_info().rss, finished, others))

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
        "others_share": {"first half": share(samples, 0, half), "second half": share(samples, half, result.wall_s)},
        "samples": samples,
    }
    sys.stdout.write(json.dumps(figures) + "\n")


def busy_s() -> float:
    """Processor seconds of the whole machine since it started."""
    times = psutil.cpu_times()
    return sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0)


def share(samples: list[tuple[float, int, int, float]], since: float, until: float) -> float:
    """Of all cores' time, what neither client nor server took."""
    inside = [(at, others) for at, _, _, others in samples if since <= at <= until]
    if len(inside) < 2:
        return 0.0
    (began, first), (ended, last) = inside[0], inside[-1]
    return (last - first) / (ended - began) / (psutil.cpu_count() or 1)


if __name__ == "__main__":
    main()
