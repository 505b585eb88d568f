"""Did the server live, and does the log hold anything to judge?"""

from __future__ import annotations

from collections.abc import Iterator

from workbench.analysis.diagnosis.causes import CAUSES, FATAL, Cause
from workbench.analysis.diagnosis.model import Certainty, Finding
from workbench.analysis.diagnosis.reading import Case, Reading
from workbench.analysis.diagnosis.words import at_line, quoted
from workbench.analysis.wording import count, one_of
from workbench.parse.records import EventKind, LogEvent, LogKind


def server_died(case: Case) -> Iterator[Finding]:
    """A fatal line, traced to a known cause where its wording is known."""
    fatal = case.log.events(*FATAL)
    if not fatal:
        return
    known = _known_cause(fatal)
    cause = known or FATAL[min(fatal, key=lambda event: list(FATAL).index(event.kind)).kind]
    when = "while serving" if case.log.facts.ready_line is not None or len(case.log.lines) else "during start-up"
    title, certainty = f"The server failed {when}: {cause.title}", Certainty.CERTAIN
    if _went_on(case.log, fatal):
        title, certainty = f"The server went on after an error: {cause.title}", Certainty.SUSPECTED
    elif known is None and not any(_is_end(event) for event in fatal):
        title, certainty = f"The log ends after an error: {cause.title}", Certainty.LIKELY
    yield Finding(
        "server_died",
        title,
        certainty,
        tuple(at_line(event.line, event.text) for event in _first_of_each(fatal, cause)),
        cause.next_action,
        cause.doc,
        headline="" if certainty is Certainty.SUSPECTED else f"{title} (line {fatal[0].line}); {cause.next_action}",
    )


def _went_on(log: Reading, fatal: list[LogEvent]) -> bool:
    """Decode lines after the last error: it was survived, whatever it says."""
    return len(log.lines) > 0 and int(log.lines["line"].max()) > fatal[-1].line


def _is_end(event: LogEvent) -> bool:
    """The last line of any traceback is an exception; only SGLang's own words say that it ended the server."""
    return event.kind is not EventKind.EXCEPTION or "hit an exception" in event.text


def _known_cause(events: list[LogEvent]) -> Cause | None:
    return next((cause for cause in CAUSES if any(cause.wording in event.text for event in events)), None)


def _first_of_each(events: list[LogEvent], cause: Cause) -> list[LogEvent]:
    """The line that names the cause and the first of each kind, in order, at most four."""
    kept: dict[object, LogEvent] = {}
    for event in events:
        kept.setdefault("cause" if cause.wording and cause.wording in event.text else event.kind, event)
    return sorted(kept.values(), key=lambda event: event.line)[:4]


def no_decode_lines(case: Case) -> Iterator[Finding]:
    """Without a decode line there is nothing to judge; what to look for depends on how far the log goes."""
    log = case.log
    if len(log.lines) and not _is_plain_vllm(case):
        return
    what, next_action = _missing(log)
    yield Finding(
        "no_decode_lines",
        f"No decode line in {count(log.log.counts.lines, 'line')}: {what}",
        Certainty.CERTAIN,
        () if log.is_no_server_log else _seen(log),
        next_action,
        headline=f"Nothing to judge: no decode line in {count(log.log.counts.lines, 'line')} ({what})",
    )


def _is_plain_vllm(case: Case) -> bool:
    """Engine lines alone serve as a baseline; only as a swapped one they are judged here."""
    is_swapped = case.baseline is not None and case.baseline.is_speculative is True
    return case.log.is_vllm and case.log.is_speculative is False and not is_swapped


def unreadable_lines(case: Case) -> Iterator[Finding]:
    """Decode lines that break off before their accept length: they show neither speculation nor its absence."""
    log = case.log
    if not len(log.lines) or log.num_cut < len(log.lines) or log.accept_length is not None:
        return
    if log.is_speculative is False:
        return
    unknown = "Accept length" if log.is_speculative else "Whether it speculates"
    title = f"{unknown} is not known: {log.num_cut:,} of {count(len(log.lines), 'decode line')} are cut or unreadable"
    next_action = "give the log as the server printed it: whole lines, and its first ones with server_args"
    first = at_line(int(log.lines["line"][0]), "decode line without a readable end or accept length")
    yield Finding(
        "unreadable_lines", title, Certainty.CERTAIN, (first,), next_action, headline=f"{title}; {next_action}"
    )


