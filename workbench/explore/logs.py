"""Server logs, of a campaign or from a file: facts, timeline, diagnosis."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pandas as pd
from markupsafe import Markup

from workbench import figures, show
from workbench.analysis.diagnosis import Diagnosis, diagnose
from workbench.analysis.frames import records
from workbench.analysis.wording import count
from workbench.diagnose import diagnose_files
from workbench.explore.displays import Displayed, View, cell, unknown_name
from workbench.table import LogSummary
from workbench.table.lazy import LogEntry, Logs, ServerKey
from workbench.theme.show import display_html

FIGURES_SHOWN = 8


def open_log(
    log: str | Path,
    baseline: str | Path | None = None,
    *,
    draft: str | Path | None = None,
    target: str | Path | None = None,
) -> OpenLog:
    """Read one server log from a file, as `workbench diagnose` does.

    Parameters
    ----------
    baseline
        The log of the same server without speculation, to say whether speculation pays.
    draft, target
        Folders of the draft checkpoint and of the target's ``config.json``, to check one against the other.

    Raises
    ------
    LogError, CheckpointError
        When something cannot be read.
    """
    outcome = diagnose_files(
        str(log),
        baseline=None if baseline is None else str(baseline),
        draft=None if draft is None else Path(draft),
        target=None if target is None else Path(target),
    )
    return OpenLog(outcome.log.name, outcome.log, lambda: outcome.diagnosis)


class Diagnosed(Displayed):
    """The diagnosis of one log: ``verdict``, ``findings`` with evidence and next action, ``figures`` (a DataFrame)."""

    def __init__(self, name: str, diagnosis: Diagnosis) -> None:
        self._name, self._diagnosis = name, diagnosis
        self.verdict, self.findings = diagnosis.verdict, diagnosis.findings
        self.figures, self.not_known = diagnosis.figures, diagnosis.not_known

    def _show(self) -> None:
        show.diagnoses({("", self._name): self._diagnosis})


class OpenLog(Displayed):
    """One server log. ``windows`` has one row a decode line, ``facts`` is what the server said of itself."""

    def __init__(self, name: str, log: LogSummary, diagnosis: Callable[[], Diagnosis | None]) -> None:
        self.name = name
        self.windows, self.facts, self.events = log.windows, log.facts, log.events
        self._log, self._diagnosis = log, diagnosis

    def timeline(self) -> View:
        """Accept length, load, speed and CUDA graphs on one time axis."""
        return View(lambda: figures.timeline(self._log), self.windows)

    def diagnose(self) -> Diagnosed:
        """Verdict, evidence and next action."""
        return Diagnosed(self.name, self._found())

    def _found(self) -> Diagnosis:
        return self._diagnosis() or diagnose(self._log)

    def _show(self) -> None:
        found = self._found()
        rows = [
            {"name": row["name"], "value": row["text"] or cell(row["value"]), "unit": row["unit"] or ""}
            for row in records(found.figures.head(FIGURES_SHOWN))
        ]
        lines = count(len(self.windows), "decode line")
        said = Markup("<p><strong>{}</strong>, {}. {}</p>").format(self.name, lines, found.verdict)
        display_html(said, f"{self.name}, {lines}. {found.verdict}")
        table = pd.DataFrame(rows, columns=["name", "value", "unit"])
        show.table(table, caption="Key figures.", name=f"{self.name} figures", empty="", data=found.figures)


class LogList(Displayed, Mapping[str, OpenLog]):
    """The server logs of a campaign by server: ``logs["base"]``; each is read when it is asked for."""

    def __init__(self, logs: Mapping[ServerKey, LogSummary], found: Callable[[], Mapping[ServerKey, Diagnosis]]):
        self._logs, self._diagnoses = logs, found
        self._keys = {server: (campaign, server) for campaign, server in logs}

    def __getitem__(self, server: str) -> OpenLog:
        if server not in self._keys:
            raise unknown_name("log of a server", server, self._keys)
        key = self._keys[server]
        return OpenLog(server, self._logs[key], lambda: self._diagnoses().get(key))

    def __contains__(self, server: object) -> bool:
        return server in self._keys

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def longest(self) -> str | None:
        """The server with the most decode lines, a speculative one where there is any."""
        sizes = {server: (entry.has_accept_length, entry.num_windows) for server, entry in self._entries().items()}
        return max(sizes, key=sizes.__getitem__, default=None)

    def _entries(self) -> dict[str, LogEntry]:
        entries = self._logs.entries if isinstance(self._logs, Logs) else {}
        return {server: entries[key] for server, key in self._keys.items() if key in entries}

    def _show(self) -> None:
        rows = [
            {"server": server, "decode lines": entry.num_windows, "tells accept length": entry.has_accept_length}
            for server, entry in self._entries().items()
        ]
        table = pd.DataFrame(rows, columns=["server", "decode lines", "tells accept length"])
        caption = f"{count(len(self), 'server log')}."
        show.table(table, caption=caption, name="logs", empty="No server log of this campaign was kept.")

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)
