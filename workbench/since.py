"""Each run beside its last good measurements, in words, what got worse first; terminal and page say the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from workbench.analysis.wording import count, number, span, times
from workbench.provenance import redact
from workbench.summary import Change

MOST_ROWS = 60
_ORDER = {"worse": 0, "better": 1, "not decidable": 2}
_WORDS = {
    "worse": "worse",
    "better": "better",
    "no change beyond noise": "as before",
    "not decidable": "not decidable",
}
_PLAIN_TOO = "The plain server got slower, too: look at the machine before the drafter."


@dataclass(frozen=True, slots=True)
class Since:
    """The section of a page: one sentence, the sentences on what got worse, all rows, attempts that failed."""

    sentence: str
    worse: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: int
    attempts: tuple[str, ...]


def since_section(changes: Sequence[Change] | None, attempts: Sequence[str]) -> Since | None:
    """``None`` where nothing was measured before and no attempt failed."""
    if changes is None and not attempts:
        return None
    held = sorted(changes or (), key=lambda change: _ORDER.get(change.verdict, 3))
    return Since(
        since_sentence(held),
        worse_sentences(held),
        tuple(_row(change) for change in held[:MOST_ROWS]),
        max(len(held) - MOST_ROWS, 0),
        tuple(map(redact, attempts)),
    )


def since_sentence(changes: Sequence[Change]) -> str:
    """``2 of 8 figures got worse since the last good run; 5 as before, 1 not decidable.``"""
    if not changes:
        return "Nothing can be compared with an earlier run."
    counted = counts_by_verdict(changes)
    others = [f"{number_of} {words}" for words, number_of in counted.items() if words != "worse"]
    worse = f"{counted.get('worse', 0)} of {count(len(changes), 'figure')} got worse since the last good run"
    return f"{worse}{'; ' if others else ''}{', '.join(others)}."


def counts_by_verdict(changes: Sequence[Change]) -> dict[str, int]:
    """How many got worse, better, are as before or not decidable, in this order; without those that none is."""
    counts = Counter(change.verdict for change in changes)
    return {words: counts[verdict] for verdict, words in _WORDS.items() if counts[verdict]}


def worse_sentences(changes: Sequence[Change]) -> tuple[str, ...]:
    """A sentence for each figure that got worse beyond noise, and what to suspect first."""
    worse = [change for change in changes if change.verdict == "worse"]
    sentences = [_sentence(change) for change in worse]
    if any(change.role == "baseline" for change in worse) and any(change.role != "baseline" for change in worse):
        sentences.append(_PLAIN_TOO)
    return tuple(redact(sentence) for sentence in sentences)


def _sentence(change: Change) -> str:
    where = f"{change.label}, {change.prompt_set}" if change.prompt_set else change.label
    figures = f"{_value(change.value)} {change.unit}, {_value(change.before)} when it was last good"
    against = f" ({_moment(change.good_at)})" if change.good_at else ""
    changed = f"; since then {change.changed}" if change.changed else ""
    return f"{where}: {change.figure} {_ratio(change)}: {figures}{against}{changed}"


def _ratio(change: Change) -> str:
    if change.ratio is None:
        return "not compared"
    ends = "" if change.low is None or change.high is None else f" ({span(change.low, change.high)})"
    return f"{times(change.ratio)}{ends}"


def _moment(timestamp: str | None) -> str:
    """A time of the run folders (ISO 8601, UTC) to the minute."""
    return "not known" if timestamp is None else timestamp[:16].replace("T", " ")


def _value(value: float | None) -> str:
    return "not measured" if value is None else number(value)


def _row(change: Change) -> tuple[str, ...]:
    cells = (
        *(change.label, change.prompt_set or "", change.figure),
        *(_value(change.value), _value(change.before), _ratio(change)),
        *(change.verdict, _moment(change.good_at), change.changed or "", change.reason or ""),
    )
    return tuple(redact(cell) for cell in cells)
