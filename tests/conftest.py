"""Settings of all tests."""

import os
import signal

# Whoever starts the tests with nohup or behind & has these ignored, and so have all children, for good; tests that stop
# commands need children that do not. A handler is not inherited.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda number, frame: None)

if "PYTEST_XDIST_WORKER" in os.environ:
    # Workers share the cores already: threads that spin for each other there take twice the processor time. Said before
    # torch and numpy are loaded, and inherited by the servers and trainings that tests start.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")

import pytest
from hypothesis import settings

# A shared machine may stall any one example; what a test must not do is hang, and pytest-timeout sees to that.
# CI tries the same examples every time, so that a change is judged by what it changed; everywhere else, and in
# `make soak`, they are new each time.
settings.register_profile("workbench", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("workbench")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The faults that were injected, whichever process injected them."""
    reports = [report for kind in terminalreporter.stats.values() for report in kind]
    told = [
        counts
        for report in reports
        if getattr(report, "when", None) == "teardown"
        for name, counts in report.user_properties
        if name == "faults"
    ]
    if told:
        injected, survived, lost = (sum(each) for each in zip(*told, strict=True))
        terminalreporter.write_line(f"faults: {injected} injected, {survived} survived, {lost} runs lost")
