"""Numbers and lists in sentences, said the same way everywhere."""

from __future__ import annotations

from collections.abc import Iterable


def number(value: float) -> str:
    """Three significant digits, no exponent: 90, 56.7, 2,370."""
    if value != value:
        return "not measured"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}".removesuffix(".0") if abs(value) >= 10 else f"{value:.2f}"


def times(value: float) -> str:
    """A ratio: 0.91x."""
    return f"{value:.2f}x"


def span(low: float, high: float) -> str:
    """A range with two decimals, one value where both ends read alike."""
    first, last = f"{low:.2f}", f"{high:.2f}"
    return first if first == last else f"{first}-{last}"


def one_of(words: Iterable[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    held = list(words)
    return held[0] if len(held) == 1 else f"{', '.join(held[:-1])} and {held[-1]}" if held else ""
