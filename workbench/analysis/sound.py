"""Runs whose figures say nothing about their drafter, because the server's log proves a wrong flag."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

import pandas as pd

from workbench.analysis.diagnosis import Certainty, Diagnosis, Finding, diagnose
from workbench.analysis.diagnosis.of_campaigns import as_json, by_campaign, from_json
from workbench.analysis.frames import records
from workbench.table import Tables
from workbench.table.lazy import ServerKey, made_from

_WRONG_FLAG = "wrong_flag"


def certain_faults(diagnosis: Diagnosis) -> list[Finding]:
    """What is wrong beyond doubt, in the order in which to mend it."""
    return [f for f in diagnosis.findings if f.is_fault and f.certainty is Certainty.CERTAIN]


def flagged_servers(diagnoses: Mapping[ServerKey, Diagnosis]) -> dict[ServerKey, Finding]:
    """The servers whose drafter certainly runs under a wrong flag, with the finding."""
    return {
        key: finding
        for key, diagnosis in diagnoses.items()
        for finding in certain_faults(diagnosis)
        if finding.rule == _WRONG_FLAG
    }


def wrong_flags(tables: Tables) -> dict[ServerKey, Finding]:
    """The same from the tables; only logs that state another algorithm than EAGLE3 are diagnosed."""

    def judge(key: ServerKey) -> object:
        log = tables.logs[key]
        if str(log.facts.server_args.get("speculative_algorithm") or "EAGLE3").upper() == "EAGLE3":
            return None
        return as_json(diagnose(log))

    judged = by_campaign("wrong-flags", tables, lambda key: (made_from(tables.logs, key), partial(judge, key)))
    told = {key: value for key, value in judged.items() if value is not None}
    return flagged_servers(dict(zip(told, from_json(told.values()), strict=True)))


def sound_rows(table: pd.DataFrame, tables: Tables, flagged: Iterable[ServerKey] | None = None) -> pd.DataFrame:
    """The rows whose run was not served under a wrong flag (those of `wrong_flags` unless given)."""
    return without_servers(table, tables.runs, wrong_flags(tables) if flagged is None else flagged)


def without_servers(table: pd.DataFrame, runs: pd.DataFrame, servers: Iterable[ServerKey]) -> pd.DataFrame:
    """The rows of a table whose run, one of ``runs``, is on none of these servers."""
    bad = set(servers)
    left_out = {
        (row["campaign"], row["run_id"])
        for row in records(runs[["campaign", "run_id", "server_id"]])
        if (row["campaign"], row["server_id"]) in bad
    }
    if not left_out:
        return table
    keep = [key not in left_out for key in zip(table["campaign"], table["run_id"], strict=True)]
    return table[pd.Series(keep, index=table.index, dtype=bool)]
