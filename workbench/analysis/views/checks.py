"""Is the comparison fair, do the sources agree, did anything drift."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import cast

import pandas as pd

from workbench.analysis.acceptance import sources_df
from workbench.analysis.fairness import resolved_df
from workbench.analysis.frames import Row, grouped, records, typed
from workbench.analysis.interference import interference_df
from workbench.analysis.log_speed import LOG_SPEED, MIN_WINDOWS, LogSpeeds
from workbench.analysis.log_speed import log_speeds as between_logs
from workbench.analysis.of_tables import drift, losslessness
from workbench.analysis.remembered import Part, remembered
from workbench.analysis.speedup import fairness_df
from workbench.analysis.views.texts import renamed, share, texts
from workbench.analysis.wording import count, few
from workbench.table import LogSummary, Tables
from workbench.table.lazy import ServerKey, longest, made_from

_LOGS_HELD = 32
_LOG_SPEEDS = {
    "server": "server",
    "baseline": "against",
    "running_req": "running",
    "client_speedup": "speedup over the whole log",
    "median_speedup": "median-line speedup",
    "verdict": "verdict",
    "reason": "why",
}


def fairness_view(tables: Tables) -> pd.DataFrame:
    """Settings in which runs and their baselines differ, one row a difference; those that matter first."""
    found = fairness_df(tables.runs, tables.settings).sort_values("matters", ascending=False, kind="stable")
    by = ["setting", "speculative", "baseline", "matters", "why"]
    grouped = found.groupby(by, sort=False, dropna=False)["label"]
    labels = grouped.apply(lambda same: few(dict.fromkeys(map(str, same)), 3)).reset_index(name="label")
    return renamed(labels, {**{name: name for name in by}, "label": "runs"})


def interference_view(tables: Tables) -> pd.DataFrame:
    """Starts that were measured with neighbours and without, one row a load."""
    names = {
        "server_id": "start",
        "prompt_set": "prompts",
        "max_concurrency": "concurrency",
        "places": "starts at once",
        "alone_tok_per_s": "tok/s alone",
        "packed_tok_per_s": "tok/s with neighbours",
        "ratio": "of its speed alone",
    }
    return renamed(interference_df(tables.runs), names)


def resolved_view(tables: Tables) -> pd.DataFrame:
    """What was asked of servers and what they say they use instead, one row a difference."""
    found = resolved_df(tables.runs, tables.settings)
    grouped = found.groupby(["setting", "asked", "used"], sort=False)["label"]
    labels = grouped.apply(lambda same: few(dict.fromkeys(map(str, same)), 3)).reset_index(name="label")
    return renamed(labels, {"setting": "setting", "asked": "asked", "used": "used", "label": "runs"})


def resolved_words(tables: Tables) -> str:
    """How many settings were compared, for where none of them differs."""
    stated = tables.settings.dropna(subset=["asked", "used"])
    if stated.empty:
        return "No run kept what its server says it uses: whether it took what was asked is not known."
    runs = len(stated.drop_duplicates(["campaign", "run_id"]))
    return f"{count(len(stated), 'setting')} of {count(runs, 'run')}: the servers use what was asked."


def sources_view(runs: pd.DataFrame) -> pd.DataFrame:
    """Accept length from requests, log and counters, of the runs for which at least two of them tell it."""
    sources = sources_df(runs)
    columns = ["accept_length_requests", "accept_length_log", "accept_length_counters"]
    names = {
        "label": "run",
        "prompt_set": "prompts",
        "accept_length_requests": "requests",
        "accept_length_log": "log",
        "accept_length_counters": "counters",
        "max_difference": "largest difference",
        "flagged": "over 3 %",
        "reason": "why",
    }
    prompts = runs[["campaign", "run_id", "prompt_set"]].drop_duplicates(["campaign", "run_id"])
    shown = sources[sources[columns].notna().sum(axis=1) > 1].merge(prompts, on=["campaign", "run_id"], how="left")
    shown["max_difference"] = texts(
        [None if value != value else f"{value:.1%}" for value in shown["max_difference"]], shown.index
    )
    return renamed(shown, names)


def drift_view(tables: Tables) -> pd.DataFrame:
    """Every pass of every baseline that was measured more than once, in time, relative to the first."""
    passes = drift(tables)
    same = ["campaign", "baseline_group", "prompt_set", "max_concurrency", "ignore_eos"]
    again = passes[passes.groupby(same, dropna=False)["tok_per_s"].transform("size") > 1]
    names = {
        "run_id": "baseline",
        "baseline_group": "group",
        "prompt_set": "prompts",
        "max_concurrency": "concurrency",
        "repeat": "pass",
        "tok_per_s": "tok/s",
        "relative": "over the first pass",
    }
    return renamed(again, names)


def losslessness_view(tables: Tables) -> pd.DataFrame:
    """Prompts with the baseline's answer, by run, beside the same of two plain passes, and what follows."""
    shown = losslessness(tables)
    rows = records(shown)
    shown = shown.assign(
        same=texts([share(row["num_same"], row["num_prompts"]) for row in rows], shown.index),
        control=texts([share(row["control_same"], row["control_prompts"]) for row in rows], shown.index),
        first=texts([_divergence(row) for row in rows], shown.index),
    )
    names = {
        "label": "run",
        "prompt_set": "prompts",
        "same": "same as the baseline",
        "control": "same in two plain passes",
        "compared": "compared by",
        "first": "first divergence",
        "verdict": "verdict",
    }
    return renamed(shown[shown["num_prompts"].notna()], names)


