"""Accept length and accept rate: what the printed numbers mean, and how to tell from the numbers themselves.

L is the accept length (bonus token included, 1.0 means nothing accepted), S the number of draft steps,
N the number of draft tokens, which counts the root token.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import isclose, log

from workbench.sglang_rules.versions import LATEST_VERSION, Span

RATE_L_OVER_S_PLUS_1 = "L/(S+1)"
RATE_L_OVER_N = "L/N"
RATE_DRAFTS_OVER_N_MINUS_1 = "(L-1)/(N-1)"

RATE_DEFINITION_SPANS: Mapping[str, Span] = {
    RATE_L_OVER_S_PLUS_1: ("0.5.3.post2", "0.5.5.post2"),  # sglang PR 11572
    RATE_L_OVER_N: ("0.5.5.post3", "0.5.10"),  # sglang PR 13212
    RATE_DRAFTS_OVER_N_MINUS_1: ("0.5.11", LATEST_VERSION),  # sglang PR 23530
}


def own_accept_rate(accept_length: float, steps: int) -> float | None:
    """(L - 1) / S: the share of proposed chain positions that were accepted, comparable across versions."""
    return (accept_length - 1) / steps if steps > 0 else None


def printed_rate(definition: str, accept_length: float, steps: int | None, draft_tokens: int | None) -> float | None:
    """The ``accept rate`` that a server with this definition prints, unrounded; None where a number is missing."""
    parts = _rate_parts(definition, steps, draft_tokens)
    if parts is None:
        return None
    subtract, denominator = parts
    return (accept_length - subtract) / denominator


def _rate_parts(definition: str, steps: int | None, draft_tokens: int | None) -> tuple[int, int] | None:
    if definition == RATE_L_OVER_S_PLUS_1 and steps is not None:
        return 0, steps + 1
    if definition == RATE_L_OVER_N and draft_tokens:
        return 0, draft_tokens
    if definition == RATE_DRAFTS_OVER_N_MINUS_1 and draft_tokens is not None and draft_tokens > 1:
        return 1, draft_tokens - 1
    return None


HALF = 0.005
"""Both numbers are printed with two decimals: the true value lies within half a unit of the last one."""

MAX_DRAFT_TOKENS = 128
_MISS = 0.02  # likelihood of a pair outside the rounding intervals: ties and mixed windows exist


def _overlap(accept_length: float, rate: float, subtract: int, denominator: int) -> float:
    """Share of the accept lengths behind the printed one that round to the printed rate."""
    low = max(accept_length - HALF, 1.0) - subtract
    high = accept_length + HALF - subtract
    inside = min(high, (rate + HALF) * denominator) - max(low, (rate - HALF) * denominator)
    return max(inside, 0.0) / (high - low) if high > low else 0.0


@dataclass(frozen=True, slots=True)
class RateReading:
    """What printed (accept len, accept rate) pairs say about the definition and the number of draft tokens.

    ``definition`` and ``draft_tokens`` are None where the pairs do not decide.
    """

    definition: str | None
    draft_tokens: int | None


_UNREAD = RateReading(None, None)


def read_rates(
    pairs: Mapping[tuple[float, float], int],
    *,
    steps: int | None = None,
    draft_tokens: int | None = None,
    definitions: Collection[str] = tuple(RATE_DEFINITION_SPANS),
) -> RateReading:
    """Infer the definition of ``accept rate`` and, if not given, the number of draft tokens.

    Parameters
    ----------
    pairs
        (accept len, accept rate) as printed, with how often each was seen.
    steps, draft_tokens
        The effective values, where known.
    definitions
        Those that the line layout leaves possible.

    Notes
    -----
    With N = S + 1 the definitions L/(S+1) and L/N agree; L/N is reported. Without N every value up to
    `MAX_DRAFT_TOKENS` is tried; the definition counts as found only when no other one explains the pairs as well.
    Of equally good N a power of two wins, then the smaller.
    """
    usable = {pair: count for pair, count in pairs.items() if pair[0] >= 1.0 - HALF and pair[1] >= 0.0}
    if not usable:
        return _UNREAD
    known = _numbers_to_try(steps, draft_tokens)
    best: dict[str, tuple[float, list[int]]] = {}
    for definition in definitions:
        scores = [(_score(usable, definition, steps, number), number) for number in known]
        scores = [entry for entry in scores if entry[0] > float("-inf")]
        if scores:
            top = max(score for score, _ in scores)
            best[definition] = (top, [number for score, number in scores if isclose(score, top, abs_tol=1e-6)])
    return _decide(best, draft_tokens)


def infer_draft_tokens(definition: str, pairs: Mapping[tuple[float, float], int]) -> int | None:
    """The number of draft tokens that explains printed pairs under a given definition, None where none does."""
    return read_rates(pairs, definitions=(definition,)).draft_tokens


def _numbers_to_try(steps: int | None, draft_tokens: int | None) -> Sequence[int]:
    return (draft_tokens,) if draft_tokens is not None else range(2, MAX_DRAFT_TOKENS + 1)


def _score(pairs: Mapping[tuple[float, float], int], definition: str, steps: int | None, draft_tokens: int) -> float:
    """Mean log likelihood, or minus infinity when fewer than nine pairs in ten fit within one more half unit."""
    parts = _rate_parts(definition, steps, draft_tokens)
    if parts is None:
        return float("-inf")
    subtract, denominator = parts
    total = near = 0
    likelihood = 0.0
    for (length, rate), count in pairs.items():
        likelihood += count * log(max(_overlap(length, rate, subtract, denominator), _MISS))
        # 0.01: the two roundings together, and ties (83 tokens in 40 steps print as 2.08, their rate 0.415 as 0.41)
        near += count * (abs((length - subtract) / denominator - rate) < 2 * HALF + 1e-9)
        total += count
    return likelihood / total if near >= 0.9 * total else float("-inf")


def _decide(best: Mapping[str, tuple[float, list[int]]], draft_tokens: int | None) -> RateReading:
    if not best:
        return _UNREAD
    top = max(score for score, _ in best.values())
    winners = [name for name, (score, _) in best.items() if isclose(score, top, abs_tol=1e-6)]
    if RATE_L_OVER_N in winners and RATE_L_OVER_S_PLUS_1 in winners:
        winners.remove(RATE_L_OVER_S_PLUS_1)
    if len(winners) > 1:
        return _UNREAD
    numbers = best[winners[0]][1]
    if draft_tokens is not None:
        return RateReading(winners[0], draft_tokens)
    # Many equally good numbers (nothing was ever accepted: rate 0.00) are no reading at all.
    if len(numbers) > 3:
        return RateReading(winners[0], None)
    return RateReading(winners[0], min(numbers, key=lambda number: (number & (number - 1) != 0, number)))
