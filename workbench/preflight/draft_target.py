"""The draft against its target: vocabulary, widths, captured layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from workbench.preflight.case import DEFAULT_AUX_COUNT, DraftCase, architecture, brief, size
from workbench.preflight.result import CheckResult, Severity
from workbench.sglang_rules import at_least, captured_layers, eagle3_capture_since

_OTHER_TARGET = "the draft was made for another target: give the one it was trained with"
_IDS_KEY = "eagle_config.eagle_aux_hidden_state_layer_ids"
_COUNT_KEY = "num_aux_hidden_states"
_FC_FITS_SINCE = "0.5.12"
_BUFFER_FITS_SINCE = "0.5.15"
_BUFFER_RULE = f"the input of fc is as wide as {_COUNT_KEY} of the target's config.json says, else for 3"
_NEEDED_OF_TARGET = ("architectures", "num_hidden_layers", "hidden_size", "vocab_size")


def not_stated(case: DraftCase) -> Iterator[CheckResult]:
    """What the other checks would have compared with; they are silent where the target's config is."""
    if case.target is None:
        return
    missing = [
        key for key in _NEEDED_OF_TARGET if key not in case.target_config and case.target.config.get(key) is None
    ]
    if missing:
        yield CheckResult(
            "target-config",
            Severity.NOTE,
            f"the target's config does not state {', '.join(missing)}, so the draft was not checked against it",
            case.at_target(missing[0]),
            "give the target's own config.json, as its publisher wrote it",
        )


def vocab(case: DraftCase) -> Iterator[CheckResult]:
    theirs = size(case.target_config, "vocab_size")
    if theirs is not None and case.vocab is not None and theirs != case.vocab:
        yield CheckResult(
            "vocab-size",
            Severity.ERROR,
            f"vocab_size is {case.vocab} and the target's is {theirs}",
            case.at("vocab_size"),
            _OTHER_TARGET,
            "token ids mean other tokens, and the shared embedding has another size",
        )


def widths(case: DraftCase) -> Iterator[CheckResult]:
    theirs = size(case.target_config, "hidden_size")
    if theirs is None or case.input_hidden is None or theirs == case.input_hidden:
        return
    if case.input_hidden != case.hidden:
        what, key = f"target_hidden_size is {case.input_hidden}", "target_hidden_size"
        then = _OTHER_TARGET
    else:
        what, key = f"hidden_size is {case.hidden} and no target_hidden_size is stated", "hidden_size"
        then = f'add "target_hidden_size": {theirs} if fc.weight is that wide, or give another target'
    yield CheckResult(
        "target-hidden-size",
        Severity.ERROR,
        f"{what}; the target's hidden_size is {theirs}",
        case.at(key),
        then,
        f"{case.aux_count} x {theirs} values arrive and fc takes {case.aux_count} x {case.input_hidden}",
    )


def aux_count_by_version(case: DraftCase) -> Iterator[CheckResult]:
    """How many captured layers a version prepares for: from 0.5.15 on as many as the draft states.

    Source: EagleDraftExtendInput.hidden_size_for in speculative/eagle_info.py of 0.5.12 to 0.5.14, and what came in its
    place in 0.5.15, get_draft_input_from_target_hidden_dim in speculative/eagle_utils.py.
    """
    count, fixed = case.aux_count, case.before(_FC_FITS_SINCE)
    disagreeing = count != len(case.capture_ids or ()) and count != DEFAULT_AUX_COUNT
    if case.before(_BUFFER_FITS_SINCE) is False or disagreeing or not case.uses_aux_states:
        return
    if fixed is not False and count != DEFAULT_AUX_COUNT and not case.is_mla:
        yield CheckResult(
            "aux-count",
            Severity.ERROR if fixed else Severity.WARNING,
            f"{count} layers are captured",
            case.at(_IDS_KEY),
            f"use SGLang {_BUFFER_FITS_SINCE} or newer, or a draft of {DEFAULT_AUX_COUNT} layers",
            f"before {_FC_FITS_SINCE} fc is built for exactly {DEFAULT_AUX_COUNT}"
            + ("" if fixed else f"; before {_BUFFER_FITS_SINCE} {_BUFFER_RULE}; the version is not known here"),
        )
    elif fixed is not True and count != _prepared_for(case):
        yield _unprepared(case, count, _prepared_for(case))


def _prepared_for(case: DraftCase) -> int:
    """The number of captured layers by the target's own config.json, which names it for no ordinary model."""
    config: Mapping[str, object] = {} if case.target is None else case.target.config
    nested = config.get("eagle_config")
    ids = nested.get("eagle_aux_hidden_state_layer_ids") if isinstance(nested, dict) else None
    stated = len(ids) if isinstance(ids, list) else 0
    return size(config, _COUNT_KEY) or stated or DEFAULT_AUX_COUNT


def _unprepared(case: DraftCase, count: int, prepared: int) -> CheckResult:
    known = case.target is not None and case.version is not None
    served = f"SGLang {case.version} prepares" if case.version else f"SGLang before {_BUFFER_FITS_SINCE} prepares"
    width = case.input_hidden or 0
    message = f": {prepared * width} values arrive and fc takes {count * width}" if width else ""
    return CheckResult(
        "aux-count",
        Severity.ERROR if known else Severity.WARNING,
        f"{count} layers are captured, and {served} for {prepared}",
        case.at_target(_COUNT_KEY) or case.at(_IDS_KEY),
        f'write "{_COUNT_KEY}": {count} into the target\'s config.json, use SGLang {_BUFFER_FITS_SINCE} or newer, '
        f"or a draft of {prepared} layers",
        f"{_BUFFER_RULE}: the server stops while it captures the graphs of draft extend{message}",
    )


