"""The machine of a start: program, package, GPUs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from workbench.preflight.result import CheckResult, Severity
from workbench.preflight.start_case import StartCase
from workbench.sglang_rules import LATEST_VERSION


def program(case: StartCase) -> Iterator[CheckResult]:
    prefix = case.campaign.launch_prefix
    if prefix and shutil.which(prefix[0]) is None:
        yield CheckResult(
            "launch-prefix",
            Severity.ERROR,
            f"the program {prefix[0]} is not found",
            "launch_prefix",
            "install it, correct the name, or give its full path",
            "no server can be started",
        )


def version(case: StartCase) -> Iterator[CheckResult]:
    """Flags are spelled for the stated version; another one that is installed may refuse them."""
    stated, installed = case.campaign.sglang_version, case.machine.sglang_version
    if not case.is_sglang:
        return
    if stated is None:
        yield CheckResult(
            "version",
            Severity.NOTE,
            f"sglang_version is not stated: checked as {LATEST_VERSION}, the newest that is known here",
            "sglang_version",
            "state it as the server does, such as 0.5.14",
        )
    elif case.version is None:
        yield CheckResult(
            "version",
            Severity.WARNING,
            f"{stated!r} is not an SGLang version: checked as {LATEST_VERSION}, the newest that is known here",
            "sglang_version",
            "give it as the server states it, such as 0.5.14",
        )
    elif installed not in (None, stated) and not case.campaign.launch_prefix:
        yield CheckResult(
            "version",
            Severity.WARNING,
            f"the campaign is for SGLang {stated}, and {installed} is installed here",
            "sglang_version",
            f"set it to {installed}, or install {stated}",
            "flags are named, and numbers rewritten, otherwise",
        )


def gpus(case: StartCase) -> Iterator[CheckResult]:
    needed, there = case.gpus_needed, case.machine.gpu_memory_bytes
    if not needed:
        return
    if not there:
        yield CheckResult(
            "gpus",
            Severity.NOTE,
            f"not checked: no GPU can be seen here, and {needed} {'is' if needed == 1 else 'are'} needed",
            "server.tp_size",
            "run this check on the machine that serves",
        )
    elif len(there) < needed:
        yield CheckResult(
            "gpus",
            Severity.ERROR,
            f"{needed} GPUs are needed, {len(there)} can be used here",
            "server.tp_size",
            "lower tp_size or dp_size, or use a machine with more GPUs",
            "the start waits for GPUs that are not there",
        )
