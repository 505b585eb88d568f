"""What the benchmarks of one run measured: one table, printed at the end and written into docs/benchmarks.md.

Each section of the page lies between two comments, so that a run of some benchmarks leaves the others' figures, and
what was measured elsewhere, as they are.
"""

from __future__ import annotations

import os
import platform
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent.parent / "docs" / "benchmarks.md"
HEAD = """# Benchmarks

Written by `make bench`: each section says when and on what machine it was measured. Ratios are of one run; absolute
figures depend on what else the machine did.
"""
_KEY = pytest.StashKey["Bench"]()


class Bench:
    """Rows by section; a section has a title, the names of its columns, and rows of texts."""

    def __init__(self) -> None:
        self.sections: dict[str, tuple[str, list[str], list[list[str]]]] = {}

    def add(self, section: str, title: str, **row: object) -> None:
        """A row, its columns named by the arguments (``_`` for a space)."""
        columns = [name.replace("_", " ") for name in row]
        held = self.sections.setdefault(section, (title, columns, []))
        held[2].append([shown(value) for value in row.values()])

    def text(self, section: str) -> str:
        title, columns, rows = self.sections[section]
        lines = [columns, ["---"] * len(columns), *rows]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return f"## {title}\n\n{machine()}\n\n{table}"


def shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def machine() -> str:
    """When and on what."""
    try:
        names = re.findall(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        names = []
    name = names[0] if names else platform.processor() or platform.machine()
    busy = f", load {os.getloadavg()[0]:.1f} when it was written" if hasattr(os, "getloadavg") else ""
    today = datetime.now(UTC).date().isoformat()
    return f"{today}, {os.cpu_count()} CPUs ({name}), Python {platform.python_version()}{busy}."


@pytest.fixture(scope="session")
def bench(request: pytest.FixtureRequest) -> Bench:
    held: Bench = request.config.stash.setdefault(_KEY, Bench())
    return held


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    held = config.stash.get(_KEY, None)
    if held is None or not held.sections:
        return
    page = PAGE.read_text(encoding="utf-8") if PAGE.exists() else HEAD
    for section in held.sections:
        text = held.text(section)
        terminalreporter.write_line(f"\n{text}")
        page = placed(page, section, text)
    PAGE.write_text(page, encoding="utf-8")


def placed(page: str, section: str, text: str) -> str:
    """The page with a section replaced, or added at its end."""
    begin, end = f"<!-- bench {section} -->", f"<!-- end of bench {section} -->"
    own = f"{begin}\n{text}\n{end}"
    if begin in page and end in page:
        before, rest = page.split(begin, 1)
        return before + own + rest.split(end, 1)[1]
    return f"{page.rstrip()}\n\n{own}\n"
