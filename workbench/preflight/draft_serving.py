"""How the draft is going to be served: GPUs, quantisation, dtype."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from workbench.preflight.case import DraftCase, brief, quantization, size
from workbench.preflight.result import CheckResult, Severity

_DRAFT_QUANTIZATION_SINCE = "0.5.7"


def heads(case: DraftCase) -> Iterator[CheckResult]:
    for key, value in undivided(case.config, case.tp_size or 1, latent=case.is_mla):
        yield CheckResult(
            "tensor-parallel",
            Severity.ERROR,
            f"{key} {value} does not divide over {case.tp_size} GPUs",
            case.at(key),
            "use a tensor-parallel size that divides it: the draft is split like the target",
            "the server stops with an AssertionError",
        )


def undivided(config: Mapping[str, object], tp: int, *, latent: bool) -> Iterator[tuple[str, int]]:
    """Sizes of a model that cannot be split over ``tp`` GPUs; key and value heads may be fewer and are then copied."""
    attention = size(config, "num_attention_heads")
    key_value = size(config, "num_key_value_heads") or attention
    inner = size(config, "intermediate_size")
    if attention is not None and attention % tp:
        yield "num_attention_heads", attention
    if not latent and key_value is not None and (key_value % tp if key_value >= tp else tp % key_value):
        yield "num_key_value_heads", key_value
    if inner is not None and inner % tp:
        yield "intermediate_size", inner


def inherited_quantization(case: DraftCase) -> Iterator[CheckResult]:
    """The draft takes over the target's ``--quantization`` unless told otherwise (SGLang PR 28196)."""
    own = quantization(case.draft)
    if own is not None:
        yield CheckResult(
            "draft-quantized",
            Severity.NOTE,
            f"the draft is quantised ({own}); names and shapes of its projections were not checked",
            case.at("quantization_config"),
            "compare its accept length with that of the plain draft",
        )
        return
    method = None if case.target is None else quantization(case.target)
    if method is not None:
        yield CheckResult(
            "quantization",
            Severity.WARNING,
            f"the target is quantised ({method}) and the draft is not",
            case.at("quantization_config"),
            f"pass --speculative-draft-model-quantization unquant (SGLang {_DRAFT_QUANTIZATION_SINCE} or newer)",
            "without it the draft inherits --quantization and fails to load, for instance with 'Cannot find the config "
            f"file for {method}'",
        )


def dtype(case: DraftCase) -> Iterator[CheckResult]:
    """A draft whose config says float32 or nothing is loaded as float16, and shares a bfloat16 target's embedding."""
    if case.target is None:
        return
    stated = _stated_dtype(case.config)
    ours = case.draft_dtype or _as_loaded(stated)
    of_target = case.target_dtype or _stated_dtype(case.target_config, case.target.config)
    if of_target is None:
        yield _unstated_dtype(case, ours)
        return
    theirs = _as_loaded(of_target) if case.target_dtype is None else of_target
    if ours != theirs:
        says = f"its config says {brief(stated)}" if stated else "its config states none"
        yield CheckResult(
            "dtype",
            Severity.WARNING,
            f"the draft would run in {brief(ours)} ({says}) and the target in {brief(theirs)}",
            case.at("dtype"),
            f'write "dtype": "{brief(theirs)}" into the draft\'s config, or pass --dtype {brief(theirs)}',
            "the draft shares the target's embedding, and its states arrive in the target's dtype",
        )


def _unstated_dtype(case: DraftCase, ours: str) -> CheckResult:
    return CheckResult(
        "dtype",
        Severity.NOTE,
        "the target's config does not state dtype; SGLang would use float16",
        case.at_target("dtype"),
        "look it up in the target's own config.json; leave the draft as it is until then",
        f"the draft would run in {brief(ours)}; the two were not compared",
    )


def _stated_dtype(*configs: Mapping[str, object]) -> str | None:
    """The first dtype that the configs state."""
    stated = (config.get(key) for config in configs for key in ("dtype", "torch_dtype"))
    return next((value.removeprefix("torch.") for value in stated if isinstance(value, str)), None)


def _as_loaded(dtype: str | None) -> str:
    """What ``--dtype auto`` makes of a config's dtype: float32 and unstated become float16."""
    return "float16" if dtype in (None, "float32", "float", "half") else dtype
