"""The index of all pages: made from the summaries beside them, so it can be rebuilt at any time.

It filters and sorts without a script: radio buttons, and style rules that look at which is chosen. A browser that does
not know such rules shows the pages by campaign, as everybody sees them first.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from pydantic import ValidationError

from workbench.errors import Problem
from workbench.files import read_small
from workbench.page import Heading, render_template
from workbench.paths import slug
from workbench.store import write_atomic
from workbench.summary import SUMMARY_SUFFIX, Summary

INDEX = "index.html"
SHOWN_PER_GROUP = 12
LOGS = "Server logs"
ACROSS = "Across campaigns"
DIAGNOSES = "Diagnosis"
MOST_KINDS = 8  # of pages that can be chosen by kind
LEADING = "20_report_campaign.ipynb"  # the page whose answer stands for its campaign


@dataclass(frozen=True, slots=True)
class Entry:
    """One page; ``name`` is its path below the index, with slashes."""

    name: str
    summary: Summary
    time: datetime

    @property
    def href(self) -> str:
        return quote(os.fsencode(self.name))  # names of files may be no text

    @property
    def needs_attention(self) -> bool:
        """Whether it did not finish, got worse, or found a fault."""
        summary = self.summary
        return summary.status != "ok" or bool(summary.worse) or summary.fault == "found"

    @property
    def kind(self) -> str:
        """What pages on other subjects share: the title of a report."""
        return DIAGNOSES if self.summary.kind == "diagnosis" else self.summary.title

    @property
    def group(self) -> str:
        return _group_name(self.summary)


@dataclass(frozen=True, slots=True)
class Group:
    """The pages on one subject, newest first; ``lead`` is the newest campaign report, which they do not repeat."""

    name: str
    title: str | None
    id: str
    lead: Entry | None
    shown: tuple[Entry, ...]
    older: tuple[Entry, ...]

    def own_answer(self, entry: Entry) -> str | None:
        """What the entry says, or why it does not, unless the lead says it already."""
        summary = entry.summary
        said = self.lead.summary.answer if self.lead else None
        text = summary.answer or (summary.reason or "").partition("\n")[0]
        return None if not text or text in (said or "") else text

    def own_day(self, entry: Entry) -> bool:
        """Whether the entry is of another day than the lead."""
        return self.lead is None or self.lead.time.date() != entry.time.date()


def build_index(reports_dir: Path) -> Path:
    """Write ``reports_dir/index.html``: campaigns and their pages, newest first, and what could not be listed."""
    reports_dir.mkdir(parents=True, exist_ok=True)
    entries, problems = read_entries(reports_dir)
    groups = _grouped(entries)
    kinds = _kinds(entries)
    counts = Counter(str(entry.summary.status) for entry in entries)
    contents = [Heading(2, group.id, group.name) for group in groups]
    campaigns = {entry.summary.campaign for entry in entries} - {None, ""}
    html = render_template(
        "index.html.j2",
        title="Reports",
        contents=contents + ([Heading(2, "problems", "Not listed above")] if problems else []),
        groups=groups,
        orders={"newest": _newest(entries), "title": _by_title(entries)},
        kinds=kinds,
        attention=sum(entry.needs_attention for entry in entries),
        problems=problems,
        total=len(entries),
        campaigns=len(campaigns),
        counts={word: counts[word] for word in ("failed", "partial") if counts[word]},
    )
    path = reports_dir / INDEX
    write_atomic(path, html)
    return path


def read_entries(root: Path) -> tuple[list[Entry], list[Problem]]:
    """The pages below a folder, by name, and what cannot be listed."""
    entries: list[Entry] = []
    problems: list[Problem] = []
    pages, summaries = _scan(root)
    for name in sorted(summaries):
        page = name.removesuffix(SUMMARY_SUFFIX) + ".html"
        if page not in pages:
            problems.append(Problem(name, "a summary without its page"))
            continue
        try:
            summary = Summary.model_validate_json(read_small(root / name))
            entries.append(Entry(page, summary, _time(summary.finished_at)))
        except (OSError, ValidationError) as error:
            problems.append(Problem(name, f"summary cannot be read: {_first_fault(error)}"))
    listed = {name.removesuffix(SUMMARY_SUFFIX) + ".html" for name in summaries}
    problems += [Problem(page, "a page without a summary") for page in sorted(pages - listed - {INDEX})]
    return entries, problems


def _scan(root: Path) -> tuple[set[str], set[str]]:
    """Pages and summaries below ``root``, as relative POSIX paths; hidden folders are left alone."""
    pages: set[str] = set()
    summaries: set[str] = set()
    for folder, subfolders, files in os.walk(root):
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        for name in files:
            relative = (Path(folder) / name).relative_to(root).as_posix()
            if name.startswith("."):
                continue
            if name.endswith(SUMMARY_SUFFIX):
                summaries.add(relative)
            elif name.endswith(".html"):
                pages.add(relative)
    return pages, summaries


def _grouped(entries: list[Entry]) -> list[Group]:
    """The reader's own logs, then campaigns, newest day first, then what belongs to none."""
    by_name: dict[str, list[Entry]] = defaultdict(list)
    for entry in sorted(entries, key=_place):
        by_name[_group_name(entry.summary)].append(entry)
    ordered = sorted(
        by_name.items(), key=lambda item: (item[0] != LOGS, item[0] == ACROSS, _place(item[1][0])[0], item[0])
    )
    return [_group(name, f"{slug(name)}-{number}", members) for number, (name, members) in enumerate(ordered, 1)]


