"""`workbench diagnose` and `workbench check`: files in, diagnosis out, as text or as a page."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.analysis.diagnosis import Diagnosis, render_text
from workbench.analysis.diagnosis import diagnose as diagnose_summary
from workbench.checkpoint import read_checkpoint
from workbench.errors import UsageError
from workbench.files import read_chunks
from workbench.paths import reports_dir, slug
from workbench.preflight import CheckResult, check_draft
from workbench.table import LogSummary, summarise_log


@dataclass(frozen=True, slots=True)
class Outcome:
    """A diagnosis with the logs it came from; ``inputs`` are the files whose content decided it."""

    diagnosis: Diagnosis
    log: LogSummary
    inputs: tuple[Path, ...]


def diagnose_files(
    log: str, *, baseline: str | None = None, draft: Path | None = None, target: Path | None = None
) -> Outcome:
    """Read a log (and a baseline's, and a drafter's folder) and diagnose it.

    Raises
    ------
    UsageError
        When ``--target`` stands alone, or both logs are standard input.
    LogError, CheckpointError
        When something cannot be read.
    """
    if target is not None and draft is None:
        raise UsageError("--target is checked against a draft", next_step="name it with --draft DIR")
    if log == baseline == "-":
        raise UsageError("standard input can be only one of the logs", where="--baseline -")
    summary = summarise_log(read_chunks(log), name=_name(log))
    other = None if baseline is None else summarise_log(read_chunks(baseline), name=_name(baseline))
    checks = [] if draft is None else _check_as_served(draft, target, summary)
    diagnosis = diagnose_summary(summary, baseline=other, draft_checks=checks)
    files = [Path(name) for name in (log, baseline) if name not in (None, "-")]
    return Outcome(diagnosis, summary, tuple(files))


def check_files(
    draft: Path,
    *,
    target: Path | None,
    algorithm: str | None,
    context_length: int | None,
    version: str | None,
    tp_size: int | None,
) -> Sequence[CheckResult]:
    """Everything wrong with a draft checkpoint that its files show.

    Raises
    ------
    CheckpointError
        When a folder cannot be read.
    """
    return check_draft(
        read_checkpoint(draft),
        None if target is None else read_checkpoint(target),
        speculative_algorithm=algorithm,
        context_len=context_length,
        sglang_version=version,
        tp_size=tp_size,
    )


def render(outcome: Outcome, *, colour: bool) -> str:
    """The diagnosis for a terminal."""
    text = render_text(outcome.diagnosis)
    if not colour:
        return text
    first, _, rest = text.partition("\n")
    return f"\x1b[1m{first}\x1b[0m\n{rest}"


def render_checks(results: Sequence[CheckResult]) -> str:
    """One block a result; a sentence where there is none."""
    if not results:
        return "No fault found in the draft checkpoint. Tensors' values, beyond d2t and t2d, are not checked."
    blocks = [
        f"{result.severity.value.upper()}  {result.what}\n  where: {result.where}\n  next:  {result.next_step}"
        for result in results
    ]
    return "\n".join(blocks)


def write_page(outcome: Outcome, page: Path) -> Path:
    """Write the diagnosis as a page: to ``page``, or under the log's name into ``reports/`` when that is a folder."""
    from workbench.page import write_diagnosis_page

    path = page if page.suffix == ".html" else _default_page(outcome, page)
    figures = _timeline(outcome.log)
    written = write_diagnosis_page(
        outcome.diagnosis, path, log_name=outcome.log.name, figures=figures, inputs=outcome.inputs
    )
    return written.path


def _default_page(outcome: Outcome, folder: Path) -> Path:
    if folder == Path():
        folder = reports_dir()
    return folder / f"diagnosis-{slug(outcome.log.name.removesuffix('.gz').removesuffix('.log'))}.html"


def _timeline(log: LogSummary) -> list[tuple[bytes, str, str]]:
    """The log's timeline as PNG with alt text and caption; nothing for a log without decode lines."""
    if log.windows.empty:
        return []
    from workbench import plot, show

    figure = plot.timeline_figure(log.windows, events=log.events)
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=144)
    alt = show.alt(f"Timeline of {log.name}", log.windows, "accept_len", "running_req", "gen_tok_per_s")
    return [(png.getvalue(), alt, "Accept length, load and speed of the log on one time axis.")]


def _check_as_served(draft: Path, target: Path | None, log: LogSummary) -> list[CheckResult]:
    args = log.facts.server_args
    tp_size = args.get("tp_size")
    algorithm = args.get("speculative_algorithm")
    bracket = log.facts.version_bracket
    return list(
        check_draft(
            read_checkpoint(draft),
            None if target is None else read_checkpoint(target),
            speculative_algorithm=algorithm if isinstance(algorithm, str) else None,
            context_len=log.facts.context_len,
            sglang_version=bracket[0] if bracket is not None and bracket[0] == bracket[1] else None,
            tp_size=tp_size if isinstance(tp_size, int) else None,
        )
    )


def _name(log: str) -> str:
    return "standard input" if log == "-" else Path(log).name
