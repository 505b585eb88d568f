"""The checks of a draft, in the order in which their findings are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from workbench.checkpoint import Checkpoint
from workbench.errors import CheckpointError
from workbench.preflight import (
    draft_class,
    draft_config,
    draft_position,
    draft_serving,
    draft_target,
    draft_tensors,
    draft_vocab,
)
from workbench.preflight.case import DraftCase
from workbench.preflight.result import CheckResult, Severity

Check = Callable[[DraftCase], Iterator[CheckResult]]

CLASS_CHECKS: tuple[Check, ...] = (
    draft_class.algorithm,
    draft_class.algorithm_name,
    draft_class.exporter_format,
    draft_class.model_class,
    draft_class.version,
)
EAGLE3_CHECKS: tuple[Check, ...] = (
    draft_class.mla_class,
    draft_config.numbers,
    draft_config.draft_vocab_size,
    draft_config.tied_embeddings,
    draft_config.layer_count,
    draft_config.eagle_config,
    draft_config.aux_states_used,
    draft_config.aux_count,
    draft_config.fc_used,
    draft_config.version_keys,
    draft_config.norm_output,
    draft_target.not_stated,
    draft_target.target_support,
    draft_target.vocab,
    draft_target.widths,
    draft_target.aux_count_by_version,
    draft_target.capture,
    draft_target.capture_by_version,
    draft_target.capture_convention,
    draft_target.capture_order,
    draft_vocab.vocab_map,
    draft_vocab.inverse_map,
    draft_tensors.weights_present,
    draft_tensors.layer_name,
    draft_tensors.missing,
    draft_tensors.unknown,
    draft_tensors.duplicates,
    draft_tensors.fc_width,
    draft_tensors.shapes,
    draft_tensors.embedding,
    draft_tensors.zero_weights,
    draft_position.context,
    draft_position.rope_keys,
    draft_position.rope_of_target,
    draft_serving.heads,
    draft_serving.inherited_quantization,
    draft_serving.dtype,
)


def check_draft(
    draft: Checkpoint,
    target: Checkpoint | None,
    *,
    speculative_algorithm: str | None = None,
    context_len: int | None = None,
    sglang_version: str | None = None,
    tp_size: int | None = None,
    env: Mapping[str, str] | None = None,
    target_dtype: str | None = None,
    draft_dtype: str | None = None,
) -> list[CheckResult]:
    """Everything about an EAGLE-3 draft that its files can show before a GPU is used.

    Parameters
    ----------
    draft, target
        Checkpoints as read; the target's config is enough. Without a target, or without one of the settings below,
        the checks that need it stay silent.
    context_len
        Tokens; the context length that will be served, by default the target's own.
    sglang_version
        Without it, whatever depends on the version is a warning that names the version.
    tp_size
        GPUs over which attention is split.
    env
        The server's environment.
    target_dtype, draft_dtype
        What a running server loaded them in; without, what their configs lead to.

    Returns
    -------
    list of CheckResult
        In the order of `CLASS_CHECKS` and `EAGLE3_CHECKS`; empty means that nothing was found. A draft of another
        class (EAGLE-1, say) gets the class checks only, and a note that says so.
    """
    case = DraftCase(
        draft,
        target,
        speculative_algorithm,
        context_len,
        sglang_version,
        tp_size,
        env or {},
        target_dtype=target_dtype,
        draft_dtype=draft_dtype,
    )
    checks = CLASS_CHECKS + (EAGLE3_CHECKS if case.is_eagle3 or case.draft_class is None else ())
    return [result for check in checks for result in _run(check, case)]


def _run(check: Check, case: DraftCase) -> list[CheckResult]:
    try:
        return list(check(case))
    except CheckpointError as error:
        what = f"could not be checked: {error.what}"
        return [
            CheckResult("unreadable", Severity.ERROR, what, error.where or str(case.draft.path), error.next_step or "")
        ]