def target_support(case: DraftCase) -> Iterator[CheckResult]:
    """The target's class must be able to hand out intermediate states."""
    name = None if case.target is None else architecture(case.target.config)
    if name is None:
        return
    where = case.at_target("architectures")
    since = eagle3_capture_since(name)
    if since is None:
        yield CheckResult(
            "target-support",
            Severity.WARNING,
            f"{name} is not known to support EAGLE-3 in SGLang",
            where,
            "look for set_eagle3_layers_to_capture in SGLang's class of this model",
            "without it the server stops at start",
        )
    elif case.before(since):
        yield CheckResult(
            "target-support",
            Severity.ERROR,
            f"{name} supports EAGLE-3 from SGLang {since} on and this is {case.version}",
            where,
            f"use SGLang {since} or newer",
            "the server stops at start: the class has no set_eagle3_layers_to_capture",
        )


def capture(case: DraftCase) -> Iterator[CheckResult]:
    """Which layers' states the draft will be fed."""
    mapping = _mapping(case, case.version)
    if mapping is None:
        return
    name, layers, mapped = mapping
    ids = "by default, as the draft states no ids" if not case.capture_ids else f"ids {brief(list(case.capture_ids))}"
    outputs = brief(", ".join(str(i - 1) for i in mapped))
    yield CheckResult(
        "capture-layers",
        Severity.NOTE,
        f"captures layers {outputs} of {layers}",
        case.at(_IDS_KEY),
        "compare with the layers that the draft was trained on",
        f"{ids}; their outputs, counted from 0",
    )
    # The state after the last layer is only handed out by gpt_oss since 0.5.17 (SGLang PR 32334).
    last = layers if "gptoss" in name.lower() and at_least(case.version, "0.5.17") else layers - 1
    outside = [i for i in mapped if not 0 <= i <= last]
    if outside:
        yield CheckResult(
            "capture-range",
            Severity.ERROR,
            f"{len(outside)} of the layers whose input is captured, {brief(list(mapped))}, do not exist among {layers}",
            case.at(_IDS_KEY),
            "correct the ids; that alone does not help a draft that was trained on other layers",
            "they are never captured, fewer states arrive than fc takes, and the first request fails",
        )


def capture_by_version(case: DraftCase) -> Iterator[CheckResult]:
    """DeepSeek-type targets, Kimi K2 and K2.5 among them, read the same ids differently from 0.5.13 on."""
    old, new, here = (_mapping(case, version) for version in ("0.5.12", "0.5.13", case.version))
    if old is None or new is None or here is None or old == new:
        return
    known = (
        f"SGLang {case.version} captures {brief(list(here[2]))}" if case.version else "the version is not known here"
    )
    yield CheckResult(
        "capture-by-version",
        Severity.WARNING,
        f"{old[0]} captures the inputs of layers {brief(list(old[2]))} up to SGLang 0.5.12 and of "
        f"{brief(list(new[2]))} from 0.5.13 on",
        case.at(_IDS_KEY),
        "find out which of the two the draft was trained on, and serve it with a version that captures those",
        f"a draft fed the neighbouring layers' states loses accept length without an error; {known}",
    )


def capture_convention(case: DraftCase) -> Iterator[CheckResult]:
    """Ids that are SGLang's own default count inputs, and most targets read ids as outputs."""
    mapping, ids = _mapping(case, case.version), case.capture_ids
    if mapping is None or ids is None:
        return
    _, layers, mapped = mapping
    if ids == (2, layers // 2, layers - 3) and mapped != ids:
        yield CheckResult(
            "capture-convention",
            Severity.WARNING,
            f"ids {list(ids)} look like numbers of layer inputs (vLLM, speculators), and SGLang adds 1 to them",
            case.at(_IDS_KEY),
            f"write {[i - 1 for i in ids]} if the draft was trained on the states entering layers {list(ids)}",
            "the draft would be fed the states one layer further on",
        )


def capture_order(case: DraftCase) -> Iterator[CheckResult]:
    ids = case.capture_ids or ()
    if any(a >= b for a, b in pairwise(ids)):
        yield CheckResult(
            "capture-order",
            Severity.ERROR if len(set(ids)) < len(ids) else Severity.WARNING,
            f"the captured layers {brief(list(ids))} do not increase",
            case.at(_IDS_KEY),
            "state them in increasing order, each once, as the draft was trained",
            "SGLang captures each layer once, in the order of the layers and not of the list",
        )


def _mapping(case: DraftCase, version: str | None) -> tuple[str, int, tuple[int, ...]] | None:
    """The target's class, its number of layers, and the layers whose input is captured."""
    layers = size(case.target_config, "num_hidden_layers")
    name = None if case.target is None else architecture(case.target.config)
    if layers is None or name is None:
        return None
    return name, layers, captured_layers(name, case.capture_ids, layers, version)
