"""Small logs written by hand, line layouts as in SGLang 0.5.9 (rate L/N) and 0.5.14 (rate (L-1)/(N-1))."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from workbench.analysis.diagnosis import Diagnosis, Finding, diagnose
from workbench.files import read_chunks
from workbench.paths import recorded_dir
from workbench.preflight.result import CheckResult
from workbench.table import LogSummary, summarise_log

STAMP = "2026-02-23 17:30:43"
READY = f"[{STAMP}] The server is fired up and ready to roll!"
RECORDED = recorded_dir()


def said(text: str, *, tag: str = " TP0") -> str:
    return f"[{STAMP}{tag}] {text}"


def decode(
    running: int = 1,
    *,
    speed: float = 60.0,
    accept: float | None = None,
    rate: float | None = None,
    graph: bool | None = True,
    queue: int = 0,
    tokens: int = 300,
    usage: float = 0.01,
    tag: str = " TP0",
) -> str:
    parts = [f"Decode batch, #running-req: {running}", f"#token: {tokens}", f"token usage: {usage:.2f}"]
    parts += [f"accept len: {accept:.2f}"] if accept is not None else []
    parts += [f"accept rate: {rate:.2f}"] if rate is not None else []
    parts += [f"cuda graph: {graph}"] if graph is not None else []
    parts += [f"gen throughput (token/s): {speed:.2f}", f"#queue-req: {queue}"]
    return said(", ".join(parts), tag=tag)


def server_args(**given: object) -> str:
    stated = {"model_path": "/models/target", "device": "cuda", "speculative_algorithm": None, **given}
    return f"[{STAMP}] server_args=ServerArgs({', '.join(f'{name}={value!r}' for name, value in stated.items())})"


def speculative_args(**given: object) -> str:
    return server_args(
        **{
            "speculative_algorithm": "EAGLE3",
            "speculative_draft_model_path": "/models/draft",
            "speculative_num_steps": 3,
            "speculative_eagle_topk": 1,
            "speculative_num_draft_tokens": 4,
            **given,
        }
    )


def weights(kind: str, *, quant: str = "") -> str:
    stated = f", quant={quant}" if quant else ""
    return said(
        f"Load weight end. elapsed=0.49 s, type={kind}, dtype=bfloat16{stated}, avail mem=90.00 GB, mem usage=0.27 GB."
    )


def capacity(limit: int = 128) -> str:
    return said(
        f"max_total_num_tokens=312041, chunked_prefill_size=8192, max_prefill_tokens=16384, "
        f"max_running_requests={limit}, context_len=4096, available_gpu_mem=69.23 GB"
    )


def started(*args: str, draft: str = "LlamaForCausalLMEagle3", limit: int = 128) -> tuple[str, ...]:
    """The start-up of a speculative server; its arguments and then whatever else is given."""
    head = args or (speculative_args(),)
    return (*head, weights("LlamaForCausalLM"), weights(draft), capacity(limit), READY)


def plain(*args: str, limit: int = 128) -> tuple[str, ...]:
    """The start-up of a plain server."""
    return (*(args or (server_args(),)), weights("LlamaForCausalLM"), capacity(limit), READY)


def summary(*lines: str, name: str = "server.log") -> LogSummary:
    return summarise_log(["".join(f"{line}\n" for line in lines).encode()], name=name)


def diagnosed(
    *lines: str, baseline: Iterable[str] | None = None, draft_checks: Iterable[CheckResult] | None = None
) -> Diagnosis:
    base = None if baseline is None else summary(*baseline, name="baseline.log")
    return diagnose(summary(*lines), baseline=base, draft_checks=None if draft_checks is None else tuple(draft_checks))


def rules(diagnosis: Diagnosis) -> list[str]:
    return [finding.rule for finding in diagnosis.findings]


def only(diagnosis: Diagnosis, rule: str) -> Finding:
    found = [finding for finding in diagnosis.findings if finding.rule == rule]
    assert len(found) == 1, rules(diagnosis)
    return found[0]


@cache
def recorded(name: str) -> LogSummary:
    """A real log of the recorded campaigns, by its folder."""
    (path,) = (RECORDED / name).glob("server.log*")
    return summarise_log(read_chunks(path), name=name)
