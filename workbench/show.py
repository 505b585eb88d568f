"""What the notebooks display besides figures and tables: answers, findings, campaigns, problems; all of it escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pandas as pd
from markupsafe import Markup

from workbench.analysis.answers import Answer
from workbench.analysis.diagnosis import Diagnosis, Finding
from workbench.analysis.frames import records
from workbench.analysis.scaling import ScalingFit, scaling_sentence
from workbench.analysis.wording import span, times
from workbench.errors import Problem
from workbench.spec import CampaignInfo
from workbench.theme.show import digits, display_html, heading, show_table


def answer(said: Answer) -> None:
    """The page's first sentence, and what to do next."""
    html = Markup('<p class="wb-answer">{}</p>').format(said.sentence)
    html += Markup("").join(Markup("<p>Next: {}</p>").format(action) for action in said.actions)
    display_html(html, "\n".join((said.sentence, *(f"Next: {action}" for action in said.actions))))


def points(said: Answer) -> None:
    """The sentences that carry the answer."""
    if said.points:
        display_html(_list(said.points), "\n".join(said.points))
    else:
        note("Nothing more follows from the data of this campaign.")


def headline(table: pd.DataFrame) -> dict[str, str]:
    """The numbers below the answer, from `cost_df`: best speedup, best accept length, range of break-even."""
    real = table[table["origin"] != "simulated"]
    said: dict[str, str] = {}
    if real["speedup"].notna().any():
        said["best speedup"] = times(real["speedup"].max())
    if real["accept_length_high"].notna().any():
        said["best accept length"] = f"{real['accept_length_high'].max():.2f}"
    if real["break_even"].notna().any():
        said["break-even"] = span(real["break_even_low"].min(), real["break_even_high"].max())
    return said


def table(shown: pd.DataFrame, *, caption: str, name: str, empty: str = "Nothing to show.") -> None:
    """A table with a dash for whatever was not measured or not stated."""
    show_table(shown, caption=caption, name=name, empty=empty, missing="\N{EN DASH}")


def note(text: str) -> None:
    """One sentence in place of something that cannot be shown."""
    display_html(Markup('<p class="wb-empty">{}</p>').format(text), text)


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


def diagnoses(found: Mapping[str, Diagnosis]) -> None:
    """Each server log's verdict, with its findings folded away unless something is wrong beyond doubt."""
    if not found:
        note("No server log of this campaign was kept.")
    for server, diagnosis in found.items():
        display_html(_diagnosis(server, diagnosis), f"{server}: {diagnosis.verdict}")


def problems(found: Sequence[Problem]) -> None:
    """Files and lines that could not be read; nothing where all could."""
    if not found:
        return
    said = [f"{problem.where}: {problem.what}" for problem in found]
    display_html(_list(said), "\n".join(said))


def scaling_groups(fits: Mapping[str, ScalingFit]) -> None:
    """The sentence of each group of drafters that may share a curve."""
    curves = {name: fit for name, fit in fits.items() if fit.num_sizes > 1}
    said = [f"{name}: {scaling_sentence(fit)}" for name, fit in curves.items()]
    lone = len(fits) - len(curves)
    if lone:
        said.append(f"{lone} {'other settings have' if curves else 'settings have'} one training size each: no curve.")
    display_html(_list(said), "\n".join(said))


def drafters(known: pd.DataFrame) -> None:
    """What the drafters were trained on, and what is said of how, a line each."""
    short = ["drafter", "drafter_target", "training_samples", "response_tokens", "optimizer_steps", "epochs", "seed"]
    table(known[short], caption="Drafters and what they were trained on.", name="drafters", empty="No drafter.")
    said = []
    for row in records(known):
        told = [str(row[name]) for name in ("recipe", "data_mix", "notes") if row[name] is not None]
        said.append(f"{row['drafter']}: {'; '.join(told)}")
    display_html(_list(said), "\n".join(said))


def alt(what: str, table: pd.DataFrame, *columns: str) -> str:
    """Alt text from the data drawn: what it shows, how many rows, and the range of each column."""
    if table.empty:
        return f"{what}: nothing was measured."
    ranges = []
    for column in columns:
        values = table[column].dropna().astype(float)
        if len(values):
            low, high = digits(values.min()), digits(values.max())
            ranges.append(f"{heading(column)} {low}" + (f" to {high}" if low != high else ""))
    return f"{what}: {len(table)} rows; {', '.join(ranges) or 'no figure was measured'}."


def _diagnosis(server: str, diagnosis: Diagnosis) -> Markup:
    findings = Markup("").join(_finding(finding) for finding in diagnosis.findings)
    opened = Markup(" open") if diagnosis.certain_fault else ""
    inside = Markup("<details{}><summary>{}</summary>{}</details>").format(
        opened, f"{len(diagnosis.findings)} findings", findings
    )
    return Markup("<section><p><strong>{}</strong>: {}</p>{}</section>").format(
        server, diagnosis.verdict, inside if diagnosis.findings else ""
    )


def _finding(finding: Finding) -> Markup:
    kind = finding.certainty.value if finding.is_fault else "note"
    return Markup('<div class="finding"><p><span class="badge {0}">{0}</span> {1}</p>{2}<p>Next: {3}</p></div>').format(
        kind, finding.title, _list(finding.evidence), finding.next_action
    )


def _list(items: Iterable[str]) -> Markup:
    inside = Markup("").join(Markup("<li>{}</li>").format(item) for item in items)
    return Markup("<ul>{}</ul>").format(inside) if inside else Markup("")
