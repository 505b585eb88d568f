"""What an answer is made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Answer:
    """One sentence first, then the sentences that carry it, what to do, most useful first, and the numbers to show."""

    sentence: str
    points: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    headline: Mapping[str, str] = field(default_factory=dict)


def keep(*sentences: str | None) -> tuple[str, ...]:
    """The sentences that the data support, each once and on one line, whatever the names in them hold."""
    return tuple(dict.fromkeys(one_line(sentence) for sentence in sentences if sentence))


def joined(sentences: Iterable[str | None]) -> str:
    """Sentences one after the other, on one line."""
    return one_line(" ".join(sentence for sentence in sentences if sentence))


def one_line(text: str) -> str:
    return " ".join(text.split())
