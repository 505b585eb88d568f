"""What a nightly batch says on one screen: a line for each campaign, and every figure that got worse.

Everything comes from the folders of the campaigns and the summaries beside the pages: nothing else is kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.analysis.wording import count
from workbench.paths import KEPT
from workbench.reuse import last_summary
from workbench.since import counts_by_verdict, worse_sentences
from workbench.summary import Change, Summary

REGRESSION_EXIT_CODE = 3
MOST_LINES = 16
_ANSWER_WIDTH = 76


@dataclass(frozen=True, slots=True)
class Since:
    """A campaign beside its last good measurements; ``changes`` is ``None`` where nothing was measured before."""

    changes: tuple[Change, ...] | None = None
    attempts: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> dict[str, object]:
        """What a page that shows this depends on besides its inputs."""
        if self == NOTHING:
            return {}
        return {"since": json.dumps([change.model_dump() for change in self.changes or ()] + list(self.attempts))}

    @property
    def words(self) -> str:
        """``2 worse, 5 as before``."""
        if self.changes is None:
            return "not measured before"
        counted = counts_by_verdict(self.changes)
        return ", ".join(f"{n} {words}" for words, n in counted.items()) or "nothing to compare"


NOTHING = Since()


def since_last_good(folder: Path) -> Since:
    """Every run of a campaign that was measured before, beside the good measurements of then."""
    if not (folder / KEPT).is_dir():
        return NOTHING
    from workbench.analysis.frames import records
    from workbench.analysis.since import since_last_good_df
    from workbench.table.earlier import earlier_measurements

    measured = list(earlier_measurements(folder))
    rows = records(since_last_good_df(measured))
    attempts = tuple(f"{one.run_id}: {one.attempt}" for one in measured if one.attempt)
    changes = tuple(_change(row) for row in rows)
    return Since(changes if any(len(one.runs) > 1 for one in measured) else None, attempts)


def _change(row: Mapping[str, Any]) -> Change:
    kept = {name: value for name, value in row.items() if name in Change.model_fields and value is not None}
    return Change(**{**kept, "run": row["run_id"], "label": row["label"] or row["run_id"]})


def worse_lines(since: Mapping[str, Since]) -> tuple[str, ...]:
    """``WORSE quickstart: ...``, a line for each figure and the advice where there is any."""
    lines = [
        f"WORSE {name}: {sentence}" for name, said in since.items() for sentence in worse_sentences(said.changes or ())
    ]
    more = [f"WORSE and {len(lines) - MOST_LINES} lines more: see the pages"] if len(lines) > MOST_LINES else []
    return (*lines[:MOST_LINES], *more)


def overview(since: Mapping[str, Since], pages: Sequence[Path]) -> tuple[str, ...]:
    """A line for each campaign: its pages, what changed since it was last good, its answer."""
    summaries = [summary for page in pages if (summary := last_summary(page)) is not None]
    rows = [("campaign", "pages", "since the last good run", "answer")]
    rows += [(name, *_row(name, said, summaries)) for name, said in since.items()]
    widths = [max(len(row[place]) for row in rows) for place in range(3)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]) for row in rows
    ]
    more = [f"and {count(len(lines) - MOST_LINES, 'more campaign')}"] if len(lines) > MOST_LINES else []
    return (*(line.rstrip() for line in lines[:MOST_LINES]), *more)


def _row(name: str, said: Since, summaries: Sequence[Summary]) -> tuple[str, str, str]:
    own = [summary for summary in summaries if summary.campaign == name]
    bad = sum(summary.status != "ok" for summary in own)
    pages = f"{len(own)}, {bad} with trouble" if bad else f"{len(own)} ok"
    answer = next((summary.answer for summary in own if summary.answer), "") or ""
    attempts = f"; {count(len(said.attempts), 'measurement')} not used" if said.attempts else ""
    short = answer if len(answer) <= _ANSWER_WIDTH else f"{answer[: _ANSWER_WIDTH - 1].rstrip()}…"
    return pages, f"{said.words}{attempts}", short
