"""What an answer is made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Answer:
    """One sentence first, then the sentences that carry it, then what to do, most useful first."""

    sentence: str
    points: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()


def keep(*sentences: str | None) -> tuple[str, ...]:
    """The sentences that the data support."""
    return tuple(sentence for sentence in sentences if sentence)
