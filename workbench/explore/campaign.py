"""One campaign, opened: its runs and logs, what the pages say about it, its figures."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import pandas as pd

from workbench import figures, show
from workbench.analysis import campaign as pages
from workbench.analysis import cost, views
from workbench.analysis.diagnosis import Diagnosis
from workbench.analysis.frames import most
from workbench.analysis.scaling import ScalingFit
from workbench.analysis.speedup import speedup_df
from workbench.analysis.wording import count
from workbench.errors import UsageError
from workbench.explore.comparison import Comparison
from workbench.explore.displays import Displayed, SaidAnswer, View
from workbench.explore.logs import LogList, OpenLog
from workbench.explore.picking import Picker
from workbench.explore.runs import OneRun, RunTable
from workbench.table import Tables, load_tables
from workbench.table.lazy import ServerKey


class OpenCampaign(Displayed):
    """A campaign: its ``runs``, one a row, and its ``logs``, by server.

    ``tables`` holds every DataFrame that was read: runs, requests, windows, drafters, offline, settings.
    What takes time is computed at its first use and kept.
    """

    def __init__(self, folder: Path) -> None:
        self.tables: Tables = load_tables(folder)
        (self.info,) = self.tables.campaigns.values()
        self.name = self.info.name
        # Not properties: a session completes ``opened.runs["`` only where that runs no code.
        self.runs = RunTable(self.tables)
        self.logs = LogList(self.tables.logs, lambda: self._diagnoses)

    def answer(self) -> SaidAnswer:
        """Is the deployment right, is the drafter right, does speculation pay, what next."""
        return self._answer

    def diagnose(self) -> Diagnoses:
        """The verdict on every server log, with evidence and next action."""
        return Diagnoses(self._diagnoses)

    def compare(self, a: str | OneRun | None = None, b: str | OneRun | None = None) -> Comparison | View:
        """Two runs beside each other: figures, settings that differ, and whether one wins.

        Parameters
        ----------
        a, b
            Run ids, or runs. Without ``b`` the baseline of ``a``; without both the fastest run over its baseline.

        Raises
        ------
        UsageError
            When there is no such run, or no baseline that goes with ``a``.
        """
        if a is None:
            best = self._fastest()
            if best is None:
                return View(
                    lambda: show.note("No run of this campaign has a baseline to be compared with."), self.runs.df
                )
            a = best
        first = self._run(a)
        return Comparison(first, self._run(self._baseline(first) if b is None else b), self._speedups)

    def speedups(self) -> View:
        """Speed over the baseline's, with intervals and verdicts."""
        return View(self._show_speedups, self._speedups)

    def curve(self) -> Curve:
        """Accept length against training size, fitted."""
        return self._curve

    def pick_log(self, server: str | None = None) -> Picker[OpenLog]:
        """Choose a server log from a list; the longest one unless ``server`` is named. ``.chosen`` is the log."""
        return Picker("Server log", self.logs, server or self.logs.longest, lambda log: log.timeline())

    @property
    def problems(self) -> View | None:
        """What could not be read; ``None`` where all could."""
        found = self.tables.problems
        if not found:
            return None
        df = pd.DataFrame([{"where": p.where, "what": p.what} for p in found], columns=["where", "what"])
        return View(lambda: show.problems(found), df)

    def _show(self) -> None:
        show.campaign(self.tables.campaigns)
        counts = [
            count(len(self.tables.runs), "run"),
            count(len(self.tables.drafters), "drafter"),
            count(len(self.tables.logs), "server log"),
        ]
        problems = f" {count(len(self.tables.problems), 'problem')}: see .problems." if self.tables.problems else ""
        show.plain(f"{', '.join(counts)}.{problems}")

    def _show_speedups(self) -> None:
        if self._speedups.empty:
            show.note("No run of this campaign has speculation and a baseline.")
            return
        figures.speedups(self._speedups)
        by_id = views.speedups_view(self._speedups.assign(label=self._speedups["run_id"]))
        show.table(by_id, caption="Speedups.", name="speedups", data=self._speedups)

    def _run(self, run: str | OneRun) -> OneRun:
        return run if isinstance(run, OneRun) else self.runs[run]

    def _fastest(self) -> str | None:
        """The run with the best speedup that was measured rather than forced; a forced one where there is no other."""
        told = self._speedups.dropna(subset=["speedup"])
        real = told[told["origin"] != "simulated"]
        return most(real if len(real) else told, "speedup")["run_id"] if len(told) else None

    def _baseline(self, run: OneRun) -> str:
        pairs = self._speedups.set_index("run_id")["baseline_run_id"].dropna()
        if run.run_id not in pairs:
            raise UsageError(
                f"no baseline goes with {run.run_id!r}",
                next_step="name the second run: compare(a, b); .runs lists them",
            )
        return str(pairs[run.run_id])

    @cached_property
    def _answer(self) -> SaidAnswer:
        return SaidAnswer(pages.campaign_answer(self.tables, self._costs, self._speedups, self._diagnoses))

    @cached_property
    def _curve(self) -> Curve:
        return Curve(self.tables, self._costs)

    @cached_property
    def _costs(self) -> pd.DataFrame:
        return cost.cost_df(self.tables.runs)

    @cached_property
    def _speedups(self) -> pd.DataFrame:
        return speedup_df(self.tables.runs, self.tables.requests)

    @cached_property
    def _diagnoses(self) -> dict[ServerKey, Diagnosis]:
        return pages.diagnose_logs(self.tables)


class Diagnoses(Displayed):
    """The diagnoses of a campaign's server logs; ``df`` has a verdict a row."""

    def __init__(self, found: dict[ServerKey, Diagnosis]) -> None:
        self._found = found
        rows = [
            {"server": server, "verdict": each.verdict, "certain_fault": each.certain_fault}
            for (_, server), each in found.items()
        ]
        self.df = pd.DataFrame(rows, columns=["server", "verdict", "certain_fault"])

    def _show(self) -> None:
        show.diagnoses(self._found)


class Curve(Displayed):
    """Accept length against training size: ``sentence``, ``points`` (a DataFrame), ``fit`` (``None`` without one)."""

    def __init__(self, tables: Tables, costs: pd.DataFrame) -> None:
        self._fits = pages.scaling_fits(tables, costs)
        self.fit: ScalingFit | None = views.main_curve(self._fits)
        self.points = pages.scaling_points(self._fits)
        # What walks tell stands in the evidence, never in the sentence.
        self.sentence = pages.scaling_answer(tables, costs, self._fits, {}).sentence

    def _show(self) -> None:
        show.plain(self.sentence)
        figures.scaling(self._fits)
        if len(self._fits):
            none = "No two training sizes share everything else."
            show.table(views.curves_view(self._fits), caption="Curves that were tried.", name="curves", empty=none)
