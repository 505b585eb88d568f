"""Is it an EAGLE-3 draft at all, and does the flag say so?"""

from __future__ import annotations

from collections.abc import Iterator

from workbench.preflight.case import DraftCase, brief
from workbench.preflight.result import CheckResult, Severity
from workbench.sglang_rules import ALGORITHM_SINCE, EAGLE3_DRAFT_CLASSES

_EAGLE_FLAGS = ("EAGLE", "NEXTN")  # NEXTN is rewritten to EAGLE


def exporter_format(case: DraftCase) -> Iterator[CheckResult]:
    """A config in another project's format has none of the keys that the other checks read."""
    foreign = next((key for key in case.config if key.startswith("speculators_")), None)
    if foreign is not None:
        yield CheckResult(
            "foreign-format",
            Severity.ERROR,
            "this is a config of speculators, which SGLang does not read",
            case.at(brief(foreign)),
            "rewrite config.json in SGLang's format (architectures LlamaForCausalLMEagle3, eagle_config, ...) and mind "
            "that speculators numbers the captured layers one higher",
        )
    if case.config.get("norm_before_residual"):
        yield CheckResult(
            "norm-before-residual",
            Severity.ERROR,
            "norm_before_residual is on",
            case.at("norm_before_residual"),
            "train the draft with norm_before_residual: false",
            "SGLang adds the residual before the norm, so every layer computes something the draft was not trained for",
        )


def model_class(case: DraftCase) -> Iterator[CheckResult]:
    name = case.draft_class
    if name is None:
        yield CheckResult(
            "architecture",
            Severity.ERROR,
            "no architectures, so SGLang cannot choose a model class",
            case.at("architectures"),
            'add "architectures": ["LlamaForCausalLMEagle3"] if this is an EAGLE-3 draft of the Llama type',
        )
    elif case.is_eagle3 and name not in EAGLE3_DRAFT_CLASSES:
        yield CheckResult(
            "architecture",
            Severity.ERROR,
            f"SGLang has no draft class {name}",
            case.at("architectures"),
            f"rename it to one of {' or '.join(sorted(EAGLE3_DRAFT_CLASSES))} if the tensors are laid out alike",
        )
    elif not case.is_eagle3:
        yield CheckResult(
            "not-eagle3",
            Severity.NOTE,
            f"{name} is not an EAGLE-3 draft class; nothing but its class was checked",
            case.at("architectures"),
            "check that this is the folder you meant",
        )
    if not isinstance(case.config.get("model_type"), str):
        yield CheckResult(
            "model-type",
            Severity.ERROR,
            "no model_type, so transformers cannot read the config",
            case.at("model_type"),
            'add "model_type": "llama"',
        )


def algorithm_name(case: DraftCase) -> Iterator[CheckResult]:
    if case.algorithm is None:
        return
    asked = case.algorithm.upper()
    flag = f"--speculative-algorithm {case.algorithm}"
    if asked != case.algorithm:
        yield CheckResult(
            "algorithm-case",
            Severity.WARNING,
            f"{flag} is not in upper case",
            flag,
            f"write {asked}",
            "older SGLang versions know the upper-case names only",
        )
    since = ALGORITHM_SINCE.get(asked)
    if since is not None and case.before(since):
        yield CheckResult(
            "algorithm-version",
            Severity.ERROR,
            f"SGLang {case.version} has no {asked}",
            flag,
            f"use SGLang {since} or newer",
        )


def algorithm(case: DraftCase) -> Iterator[CheckResult]:
    """The silent one: EAGLE with an EAGLE-3 draft starts, answers and accepts nothing (SGLang PR 21272, closed)."""
    if case.algorithm is None or case.draft_class is None:
        return
    asked = case.algorithm.upper()
    flag = f"--speculative-algorithm {case.algorithm}"
    if case.is_eagle3 and asked != "EAGLE3":
        silent = (
            "the target then captures no intermediate states, fc is skipped and d2t ignored: no error, and accept "
            "length 1.00"
        )
        yield CheckResult(
            "algorithm",
            Severity.ERROR,
            f"{flag} with the EAGLE-3 draft class {case.draft_class}",
            flag,
            "use --speculative-algorithm EAGLE3",
            silent if asked in _EAGLE_FLAGS else f"{asked} does not use an EAGLE-3 draft",
        )
    if not case.is_eagle3 and asked == "EAGLE3":
        yield CheckResult(
            "algorithm",
            Severity.ERROR,
            f"{flag} with {case.draft_class}, which is not an EAGLE-3 draft",
            flag,
            "use --speculative-algorithm EAGLE for an EAGLE-1/2 draft, or give an EAGLE-3 draft",
            "the server stops with AttributeError: hot_token_id",
        )


def version(case: DraftCase) -> Iterator[CheckResult]:
    if case.version is not None and case.before("0.0") is None:
        yield CheckResult(
            "version",
            Severity.WARNING,
            f"{brief(case.version)!r} is not an SGLang version; it counts as unknown",
            "sglang_version",
            "give it as the server states it, such as 0.5.14",
        )


def mla_class(case: DraftCase) -> Iterator[CheckResult]:
    """`Eagle3DeepseekV2ForCausalLM` came with SGLang 0.5.12."""
    if not case.is_mla:
        return
    if case.before("0.5.12"):
        yield CheckResult(
            "mla-class",
            Severity.ERROR,
            f"SGLang {case.version} has no {case.draft_class}",
            case.at("architectures"),
            "use SGLang 0.5.12 or newer",
        )
    yield CheckResult(
        "mla-partly-checked",
        Severity.NOTE,
        "a draft with latent attention: class, vocabulary, fc and heads were checked, its layer's tensors were not",
        case.at("architectures"),
        "watch the server log for 'Eagle3 MLA: skipping unexpected weight'",
    )
