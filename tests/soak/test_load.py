"""The client for ten minutes, a log of 5 GB, an index of 5,000 pages. `make soak`; figures go to build/soak.jsonl."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from workbench.index import build_index, read_entries
from workbench.paths import recorded_dir
from workbench.summary import SUMMARY_SUFFIX

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MINUTES = float(os.environ.get("WORKBENCH_LOAD_MINUTES", "10"))
LOG_GB = float(os.environ.get("WORKBENCH_LOG_GB", "5"))
IN_FLIGHT = 2_500
QUIET = 0.15  # of the cores' time for others: above it the machine's business shows in latencies
MEAN_S = 4.995  # of a request, see timed_server.py

pytestmark = [pytest.mark.soak, pytest.mark.xdist_group("load"), pytest.mark.timeout(60 * MINUTES + 3600)]


def report(**figures: object) -> None:
    path = ROOT / "build" / "soak.jsonl"
    path.parent.mkdir(exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"date": time.strftime("%Y-%m-%d"), "cores": os.cpu_count(), **figures}) + "\n")


# --- the client --------------------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[tuple[str, str]]:
    """Port and process of the server."""
    command = [sys.executable, str(HERE / "timed_server.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), str(process.pid)
        process.kill()


def test_2500_requests_in_flight(server: tuple[str, str]) -> None:
    """No request is lost, memory grows by the records alone, and latencies are the server's own all the time.

    A closed loop: what a slow answer delays is not measured as waiting, and no rate of arrivals is claimed.
    """
    count = int(60 * MINUTES * IN_FLIGHT / MEAN_S)
    port, pid = server
    command = [sys.executable, str(HERE / "one_load.py"), port, str(IN_FLIGHT), str(count), pid]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    _, before, early, _ = next(sample for sample in found["samples"] if sample[2] >= 2 * IN_FLIGHT)
    _, after, late, _ = found["samples"][-1]
    grown = (after - before) / (late - early)
    report(
        what="client, 2,500 in flight",
        minutes=round(found["wall_s"] / 60, 1),
        requests=found["records"],
        lost=sum(found["failures"].values()),
        mib_at_first=round(before / 2**20),
        mib_at_last=round(after / 2**20),
        bytes_a_request=round(grown),
        late_ms={name: round(value, 1) for name, value in found["late_ms"].items()},
        client_cpu_share=round(found["client_cpu_share"], 2),
        others_share={name: round(value, 2) for name, value in found["others_share"].items()},
    )
    assert (found["records"], found["failures"], found["prompts_asked"]) == (count, {}, 800)
    # A request's record with its five arrivals; anything else that stayed would be more.
    assert grown < 3_000
    late_ms = found["late_ms"]
    assert late_ms["least"] > -1, "an answer was there before it was sent: the clocks disagree"
    # A clock or a queue that drifts goes on growing; but so does the wait for a processor that others take.
    if max(found["others_share"].values()) < QUIET:
        assert late_ms["second half"] < 3 * late_ms["first half"] + 100


# --- a log -------------------------------------------------------------------------------------------------------

_RUN = """
import json, sys
from pathlib import Path
from workbench.cli import main
code = main(sys.argv[1:])
# Not ru_maxrss: that still holds the peak of the process that was forked.
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(json.dumps({"code": code, "mib": int(peak.split()[1]) // 1024}), file=sys.stderr)
"""


def in_own_process(*arguments: str) -> tuple[float, int]:
    """Seconds and MiB of a command."""
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", _RUN, *arguments], capture_output=True, text=True, check=False)
    said = json.loads(done.stderr.splitlines()[-1])
    assert said["code"] == 0, done.stderr[-2000:]
    return time.monotonic() - began, said["mib"]


def write_log(path: Path, gb: float) -> Path:
    """Decode and access lines of a recorded log in turn, again and again."""
    (source,) = (recorded_dir() / "h200_step_cost" / "_servers" / "baseline-default").glob("*.gz")
    lines = gzip.decompress(source.read_bytes()).splitlines(keepends=True)
    decode = [line for line in lines if b"Decode batch" in line]
    access = [line for line in lines if b"HTTP/1.1" in line]
    block = b"".join(line for pair in zip(decode, access, strict=False) for line in pair)
    with path.open("wb") as file:
        while file.tell() < gb * 1e9:
            file.write(block)
    return path


def test_a_log_of_5_gb(tmp_path: Path) -> None:
    """Parsed in memory that does not depend on its size; the table of a diagnosis grows by the decode line."""
    small, large = (write_log(tmp_path / f"{gb:g}.log", gb) for gb in (LOG_GB / 50, LOG_GB))
    out = str(tmp_path / "out.csv")
    _, at_small = in_own_process("parse", str(small), "--out", out)
    seconds, at_large = in_own_process("parse", str(large), "--out", out)
    large.unlink()
    half = write_log(tmp_path / "half.log", LOG_GB / 10)
    judged_s, judged_mib = in_own_process("diagnose", str(half))
    lines = half.read_bytes().count(b"Decode batch")
    report(
        what="a log",
        gb=LOG_GB,
        parse_s=round(seconds),
        parse_mb_per_s=round(LOG_GB * 1000 / seconds, 1),
        parse_mib={"small": at_small, "large": at_large},
        diagnose_gb=LOG_GB / 10,
        diagnose_s=round(judged_s),
        diagnose_mib=judged_mib,
        decode_lines=lines,
    )
    assert at_large < 1.2 * at_small + 50
    assert (judged_mib - 200) * 2**20 < 600 * lines + (200 << 20)


# --- the index ---------------------------------------------------------------------------------------------------


def test_an_index_of_5000_pages(tmp_path: Path) -> None:
    pages = 5_000
    for number in range(pages):
        summary = {
            "kind": "report",
            "title": f"Report {number % 5}",
            "notebook": f"2{number % 4}_report.ipynb",
            "campaign": f"campaign-{number // 10}",
            "status": "ok",
            "finished_at": f"2026-11-{1 + number % 30:02}T12:00:00+00:00",
            "answer": "Speculation pays at concurrency 1: 1.38x (95 % 1.12-1.71).",
        }
        (tmp_path / f"page-{number}.html").write_text("<!doctype html><title>page</title>")
        (tmp_path / f"page-{number}{SUMMARY_SUFFIX}").write_text(json.dumps(summary))
    entries, problems = read_entries(tmp_path)
    assert (len(entries), problems) == (pages, [])
    began = time.monotonic()
    index = build_index(tmp_path)
    seconds = time.monotonic() - began
    size = index.stat().st_size
    report(what="index", pages=pages, seconds=round(seconds, 1), mb=round(size / 1e6, 1))
    assert index.read_text().count("page-4999.html") >= 1
    assert seconds < 60
