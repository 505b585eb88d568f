"""One load by one client against an instant server, in a process of its own; prints a JSON line.

python client_runs.py {workbench,aiohttp,httpx} CONCURRENCY REQUESTS {plain,stream} PORT
python client_runs.py bench_serving FOLDER [arguments of sglang.bench_serving]     (FOLDER holds the unzipped wheel)
"""

from __future__ import annotations

import asyncio
import importlib.machinery
import json
import resource
import runpy
import sys
import time
import types
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, ClassVar

PROMPT_TOKENS = 100
SAMPLING = {"temperature": 0.0, "max_new_tokens": 16, "ignore_eos": True}


def by_workbench(url: str, concurrency: int, count: int, stream: bool) -> int:
    from workbench.load import drive
    from workbench.prompts import Prompt
    from workbench.spec import Workload

    work = Workload(prompt_set="made", num_prompts=count, max_concurrency=concurrency, **SAMPLING)
    result = drive(url, [Prompt(0, "", input_ids=tuple(range(PROMPT_TOKENS)))], work, stream=stream)
    assert len(result.records) == count
    return sum(result.failures.values())


def by_library(name: str, url: str, concurrency: int, count: int, stream: bool) -> int:
    """The least that a client can do with a library: send, read, decode the JSON."""
    content = {"input_ids": list(range(PROMPT_TOKENS)), "sampling_params": SAMPLING, "stream": stream}
    body, path = json.dumps(content).encode(), url + "/generate"
    queue, lost = iter(range(count)), 0

    async def drain(ask: Callable[[], Awaitable[None]]) -> None:
        async def slot() -> None:
            nonlocal lost
            for _ in queue:
                try:
                    await ask()
                except Exception:  # noqa: BLE001 - whatever it is, the request is lost
                    lost += 1

        await asyncio.gather(*(slot() for _ in range(concurrency)))

    def decode(line: bytes | str) -> None:
        if line[:7] in (b"data: {", "data: {"):
            json.loads(line[6:])

    async def with_aiohttp() -> None:
        import aiohttp

        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

            async def ask() -> None:
                async with session.post(path, data=body) as response:
                    if stream:
                        async for line in response.content:
                            decode(line)
                    else:
                        json.loads(await response.read())

            await drain(ask)

    async def with_httpx() -> None:
        import httpx

        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        async with httpx.AsyncClient(limits=limits, timeout=600) as client:

            async def ask() -> None:
                if stream:
                    async with client.stream("POST", path, content=body) as response:
                        async for line in response.aiter_lines():
                            decode(line)
                else:
                    json.loads((await client.post(path, content=body)).content)

            await drain(ask)

    asyncio.run(with_aiohttp() if name == "aiohttp" else with_httpx())
    return lost


class WordTokenizer:
    """Stands in for a model's tokenizer: a token is a word."""

    vocab_size = 1000
    init_kwargs: ClassVar[dict[str, object]] = {}

    @classmethod
    def from_pretrained(cls, *_: object, **__: object) -> WordTokenizer:
        return cls()

    def num_special_tokens_to_add(self) -> int:
        return 0

    def encode(self, text: str, **_: object) -> list[int]:
        return [0] * len(text.split())

    def decode(self, ids: list[int]) -> str:
        return " ".join(f"w{token}" for token in ids)


def run_bench_serving(folder: Path, arguments: list[str]) -> None:
    """``sglang.bench_serving`` from a wheel, without what it imports and does not use here."""

    def stub(name: str, path: Path | None = None, **content: Any) -> None:
        module = types.ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=path is not None)
        module.__path__ = [str(path)] if path else []
        module.__dict__.update(content)
        sys.modules[name] = module

    package = folder / "sglang"
    for name in ("sglang", "sglang.srt", "sglang.srt.utils", "sglang.srt.disaggregation"):
        stub(name, folder / name.replace(".", "/"))
    assert (package / "bench_serving.py").is_file()
    stub("sglang.srt.disaggregation.utils", FAKE_BOOTSTRAP_HOST="2.2.2.2")
    stub("datasets", load_dataset=None)
    stub("pybase64")
    stub("PIL", Image=None)
    tokenizers = ("AutoProcessor", "AutoTokenizer", "PreTrainedTokenizer", "PreTrainedTokenizerBase")
    stub("transformers", **dict.fromkeys((*tokenizers, "PreTrainedTokenizerFast"), WordTokenizer))
    run = asyncio.run

    def timed(*args: Any, **options: Any) -> Any:
        """All that it does asynchronously: a warm-up request, the load, and the sums over it."""
        before = time.process_time()
        answer = run(*args, **options)
        sys.stderr.write(json.dumps({"cpu_s": time.process_time() - before}) + "\n")
        return answer

    asyncio.run = timed
    sys.argv = ["bench_serving", *arguments]
    runpy.run_module("sglang.bench_serving", run_name="__main__")


def main() -> None:
    client = sys.argv[1]
    if client == "bench_serving":
        run_bench_serving(Path(sys.argv[2]), sys.argv[3:])
        return
    concurrency, count, mode, port = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]
    url, stream = f"http://127.0.0.1:{port}", mode == "stream"
    if client == "workbench":  # its imports are no part of the load
        by_workbench(url, 1, 1, stream)
    wall, cpu = time.perf_counter(), time.process_time()
    if client == "workbench":
        lost = by_workbench(url, concurrency, count, stream)
    else:
        lost = by_library(client, url, concurrency, count, stream)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    figures = {
        "requests_per_s": round(count / wall),
        "requests_per_cpu_s": round(count / cpu),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "lost": lost,
    }
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
