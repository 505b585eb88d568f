"""What SGLang does, by version, as data and small functions. Imports nothing but the standard library.

Source: the released wheels 0.3.6 to 0.5.23, and the SGLang pull requests named at each rule. A range names the first
and last release known to have the behaviour; releases between two that were read count with the later one.
"""

from workbench.sglang_rules.capture import EAGLE3_DRAFT_CLASSES, captured_layers, eagle3_capture_since, is_eagle3_class
from workbench.sglang_rules.layouts import (
    EVENT_SPANS,
    LAYOUT_SPANS,
    Bracket,
    bracket_versions,
    layout_features,
    text_features,
)
from workbench.sglang_rules.rates import (
    RATE_DEFINITION_SPANS,
    RATE_DRAFTS_OVER_N_MINUS_1,
    RATE_L_OVER_N,
    RATE_L_OVER_S_PLUS_1,
    RateReading,
    infer_draft_tokens,
    own_accept_rate,
    printed_rate,
    read_rates,
)
from workbench.sglang_rules.shape import (
    EffectiveShape,
    default_max_running_requests,
    default_shape,
    effective_shape,
    tree_candidates,
)
from workbench.sglang_rules.versions import (
    ALGORITHM_SINCE,
    FIRST_VERSION,
    LATEST_VERSION,
    Span,
    at_least,
    intersect,
    version_before,
    version_key,
)

__all__ = [
    "ALGORITHM_SINCE",
    "EAGLE3_DRAFT_CLASSES",
    "EVENT_SPANS",
    "FIRST_VERSION",
    "LATEST_VERSION",
    "LAYOUT_SPANS",
    "RATE_DEFINITION_SPANS",
    "RATE_DRAFTS_OVER_N_MINUS_1",
    "RATE_L_OVER_N",
    "RATE_L_OVER_S_PLUS_1",
    "Bracket",
    "EffectiveShape",
    "RateReading",
    "Span",
    "at_least",
    "bracket_versions",
    "captured_layers",
    "default_max_running_requests",
    "default_shape",
    "eagle3_capture_since",
    "effective_shape",
    "infer_draft_tokens",
    "intersect",
    "is_eagle3_class",
    "layout_features",
    "own_accept_rate",
    "printed_rate",
    "read_rates",
    "text_features",
    "tree_candidates",
    "version_before",
    "version_key",
]
