"""What is said of one run in two places, and whether both say the same."""

from __future__ import annotations

from collections.abc import Iterator

from workbench.parse.records import StartupFacts
from workbench.sglang_rules import effective_shape
from workbench.spec import RunSpec
from workbench.store import RunFolder

_SHAPE = ("steps", "topk", "draft tokens")
_STATED = ("server_args", "graph capture")  # a number of draft tokens that was inferred contradicts nobody


def spans_beyond(run: RunFolder, log_bytes: int) -> list[str]:
    """The spans of a run that hold no byte of its log."""
    return [
        f"log span {start:,} to {end:,} lies beyond the end of the log ({log_bytes:,} bytes): no line of it is used"
        for start, end in run.status.log_spans
        if start >= log_bytes
    ]


def disagreement(spec: RunSpec, facts: StartupFacts) -> str | None:
    """Where the server's own arguments differ from what was asked for, after the server's rewrites of that."""
    if facts.server_args_line is None:
        return None
    differing = [
        f"{name} {asked}, the log says {used}" for name, asked, used in _compared(spec, facts) if asked != used
    ]
    return f"spec and server's log disagree: {'; '.join(differing)}" if differing else None


def _compared(spec: RunSpec, facts: StartupFacts) -> Iterator[tuple[str, object, object]]:
    """What both state: name, as asked, as used."""
    decode = spec.spec_decode
    asked = None if decode is None else decode.speculative_algorithm
    if "speculative_algorithm" in facts.server_args and (decode is None or asked is not None):
        yield "algorithm", _algorithm(asked), _algorithm(facts.server_args["speculative_algorithm"])
    if decode is None:
        return
    shape = effective_shape(
        decode.speculative_num_steps,
        decode.speculative_eagle_topk,
        decode.speculative_num_draft_tokens,
        version=spec.sglang_version or (facts.version_bracket[1] if facts.version_bracket else None),
    )
    draft_tokens = facts.draft_tokens_effective if facts.draft_tokens_source in _STATED else None
    used = (facts.num_steps, facts.eagle_topk, draft_tokens)
    for name, wanted, found in zip(
        _SHAPE, (shape.num_steps, shape.eagle_topk, shape.num_draft_tokens), used, strict=True
    ):
        if wanted is not None and found is not None:
            yield name, wanted, found


def _algorithm(name: object) -> str:
    """Its name in one spelling; the server takes any case, and NEXTN for EAGLE."""
    text = "none" if name is None else str(name).upper()
    return "EAGLE" if text == "NEXTN" else text
