"""Speed and memory of reading server logs, beside what one would do by hand. `make bench`; prints a JSON line."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from log_samples import recorded

from workbench.files import read_chunks
from workbench.parse.records import DecodeRecord, LogEvent
from workbench.parse.server_log import FactsBuilder, iter_records
from workbench.table.logs import summarise_log

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(900)]

SPEED_BYTES = 20_000_000
MIXED_BYTES = int(os.environ.get("WORKBENCH_BENCH_MB", "400")) * 1_000_000
MEMORY_BYTES = (20_000_000, 200_000_000)
ROUNDS = 2

ONE_REGEX = re.compile(
    rb"#running-req: (\d+), #token: (\d+), token usage: ([\d.]+), accept len: ([\d.]+), accept rate: ([\d.]+), "
    rb"cuda graph: (True|False), gen throughput \(token/s\): ([\d.]+), #queue-req: (\d+)"
)


def log_chunks(size: int) -> Iterator[bytes]:
    """A start and then the batch and access lines of a recorded log again and again, about ``size`` bytes."""
    log = recorded("eagle-flag")
    begin = log.index(b"Prefill batch")
    begin = log.rindex(b"\n", 0, begin) + 1
    yield log[:begin]
    body = log[begin:]
    for _ in range(max(1, (size - begin) // len(body))):
        yield body


def by_one_regex(data: bytes) -> int:
    """The loop that everybody writes first: decode lines of one layout, eight numbers each."""
    found = []
    for line in data.split(b"\n"):
        match = ONE_REGEX.search(line)
        if match is not None:
            ints = int(match[1]), int(match[2]), int(match[8])
            floats = float(match[3]), float(match[4]), float(match[5]), float(match[7])
            found.append((*ints, *floats, match[6] == b"True"))
    return len(found)


def by_parser(data: bytes) -> int:
    facts, decode = FactsBuilder(), 0
    for record in iter_records([data]):
        facts.feed(record)
        decode += isinstance(record, DecodeRecord)
    assert facts.facts().draft_tokens_effective == 4
    return decode


def best_seconds(run: Callable[[], int]) -> tuple[float, int]:
    """Processor time of the quickest round, so that other work on the machine counts less."""
    times, result = [], 0
    for _ in range(ROUNDS):
        start = time.process_time()
        result = run()
        times.append(time.process_time() - start)
    return min(times), result


def grep_seconds(path: Path) -> tuple[float, int] | None:
    grep = shutil.which("grep")
    if grep is None:
        return None
    start = time.perf_counter()
    answer = subprocess.run([grep, "-c", "Decode batch", str(path)], capture_output=True, text=True, check=True)
    return time.perf_counter() - start, int(answer.stdout)


def report(**figures: object) -> None:
    sys.stdout.write("\n" + json.dumps({"benchmark": "parse", **figures}) + "\n")


def mixed_log(path: Path, size: int) -> Path:
    """Half decode lines, half access lines, by bytes, behind the start of a recorded log."""
    log = recorded("eagle-flag")
    decode = [line + b"\n" for line in log.split(b"\n") if b"Decode batch" in line]
    body, sizes, number = [], [0, 0], 0
    while sum(sizes) < min(size, SPEED_BYTES):
        access = b'[2026-01-05 10:00:00] INFO:     127.0.0.1:%d - "POST /generate HTTP/1.1" 200 OK\n' % (
            40_000 + number
        )
        line, kind = (decode[number % len(decode)], 0) if sizes[0] <= sizes[1] else (access, 1)
        body.append(line)
        sizes[kind] += len(line)
        number = (number + 1) % 20_000
    part = b"".join(body)
    with path.open("wb") as file:
        file.write(log[: log.rindex(b"\n", 0, log.index(b"Prefill batch")) + 1])
        for _ in range(max(1, size // len(part))):
            file.write(part)
    return path


def timed_loop(path: Path) -> int:
    with path.open("rb") as file:
        return sum(by_one_regex(line) for line in file)


def by_summary(path: Path) -> int:
    return len(summarise_log(read_chunks(path), name="benchmark").windows)


def by_records(path: Path) -> int:
    return sum(isinstance(record, DecodeRecord) for record in iter_records(read_chunks(path)))


def test_speed(tmp_path: Path, bench) -> None:  # type: ignore[no-untyped-def]
    path = mixed_log(tmp_path / "server.log", MIXED_BYTES)
    megabytes = path.stat().st_size / 1e6
    loop, matched = best_seconds(lambda: timed_loop(path))
    grep = grep_seconds(path)
    title = f"Reading a log of {megabytes:,.0f} MB, half decode lines and half access lines"
    ratios = {}
    for what, read in (("to records", by_records), ("to the table of windows", by_summary)):
        seconds, decode = best_seconds(lambda read=read: read(path))  # type: ignore[misc]
        assert decode == matched
        ratios[what] = loop / seconds
        bench.add("parse", title, what=f"workbench, {what}", MB_per_s=megabytes / seconds, over_the_loop=loop / seconds)
    what = "a loop with one regular expression a line"
    bench.add("parse", title, what=what, MB_per_s=megabytes / loop, over_the_loop=1.0)
    if grep is not None:
        assert grep[1] == matched
        bench.add("parse", title, what="grep -c", MB_per_s=megabytes / grep[0], over_the_loop=loop / grep[0])
    report(
        what="speed", megabytes=round(megabytes), decode_lines=matched, **{k: round(v, 2) for k, v in ratios.items()}
    )


def test_speed_on_a_log_that_is_mostly_noise() -> None:
    line = b'[2026-01-05 10:00:00] INFO:     127.0.0.1:45678 - "POST /generate HTTP/1.1" 200 OK\n'
    odd = b"[2026-01-05 10:00:00] Using default HuggingFace chat template with detected content format: string\n"
    data = (line * 9 + odd) * (SPEED_BYTES // (9 * len(line) + len(odd)))
    parser, found = best_seconds(lambda: sum(1 for _ in iter_records([data])))
    assert found == 0
    report(what="noise", megabytes=round(len(data) / 1e6, 1), parser_mb_per_s=round(len(data) / 1e6 / parser, 1))


PEAK = """
import sys
from pathlib import Path
sys.path[:0] = [{tests!r}, {benchmarks!r}]
from bench_parse import log_chunks
from workbench.parse.server_log import CountsBuilder, FactsBuilder, iter_records
counts, facts = CountsBuilder(), FactsBuilder()
for record in iter_records(log_chunks({size}), counts):
    facts.feed(record)
# Not ru_maxrss: that still holds the peak of the process that was forked.
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(counts.bytes, peak.split()[1])
"""


def peak_kib(size: int) -> tuple[int, int]:
    here = Path(__file__).parent
    code = PEAK.format(tests=str(here.parent), benchmarks=str(here), size=size)
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    read, peak = answer.stdout.split()
    return int(read), int(peak)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_memory_does_not_grow_with_the_log() -> None:
    (small_size, small), (large_size, large) = (peak_kib(size) for size in MEMORY_BYTES)
    assert large_size > 9 * small_size
    report(what="memory", small_mb=small_size // 10**6, large_mb=large_size // 10**6, small_kib=small, large_kib=large)
    # The allowance is a few chunks.
    assert large - small < 8_000


def test_memory_does_not_grow_with_a_line() -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(100):
            yield b"[2026-01-05 10:00:00] Decode batch, #running-req: 1, " * 20_000

    assert [r for r in iter_records(endless()) if not isinstance(r, LogEvent)]
