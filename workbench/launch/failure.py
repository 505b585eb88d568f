"""Why a server did not start or died: from the end of its log and its exit code to a cause and a next step."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from workbench.errors import LaunchError
from workbench.launch.redaction import hide
from workbench.parse.lines import clean_text, find_head

TAIL_BYTES = 1 << 18
MAX_LINES = 40
MAX_LINE = 300
_BEFORE_CAUSE = 5
_AFTER_CAUSE = 14
_FEW_LINES = 5


class FailureKind(StrEnum):
    OOM = "oom"
    NCCL = "nccl"
    PORT = "port"
    BAD_FLAG = "bad_flag"
    MISSING_FILE = "missing_file"
    DRAFT = "draft"
    CHILD_DEATH = "child_death"
    TIMEOUT = "timeout"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class LaunchFailure:
    """A cause, in one sentence, with at most 40 lines of the log around it and at its end."""

    kind: FailureKind
    sentence: str
    next_step: str
    tail: tuple[str, ...]

    def error(self, where: Path | str | None) -> LaunchError:
        return LaunchError(self.sentence, where=where, next_step=self.next_step, kind=self.kind, tail=self.tail)


@dataclass(frozen=True, slots=True)
class _Rule:
    kind: FailureKind
    pattern: re.Pattern[str]
    sentence: str
    next_step: str


def _rule(kind: FailureKind, pattern: str, sentence: str, next_step: str) -> _Rule:
    return _Rule(kind, re.compile(pattern), sentence, next_step)


_USAGE = re.compile(r"^.{1,80}?: error: (.*)$", re.M)
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception|Interrupt): ?.*$|^\w*Error$", re.M)
# Each of these is a cause wherever it stands; the first one in the log is the root, the rest follow from it. Where a
# pattern begins further up in the traceback, ``said`` is the line to quote.
_CAUSES = (
    _rule(
        FailureKind.DRAFT,
        r"self\.\w*fc\([\s\S]{0,4000}?(?P<said>RuntimeError: mat1 and mat2 shapes cannot be multiplied.*)",
        "the draft's fc takes another number of captured layers than arrive; SGLang before 0.5.15 needs three, or "
        "num_aux_hidden_states in the target's config.json",
        "`workbench check DRAFT --target TARGET` compares the two",
    ),
    _rule(
        FailureKind.OOM,
        r"draft_worker\.alloc_memory_pool\([\s\S]{0,6000}?(?P<said>torch\.\w*OutOfMemoryError.*)",
        "the draft's keys and values do not fit: cap max-total-tokens in server.flags, or lower mem_fraction_static",
        "state one of the two in the campaign; `workbench check` says what the draft keeps per token",
    ),
    _rule(
        FailureKind.OOM,
        r"Not enough memory\. Please try to increase --mem-fraction-static.*",
        "no GPU memory is left for the KV cache after the weights",
        "raise mem_fraction_static, or spread the model over more GPUs (tp_size)",
    ),
    _rule(
        FailureKind.OOM,
        r"(?:torch\.\w*OutOfMemoryError|CUDA out of memory|CUDA error: out of memory|Cuda failure 2 ).*",
        "the GPU ran out of memory",
        "lower mem_fraction_static, cuda_graph_max_bs_decode or the context; look for other processes on these GPUs",
    ),
    _rule(
        FailureKind.OOM,
        r"(?:Out of memory: Killed process|oom-kill|MemoryError\b).*",
        "the machine ran out of memory",
        "free memory on the machine, or raise the limit of the container or job",
    ),
    _rule(
        FailureKind.NCCL,
        r".*(?:Watchdog caught collective operation timeout|NCCL error|ncclSystemError|ncclInternalError"
        r"|ncclUnhandledCudaError|ncclRemoteError).*",
        "the GPUs could not talk to each other (NCCL)",
        "look at `nvidia-smi topo -m`; on PCIe-only machines try NCCL_P2P_DISABLE=1 in the server's env",
    ),
    _rule(
        FailureKind.PORT,
        r".*(?:[Aa]ddress already in use|EADDRINUSE|port is already allocated|port\w* at \d+ is not available).*",
        "a port that the server needs is taken",
        "start again: another port is chosen; find the holder with `ss -ltnp`",
    ),
)
_MISSING = re.compile(
    r"FileNotFoundError|No such file or directory|No module named|does not appear to have a file named"
    r"|is not a local folder and is not a valid model identifier|HFValidationError|RepositoryNotFoundError"
    r"|Can't load the configuration of|command not found|executable file not found|No such image|pull access denied"
)
_CHILD = re.compile(
    r".*(?:scheduler died during|crashed with exit code|Received sigquit from a child|exited during startup).*"
)
_BROKEN_OFF = frozenset({FailureKind.OOM, FailureKind.NCCL, FailureKind.CHILD_DEATH})


def explain(
    log_end: bytes | str,
    exit_code: int | None,
    *,
    waited_s: float | None = None,
    note: str | None = None,
    secrets: Iterable[str] = (),
) -> LaunchFailure:
    """Name the cause.

    Parameters
    ----------
    log_end
        The last part of the log; `TAIL_BYTES` are enough.
    exit_code
        ``None`` while the server still runs, negative for a signal.
    waited_s
        How long it was waited for, when that was too long.
    note
        Something else that was seen and belongs into the sentence.
    secrets
        Values that must not be shown.
    """
    lines = [hide(line, secrets) for line in _lines(log_end)]
    text = "\n".join(lines)
    kind, sentence, next_step, cause = _cause(text, exit_code, waited_s)
    said = "; ".join(part for part in (f"{sentence}{_quote(cause)}", note) if part)
    return LaunchFailure(kind, said, next_step, _tail(lines, cause))


_Cause = tuple[FailureKind, str, str, str]
"""Kind, sentence, next step, the line of the log that shows it (may be empty)."""


def _cause(text: str, exit_code: int | None, waited_s: float | None) -> _Cause:
    refused = _USAGE.findall(text) if exit_code == 2 else []
    if refused:
        step = "check the flag, and sglang_version in the campaign: flags are spelled by version"
        return FailureKind.BAD_FLAG, "the server refused its command line", step, refused[-1]
    found = [
        (match.start(), rule, match.groupdict().get("said") or match[0])
        for rule in _CAUSES
        if (match := rule.pattern.search(text))
    ]
    if found:
        _, rule, line = min(found, key=lambda entry: entry[0])
        return rule.kind, rule.sentence, rule.next_step, line.strip()
    exceptions = _EXCEPTION.findall(text)
    last = exceptions[-1] if exceptions else ""
    missing = _missing(text, last, exit_code)
    if missing:
        step = "check model paths, installed packages and, with a launch prefix, what it can see"
        return FailureKind.MISSING_FILE, "something that the server needs is not there", step, missing
    return _ended(text, last, exit_code, waited_s)


def _missing(text: str, last: str, exit_code: int | None) -> str:
    """The line that names what is missing: the last exception, or the last line of a program that wrote little else."""
    if last and _MISSING.search(last):
        return last
    end = text.rstrip().rpartition("\n")[2]
    return end if exit_code not in (None, 0) and not last and _MISSING.search(end) else ""


def _ended(text: str, last: str, exit_code: int | None, waited_s: float | None) -> _Cause:
    step = "read the log"
    child = _CHILD.search(text)
    if child is not None:
        return FailureKind.CHILD_DEATH, "a process of the server died", step, last or child[0].strip()
    if exit_code is None and waited_s is not None:
        step = "raise the time limit if the log still moves; otherwise read its end"
        return FailureKind.TIMEOUT, f"the server was not ready within {waited_s:g} s", step, ""
    if exit_code is None:
        return FailureKind.UNKNOWN, "the server failed", step, last
    if exit_code in (-signal.SIGKILL, 128 + signal.SIGKILL):
        step = "look for the machine's out-of-memory killer (dmesg) and for limits of the job or container"
    # What a launch prefix says (docker, ssh, srun) has no traceback and few lines.
    end = text.rstrip().rpartition("\n")[2]
    said = last or (end if text.count("\n") < _FEW_LINES and find_head(end)[0] is None else "")
    return FailureKind.UNKNOWN, f"the server ended ({describe_exit(exit_code)})", step, said


def describe_exit(code: int) -> str:
    """``exit code 1``, ``signal SIGKILL``; shells and docker report a signal as 128 + its number."""
    number = -code if code < 0 else code - 128
    if number > 0:
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = f"signal {number}"
        return f"killed by {name}" if code < 0 else f"exit code {code}, which is {name}"
    return f"exit code {code}"


def is_fatal(text: str) -> bool:
    """Whether a line of the log means that the server will not come up, though it may still run."""
    found = next((rule.kind for rule in _CAUSES if rule.pattern.search(text)), None)
    return found in _BROKEN_OFF or _CHILD.search(text) is not None or "hit an exception" in text


def _lines(log_end: bytes | str) -> list[str]:
    """Lines without colours; of a progress bar what it showed last."""
    raw = log_end.encode("utf-8", "replace") if isinstance(log_end, str) else log_end
    cleaned = (clean_text(line, ended=False).rstrip() for line in raw[-TAIL_BYTES:].split(b"\n"))
    return [line.rpartition("\r")[2] for line in cleaned if line.strip()]


def _quote(cause: str) -> str:
    return f": {_short(find_head(cause)[1])}" if cause else ""


def _short(line: str) -> str:
    return line if len(line) <= MAX_LINE else f"{line[: MAX_LINE - 3]}..."


def _tail(lines: list[str], cause: str) -> tuple[str, ...]:
    end = lines[-MAX_LINES:]
    at = next((i for i, line in enumerate(lines) if cause and cause in line), len(lines))
    if at < len(lines) - MAX_LINES:
        around = lines[max(0, at - _BEFORE_CAUSE) : at + _AFTER_CAUSE]
        end = [*around, "...", *lines[len(around) + 1 - MAX_LINES :]]
    return tuple(_short(line) for line in end)
