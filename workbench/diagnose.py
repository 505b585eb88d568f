"""`workbench diagnose`: files in, diagnosis out, as text or as a page."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from pathlib import Path

from workbench.analysis.diagnosis import Diagnosis, loaded_dtypes, render_text
from workbench.analysis.diagnosis import diagnose as diagnose_summary
from workbench.checkpoint import read_checkpoint
from workbench.errors import LogError, Problem, UsageError
from workbench.files import STDIN, read_chunks
from workbench.paths import reports_dir, slug
from workbench.preflight import CheckResult, check_draft
from workbench.table import LogSummary, summarise_log
from workbench.terminal import printable


@dataclass(frozen=True, slots=True)
class Outcome:
    """A diagnosis with the log it came from; ``inputs`` are the files whose content decided it."""

    diagnosis: Diagnosis
    log: LogSummary
    inputs: tuple[Path, ...]

    @property
    def exit_code(self) -> int:
        """0 good; 1 something is wrong beyond doubt; 3 nothing in the log to judge."""
        rules = {finding.rule for finding in self.diagnosis.findings if finding.is_fault}
        if rules and rules <= {"no_decode_lines", "unreadable_lines"}:
            return LogError.exit_code
        return 1 if self.diagnosis.certain_fault else 0


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
        raise UsageError("--target is checked against a draft", where="--target", next_step="name it with --draft DIR")
    if log == baseline == STDIN:
        raise UsageError(
            "standard input can be only one of the logs", where="--baseline -", next_step="name a file for the other"
        )
    problems: list[Problem] = []
    summary = _summary(log, problems)
    other = None if baseline is None else _summary(baseline, problems)
    checks = None if draft is None else _check_as_served(draft, target, summary)
    diagnosis = diagnose_summary(summary, baseline=other, draft_checks=checks)
    missing = tuple(f"the rest of {problem.where}: {problem.what}" for problem in problems)
    files = [Path(name) for name in (log, baseline) if name not in (None, STDIN)]
    return Outcome(replace(diagnosis, not_known=(*missing, *diagnosis.not_known)), summary, tuple(files))


def _summary(log: str, problems: list[Problem]) -> LogSummary:
    name = "standard input" if log == STDIN else Path(log).name
    own: list[Problem] = []
    summary = summarise_log(read_chunks(log, own), name=printable(name), last_start_only=True)
    problems += own
    return replace(summary, incomplete="; ".join(problem.what for problem in own))


def render(outcome: Outcome, *, all_figures: bool = False) -> str:
    """The diagnosis for a terminal."""
    return render_text(outcome.diagnosis, all_figures=all_figures)


def write_page(outcome: Outcome, page: str) -> Path:
    """Write the diagnosis as a page and return where.

    Parameters
    ----------
    page
        A file name that ends in ``.html``, a folder, or empty for ``reports/``. In a folder the page is named after the
        log and the folder that the log lies in, for most logs are called server.log.
    """
    from workbench.page import write_diagnosis_page

    path = Path(page)
    if path.suffix.lower() not in (".html", ".htm"):
        path = (reports_dir() if not page else path) / f"diagnosis-{slug(_stem(outcome))}.html"
    written = write_diagnosis_page(
        outcome.diagnosis, path, log_name=outcome.log.name, figures=_timeline(outcome.log), inputs=outcome.inputs
    )
    return written.path


def _stem(outcome: Outcome) -> str:
    stem = outcome.log.name.removesuffix(".gz").removesuffix(".log")
    return f"{outcome.inputs[0].resolve().parent.name}-{stem}" if outcome.inputs else stem


def _timeline(log: LogSummary) -> list[tuple[bytes, str, str]]:
    """The log's timeline as PNG with alt text and caption; nothing for a log without decode lines."""
    if log.windows.empty:
        return []
    from markupsafe import Markup

    from workbench import plot, show, theme

    figure = plot.timeline_figure(log.windows, events=log.events)
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=144)
    alt = show.alt(f"Timeline of {log.name}", log.windows, "accept_len", "running_req", "gen_tok_per_s")
    download = theme.csv_link(log.windows, f"{log.name} timeline")
    caption = Markup("Accept length, load and speed of the log on one time axis. {}").format(download)
    return [(png.getvalue(), alt, caption)]


def _check_as_served(draft: Path, target: Path | None, log: LogSummary) -> list[CheckResult]:
    args = log.facts.server_args
    tp_size = args.get("tp_size")
    algorithm = args.get("speculative_algorithm")
    bracket = log.facts.version_bracket
    target_dtype, draft_dtype = loaded_dtypes(log)
    return list(
        check_draft(
            read_checkpoint(draft),
            None if target is None else read_checkpoint(target),
            speculative_algorithm=algorithm if isinstance(algorithm, str) else None,
            context_len=log.facts.context_len,
            sglang_version=bracket[0] if bracket is not None and bracket[0] == bracket[1] else None,
            tp_size=tp_size if isinstance(tp_size, int) else None,
            target_dtype=target_dtype,
            draft_dtype=draft_dtype,
        )
    )
