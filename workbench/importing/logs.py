"""A server log of SGLang or vLLM to a run: what the server says of itself, and the log, from which the rest is read."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace

from workbench.errors import Problem
from workbench.files import read_chunks
from workbench.importing.found import NOT_STATED, Found, Source, Stated, chain, named, of_server
from workbench.importing.taken import Taken
from workbench.parse.records import LogKind
from workbench.spec import ServerConfig, SpecDecodeConfig, Workload
from workbench.table.logs import LogSummary, summarise_log

_IDENTITY_BYTES = 4096
# As vLLM 0.14 to 0.20 prints it: "Initializing a V1 LLM engine (v0.20.0) with config: model='...',
# speculative_config=None, ..." or "speculative_config=SpeculativeConfig(method='eagle3', model='...',
# num_spec_tokens=3)".
_VLLM_START = re.compile(
    rb"Initializing an? (?:V\d )?LLM engine \(v([^\s)]{1,60})\) with config: model='([^'\n]{1,400})',"
    rb"(?: speculative_config=(None|SpeculativeConfig\([^()\n]{0,600}\)),)?([^\n]{0,4000})"
)
_VLLM_ARGUMENT = re.compile(r"(\w+)='?([^',)]*)'?")
_TENSOR_PARALLEL = re.compile(rb"\btensor_parallel_size=(\d{1,4})\b")


def read_log(taken: Taken, stated: Stated, problems: list[Problem]) -> Found | None:
    """The run of a log, ``None`` where it is no server log that is known here."""
    file = taken.file
    log = summarise_log(read_chunks(taken.copy), name=file.name)
    if log.kind is LogKind.UNKNOWN:
        return None
    problems += taken.faults
    name = "vLLM log" if log.kind is LogKind.VLLM else "SGLang log"
    prompts = named(stated.prompts or f"{NOT_STATED} ({file.name})")
    source = Source(name, file, taken.digest[:16], _identity(taken))
    found = Found(
        source=source,
        engine="vllm" if log.kind is LogKind.VLLM else "reference" if log.facts.is_embedded else "sglang",
        speculative=True if log.windows["accept_len"].notna().any() else None,
        workload=Workload(prompt_set=prompts, max_concurrency=stated.concurrency),
        log=taken.copy,
    )
    found = _told_by_vllm(found, taken.head) if log.kind is LogKind.VLLM else _told_by_sglang(found, log)
    arm = stated.speculative if found.speculative is None else found.speculative
    return replace(found, speculative=arm, model=found.model or stated.target)


def _identity(taken: Taken) -> str:
    """Of the name and the beginning: a log that grew is the same run. The first lines tell a start's time and seed."""
    name = taken.file.name.removesuffix(".gz").encode("utf-8", "backslashreplace")
    return hashlib.sha256(name + b"\0" + taken.head[:_IDENTITY_BYTES]).hexdigest()[:12]


def _told_by_sglang(found: Found, log: LogSummary) -> Found:
    arguments: Mapping[str, object] = log.facts.server_args
    if not arguments:
        return found
    engine = found.engine
    return replace(of_server(found, arguments), engine=engine)


def _told_by_vllm(found: Found, head: bytes) -> Found:
    start = _VLLM_START.search(head)
    if start is None:
        return found
    version, model, speculative, rest = (
        None if group is None else group.decode("utf-8", "replace") for group in start.groups()
    )
    parallel = _TENSOR_PARALLEL.search((rest or "").encode())
    said = dict(_VLLM_ARGUMENT.findall((speculative or "").partition("(")[2]))
    tokens = said.get("num_spec_tokens", "")
    decode = chain(said.get("method", ""), int(tokens)) if tokens.isascii() and tokens.isdigit() else SpecDecodeConfig()
    return replace(
        found,
        speculative=found.speculative if speculative is None else speculative != "None",
        model=model,
        draft=said.get("model") if said.get("model") != "None" else None,
        decode=decode,
        server=ServerConfig(tp_size=max(int(parallel[1]), 1)) if parallel else ServerConfig(),
        versions={"vllm": version or ""},
        notes=("vLLM's chain of k tokens stands as k steps and k + 1 draft tokens",) if tokens else (),
    )
