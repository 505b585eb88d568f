"""Positions: rotary embedding and context length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from workbench.preflight.case import DraftCase, brief, size
from workbench.preflight.result import CheckResult, Severity
from workbench.sglang_rules import at_least

_DEFAULT_THETA = 10000.0
_ROPE_PARAMETERS_SINCE = "0.5.10"  # with transformers 5; before, rope_theta and rope_scaling are all that is read
_OVERWRITE_ENV = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"
_OVERWRITE_OFF_SINCE = "0.5.1"  # the variable was on by default up to 0.4.9
_ROPE_FOLLOWS_SINCE = "0.5.3"
# Where SGLang looks for a model's context length, first hit wins.
_CONTEXT_KEYS = ("max_sequence_length", "seq_length", "max_seq_len", "model_max_length", "max_position_embeddings")


def context(case: DraftCase) -> Iterator[CheckResult]:
    """The draft is given the target's context length, and must reach as far."""
    ours = context_length(case.config)
    served = case.context_len or context_length(case.target_config)
    if ours is None or served is None or ours >= served:
        return
    allowed = overwrite_allowed(case.env, case.version)
    refused = f"the server stops with ValueError unless {_OVERWRITE_ENV}=1"
    beyond = (
        "the draft works at positions it was not trained on, and its accept length falls there"
        if at_least(case.version, _ROPE_FOLLOWS_SINCE)
        else "the draft's rotary table stays that short: beyond it accept length collapses or a kernel reads out of "
        "bounds"
    )
    yield CheckResult(
        "context-length",
        Severity.WARNING if allowed else Severity.ERROR,
        f"max_position_embeddings reaches {ours} tokens and the context is {served}",
        case.at("max_position_embeddings"),
        f"serve with --context-length {ours}, or train the draft on longer text and state it"
        + ("" if allowed else f"; {_OVERWRITE_ENV}=1 starts the server and does not cure the draft"),
        beyond if allowed else f"{refused}; with it {beyond}",
    )


def rope_keys(case: DraftCase) -> Iterator[CheckResult]:
    """``rope_parameters`` and ``rope_theta`` are read by different versions and should agree."""
    if case.is_mla:
        return
    newer, older = _object(case.config.get("rope_parameters")), case.config.get("rope_theta")
    theta = newer.get("rope_theta")
    if theta is None and older is None:
        yield CheckResult(
            "rope-theta",
            Severity.WARNING,
            "no rope_theta",
            case.at("rope_theta"),
            "state the rope_theta that the draft was trained with",
            f"SGLang takes {_DEFAULT_THETA:g}",
        )
    elif older is None and theta != _DEFAULT_THETA and case.before(_ROPE_PARAMETERS_SINCE) is not False:
        yield CheckResult(
            "rope-theta",
            Severity.ERROR if case.before(_ROPE_PARAMETERS_SINCE) else Severity.WARNING,
            f"rope_theta {brief(theta)} is stated in rope_parameters only",
            case.at("rope_parameters.rope_theta"),
            "write rope_theta at the top level too",
            f"SGLang before {_ROPE_PARAMETERS_SINCE} does not read rope_parameters and takes {_DEFAULT_THETA:g}",
        )
    elif theta is not None and older is not None and theta != older:
        yield CheckResult(
            "rope-theta",
            Severity.ERROR,
            f"rope_theta is {brief(older)} and rope_parameters says {brief(theta)}",
            case.at("rope_theta"),
            "make the two agree with the training",
            f"SGLang reads the first before {_ROPE_PARAMETERS_SINCE} and the second after",
        )


