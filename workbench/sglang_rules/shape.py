"""Steps, topk and draft tokens: the server's defaults, rewrites and refusals, by version."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.sglang_rules.versions import at_least


@dataclass(frozen=True, slots=True)
class EffectiveShape:
    """What the server makes of the three numbers.

    ``refused`` says why it does not start, or dies at the first decode; the numbers are then as far as they are known.
    """

    num_steps: int | None
    eagle_topk: int | None
    num_draft_tokens: int | None
    notes: tuple[str, ...] = ()
    refused: str | None = None


def tree_candidates(steps: int, topk: int) -> int:
    """Draft tokens a tree offers besides the root: topk + (steps - 1) * topk^2. More cannot be asked for."""
    return topk + (steps - 1) * topk * topk


def default_shape(version: str, target_arch: str) -> tuple[int, int, int]:
    """(steps, topk, draft tokens) that the server takes when none is given, for EAGLE, EAGLE3 and NEXTN."""
    if not at_least(version, "0.4.4"):
        return (5, 8, 64)
    if target_arch == "LlamaForCausalLM" or target_arch.startswith("Grok"):
        return (5, 4, 8)
    deepseek = "Deepseek" in target_arch and at_least(version, "0.4.9")
    gpt_oss = "GptOss" in target_arch and at_least(version, "0.5.1")
    return (3, 1, 4) if deepseek or gpt_oss or at_least(version, "0.5.8") else (5, 4, 8)


def default_max_running_requests(version: str | None = None) -> int:
    """The cap that speculation brings when ``--max-running-requests`` is not given. Without speculation: no cap."""
    return 48 if at_least(version, "0.4.4.post4") else 32


def effective_shape(
    steps: int | None,
    topk: int | None,
    draft_tokens: int | None,
    version: str | None = None,
    *,
    target_arch: str | None = None,
    page_size: int | None = None,
    attention_backend: str | None = None,
    spec_v2: bool = False,
) -> EffectiveShape:
    """Apply the server's own rewrites to ``--speculative-num-steps``, ``-eagle-topk`` and ``-num-draft-tokens``.

    When none of them is given, the defaults need a version and the target's architecture; without these all stay None.
    ``spec_v2`` says whether SGLANG_ENABLE_SPEC_V2 is set; it only matters for 0.5.7 to 0.5.12.
    Otherwise an unknown version counts as the newest.
    """
    asked = (steps, topk, draft_tokens)
    if asked == (None, None, None):
        return _defaults(version, target_arch)
    if steps is None:
        return EffectiveShape(*asked, refused="num_steps must be given when topk or draft tokens are (AssertionError)")
    if topk is None:
        return EffectiveShape(*asked, refused="eagle_topk must be given when num_steps is (TypeError)")
    if steps < 1 or topk < 1 or (draft_tokens is not None and draft_tokens < 1):
        return EffectiveShape(*asked, refused="num_steps, eagle_topk and num_draft_tokens must be at least 1")
    if topk > 1 and page_size is not None and page_size > 1 and not at_least(version, "0.4.9"):
        note = "eagle_topk is set to 1 because page_size > 1"
        return _chain(steps, draft_tokens, version, (note,) if at_least(version, "0.4.6") else ())
    if topk == 1:
        return _chain(steps, draft_tokens, version, ())
    return _tree(steps, topk, draft_tokens, _tree_conflict(version, page_size, attention_backend, spec_v2))


def _defaults(version: str | None, target_arch: str | None) -> EffectiveShape:
    if version is None or target_arch is None:
        note = "none of the three numbers is given: the defaults depend on the SGLang version and the target's class"
        return EffectiveShape(None, None, None, (note,))
    defaults = default_shape(version, target_arch)
    note = f"none of the three numbers is given: the server takes {defaults}"
    return EffectiveShape(*defaults, (note,))


def _chain(steps: int, draft_tokens: int | None, version: str | None, notes: tuple[str, ...]) -> EffectiveShape:
    if draft_tokens == steps + 1:
        return EffectiveShape(steps, 1, draft_tokens, notes)
    if not at_least(version, "0.4.6"):
        if draft_tokens is None:
            return EffectiveShape(steps, 1, None, notes, "num_draft_tokens must be given before 0.4.6")
        return EffectiveShape(steps, 1, draft_tokens, notes)
    note = f"num_draft_tokens {draft_tokens if draft_tokens is not None else 'unset'} becomes {steps + 1}: topk is 1"
    return EffectiveShape(steps, 1, steps + 1, (*notes, note))


def _tree(steps: int, topk: int, draft_tokens: int | None, conflict: tuple[str, str]) -> EffectiveShape:
    note, refused = conflict
    notes = (note,) if note else ()
    if draft_tokens is None:
        refused = refused or "num_draft_tokens must be given when eagle_topk > 1: there is no default for it alone"
    elif draft_tokens - 1 > tree_candidates(steps, topk):
        refused = refused or (
            f"the tree offers {tree_candidates(steps, topk)} drafts, num_draft_tokens {draft_tokens} needs "
            f"{draft_tokens - 1}: the server starts and dies at the first decode (selected index k out of range)"
        )
    elif draft_tokens <= steps:
        notes = (*notes, f"drafts deeper than {draft_tokens - 1} can never be accepted: num_draft_tokens <= num_steps")
    return EffectiveShape(steps, topk, draft_tokens, notes, refused or None)


def _tree_conflict(
    version: str | None, page_size: int | None, attention_backend: str | None, spec_v2: bool
) -> tuple[str, str]:
    """Note and refusal for topk > 1, from 0.4.9 on."""
    if attention_backend == "trtllm_mha" and at_least(version, "0.5.1"):
        return "", "eagle_topk > 1 is refused with the trtllm_mha attention backend (ValueError)"
    if page_size is not None and page_size > 1:
        if not at_least(version, "0.5.2"):
            return "eagle_topk > 1 with page_size > 1 gives wrong results in 0.4.9 to 0.5.1", ""
        if attention_backend not in _paged_tree_backends(version):
            return "", f"eagle_topk > 1 with page_size > 1 is refused with attention backend {attention_backend}"
    if spec_v2 and not at_least(version, "0.5.13"):
        if not at_least(version, "0.5.11"):
            refused = "eagle_topk > 1 is refused with SGLANG_ENABLE_SPEC_V2 (ValueError)"
            return ("", refused) if at_least(version, "0.5.7") else ("", "")
        return "eagle_topk > 1 falls back to spec v1, without overlap", ""
    return "", ""


def _paged_tree_backends(version: str | None) -> frozenset[str]:
    if at_least(version, "0.5.14"):  # the 0.5.12 wheel refuses triton, that of 0.5.14 takes it
        return frozenset({"flashinfer", "fa3", "triton"})
    return frozenset({"flashinfer", "fa3"} if at_least(version, "0.5.9") else {"flashinfer"})
