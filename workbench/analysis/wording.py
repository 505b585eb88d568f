"""Numbers and lists in sentences, said the same way everywhere."""

from __future__ import annotations

from collections.abc import Iterable


def number(value: float) -> str:
    """Three significant digits, no exponent: 90, 56.7, 2,370."""
    if value != value:
        return "not measured"
    size = abs(value)
    if size >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}".removesuffix(".0") if size >= 9.995 else f"{value:.2f}"


def times(value: float) -> str:
    """A ratio: 0.91x."""
    return f"{value:.2f}x"


def signed(value: float, decimals: int = 2) -> str:
    """A change with its sign, never -0.00."""
    return f"{round(value, decimals) + 0.0:+.{decimals}f}"


def span(low: float, high: float) -> str:
    """A range with two decimals, one value where both ends read alike."""
    first, last = f"{low:.2f}", f"{high:.2f}"
    return first if first == last else f"{first}-{last}"


def count(number_of: int, noun: str) -> str:
    """``1 run``, ``2 runs``, ``1,000 runs``."""
    return f"{number_of:,} {noun}{'' if number_of == 1 else 's'}"


def one_of(words: Iterable[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    held = list(words)
    return held[0] if len(held) == 1 else f"{', '.join(held[:-1])} and {held[-1]}" if held else ""


def few(words: Iterable[str], most: int = 4) -> str:
    """The first of many: ``a, b, c, d and 37 more``."""
    held = list(words)
    if len(held) <= most + 1:
        return one_of(held)
    return f"{', '.join(held[:most])} and {len(held) - most:,} more"


def speed_span(values: Iterable[float]) -> str:
    """Speeds as their range: ``90`` or ``63.6-90``."""
    held = sorted(values)
    first, last = number(held[0]), number(held[-1])
    return first if first == last else f"{first}-{last}"


def speed_unit(bases: Iterable[object]) -> str:
    """Which speed it is: ``decode tok/s``, ``output tok/s``, plain ``tok/s`` where they are mixed or not known."""
    held = set(bases)
    return f"{held.pop()} tok/s" if held in ({"decode"}, {"output"}) else "tok/s"


def capital(sentence: str) -> str:
    """The sentence with its first letter as a capital, and nothing else changed."""
    return f"{sentence[:1].upper()}{sentence[1:]}"
