"""Any number of logs to one stream of rows, and what was not understood of each."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from workbench.errors import LogError, Problem, UsageError
from workbench.files import STDIN, read_chunks
from workbench.parse.records import ParseCounts
from workbench.parse.server_log import CountsBuilder, iter_stretches
from workbench.table.export import Part, decode_parts, num_rows, write_parts


@dataclass(slots=True)
class ParseReport:
    """Rows written, and one line a log that says what was and was not understood."""

    rows: int = 0
    lines: list[str] = field(default_factory=list)
    unreadable: list[LogError] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 when every log could be read and there is something to show."""
        return LogError.exit_code if self.unreadable or not self.rows else 0


def parse_logs(logs: Sequence[str], *, how: str, out: Path | None) -> ParseReport:
    """Write the decode lines of ``logs``; a log that cannot be read is named and the others still come out.

    Raises
    ------
    UsageError
        When standard input is named twice, or ``out`` is one of the logs.
    LogError
        When none of the logs can be read; ``out`` is then left as it was.
    """
    if list(logs).count(STDIN) > 1:
        raise UsageError("standard input can be read only once", where=STDIN, next_step="name it once, or name files")
    if out is not None and any(_same_file(log, out) for log in logs):
        raise UsageError("the result would replace the log", where=out, next_step="name another file with --out")
    report = ParseReport()
    report.rows = write_parts(_parts(logs, report), how, out)
    return report


def _parts(logs: Sequence[str], report: ParseReport) -> Iterator[Part]:
    for log in logs:
        yield from _parts_of(log, report)
    if len(report.unreadable) == len(logs):
        # Raised here, while the rows are written, so that no empty file replaces an earlier result.
        raise LogError("\n".join(str(error) for error in report.unreadable))


def _parts_of(log: str, report: ParseReport) -> Iterator[Part]:
    counts = CountsBuilder()
    problems: list[Problem] = []
    count = 0
    try:
        for part in decode_parts(_name(log), iter_stretches(read_chunks(log, problems), counts)):
            count += num_rows(part)
            yield part
    except LogError as error:
        report.unreadable.append(error)
        report.lines.append(str(error))
    else:
        said = [*(problem.what for problem in problems), describe_counts(counts.counts(), count)]
        shown = "standard input" if log == STDIN else _name(log)
        report.lines.append(f"{shown}: {'; '.join(said)}")


def _name(log: str) -> str:
    """The name as text; a file name on disk may be any bytes."""
    return os.fsencode(log).decode("utf-8", "replace")


def _same_file(log: str, out: Path) -> bool:
    return log != STDIN and out.exists() and Path(log).exists() and out.samefile(log)


def describe_counts(counts: ParseCounts, rows: int) -> str:
    """What was read and what was not, in words; zeros that would be news are left out."""
    said = [f"{rows:,} decode lines of {counts.lines:,} lines"]
    trouble = {
        "cut off": counts.truncated,
        "batch lines not understood": counts.unparsed_batch_lines,
        "lines too long": counts.overlong_lines,
        "undecodable bytes": counts.undecodable_bytes,
    }
    said += [f"{number:,} {what}" for what, number in trouble.items() if number]
    if not rows:
        said.append(
            "no decode line: `workbench diagnose` says what kind of log it looks like; "
            "SGLang prints one every --decode-log-interval (default 40) steps"
        )
    return ", ".join(said)
