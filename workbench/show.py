"""What the notebooks display besides figures: answers, tables, findings, campaigns, problems; all of it escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

import pandas as pd
from markupsafe import Markup

from workbench.analysis.answers import Answer
from workbench.analysis.diagnosis import Diagnosis, Finding
from workbench.analysis.key_figures import KeyFigures
from workbench.analysis.wording import count, few
from workbench.errors import Problem
from workbench.markup import sentence
from workbench.spec import CampaignInfo
from workbench.theme.show import digits, display_html, heading, table_html

MIN_ROWS_TO_FOLD = 3
MOST_LOGS = 40  # whose diagnoses a page holds
MOST_PROBLEMS = 100
_SHORT = 300  # characters of a value that may stand in a sentence
_TEXT_ROWS = 40
_FEW_PLACES = 3


def answer(said: Answer) -> None:
    """The page's first sentence, and what to do next."""
    html = Markup('<p class="wb-answer">{}</p>').format(sentence(said.sentence))
    html += Markup("").join(Markup("<p>Next: {}</p>").format(sentence(action)) for action in said.actions)
    display_html(html, "\n".join((said.sentence, *(f"Next: {action}" for action in said.actions))))


def headline(said: Answer) -> dict[str, str]:
    """The numbers below the answer, as the last expression of a cell tagged ``headline``."""
    return dict(said.headline)


def key_figures(found: KeyFigures) -> None:
    """The numbers for ``summary.json``, from a cell tagged ``figures``, which the page itself does not show."""
    from IPython.display import JSON, display

    display(JSON(asdict(found), expanded=False))  # type: ignore[no-untyped-call]


def points(said: Answer) -> None:
    """The sentences that carry the answer."""
    if said.points:
        display_html(_list(said.points), "\n".join(said.points))
    else:
        note("Nothing more follows from the data of this campaign.")


def commands(lines: Mapping[str, str], *, empty: str) -> None:
    """Command lines to copy, each under what it is for; ``empty`` where there is none."""
    if not lines:
        return note(empty)
    html = Markup("").join(
        Markup('<p>{}:</p><pre tabindex="0"><code>{}</code></pre>').format(what, line) for what, line in lines.items()
    )
    display_html(html, "\n".join(f"{what}:\n{line}" for what, line in lines.items()))


def table(
    shown: pd.DataFrame, *, caption: str, name: str, empty: str = "Nothing to show.", data: pd.DataFrame | None = None
) -> None:
    """A table with a dash for whatever was not measured or not stated.

    A column that says the same in every row becomes a sentence below, one that says nothing at all is named there;
    the download holds all of them, or ``data``. An empty table with ``empty=""`` is not shown at all.
    """
    if shown.empty and not empty:
        return
    kept, folded = _folded(shown)
    whole = shown if data is None else data
    html = table_html(kept, caption=caption, name=name, empty=sentence(empty), missing="\N{EN DASH}", data=whole)
    if folded:
        html += Markup('<p class="wb-empty">{}</p>').format(" ".join(folded))
    text = kept.head(_TEXT_ROWS).to_string(index=False) if len(kept) else empty
    display_html(html, "\n".join([caption, text, *folded]))


