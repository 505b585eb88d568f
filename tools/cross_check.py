"""Our client and sglang.bench_serving in turn against one running server, with the same prompts and limits.

    python tools/cross_check.py URL --target DIR --out FILE [--prompt-set mt_bench] [--num-prompts 32]
                                [--max-new-tokens 128] [--concurrency 1 8] [--passes 3]

Needs sglang in this Python, and a server that nobody else uses. Writes one JSON object: for every concurrency and pass
both tools' figures, and three counts of accept length: from our requests, from the server's ``/server_info``, from
bench_serving. bench_serving streams, so our client does too; a third pass without, as campaigns measure, says what
streaming costs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from workbench.chat import load_chat
from workbench.errors import LaunchError
from workbench.load import drive
from workbench.load.window import server_info
from workbench.load.wire import fetch
from workbench.prompts import Prompt, prompt_set, with_token_ids
from workbench.spec import Workload

PEER_SEED = 1
# What `python -m sglang.bench_serving` does, without importing sglang (15 s) for every pass.
PEER = """
import contextlib, json, runpy, sys, traceback
for line in sys.stdin:
    sys.argv, code = json.loads(line), 0
    with contextlib.redirect_stdout(sys.stderr):
        try:
            runpy.run_module("sglang.bench_serving", run_name="__main__", alter_sys=True)
        except SystemExit as end:
            code = end.code or 0
        except BaseException:
            traceback.print_exc()
            code = 1
    print(code, flush=True)
