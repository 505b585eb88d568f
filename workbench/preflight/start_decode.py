"""The speculative settings of a start: algorithm, steps, topk, draft tokens, and what they need."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from workbench.preflight.result import CheckResult, Severity
from workbench.preflight.start_case import StartCase
from workbench.reference.arguments import ALGORITHMS, SPEAKS
from workbench.sglang_rules import ALGORITHM_SINCE, at_least, effective_shape, version_before

_FLAG = "speculative_algorithm"
_EAGLE_FLAGS = ("EAGLE", "NEXTN")
# Without a draft checkpoint of their own: NGRAM looks tokens up, the others come with the target.
_NO_DRAFT = ("NGRAM", "FROZEN_KV_MTP")
# Backends in which a draft of several steps can run, of all versions (DraftBackendFactory, SGLang 0.5.23); any other is
# refused with "EAGLE is not supported in [decode ]attention backend ...".
DRAFT_BACKENDS = frozenset(
    {
        *("flashinfer", "triton", "fa3", "fa4", "flashmla", "trtllm_mha", "trtllm_mla", "cutedsl_mla", "dsa", "nsa"),
        *("dsv4", "aiter", "intel_amx", "intel_xpu", "ascend", "hybrid_linear_attn"),
    }
)
_SPEC_V2 = "SGLANG_ENABLE_SPEC_V2"


def algorithm_name(case: StartCase) -> Iterator[CheckResult]:
    """Is there such an algorithm, in this version and engine?"""
    asked = case.algorithm
    if case.decode is None or asked is None:
        return
    if asked not in _algorithms(case):
        yield _unknown(case, asked)
        return
    if case.is_sglang and case.version and case.draft is None and version_before(case.version, ALGORITHM_SINCE[asked]):
        yield CheckResult(
            "algorithm-version",
            Severity.ERROR,
            f"SGLang {case.version} has no {asked}",
            _FLAG,
            f"use SGLang {ALGORITHM_SINCE[asked]} or newer",
        )
    if case.decode.speculative_algorithm not in (None, asked):
        yield CheckResult(
            "algorithm-case",
            Severity.NOTE,
            f"{case.decode.speculative_algorithm} is sent as {asked}",
            _FLAG,
            f"write {asked}",
            "older SGLang versions know the upper-case names only",
        )
    if asked == "NEXTN":
        # _resolve_speculative_algorithm_alias, SGLang 0.4.1 and later.
        yield CheckResult(
            "algorithm-alias",
            Severity.NOTE,
            "NEXTN is another name of EAGLE, and the server will show EAGLE",
            _FLAG,
            "write EAGLE, so that the same point is not measured twice",
        )


def _algorithms(case: StartCase) -> tuple[str, ...]:
    return tuple(ALGORITHM_SINCE) if case.is_sglang else ALGORITHMS


def _unknown(case: StartCase, asked: str) -> CheckResult:
    known = _algorithms(case)
    near = difflib.get_close_matches(asked, known, n=1, cutoff=0.6)
    return CheckResult(
        "algorithm-unknown",
        # A plugin may bring an algorithm of its own to SGLang.
        Severity.WARNING if case.is_sglang and not near else Severity.ERROR,
        f"{'SGLang' if case.is_sglang else 'the embedded engine'} is not known to have an algorithm {asked}",
        _FLAG,
        f"write {near[0]}" if near else f"use one of {', '.join(known)}",
        "the server ends with exit code 2 at its command line",
    )


def algorithm_of_drafter(case: StartCase) -> Iterator[CheckResult]:
    """EAGLE with an EAGLE-3 draft is silent (SGLang PR 21272, closed). Where the draft is here, its files decide."""
    drafter = case.start.drafter
    if drafter is None or case.draft is not None or case.algorithm not in _EAGLE_FLAGS:
        return
    yield CheckResult(
        "algorithm",
        Severity.ERROR,
        f"{case.algorithm} with {drafter.name}: the drafters of a campaign are EAGLE-3 drafts",
        _FLAG,
        "use EAGLE3; as a control of the wrong flag allow it with --allow-refused",
        "the target then captures no intermediate states, fc is skipped and d2t ignored: no error, and accept length "
        "1.00",
    )


def draft_path(case: StartCase) -> Iterator[CheckResult]:
    if case.decode is None or case.algorithm in _NO_DRAFT:
        return
    drafter = case.start.drafter
    if drafter is not None and not drafter.model_path:
        yield CheckResult(
            "no-model-path",
            Severity.ERROR,
            f"drafter {drafter.name} has no model_path, so it cannot be served",
            f"drafters: {drafter.name}",
            "add its model_path",
        )
    elif drafter is None and (case.algorithm == "EAGLE3" or not case.is_sglang):
        # sglang issue 36528: no validation up to 0.5.23.
        yield CheckResult(
            "no-drafter",
            Severity.ERROR,
            f"{case.algorithm} without a drafter",
            "sweep: drafter",
            "name a drafter with its model_path in the campaign",
            "SGLang loads the target a second time as the draft and stops with AttributeError",
        )


def drafter_target(case: StartCase) -> Iterator[CheckResult]:
    drafter, target = case.start.drafter, case.campaign.target.name
    if drafter is None or drafter.target is None or drafter.target.casefold() == target.casefold():
        return
    yield CheckResult(
        "drafter-target",
        Severity.WARNING,
        f"drafter {drafter.name} was made for {drafter.target}, and {target} is served",
        f"drafters: {drafter.name}",
        "expect few accepted drafts, or take a drafter of this target",
        "a draft predicts from the hidden states of the model that it was trained on",
    )


def shape(case: StartCase) -> Iterator[CheckResult]:
    """Steps, topk and draft tokens with page size and attention backend, which the expansion does not look at."""
    if case.decode is None:
        return
    steps, topk = case.decode.speculative_num_steps, case.decode.speculative_eagle_topk
    env = case.server.env.get(_SPEC_V2, "").lower()
    effective = effective_shape(
        steps,
        topk,
        case.decode.speculative_num_draft_tokens,
        version=case.version if case.is_sglang else SPEAKS,
        target_arch=case.target_arch,
        page_size=case.number("page_size"),
        attention_backend=case.attention_backend,
        spec_v2=env in ("1", "true", "yes", "y"),
    )
    where = "speculative_num_steps, speculative_eagle_topk, speculative_num_draft_tokens"
    if effective.refused:
        yield CheckResult(
            "shape",
            Severity.ERROR,
            effective.refused,
            where,
            "change the three numbers, page_size or the attention backend",
        )
    for note in effective.notes:
        yield CheckResult(
            "shape-adjusted", Severity.WARNING, note, where, "ask for what will be used", "the point is another one"
        )


def draft_backend(case: StartCase) -> Iterator[CheckResult]:
    steps = case.decode.speculative_num_steps if case.decode else None
    stated = case.flags.get("speculative_draft_attention_backend") or case.attention_backend
    if not case.is_sglang or steps is None or steps < 2 or stated is None or stated in DRAFT_BACKENDS:
        return
    yield CheckResult(
        "draft-backend",
        Severity.ERROR,
        f"a draft of {steps} steps cannot run in the attention backend {stated}",
        "server.attention_backend",
        "use triton, flashinfer or fa3, or set speculative-draft-attention-backend (0.5.7 and newer)",
        "the server stops with ValueError: EAGLE is not supported in attention backend",
    )


def default_backend(case: StartCase) -> Iterator[CheckResult]:
    """Left to itself SGLang takes fa3 or trtllm_mha, but not for topk > 1 (``is_no_spec_infer_or_topk_one``)."""
    topk = case.decode.speculative_eagle_topk if case.decode else None
    latent = case.target is not None and "kv_lora_rank" in case.target.text_config
    if not case.is_sglang or topk is None or topk < 2 or case.attention_backend is not None or latent:
        return
    yield CheckResult(
        "default-backend",
        Severity.WARNING,
        "no attention backend is stated, and for trees SGLang may choose another than for the baseline",
        "server.attention_backend",
        "state one that serves both: flashinfer, or triton from 0.5.14 on",
        "on Hopper and Blackwell fa3 and trtllm_mha are the default for topk 1 and for no speculation only; the arms "
        "would differ in more than speculation",
    )


def overlap(case: StartCase) -> Iterator[CheckResult]:
    """Speculation without the overlap scheduler, which the baseline has (0.5.10 and older)."""
    version = case.version
    if case.decode is None or not case.is_sglang or version is None or at_least(version, "0.5.11"):
        return
    if at_least(version, "0.5.4.post1") and case.server.env.get(_SPEC_V2):
        return
    yield CheckResult(
        "overlap",
        Severity.NOTE,
        f"SGLang {version} speculates without its overlap scheduler, and the baseline runs with it",
        "sglang_version",
        f"set {_SPEC_V2}=1 for chains from 0.5.4.post1 on, or use 0.5.11 or newer",
        "a part of what speculation costs here is the lost overlap",
    )