def _folded(shown: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The columns that tell rows apart (the first always does), and the sentences on the others."""
    if len(shown) < MIN_ROWS_TO_FOLD:
        return shown, []
    missing = [name for name in shown.columns[1:] if shown[name].isna().all()]
    same = {
        name: text
        for name in shown.columns[1:]
        if name not in missing and (text := _same_text(shown[name])) is not None
    }
    said = [f"{name}: {text}" for name, text in same.items()]
    sentences = [f"The same in every row: {'; '.join(said)}."] if said else []
    sentences += [f"No row has a value for: {', '.join(missing)}."] if missing else []
    return shown.drop(columns=[*same, *missing]), sentences


def _same_text(values: pd.Series) -> str | None:
    """The short text that all cells show; ``None`` where they differ, one is missing, or it is long."""
    texts = {_cell(value) for value in values.tolist()} if values.notna().all() else set()
    text = texts.pop() if len(texts) == 1 else ""
    return text if text and len(text) <= _SHORT else None


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return digits(value) if isinstance(value, float) else str(value)


def plain(text: str) -> None:
    """Sentences; nothing where there is none."""
    if text:
        display_html(Markup("<p>{}</p>").format(sentence(text)), text)


def note(text: str) -> None:
    """One sentence in place of something that cannot be shown."""
    display_html(Markup('<p class="wb-empty">{}</p>').format(sentence(text)), text)


def campaign(campaigns: Mapping[str, CampaignInfo]) -> None:
    """Target, machine, question and notes of each campaign."""
    for info in campaigns.values():
        facts = {"Target": info.target, "Machine": info.machine, "Question": info.question, "Source": info.source}
        rows = [Markup("<dt>{}</dt><dd>{}</dd>").format(name, text) for name, text in facts.items() if text]
        notes = Markup("<details><summary>Notes</summary>{}</details>").format(_list(info.notes)) if info.notes else ""
        html = Markup('<p><strong>{}</strong></p><dl class="wb-facts">{}</dl>{}').format(
            info.title, Markup("").join(rows), notes
        )
        display_html(html, f"{info.title}: {info.target} on {info.machine}")


def diagnoses(found: Mapping[tuple[str, str], Diagnosis]) -> None:
    """Each server log's verdict, its findings folded away unless something is wrong beyond doubt."""
    if not found:
        note("No server log of this campaign was kept.")
        return
    # Of many, those that need somebody first; without many in the order of the runs.
    ordered = (
        list(found.items()) if len(found) <= MOST_LOGS else sorted(found.items(), key=lambda item: _urgency(item[1]))
    )
    shown, others = ordered[:MOST_LOGS], [diagnosis for _, diagnosis in ordered[MOST_LOGS:]]
    html = Markup("").join(_diagnosis(server, diagnosis) for (_, server), diagnosis in shown)
    said = [f"{server}: {each.verdict}" for (_, server), each in shown]
    if others:
        left_out = _not_shown(others)
        html += Markup('<p class="wb-empty">{}</p>').format(left_out)
        said.append(left_out)
    display_html(html, "\n".join(said))


def _urgency(diagnosis: Diagnosis) -> int:
    """0 for what is wrong beyond doubt, then what may be, then logs without a fault."""
    if diagnosis.certain_fault:
        return 0
    return 1 if any(finding.is_fault for finding in diagnosis.findings) else 2


def _not_shown(others: Sequence[Diagnosis]) -> str:
    kinds = ("with a certain fault", "with a likely or suspected one", "without a fault")
    counts = [sum(_urgency(diagnosis) == place for diagnosis in others) for place in range(len(kinds))]
    told = ", ".join(f"{number:,} {kind}" for number, kind in zip(counts, kinds, strict=True) if number)
    return (
        f"{count(len(others), 'more log')} of this campaign not shown: {told}. `workbench diagnose` tells of any log."
    )


def problems(found: Sequence[Problem]) -> None:
    """Files and lines that could not be read; nothing where all could. What holds for many is said once."""
    if not found:
        return
    places: dict[str, list[str]] = {}
    for problem in found:
        places.setdefault(problem.what, []).append(problem.where)
    said = [f"{few(where, _FEW_PLACES)}: {what}" for what, where in list(places.items())[:MOST_PROBLEMS]]
    if len(places) > MOST_PROBLEMS:
        said.append(f"{count(len(places) - MOST_PROBLEMS, 'more problem')} of other kinds not shown")
    display_html(_list(said), "\n".join(said))


def alt(what: str, table: pd.DataFrame, *columns: str) -> str:
    """Alt text from the data drawn: what it shows, how many rows, and the range of each column."""
    if table.empty:
        return f"{what}: nothing was measured."
    ranges = []
    for column in columns:
        values = table[column].dropna()
        if len(values):
            low, high = _cell(values.min().item()), _cell(values.max().item())
            ranges.append(f"{heading(column)} {low}" + (f" to {high}" if low != high else ""))
    return f"{what}: {count(len(table), 'row')}; {', '.join(ranges) or 'no figure was measured'}."


def _diagnosis(server: str, diagnosis: Diagnosis) -> Markup:
    said = Markup("<strong>{}</strong>: {}").format(server, diagnosis.verdict)
    if not diagnosis.findings:
        return Markup("<p>{}</p>").format(said)
    opened = Markup(" open") if diagnosis.certain_fault else ""
    findings = Markup("").join(_finding(finding) for finding in diagnosis.findings)
    return Markup("<details{}><summary>{}</summary>{}</details>").format(opened, said, findings)


def _finding(finding: Finding) -> Markup:
    kind = finding.certainty.value if finding.is_fault else "note"
    return Markup('<div class="finding"><p><span class="badge {0}">{0}</span> {1}</p>{2}<p>Next: {3}</p></div>').format(
        kind, sentence(finding.title), _list(finding.evidence), sentence(finding.next_action)
    )


def _list(items: Iterable[str]) -> Markup:
    inside = Markup("").join(Markup("<li>{}</li>").format(sentence(item)) for item in items)
    return Markup("<ul>{}</ul>").format(inside) if inside else Markup("")