"""


def main() -> None:
    asked = _arguments()
    chat = load_chat(asked.target)
    texts = [
        chat.render([{"role": "user", "content": prompt.text}])
        for prompt in prompt_set(asked.prompt_set).prompts[: asked.num_prompts]
    ]
    prompts = with_token_ids([Prompt(number, text) for number, text in enumerate(texts)], chat.encode)
    found: list[dict[str, Any]] = []
    with _peer() as peer:
        _alternate(asked, peer, texts, prompts, found)


def _alternate(
    asked: argparse.Namespace,
    peer: subprocess.Popen[str],
    texts: list[str],
    prompts: tuple[Prompt, ...],
    found: list[dict[str, Any]],
) -> None:
    for concurrency in asked.concurrency:
        # More requests where many run at once: filling and emptying the slots must not weigh.
        rounds = max(1, -(-concurrency * asked.prompts_per_slot // len(prompts)))
        workload = Workload(
            prompt_set=asked.prompt_set,
            num_prompts=rounds * len(prompts),
            temperature=0,
            max_new_tokens=asked.max_new_tokens,
            ignore_eos=False,
            max_concurrency=concurrency,
        )
        # bench_serving shuffles. The request that comes first is the only one without a cached prefix, and in 16-bit
        # numbers its answer can be another one: where both clients begin alike, so do their texts.
        ordered = list(prompts * rounds)
        random.Random(PEER_SEED).shuffle(ordered)  # noqa: S311 - as bench_serving does
        for number in range(asked.passes + 1):  # the first is a warm-up
            if number % 2:
                ours = _ours(asked.url, ordered, workload, stream=True)
                theirs = _theirs(asked, peer, texts * rounds, concurrency)
            else:
                theirs = _theirs(asked, peer, texts * rounds, concurrency)
                ours = _ours(asked.url, ordered, workload, stream=True)
            whole = _ours(asked.url, ordered, workload, stream=False)
            if number:
                found.append(
                    {
                        "max_concurrency": concurrency,
                        "pass": number,
                        "workbench": ours,
                        "workbench_not_streaming": whole,
                        "bench_serving": theirs,
                    }
                )
                _write(asked.out, asked, found)
                sys.stdout.write(f"{concurrency} at once, pass {number}: {ours} {theirs}\n")


def _ours(url: str, prompts: Sequence[Prompt], workload: Workload, *, stream: bool) -> dict[str, Any]:
    fetch(f"{url}/flush_cache", method="POST")
    result = drive(url, prompts, workload, stream=stream)
    good = [record for record in result.records if record.ok]
    verified = sum(record.spec_verify_ct or 0 for record in good)
    tokens = sum(record.completion_tokens or 0 for record in good)
    return {
        "completed": len(good),
        "total_input_tokens": sum(len(prompt.input_ids or ()) for prompt in prompts),
        "duration_s": result.wall_s,
        "total_output_tokens": tokens,
        "output_tok_per_s": result.output_tok_per_s,
        "decode_tok_per_s": result.decode_tok_per_s,
        "client_cpu_share": result.client_cpu_share,
        "accept_length": (tokens - len(good)) / verified if verified else None,
        "server_accept_length": _server_accept_length(url),
    }


@contextlib.contextmanager
def _peer() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", PEER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _theirs(
    asked: argparse.Namespace, peer: subprocess.Popen[str], texts: Sequence[str], concurrency: int
) -> dict[str, Any]:
    fetch(f"{asked.url}/flush_cache", method="POST")
    with tempfile.TemporaryDirectory() as scratch:
        data, out = Path(scratch) / "prompts.jsonl", Path(scratch) / "result.jsonl"
        # The answer's text is never sent; bench_serving wants one. The prompt is rendered here: its own template
        # option removes every beginning-of-text token, which is <|im_start|> for this family.
        turns = ({"conversations": [{"content": text}, {"content": "an answer"}]} for text in texts)
        data.write_text("".join(json.dumps(turn) + "\n" for turn in turns), encoding="utf-8")
        command = [
            *("bench_serving", "--backend", "sglang", "--base-url", asked.url),
            *("--model", str(asked.target), "--tokenizer", str(asked.target)),
            *("--dataset-name", "custom", "--dataset-path", str(data)),
            *("--num-prompts", str(len(texts)), "--sharegpt-output-len", str(asked.max_new_tokens)),
            *("--max-concurrency", str(concurrency), "--request-rate", "inf", "--temperature", "0"),
            *("--seed", str(PEER_SEED)),
            *("--disable-ignore-eos", "--disable-tqdm", "--flush-cache", "--warmup-requests", "1"),
            *("--output-file", str(out)),
        ]
        assert peer.stdin is not None and peer.stdout is not None
        peer.stdin.write(json.dumps(command) + "\n")
        peer.stdin.flush()
        code = peer.stdout.readline().strip()
        if code != "0" or not out.is_file():
            raise LaunchError(f"bench_serving ended with {code or 'its process'}, see above", where=asked.url)
        line = json.loads(out.read_text(encoding="utf-8").splitlines()[-1])
    return {
        "completed": line["completed"],
        "total_input_tokens": line.get("total_input_tokens"),
        "duration_s": line["duration"],
        "total_output_tokens": line["total_output_tokens"],
        "total_output_tokens_retokenized": line["total_output_tokens_retokenized"],
        "output_tok_per_s": line["output_throughput"],
        "accept_length": line.get("accept_length"),
    }


def _server_accept_length(url: str) -> float | None:
    states = (server_info(url) or {}).get("internal_states")
    if not isinstance(states, list) or not states or not isinstance(states[0], dict):
        return None
    value = states[0].get("avg_spec_accept_length")
    return float(value) if isinstance(value, int | float) else None


def _write(path: Path, asked: argparse.Namespace, found: Sequence[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "prompt_set": asked.prompt_set,
        "num_prompts": asked.num_prompts,
        "max_new_tokens": asked.max_new_tokens,
        "server": {
            name: value
            for name, value in (server_info(asked.url) or {}).items()
            if name.startswith("speculative_") or name in ("version", "attention_backend", "max_running_requests")
        },
        "passes": found,
    }
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", metavar="URL")
    parser.add_argument("--target", type=Path, required=True, help="folder with the tokenizer")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--prompt-set", default="mt_bench")
    parser.add_argument("--num-prompts", type=int, default=32)
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--prompts-per-slot", type=int, default=1, help="at least so many requests a slot, repeated")
    parser.add_argument("--passes", type=int, default=3)
    asked = parser.parse_args()
    asked.url = asked.url.rstrip("/")
    return asked


if __name__ == "__main__":
    main()
