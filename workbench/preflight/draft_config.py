"""The draft's own config.json."""

from __future__ import annotations

from collections.abc import Iterator

from workbench.preflight.case import DraftCase, brief, size
from workbench.preflight.result import CheckResult, Severity

_NEEDED = (
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_hidden_layers",
    "vocab_size",
    "max_position_embeddings",
)
_OPTIONAL = ("num_key_value_heads", "head_dim", "target_hidden_size", "num_aux_hidden_states", "draft_vocab_size")
# Keys that an older server ignores without a word, by the first version that reads them.
_KEY_SINCE = {
    "num_aux_hidden_states": "0.5.12",
    "fc_norm": "0.5.12",
    "use_aux_norm": "0.5.12",
    "norm_output": "0.5.12",
    "norm_before_fc": "0.5.17",
}
_LAYERS_SINCE = "0.5.12"


def numbers(case: DraftCase) -> Iterator[CheckResult]:
    for key in _NEEDED:
        if key not in case.config:
            yield CheckResult(
                "config-number",
                Severity.ERROR,
                f"{key} is missing",
                case.at(key),
                "state it: exporters write it, and it has to agree with the tensors",
                "a default of transformers, Llama-7B's say, is taken without a word",
            )
    for key in (*_NEEDED, *_OPTIONAL):
        value = case.config.get(key)
        if value is not None and size(case.config, key) is None:
            yield CheckResult(
                "config-number",
                Severity.ERROR,
                f"{key} is {brief(value)!r}, not a whole number above zero",
                case.at(key),
                "write the number that the draft was trained with",
            )


def draft_vocab_size(case: DraftCase) -> Iterator[CheckResult]:
    where = case.at("draft_vocab_size")
    if "draft_vocab_size" not in case.config:
        if not case.is_mla:
            yield CheckResult(
                "draft-vocab-size",
                Severity.ERROR,
                "the key draft_vocab_size is missing",
                where,
                "add it: the number of rows of lm_head.weight (null to use the target's head)",
                "the server stops with AttributeError: draft_vocab_size",
            )
    elif case.uses_target_head:
        yield CheckResult(
            "draft-vocab-size",
            Severity.NOTE,
            "draft_vocab_size is null: the target's lm_head is used",
            where,
            "nothing, if the draft was trained with the target's head",
            "a head of the draft's own would be overwritten",
        )
    elif case.vocab is not None and case.draft_vocab is not None and case.draft_vocab > case.vocab:
        yield CheckResult(
            "draft-vocab-size",
            Severity.ERROR,
            f"draft_vocab_size {case.draft_vocab} is larger than vocab_size {case.vocab}",
            where,
            "correct the one that is wrong; lm_head.weight has draft_vocab_size rows",
        )


def tied_embeddings(case: DraftCase) -> Iterator[CheckResult]:
    """A tied head becomes the target's embedding, and the draft's own head is dropped (SpecForge issue 139)."""
    if not case.config.get("tie_word_embeddings"):
        return
    own_head = case.tensor("lm_head.weight") is not None
    if case.has_cut_vocab or own_head:
        loss = "its rows are those of the whole vocabulary, not of the draft's" if case.has_cut_vocab else ""
        yield CheckResult(
            "tied-embeddings",
            Severity.ERROR,
            "tie_word_embeddings is true"
            + (f" with draft_vocab_size {case.draft_vocab} below vocab_size {case.vocab}" if case.has_cut_vocab else "")
            + (" and a head of the draft's own" if own_head else ""),
            case.at("tie_word_embeddings"),
            'write "tie_word_embeddings": false',
            "the head becomes the target's embedding and lm_head.weight is dropped without a word"
            + (f"; {loss}" if loss else ""),
        )


def layer_count(case: DraftCase) -> Iterator[CheckResult]:
    layers = size(case.config, "num_hidden_layers")
    if layers is None or layers == 1:
        return
    old = True if case.is_mla else case.before(_LAYERS_SINCE)
    if old is False:
        return
    yield CheckResult(
        "layer-count",
        Severity.ERROR if old else Severity.WARNING,
        f"num_hidden_layers is {layers}",
        case.at("num_hidden_layers"),
        "use a draft of one layer" if case.is_mla else f"use SGLang {_LAYERS_SINCE} or newer, or a draft of one layer",
        "the server stops with 'EAGLE3 currently only supports 1 layer'"
        + ("" if old else f" before {_LAYERS_SINCE}; the version is not known here"),
    )


