"""Any number of logs to one stream of rows, and what was not understood of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from workbench.errors import LogError
from workbench.files import read_chunks
from workbench.parse.records import ParseCounts, Record
from workbench.parse.server_log import CountsBuilder, iter_records
from workbench.table.export import Row, decode_rows, write_rows


@dataclass(slots=True)
class ParseReport:
    """Rows written, and one line a log that says what was and was not understood."""

    rows: int = 0
    lines: list[str] = field(default_factory=list)


def parse_logs(logs: Sequence[str], *, how: str, out: Path | None) -> ParseReport:
    """Write the decode lines of ``logs``; a log that cannot be read is named and the others still come out.

    Raises
    ------
    LogError
        When none of the logs can be read.
    """
    report = ParseReport()
    failed: list[LogError] = []
    rows = chain.from_iterable(_rows_of(log, report, failed) for log in logs)
    report.rows = write_rows(rows, how, out)
    if len(failed) == len(logs):
        raise failed[0]
    report.lines += [str(error) for error in failed]
    return report


def _rows_of(log: str, report: ParseReport, failed: list[LogError]) -> Iterator[Row]:
    counts = CountsBuilder()
    try:
        records: Iterator[Record] = iter_records(read_chunks(log), counts)
        yield from decode_rows(log, records)
    except LogError as error:
        failed.append(error)
    else:
        report.lines.append(f"{log}: {describe_counts(counts.counts())}")


def describe_counts(counts: ParseCounts) -> str:
    """What was read and what was not, in words; zeros that would be news are left out."""
    said = [f"{counts.decode} decode lines of {counts.lines} lines"]
    trouble = {
        "cut off": counts.truncated,
        "batch lines not understood": counts.unparsed_batch_lines,
        "lines too long": counts.overlong_lines,
        "undecodable bytes": counts.undecodable_bytes,
    }
    said += [f"{number} {what}" for what, number in trouble.items() if number]
    if not counts.decode:
        said.append(
            "no decode line: `workbench diagnose` says what kind of log it looks like; "
            "SGLang prints one every --decode-log-interval (default 40) steps"
        )
    return ", ".join(said)
