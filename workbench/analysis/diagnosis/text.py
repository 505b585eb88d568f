"""A diagnosis as plain text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from workbench.analysis.diagnosis.model import Diagnosis, Finding
from workbench.analysis.diagnosis.words import quoted

MAX_FIGURES = 12
# Which figures stay where not all are shown: by the first of these that their name starts with.
_MOST_USEFUL = (
    "accept length",
    "speedup",
    "speculative steps",
    "decode lines in a CUDA graph",
    "break-even accept length by median line",
    "accept rate",
    "draft tokens in use",
    "speed at",
    "draft class",
    "speculative algorithm",
    "most requests",
    "max running requests",
    "retractions",
    "lines cut off",
    "baseline speed",
    "",
)


def render_text(diagnosis: Diagnosis, *, width: int = 100, all_figures: bool = False) -> str:
    """Verdict, findings in order, key figures and what is not known, wrapped to ``width`` columns.

    Of the figures the `MAX_FIGURES` most useful ones, unless ``all_figures``.
    Control characters of a log are taken out, so that it cannot steer the terminal.
    """
    width = max(width, 40)
    blocks = [
        _wrapped(diagnosis.verdict, width, lead="VERDICT  "),
        *(_finding(number, finding, width) for number, finding in enumerate(diagnosis.findings, 1)),
        _figures(diagnosis, len(diagnosis.figures) if all_figures else MAX_FIGURES),
        _not_known(diagnosis.not_known, width),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _finding(number: int, finding: Finding, width: int) -> str:
    label = finding.certainty.upper() if finding.is_fault else "NOTE"
    lines = [_wrapped(finding.title, width, lead=f"{number}. [{label}] ", indent=3)]
    lines += [_wrapped(evidence, width, lead="   - ") for evidence in finding.evidence]
    lines.append(_wrapped(finding.next_action, width, lead="   next: "))
    if finding.doc:
        lines.append(_wrapped(finding.doc, width, lead="   see: "))
    return "\n".join(lines)


def _figures(diagnosis: Diagnosis, limit: int) -> str:
    if diagnosis.figures.empty:
        return ""
    ranks = diagnosis.figures["name"].map(_usefulness)
    figures = diagnosis.figures[ranks.rank(method="first") <= limit]
    left = len(diagnosis.figures) - len(figures)
    names, values = figures["name"].tolist(), [_value(row) for row in figures.itertuples(index=False)]
    wide, deep = max(map(len, names)), max(map(len, values))
    rows = zip(names, values, figures["source"], strict=True)
    return "\n".join(
        [
            "KEY FIGURES",
            *(f"   {name:<{wide}}  {value:<{deep}}  {source}".rstrip() for name, value, source in rows),
            *([f"   and {left} more with --all"] if left else []),
        ]
    )


def _usefulness(name: str) -> int:
    return next(place for place, start in enumerate(_MOST_USEFUL) if name.startswith(start))


def _value(row: object) -> str:
    text, unit = quoted(str(row.text)), str(row.unit)  # type: ignore[attr-defined]
    return f"{text} {unit}".strip()


def _not_known(points: tuple[str, ...], width: int) -> str:
    return "\n".join(["NOT KNOWN", *_bullets(points, width)]) if points else ""


def _bullets(points: tuple[str, ...], width: int) -> Iterator[str]:
    return (_wrapped(point, width, lead="   - ") for point in points)


def _wrapped(text: str, width: int, *, lead: str, indent: int | None = None) -> str:
    """Words are never cut or hyphenated, so that flags and commands can be copied."""
    return textwrap.fill(
        " ".join(text.split()),
        width,
        initial_indent=lead,
        subsequent_indent=" " * (len(lead) if indent is None else indent),
        break_long_words=False,
        break_on_hyphens=False,
    )
