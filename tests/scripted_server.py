"""A small server that speaks SGLang's log format and endpoints, and misbehaves on request. Standard library only.

Run as a real process: ``python tests/scripted_server.py --port N [options]``; in tests `running` does that and
`command` gives the command line. Answers are made up from the prompt: the same prompt gives the same
token ids with and without speculation. Log lines, ``meta_info``, ``/server_info`` and
``/metrics`` are those of SGLang 0.5.14.

SGLang's flags that are obeyed (every other flag is accepted and printed in the ``server_args`` line):
  --host --port --max-running-requests --decode-log-interval --enable-metrics --disable-cuda-graph
  --incremental-streaming-output (deltas instead of the text so far)
  --speculative-algorithm --speculative-num-steps --speculative-num-draft-tokens; $SGLANG_SIMULATE_ACC_LEN

What it does:
  --step-ms F           one decode step of the whole batch (0: as fast as it can)
  --prefill-ms F        before the first token of a request
  --accepts 2,0,1       correct drafts of a request's verify steps, in turn, cut at the number of steps
                        (default: 0, 1, ..., steps, over and over)
  --memory-mb N         the memory that it can have at most
  --stop-within N       an answer ends by itself after 1 to N tokens, by its prompt (default: only at max_new_tokens)
  --old-fields          the histogram as spec_accept_histogram, as before 0.5.12
  --version V           what /server_info says

Starting:
  --load-s F  --capture-s F  --warm-s F     how long these phases take (default 0)
  --start-fault KIND    after the load phase:
      die (exit 1 without a word)   killed (by SIGKILL)      oom, nccl, missing-file, exception (with their tracebacks)
      child-death (the lines of a dead scheduler, exit 1)    fatal-but-alive (those lines, but the process stays)
      never-ready (no ready line, /health says 503)          no-ready-line (serves, but never says it is ready)
      deaf (ready line, but nothing answers)                 silent (no log line at all, and nothing answers)
    at once: exit2 (argparse's message, exit 2)              no-module (python's message for a missing sglang, exit 1)
  A port that is taken ends it as uvicorn does, exit 1.

Processes:
  --children N          processes that sleep, ignore SIGTERM and outlive this one; their ids are in the log
  --children-session    each of them in a session of its own
  --dies-with-children  it ends as SGLang's does when one of them has died (exit 1)
  --ignore-sigterm      only SIGKILL ends it

Requests to /generate, numbered from 1 (repeatable; the first that fits counts):
  --fault KIND          every request      KIND@3  the third      KIND@3+  from the third on      KIND%4  every fourth
      http500       status 500, plain text       http503      status 503, plain text
      half-json     an answer, or the second event of a stream, cut in the middle of its JSON
      not-json      an answer, or an event, that is no JSON at all
      no-meta       JSON without meta_info       empty        status 200 and no body
      error         {"error": ...}: status 400, or in the stream with status 200
      abort         finish_reason of type abort, no tokens
      stall         never answers, or sends nothing after the first event
      close         closes the connection instead of answering, or after the first event
      slow          each step takes ten times as long from here on, for all requests
      leak          it keeps 64 MiB a request from here on, and dies when it can have no more (--memory-mb)
      die           the process ends with exit code 1      oom  the same, with the messages of a lack of GPU memory
      hang          the process lives on, but neither this nor any later request, /health included, is answered
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from itertools import pairwise
from pathlib import Path
from socket import socket

from scripted_engine import say
from scripted_http import OOM, SIGQUIT, TRACEBACK, Server, read_fault

SLEEPER = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
NCCL_TIMEOUT = (
    "[rank1]:[E226 11:16:37.170 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600077 milliseconds"
)
EXIT2 = """\
usage: launch_server.py [-h] --model-path MODEL_PATH
launch_server.py: error: ambiguous option: --cuda-graph-max-bs could match --cuda-graph-max-bs-decode, \
--cuda-graph-max-bs-prefill
"""


def command(port: int, *options: str) -> list[str]:
    return [sys.executable, "-E", __file__, "--port", str(port), *options]


@contextmanager
def running(*options: str, log: Path | None = None) -> Iterator[str]:
    """The URL of a scripted server that answers."""
    with socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (log or Path(os.devnull)).open("ab") as file:
        process = subprocess.Popen(command(port, *options), stdout=file, stderr=file)
    try:
        deadline = time.monotonic() + 20
        while not is_healthy(port):
            assert process.poll() is None and time.monotonic() < deadline, "the scripted server did not start"
            time.sleep(0.01)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def is_healthy(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


async def start(server: Server) -> None:
    """Print what a starting server prints, listen, and say that it is ready."""
    options = server.options
    if options.start_fault == "silent":
        await asyncio.sleep(3600)
    say("server_args=ServerArgs(" + ", ".join(f"{k}={v!r}" for k, v in server.arguments.items()) + ")")
    say("Load weight begin. avail mem=139.13 GB")
    await asyncio.sleep(options.load_s)
    fail_to_start(options.start_fault)
    say(
        "Load weight end. elapsed=0.65 s, type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=138.86 GB, "
        "mem usage=0.27 GB."
    )
    if server.engine.steps:
        say(
            "Load weight end. elapsed=0.1 s, type=LlamaForCausalLMEagle3, dtype=torch.bfloat16, avail mem=138 GB, "
            "mem usage=0.10 GB."
        )
    say("KV Cache is allocated. dtype: torch.bfloat16, #tokens: 100000, K size: 1.00 GB, V size: 1.00 GB")
    if not options.disable_cuda_graph:
        say("Capture target decode CUDA graph begin. backend=full, num_tokens_per_bs=1, bs=[1, 2], avail mem=69.36 GB")
        await asyncio.sleep(options.capture_s)
        say("Capture target decode CUDA graph end. elapsed=0.10 s, mem usage=0.06 GB, avail mem=69.30 GB.")
    say(
        "max_total_num_tokens=100000, chunked_prefill_size=8192, max_prefill_tokens=16384, "
        f"max_running_requests={min(server.engine.limit, 4096)}, context_len=4096, available_gpu_mem=69.30 GB"
    )
    await listen(server)
    await asyncio.sleep(options.warm_s)
    if options.start_fault == "never-ready":
        return
    server.ready = True
    if options.start_fault != "no-ready-line":
        say("The server is fired up and ready to roll!")


async def listen(server: Server) -> None:
    host, port = server.options.host, server.options.port
    say(f"INFO:     Started server process [{os.getpid()}]")
    try:
        await asyncio.start_server(server.serve, host, port, backlog=4096)
    except OSError as error:
        where = f"error while attempting to bind on address ('{host}', {port})"
        say(f"ERROR:    [Errno {error.errno}] {where}: address already in use")
        os._exit(1)
    say("INFO:     Application startup complete.")


def fail_to_start(kind: str) -> None:
    texts = {
        "oom": f"{TRACEBACK}{OOM}",
        "nccl": f"{NCCL_TIMEOUT}\n{TRACEBACK}torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:77",
        "missing-file": f"{TRACEBACK}FileNotFoundError: [Errno 2] No such file or directory: '/models/absent'",
        "exception": f"{TRACEBACK}ValueError: unsupported head size 7",
    }
    if kind in texts:
        say(f"Scheduler hit an exception: {texts[kind]}\n")
        say(SIGQUIT)
        os._exit(1)
    if kind in ("child-death", "fatal-but-alive"):
        say("Rank 0 scheduler died during initialization (exit code: -9). If exit code is -9 (SIGKILL), a common cause")
    if kind in ("child-death", "die"):
        os._exit(1)
    if kind == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "fatal-but-alive":
        time.sleep(3600)


def start_children(options: argparse.Namespace) -> list[subprocess.Popen[bytes]]:
    children = []
    for _ in range(options.children):
        child = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", SLEEPER], start_new_session=options.children_session
        )
        say(f"child pid={child.pid}")
        children.append(child)
    return children


async def die_with(children: list[subprocess.Popen[bytes]]) -> None:
    while all(child.poll() is None for child in children):
        await asyncio.sleep(0.05)
    say("Subprocess scheduler_0 (pid=1) crashed with exit code -9. Triggering SIGQUIT for cleanup...")
    say(SIGQUIT)
    os._exit(1)


def read_options() -> tuple[argparse.Namespace, dict[str, object]]:
    """The options, and SGLang's arguments as the server_args line shows them."""
    flags = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    flags.add_argument("--host", default="127.0.0.1")
    flags.add_argument("--port", type=int, required=True)
    flags.add_argument("--max-running-requests", type=int)
    flags.add_argument("--decode-log-interval", type=int, default=40)
    flags.add_argument("--speculative-algorithm")
    for name in ("--speculative-num-steps", "--speculative-num-draft-tokens"):
        flags.add_argument(name, type=int)
    for name in ("--enable-metrics", "--disable-cuda-graph", "--incremental-streaming-output"):
        flags.add_argument(name, action="store_true")
    own = argparse.ArgumentParser(parents=[flags], allow_abbrev=False)
    for name in ("step-ms", "prefill-ms", "load-s", "capture-s", "warm-s"):
        own.add_argument(f"--{name}", type=float, default=0.0)
    for name in ("old-fields", "children-session", "dies-with-children", "ignore-sigterm"):
        own.add_argument(f"--{name}", action="store_true")
    own.add_argument("--accepts")
    own.add_argument("--stop-within", type=int)
    own.add_argument("--version", default="0.5.14")
    own.add_argument("--children", type=int, default=0)
    own.add_argument("--memory-mb", type=int)
    own.add_argument("--start-fault", default="")
    own.add_argument("--fault", type=read_fault, action="append", default=[])
    options, others = own.parse_known_args()
    known = {action.dest for action in flags._actions}
    arguments: dict[str, object] = {name: value for name, value in vars(options).items() if name in known}
    for flag, value in pairwise([*others, "--"]):
        if flag.startswith("--"):
            arguments[flag[2:].replace("-", "_")] = True if value.startswith("--") else value
    return options, arguments


async def main() -> None:
    options, arguments = read_options()
    if options.start_fault == "exit2":
        sys.stderr.write(EXIT2)
        raise SystemExit(2)
    if options.start_fault == "no-module":
        sys.stderr.write(f"{sys.executable}: Error while finding module specification for 'sglang.launch_server' ")
        sys.stderr.write("(ModuleNotFoundError: No module named 'sglang')\n")
        raise SystemExit(1)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, (lambda: None) if options.ignore_sigterm else stop.set)
    if options.memory_mb:
        resource.setrlimit(resource.RLIMIT_AS, (options.memory_mb << 20,) * 2)
    children = start_children(options)
    server = Server(options, arguments)
    watching = [asyncio.create_task(die_with(children))] if options.dies_with_children else []
    tasks = [asyncio.create_task(server.engine.run()), asyncio.create_task(start(server))]
    await stop.wait()
    say("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
    for task in [*tasks, *watching]:
        task.cancel()
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main())
