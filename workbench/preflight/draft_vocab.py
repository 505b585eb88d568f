"""The vocabulary map: d2t holds offsets (target id = i + d2t[i]), t2d marks the target ids that are kept."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from workbench.checkpoint import TensorInfo
from workbench.preflight.case import DraftCase, place
from workbench.preflight.result import CheckResult, Severity

_REBUILD = "write d2t again from the vocabulary list that the draft was trained with"
_WRONG_TOKENS = "draft ids stand for the wrong target tokens, and accept length falls towards 1 without an error"


def vocab_map(case: DraftCase) -> Iterator[CheckResult]:
    """d2t: present, of the right shape, filled, increasing, inside the vocabulary."""
    info = case.tensor("d2t")
    if info is None:
        if case.has_cut_vocab and case.draft.tensors:
            yield CheckResult(
                "d2t-missing",
                Severity.ERROR,
                f"tensor d2t is missing, with draft_vocab_size {case.draft_vocab} below vocab_size {case.vocab}",
                str(case.draft.path),
                "export the draft again with d2t",
                "draft ids are then taken for target ids, and accept length falls towards 1 without an error",
            )
        return
    where = place(info)
    fault = _shape_fault(info, case.draft_vocab)
    if fault is not None:
        yield CheckResult("d2t-shape", Severity.ERROR, f"d2t {fault}", where, _REBUILD, _WRONG_TOKENS)
        return
    offsets = case.draft.read_ints(info.name)
    found = _offset_fault(offsets, case)
    if found is not None:
        rule, severity, what = found
        yield CheckResult(rule, severity, what, where, _REBUILD, _WRONG_TOKENS)


def inverse_map(case: DraftCase) -> Iterator[CheckResult]:
    """t2d: SGLang ignores it, but one that disagrees shows that one of the two maps is stale."""
    kept, offsets = case.tensor("t2d"), case.tensor("d2t")
    if kept is None:
        return
    where = place(kept)
    if kept.dtype not in ("BOOL", "U8", "I8", "I64", "I32") or (case.vocab and kept.shape != (case.vocab,)):
        yield CheckResult(
            "t2d-shape",
            Severity.WARNING,
            f"t2d is {kept.dtype} {list(kept.shape)}, not bool [{case.vocab}]",
            where,
            "export the draft again",
            "SGLang ignores t2d, but the trainer's map is not the one of this vocabulary",
        )
        return
    if offsets is None or _shape_fault(offsets, case.draft_vocab) is not None:
        return
    by_t2d = {i for i, flag in enumerate(case.draft.read_ints(kept.name)) if flag}
    by_d2t = {i + offset for i, offset in enumerate(case.draft.read_ints(offsets.name))}
    if by_t2d != by_d2t:
        yield CheckResult(
            "t2d-differs",
            Severity.ERROR,
            f"t2d and d2t name different tokens ({len(by_t2d ^ by_d2t)} of {len(by_t2d | by_d2t)})",
            where,
            _REBUILD,
            "one of the maps is left over from another vocabulary; if it is d2t, " + _WRONG_TOKENS,
        )


def _shape_fault(info: TensorInfo, draft_vocab: int | None) -> str | None:
    if info.dtype not in ("I64", "I32"):
        return f"holds {info.dtype}, not int64"
    if len(info.shape) != 1 or (draft_vocab is not None and info.shape[0] != draft_vocab):
        return f"has shape {list(info.shape)}, not [{draft_vocab or 'draft_vocab_size'}]"
    return None


def _offset_fault(offsets: list[int], case: DraftCase) -> tuple[str, Severity, str] | None:
    """The first fault of the map, or ``None``."""
    if case.has_cut_vocab and not any(offsets):
        return "d2t-zero", Severity.ERROR, "d2t is all zero, as in a buffer that was never filled"
    ids = [i + offset for i, offset in enumerate(offsets)]
    outside = [i for i in ids if i < 0 or (case.vocab is not None and i >= case.vocab)]
    if outside:
        absolute = all(a < b for a, b in pairwise(offsets)) and (case.vocab is None or offsets[-1] < case.vocab)
        hint = "; it looks like the target ids themselves instead of offsets" if absolute and offsets[0] >= 0 else ""
        what = f"{len(outside)} target ids lie outside the vocabulary of {case.vocab}, the first is {outside[0]}{hint}"
        return "d2t-range", Severity.ERROR, what
    twice = len(ids) - len(set(ids))
    if twice:
        return "d2t-order", Severity.ERROR, f"{twice} draft ids share a target id with another one"
    if any(a > b for a, b in pairwise(ids)):
        return "d2t-order", Severity.WARNING, "target ids do not increase; trainers write them in order"
    return None