def eagle_config(case: DraftCase) -> Iterator[CheckResult]:
    """Any fault in ``eagle_config`` is swallowed: the target then captures its default layers."""
    where = case.at("eagle_config.eagle_aux_hidden_state_layer_ids")
    default = "SGLang then captures its default layers [2, n/2, n-3] without a word"
    top_level = case.config.get("eagle_aux_hidden_state_layer_ids")
    nested = case.eagle_config.get("eagle_aux_hidden_state_layer_ids")
    if top_level is not None and top_level != nested:
        yield CheckResult(
            "ids-ignored",
            Severity.ERROR,
            f"eagle_aux_hidden_state_layer_ids {brief(top_level)} at the top level is ignored for capturing",
            case.at("eagle_aux_hidden_state_layer_ids"),
            "move it into eagle_config",
            default if nested is None else f"the ids in eagle_config, {brief(nested)}, are used",
        )
    elif nested is None:
        what = "no eagle_config" if "eagle_config" not in case.config else "eagle_config names no layers to capture"
        yield CheckResult(
            "eagle-config",
            Severity.WARNING,
            what,
            where,
            "state the layers that the draft was trained on, even where they are the default ones",
            default,
        )
    if nested is not None and not case.capture_ids:
        yield CheckResult(
            "eagle-config",
            Severity.ERROR,
            f"the layers to capture are {brief(nested)}, not a list of whole numbers",
            where,
            "write the ids that the draft was trained on, such as [1, 14, 26]",
        )


def aux_states_used(case: DraftCase) -> Iterator[CheckResult]:
    if not case.uses_aux_states:
        yield CheckResult(
            "aux-off",
            Severity.WARNING,
            "use_aux_hidden_state is off: only the target's last hidden state is passed on",
            case.at("eagle_config.use_aux_hidden_state"),
            "write true, unless the draft was trained on the last hidden state alone",
            "a state as wide as the draft's embedding passes by fc, so what the draft learnt of three layers is lost",
        )


def aux_count(case: DraftCase) -> Iterator[CheckResult]:
    ids = case.capture_ids
    stated = size(case.config, "num_aux_hidden_states")
    captured = len(ids) if ids else 3
    if stated is not None and stated != captured:
        yield CheckResult(
            "aux-count",
            Severity.ERROR,
            f"num_aux_hidden_states is {stated} and {captured} layers are captured",
            case.at("num_aux_hidden_states"),
            "make the two agree",
            "the states do not fit fc and the first request fails",
        )


def fc_used(case: DraftCase) -> Iterator[CheckResult]:
    """fc runs only where the width that arrives differs from the embedding's."""
    if case.hidden is not None and case.input_hidden is not None and case.aux_count * case.input_hidden == case.hidden:
        yield CheckResult(
            "fc-skipped",
            Severity.ERROR,
            f"{case.aux_count} x {case.input_hidden} captured values are as wide as hidden_size {case.hidden}",
            case.at("hidden_size"),
            "use a draft of another width",
            "SGLang tells by the width whether fc still has to run, so here it never does",
        )


def version_keys(case: DraftCase) -> Iterator[CheckResult]:
    for key, first in _KEY_SINCE.items():
        stated = case.eagle_config.get(key, case.config.get(key)) if key == "norm_before_fc" else case.config.get(key)
        old = case.before(first)
        if not stated or old is False or (key == "num_aux_hidden_states" and stated == 3):
            continue
        yield CheckResult(
            "key-ignored",
            Severity.ERROR if old else Severity.WARNING,
            f"{key} is read from SGLang {first} on" + (f" and this is {case.version}" if old else ""),
            case.at(key),
            f"use SGLang {first} or newer",
            "an older server ignores it without a word and computes something the draft was not trained for",
        )


def norm_output(case: DraftCase) -> Iterator[CheckResult]:
    if case.config.get("norm_output"):
        yield CheckResult(
            "norm-output",
            Severity.WARNING,
            "norm_output is on, and trainers meant two things by it",
            case.at("norm_output"),
            "ask which trainer version made the draft; drop the key if it was SpecForge before September 2026",
            "SGLang hands the normed state to the next draft step; SpecForge until its PR 879 only meant a norm before "
            "the head: the first draft is then right and the later ones are not",
        )
