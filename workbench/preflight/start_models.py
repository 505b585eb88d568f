"""The models of a start: are they here, can the target be split and reach the context, do the weights fit."""

from __future__ import annotations

from collections.abc import Iterator

from workbench.checkpoint import Checkpoint
from workbench.errors import CheckpointError
from workbench.preflight.case import quantization
from workbench.preflight.draft import check_draft
from workbench.preflight.draft_position import context_length, overwrite_allowed
from workbench.preflight.draft_serving import undivided
from workbench.preflight.result import CheckResult, Severity
from workbench.preflight.start_case import StartCase

_OVERWRITE = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1"
_DRAFT_QUANTIZATION = "speculative_draft_model_quantization"
_GIB = 1 << 30
_LITTLE = 0.1


def present(case: StartCase) -> Iterator[CheckResult]:
    """What is not on this machine was not checked, and that is said."""
    target = case.campaign.target
    if not target.model_path:
        yield CheckResult(
            "no-model-path",
            Severity.ERROR,
            f"target {target.name} has no model_path, so it cannot be served",
            "target.model_path",
            "add it to the campaign",
        )
    elif case.target_folder is None:
        yield _absent(case, target.model_path, "target.model_path")
    drafter = case.start.drafter
    if drafter is not None and drafter.model_path and case.draft_folder is None:
        yield _absent(case, drafter.model_path, f"drafters: {drafter.name}")


def _absent(case: StartCase, path: str, where: str) -> CheckResult:
    # A bare name may be one of the embedded engine's, or a repository that SGLang fetches.
    is_folder = path.startswith(("/", ".", "~")) or path.count("/") > 1
    return CheckResult(
        "not-here",
        Severity.WARNING if case.serves_here and is_folder else Severity.NOTE,
        f"not checked: {path} is not on this machine",
        where,
        "run this check on the machine that serves, where the models are"
        if is_folder
        else "run this check again when it has been fetched",
        "checkpoint, widths, vocabulary, context length and memory are checked from its files",
    )


def readable(case: StartCase) -> Iterator[CheckResult]:
    for folder in (case.target_folder, case.draft_folder):
        found = None if folder is None else case.read(folder)
        if isinstance(found, CheckpointError):
            yield CheckResult(
                "unreadable", Severity.ERROR, found.what, found.where or str(folder), found.next_step or "replace it"
            )


def draft(case: StartCase) -> Iterator[CheckResult]:
    """Everything that the draft's files show, as this start would serve it."""
    if case.decode is None or case.draft is None:
        return
    for result in check_draft(
        case.draft,
        case.target,
        speculative_algorithm=case.algorithm,
        context_len=case.number("context_length"),
        sglang_version=case.version,
        tp_size=case.tp_size,
        env=case.environment,
        target_dtype=case.campaign.target.dtype,
    ):
        if result.rule == "no-weights" and _draft_is_dummy(case):
            continue
        if result.rule != "quantization" or _DRAFT_QUANTIZATION not in case.flags:
            yield result


def _draft_is_dummy(case: StartCase) -> bool:
    """Whether SGLang makes up the draft's weights; without a load format of its own the draft has the target's."""
    asked = case.flags.get("speculative_draft_load_format", case.flags.get("load_format"))
    return case.is_sglang and asked == "dummy"


def quantized_target(case: StartCase) -> Iterator[CheckResult]:
    """The draft takes over an explicit ``--quantization`` (SGLang PR 28196); where both are here, `draft` sees it."""
    stated = case.campaign.target.quantization or (case.target and quantization(case.target))
    if case.decode is None or case.start.drafter is None or (case.draft is not None and case.target is not None):
        return
    if case.is_sglang and stated and _DRAFT_QUANTIZATION not in case.flags:
        yield CheckResult(
            "quantization",
            Severity.WARNING,
            f"the target is quantised ({stated}), and nothing says how the draft is",
            "server.flags",
            "add speculative-draft-model-quantization: unquant (0.5.7 and newer) for a plain draft",
            "a draft inherits --quantization and may then fail to load",
        )


def target_heads(case: StartCase) -> Iterator[CheckResult]:
    if case.target is None or not case.is_sglang or case.flags.get("enable_dp_attention"):
        return
    latent = "kv_lora_rank" in case.target.text_config
    for key, value in undivided(case.target.text_config, case.tp_size, latent=latent):
        yield CheckResult(
            "tensor-parallel",
            Severity.ERROR,
            f"the target's {key} {value} does not divide over {case.tp_size} GPUs",
            f"{case.target.path / 'config.json'}: {key}",
            "use a tp_size that divides it",
            "the server stops with an AssertionError",
        )


def target_context(case: StartCase) -> Iterator[CheckResult]:
    asked = case.number("context_length")
    reach = None if case.target is None else context_length(case.target.text_config)
    if case.target is None or asked is None or reach is None or asked <= reach:
        return
    allowed = case.is_sglang and overwrite_allowed(case.environment, case.version)
    yield CheckResult(
        "target-context",
        Severity.WARNING if allowed else Severity.ERROR,
        f"the target reaches {reach} tokens, and context_length is {asked}",
        "server.context_length",
        f"lower it to {reach}",
        "the target works at positions that it was not made for"
        if allowed
        else f"the server stops with ValueError unless {_OVERWRITE}",
    )


def memory(case: StartCase) -> Iterator[CheckResult]:
    """Weights against the static memory of a GPU: a lower bound, each weight counted as if it were split evenly."""
    fraction = case.flags.get("mem_fraction_static", case.server.mem_fraction_static)
    gpus, target = case.machine.gpu_memory_bytes, case.target
    if not gpus or not case.serves_here or target is None or not target.tensors or not isinstance(fraction, float):
        return
    needed = (_weight_bytes(target) + (_weight_bytes(case.draft) if case.draft else 0)) / case.tp_size
    there = fraction * min(gpus)
    if needed < (1 - _LITTLE) * there:
        return
    fits = needed < there
    yield CheckResult(
        "memory",
        Severity.WARNING if fits else Severity.ERROR,
        f"weights take at least {needed / _GIB:.1f} GiB of a GPU, mem_fraction_static {fraction:g} allows "
        f"{there / _GIB:.1f} GiB",
        "server.mem_fraction_static",
        "raise it, spread over more GPUs (server.tp_size), or quantise",
        "little is left for the KV cache: requests wait or are retracted"
        if fits
        else "the server stops with 'Not enough memory'",
    )


def _weight_bytes(checkpoint: Checkpoint) -> int:
    return sum(tensor.size_bytes for tensor in checkpoint.tensors.values())