def incomplete_file(case: Case) -> Iterator[Finding]:
    """A compressed file that breaks off: the end of the log, which matters most, is missing."""
    readings = (("log", case.log), ("baseline log", case.baseline))
    for whose, reading in readings:
        if reading is not None and reading.log.incomplete:
            yield Finding(
                "incomplete_file",
                f"The file of the {whose} is not whole: {quoted(reading.log.incomplete)}",
                Certainty.CERTAIN,
                (f"{count(reading.log.counts.lines, 'line')} could be read",),
                "copy the file again, then diagnose it again",
                is_fault=False,
            )


def several_starts(case: Case) -> Iterator[Finding]:
    """Several servers wrote to one file: settings of one must not be held against the lines of another."""
    readings = (("log", case.log), ("baseline log", case.baseline))
    for whose, reading in readings:
        if reading is not None and reading.log.starts_before:
            line = reading.log.first_line
            yield Finding(
                "several_starts",
                f"The {whose} holds {reading.log.starts_before + 1} server starts; only the last, from line {line:,}, "
                "is judged",
                Certainty.CERTAIN,
                (f"the last server begins at line {line:,}",),
                f"cut the file before line {line:,} to judge an earlier start; write each start to a file of its own",
                is_fault=False,
            )


def _missing(log: Reading) -> tuple[str, str]:
    counts = log.log.counts
    if log.log.incomplete:
        return quoted(log.log.incomplete), "copy the file again, then diagnose it again"
    if counts.bytes == 0:
        return "the log is empty", "look for the file that the server's output and errors were written to"
    if log.is_vllm:
        return (
            "this is a vLLM log without speculative metrics",
            "take a stretch of the log with 'SpecDecoding metrics:' lines (they come with the statistics, about every "
            "10 s under load)",
        )
    if counts.unparsed_batch_lines:
        return (
            f"{count(counts.unparsed_batch_lines, 'line')} of the decode or prefill kind could not be read",
            "give the log as the server printed it, one record a line",
        )
    if log.facts.ready_line is not None or counts.prefill:
        return (
            "the server runs, but no request lived long enough",
            "restart with --decode-log-interval 10 and let requests generate at least 256 tokens: a decode line comes "
            "every 40 steps by default",
        )
    if log.log.kind is LogKind.SGLANG:
        return (
            "an SGLang log that ends before the server was ready",
            "wait for 'The server is fired up and ready to roll!', send requests, and give the log again",
        )
    return (
        "this does not look like the log of an SGLang or vLLM server",
        "give what the server printed (standard output and error); look for lines with 'Decode batch' or "
        "'SpecDecoding metrics:'; results of a benchmark tool are read by workbench import FILE --campaign NAME",
    )


def _seen(log: Reading) -> tuple[str, ...]:
    counts, facts = log.log.counts, log.facts
    seen = [f"{count(counts.prefill, 'prefill line')}"]
    if facts.server_args_line is not None:
        seen.append(f"server_args at line {facts.server_args_line}")
    seen.append("never ready" if facts.ready_line is None else f"ready at line {facts.ready_line}")
    return (f"seen: {one_of(seen)}",)


def failed_requests(case: Case) -> Iterator[Finding]:
    """Requests that the server answered with an error; a client may count them as fast ones."""
    events = case.log.events(EventKind.REQUEST_ERROR)
    if not events:
        return
    yield Finding(
        "failed_requests",
        f"{count(len(events), 'request')} failed",
        Certainty.CERTAIN,
        tuple(at_line(event.line, event.text) for event in events[:2]),
        "leave them out of client-side speeds and acceptance; the reason stands in the response",
        is_fault=False,
    )


def vllm_log(case: Case) -> Iterator[Finding]:
    """vLLM states acceptance and little else."""
    log = case.log
    if not log.is_vllm or log.accept_length is None:
        return
    yield Finding(
        "vllm_log",
        "A vLLM log: acceptance can be read, the deployment cannot be checked",
        Certainty.CERTAIN,
        (f"mean acceptance length {log.accept_length:.2f} in {count(log.num_accept_lines, 'metrics line')}",),
        "compare it with SGLang at equal drafts per step: vLLM's num_speculative_tokens is "
        "--speculative-num-draft-tokens minus 1",
        "sglang 8228",
        is_fault=False,
        headline=f"vLLM log: accept length {log.accept_length:.2f} over {count(log.num_accept_lines, 'metrics line')}, "
        "bonus token included; flags, graphs and draft class are not in it, so only acceptance can be judged",
    )
