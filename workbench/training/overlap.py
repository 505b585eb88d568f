"""Prompts that are nearly those of a held-out set, by the words that they share.

The measure is that of MinHash, the Jaccard similarity of sets of word triples, but counted rather than estimated: the
held-out sets are small enough for an index of all their triples.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable

NEAR = 0.5
"""Jaccard similarity from which two prompts are taken for one."""
CONTAINED = 0.7
"""Share of a held-out prompt's triples from which it is taken to lie inside a longer prompt."""
_WORDS = 3
_ENOUGH_TRIPLES = 8
"""A held-out prompt with fewer triples lies inside others by chance."""
_WORD = re.compile(r"\w+")

Triple = tuple[str, ...]


def triples(text: str) -> frozenset[Triple]:
    """All runs of three words, in lower case and without punctuation; of a shorter text all its words."""
    words = _WORD.findall(text.casefold())
    if len(words) < _WORDS:
        return frozenset({tuple(words)})
    return frozenset(zip(words, words[1:], words[2:], strict=False))


class HeldOut:
    """An index of held-out prompts."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._sets = [triples(text) for text in texts]
        self._with: dict[Triple, list[int]] = defaultdict(list)
        for number, own in enumerate(self._sets):
            for triple in own:
                self._with[triple].append(number)

    def __len__(self) -> int:
        return len(self._sets)

    def resembles(self, text: str) -> bool:
        """Whether the text is nearly one of the held-out prompts, or holds one."""
        mine = triples(text)
        shared = Counter(number for triple in mine for number in self._with.get(triple, ()))
        for number, both in shared.items():
            other = len(self._sets[number])
            if both / (len(mine) + other - both) >= NEAR:
                return True
            if other >= _ENOUGH_TRIPLES and both / other >= CONTAINED:
                return True
        return False