def _divergence(row: Row) -> str | None:
    """Where the first divergence is: ``prompt 3, token 17`` (of the answer, from 0)."""
    if row["first_prompt"] is None:
        return None
    where = f"prompt {row['first_prompt']}"
    return where if row["first_position"] is None else f"{where}, token {row['first_position']}"


def log_speeds(tables: Tables) -> pd.DataFrame:
    """`log_speed_df` of every speculative server against the baselines of its group, where both hold enough lines."""
    levels: list[Row] = []
    for campaign in tables.runs["campaign"].unique():
        found = _servers_beside(tables, str(campaign))
        # Group by group, so that few logs are held and each is read once.
        ordered = sorted(found, key=lambda pair: found[pair])
        speeds = lru_cache(maxsize=_LOGS_HELD)(lambda key: LogSpeeds(tables.logs[key].lines))
        parts = [_compared(tables, spec, base, speeds) for spec, base in ordered]
        rows = remembered("log-speeds", str(campaign), parts)
        by_pair = dict(zip(ordered, rows, strict=True))
        for spec, base in found:
            levels += [row | {"server": spec[1], "baseline": base[1]} for row in cast(list[Row], by_pair[spec, base])]
    if not levels:
        return pd.DataFrame(columns=list(_LOG_SPEEDS))
    table = typed(levels, LOG_SPEED | {"server": "str", "baseline": "str"})
    enough = (table[["num_windows_spec", "num_windows_base"]].min(axis=1) >= MIN_WINDOWS).fillna(False).astype(bool)
    return table[enough].reset_index(drop=True)


def _servers_beside(tables: Tables, campaign: str) -> dict[tuple[ServerKey, ServerKey], str]:
    """Each speculative server with a log, beside each baseline of its group that has one, and the group."""
    servers = tables.runs[tables.runs["campaign"] == campaign].drop_duplicates("server_id")
    by_group = grouped(records(servers), ["baseline_group", "role"])
    return {
        ((campaign, spec["server_id"]), (campaign, base["server_id"])): str(spec["baseline_group"])
        for spec in records(servers[servers["role"] == "speculative"])
        for base in by_group.get((spec["baseline_group"], "baseline"), ())
        if (campaign, spec["server_id"]) in tables.logs and (campaign, base["server_id"]) in tables.logs
    }


def _compared(tables: Tables, spec: ServerKey, base: ServerKey, speeds: Callable[[ServerKey], LogSpeeds]) -> Part:
    own, other = made_from(tables.logs, spec), made_from(tables.logs, base)
    key = None if own is None or other is None else f"{own}|{other}"
    return key, lambda: between_logs(speeds(spec), speeds(base))


def log_speeds_view(speeds: pd.DataFrame) -> pd.DataFrame:
    """What `log_speeds` found, with the verdict's reason in short."""
    why = [str(row["reason"] or "").split("; ")[0].split(": ", 1)[-1] for row in records(speeds)]
    return renamed(speeds.assign(reason=texts(list(why), speeds.index)), _LOG_SPEEDS)


def longest_log(tables: Tables) -> LogSummary | None:
    """The server log with the most decode lines, a speculative one where there is any."""
    return longest(tables.logs)
