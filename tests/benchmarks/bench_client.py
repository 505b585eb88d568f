"""How fast our client is, and with how much memory, against a server that answers at once. `make bench`.

Prints JSON lines. Three questions: which library (httpx or aiohttp), how flat is it up to 2,500 requests at once, and
how does it compare with ``sglang.bench_serving``, which comes out of SGLang's wheel (``$SGLANG_WHEEL``, or downloaded
once).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from workbench.paths import cache_dir

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(900)]

HERE = Path(__file__).parent
LEVELS = (1, 64, 512, 2500)
ROUNDS = 3
SGLANG = "0.5.14"
# Requests a run: httpx takes 20 times as long, and more with every connection.
COUNTS = {"workbench": 10_000, "aiohttp": 5_000, "httpx": 1_000}


def report(**figures: object) -> None:
    sys.stdout.write("\n" + json.dumps({"benchmark": "client", **figures}) + "\n")


@pytest.fixture(scope="module")
def port() -> Iterator[str]:
    command = [sys.executable, str(HERE / "instant_server.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.kill()


def run(client: str, concurrency: int, mode: str, port: str) -> dict[str, float]:
    count = COUNTS[client] if concurrency > 1 else COUNTS[client] // 4
    arguments = [client, str(concurrency), str(count), mode, port]
    answer = subprocess.run(
        [sys.executable, str(HERE / "client_runs.py"), *arguments], capture_output=True, text=True, check=True
    )
    figures: dict[str, float] = json.loads(answer.stdout)
    report(client=client, mode=mode, concurrency=concurrency, **figures)
    return figures


@pytest.mark.parametrize("mode", ["plain", "stream"])
def test_it_is_flat_and_loses_nothing(mode: str, port: str) -> None:
    found = [run("workbench", concurrency, mode, port) for concurrency in LEVELS]
    assert all(figures["lost"] == 0 for figures in found)
    assert found[-1]["peak_mib"] < 400
    # Per processor second, so that other work on the machine counts less.
    assert found[-1]["requests_per_cpu_s"] > 0.6 * found[1]["requests_per_cpu_s"]


@pytest.mark.parametrize("mode", ["plain", "stream"])
def test_which_library(mode: str, port: str) -> None:
    pytest.importorskip("httpx")
    for concurrency in LEVELS[1:3]:
        ours, bare, other = (run(client, concurrency, mode, port) for client in COUNTS)
        assert bare["requests_per_cpu_s"] > 2 * other["requests_per_cpu_s"]
        # What we do beside the library's work: records, hashes, reading the stream.
        assert ours["requests_per_cpu_s"] > 0.5 * bare["requests_per_cpu_s"]


# --- sglang.bench_serving ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the unzipped wheel."""
    stated = os.environ.get("SGLANG_WHEEL")
    found = [Path(stated)] if stated else sorted(cache_dir().glob(f"sglang-{SGLANG}-*.whl")) or download()
    folder = tmp_path_factory.mktemp("sglang")
    with zipfile.ZipFile(found[0]) as archive:
        archive.extractall(folder)
    return folder


def download() -> list[Path]:
    platform = ["--only-binary", ":all:", "--python-version", "3.11", "--platform", "manylinux_2_34_x86_64"]
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", *platform, "--dest", str(cache_dir())]
    if subprocess.run([*pip, f"sglang=={SGLANG}"], check=False).returncode:
        pytest.skip("SGLang's wheel cannot be downloaded; name one in $SGLANG_WHEEL")
    return sorted(cache_dir().glob(f"sglang-{SGLANG}-*.whl"))


def bench_serving(wheel: Path, port: str, concurrency: int, mode: str, out: Path) -> dict[str, float]:
    """Its requests per second as it reports them, and per second of its processor time."""
    out.unlink(missing_ok=True)
    said = f"--backend sglang --host 127.0.0.1 --port {port} --model none --tokenizer none --dataset-name random-ids"
    said += f" --random-input-len 100 --random-output-len 16 --num-prompts 3000 --max-concurrency {concurrency}"
    arguments = [*said.split(), "--output-file", str(out), "--disable-tqdm"]
    arguments += ["--disable-stream"] if mode == "plain" else []
    command = [sys.executable, str(HERE / "client_runs.py"), "bench_serving", str(wheel), *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout[-2000:] + answer.stderr[-2000:]
    figures = json.loads(out.read_text())
    assert figures["completed"] == 3000
    cpu_s = json.loads(answer.stderr[answer.stderr.rindex('{"cpu_s"') :].splitlines()[0])["cpu_s"]
    return {"requests_per_s": figures["request_throughput"], "requests_per_cpu_s": 3000 / cpu_s}


@pytest.mark.parametrize("concurrency", [64, 512])
@pytest.mark.parametrize("mode", ["stream", "plain"])
def test_against_bench_serving(  # type: ignore[no-untyped-def]
    mode: str, concurrency: int, port: str, wheel: Path, tmp_path: Path, bench
) -> None:
    # In turn, the best of each: the machine may do other things meanwhile.
    out = tmp_path / "out.jsonl"
    pairs = [
        (run("workbench", concurrency, mode, port), bench_serving(wheel, port, concurrency, mode, out))
        for _ in range(ROUNDS)
    ]
    figures: dict[str, float] = {}
    for name in ("requests_per_s", "requests_per_cpu_s"):
        ours, theirs = max(pair[0][name] for pair in pairs), max(pair[1][name] for pair in pairs)
        figures |= {f"workbench_{name}": round(ours), f"bench_serving_{name}": round(theirs)}
        figures[f"ratio_{name}"] = round(ours / theirs, 2)
    report(what="bench_serving", mode=mode, concurrency=concurrency, **figures)
    bench.add(
        "client",
        f"Our client and sglang.bench_serving {SGLANG}, against a server that answers at once",
        mode=mode,
        concurrency=concurrency,
        workbench_requests_per_processor_s=figures["workbench_requests_per_cpu_s"],
        bench_serving_requests_per_processor_s=figures["bench_serving_requests_per_cpu_s"],
        ratio=figures["ratio_requests_per_cpu_s"],
        ratio_by_wall=figures["ratio_requests_per_s"],
    )
    assert figures["ratio_requests_per_cpu_s"] >= 2