def rope_of_target(case: DraftCase) -> Iterator[CheckResult]:
    """A draft need not rotate like its target, but a difference is seldom meant (SpecForge issue 265)."""
    if case.target is None or not case.target_config:
        return
    ours, theirs = _rope(case.config), _rope(case.target_config)
    if "rope_theta" not in theirs:
        yield _unstated_theta(case, ours)
    # Latent attention rotates a part of each head only: a plain draft for such a target differs by design.
    by_design = "kv_lora_rank" in case.target_config and not case.is_mla
    severity = Severity.NOTE if by_design else Severity.WARNING
    if "rope_theta" in theirs and _theta(ours) != _theta(theirs):
        yield CheckResult(
            "rope-target",
            severity,
            f"rope_theta is {_theta(ours):g} and the target's {_theta(theirs):g}",
            case.at("rope_theta"),
            "check which one the trainer used; trainers have ignored the stated one and used 10000",
            "a draft served with another theta than it was trained with loses 5-8 % of its accept length",
        )
    # A config that says nothing at all about rotation is a stripped one, not one without scaling.
    if theirs and _scaling(ours) != _scaling(theirs):
        exported = _kind(ours) == "yarn" and _kind(theirs) == "default"
        yield CheckResult(
            "rope-target",
            severity,
            f"rope scaling is {_described(ours)} and the target's {_described(theirs)}",
            case.at("rope_scaling"),
            "take the scaling out of the draft's config (modelopt adds YaRN unless eagle_export_rope_scaling={})"
            if exported
            else "check which scaling the draft was trained with",
            "the draft rotates its keys otherwise than it was trained to",
        )


def _unstated_theta(case: DraftCase, ours: Mapping[str, object]) -> CheckResult:
    stated = f"the draft states {_theta(ours):g}" if "rope_theta" in ours else "nor does the draft's"
    return CheckResult(
        "rope-target",
        Severity.NOTE,
        f"the target's config does not state rope_theta; SGLang would use {_DEFAULT_THETA:g}, or its class's default",
        case.at_target("rope_theta"),
        "look it up in the target's own config.json; leave the draft as it is until then",
        f"{stated}, so the two were not compared",
    )


def context_length(config: Mapping[str, object]) -> int | None:
    """The context length that SGLang derives from a config: the stated one times the rope scaling's factor."""
    stated = next((size(config, key) for key in _CONTEXT_KEYS if config.get(key) is not None), None)
    rope = _rope(config)
    factor = rope.get("factor", 1)
    if "original_max_position_embeddings" in rope or rope.get("rope_type") == "llama3":
        factor = 1
    if stated is None or isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor < 1e6:
        return stated
    return int(factor * stated)


def overwrite_allowed(env: Mapping[str, str], version: str | None) -> bool:
    """Whether the server may be given a longer context than a model's config says."""
    stated = env.get(_OVERWRITE_ENV)
    if stated is None:
        return not at_least(version, _OVERWRITE_OFF_SINCE)
    return stated.strip().lower() in ("1", "true", "yes", "y")


def _object(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _rope(config: Mapping[str, object]) -> Mapping[str, object]:
    """All that a config says about rotation, ``rope_parameters`` before the older keys."""
    older = {"rope_theta": config.get("rope_theta"), **_object(config.get("rope_scaling"))}
    merged = {**older, **_object(config.get("rope_parameters"))}
    return {key: value for key, value in merged.items() if value is not None}


def _theta(rope: Mapping[str, object]) -> float:
    theta = rope.get("rope_theta")
    return float(theta) if isinstance(theta, int | float) and abs(theta) < 1e300 else _DEFAULT_THETA


def _kind(rope: Mapping[str, object]) -> str:
    return str(rope.get("rope_type", rope.get("type", "default")))[:30]


def _scaling(rope: Mapping[str, object]) -> dict[str, object]:
    """What changes the rotation beside theta, with the two spellings of the type made one."""
    rest = {key: value for key, value in rope.items() if key not in ("rope_theta", "rope_type", "type")}
    return {"rope_type": _kind(rope), **rest}


def _described(rope: Mapping[str, object]) -> str:
    rest = {key: value for key, value in _scaling(rope).items() if key != "rope_type"}
    return _kind(rope) + (f" {brief(rest)}" if rest else "")