def _kinds(entries: list[Entry]) -> dict[str, int]:
    """A number for each kind of page that can be chosen, where there is a choice."""
    common = Counter(entry.kind for entry in entries).most_common(MOST_KINDS)
    return (
        {kind: number for number, kind in enumerate(sorted(kind for kind, _ in common), 1)} if len(common) > 1 else {}
    )


def _newest(entries: list[Entry]) -> list[Entry]:
    return sorted(entries, key=lambda entry: (-entry.time.timestamp(), entry.summary.title))


def _by_title(entries: list[Entry]) -> list[Entry]:
    return sorted(entries, key=lambda entry: (entry.summary.title.lower(), entry.group, -entry.time.timestamp()))


def _group(name: str, identifier: str, members: list[Entry]) -> Group:
    title = next((entry.summary.campaign_title for entry in members if entry.summary.campaign_title), None)
    leading = [entry for entry in members if entry.summary.campaign and entry.summary.notebook == LEADING]
    lead = max(leading, key=lambda entry: entry.time, default=None)
    others = [entry for entry in members if entry is not lead]
    return Group(name, title, identifier, lead, tuple(others[:SHOWN_PER_GROUP]), tuple(others[SHOWN_PER_GROUP:]))


def _place(entry: Entry) -> tuple[int, str, float, str]:
    """Newest day first; within a day, pages that were built together keep the order of their notebooks."""
    day = -entry.time.toordinal()
    return day, entry.summary.notebook or "", -entry.time.timestamp(), entry.summary.title


def _group_name(summary: Summary) -> str:
    if summary.campaign:
        return summary.campaign
    return LOGS if summary.kind == "diagnosis" else ACROSS


def _time(timestamp: str) -> datetime:
    """The oldest time there is when it cannot be read: such a page is still listed, last."""
    try:
        time = datetime.fromisoformat(timestamp)
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):  # the first and last day there is, in another zone
        return datetime(1, 1, 2, tzinfo=UTC)


def _first_fault(error: OSError | ValidationError) -> str:
    if isinstance(error, OSError):
        return str(error.strerror or error)
    fault = error.errors(include_url=False)[0]
    return ": ".join([*(str(part) for part in fault["loc"][:1]), fault["msg"]])
