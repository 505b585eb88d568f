"""Speedups, drift and equal texts of whole tables: what runs that are as they were gave is remembered.

The same as `speedup_df`, `drift_df` and `losslessness_df` of the runs and requests, but only the requests of runs that
are new or changed are read, of some hundred runs at a time. A value is known by the requests that it was worked out
from, by the figures of the runs that it uses, and by the code.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import pandas as pd

from workbench.analysis.frames import Row, number, records
from workbench.analysis.lossless import USED as COMPARED
from workbench.analysis.lossless import as_losslessness, compared_runs, lossless_rows, told_apart
from workbench.analysis.pairing import Pair, pairs
from workbench.analysis.passes import (
    USED,
    PassSpread,
    Timings,
    drift_of,
    passes_of,
    pooled_spread,
    squares_of,
    timings_by_run,
)
from workbench.analysis.remembered import remembered_together
from workbench.analysis.speedup import NOT_REPEATED, Study, arms_alone, as_speedups, by_requests, judged
from workbench.table import Tables


def speedups(tables: Tables) -> pd.DataFrame:
    """`workbench.analysis.speedup.speedup_df` of tables."""
    found = list(pairs(tables.runs))
    spreads = _spreads(tables)

    def spread(pair: Pair) -> PassSpread:
        return spreads.get(pair.run["campaign"], NOT_REPEATED)

    def key(pair: Pair) -> str | None:
        told = [repr(pair)]
        if by_requests(pair):
            own = _made_from(tables, (pair.run, *pair.baselines))
            if own is None:
                return None
            told += [own, repr(spread(pair))]
        return _hashed(told)

    def work_out(chosen: Sequence[Pair]) -> list[Row]:
        used = [run for pair in chosen if by_requests(pair) for run in (pair.run, *pair.baselines)]
        study = Study(_timings(tables, used))
        return [judged(pair, study, spread(pair)) for pair in chosen]

    said = _each("speedups", found, lambda pair: pair.run["campaign"], key, work_out)
    return as_speedups(zip(found, said, strict=True))


def drift(tables: Tables) -> pd.DataFrame:
    """`workbench.analysis.passes.drift_df` of tables."""
    baselines = tables.runs[tables.runs["role"] == "baseline"]
    alone = [run for run in records(baselines) if number(run["max_concurrency"]) == 1]

    def work_out(chosen: Sequence[Row]) -> list[list[Row]]:
        timings = _timings(tables, chosen)
        return [passes_of(run, timings) for run in chosen]

    def key(run: Row) -> str | None:
        own = _made_from(tables, [run])
        return None if own is None else _hashed([own, repr((run["decode_tok_per_s"], run["output_tok_per_s"]))])

    said = _each("passes", alone, lambda run: run["campaign"], key, work_out)
    passes = {(run["campaign"], run["run_id"]): rows for run, rows in zip(alone, said, strict=True)}

    def of_run(run: Row) -> list[Row]:
        found = passes.get((run["campaign"], run["run_id"]))
        return passes_of(run, {}) if found is None else found

    return drift_of(tables.runs, of_run)


def losslessness(tables: Tables) -> pd.DataFrame:
    """`workbench.analysis.lossless.losslessness_df` of tables."""
    found = [pair for pair in pairs(tables.runs) if pair.baselines]

    def key(pair: Pair) -> str | None:
        own = _made_from(tables, (pair.run, *pair.baselines))
        return None if own is None else _hashed([own, repr(told_apart(pair))])

    def work_out(chosen: Sequence[Pair]) -> list[Row]:
        return lossless_rows(chosen, tables.requests_of(_rows_of(tables, compared_runs(chosen)), COMPARED))

    return as_losslessness(_each("losslessness", found, lambda pair: pair.run["campaign"], key, work_out))


def _spreads(tables: Tables) -> dict[str, PassSpread]:
    """Spread between passes of each campaign, from every arm at concurrency 1."""
    arms = arms_alone(tables.runs)

    def work_out(chosen: Sequence[list[Row]]) -> list[tuple[float, int] | None]:
        study = Study(_timings(tables, [run for members in chosen for run in members]))
        found = [study.arm(members) for members in chosen]
        return [None if arm is None else squares_of(arm) for arm in found]

    key = partial(_made_from, tables)
    said = _each("spreads", arms, lambda members: members[0]["campaign"], key, work_out)
    squares: dict[str, list[tuple[float, int]]] = {}
    for members, value in zip(arms, said, strict=True):
        if value is not None:
            squares.setdefault(members[0]["campaign"], []).append((value[0], value[1]))
    return {campaign: pooled_spread(own) for campaign, own in squares.items()}


def _each(
    what: str,
    items: Sequence[Any],
    campaign_of: Callable[[Any], str],
    key: Callable[[Any], str | None],
    work_out: Callable[[Sequence[Any]], Sequence[object]],
) -> list[Any]:
    """A value for each item, remembered campaign by campaign."""
    values: list[Any] = [None] * len(items)
    by_campaign: dict[str, list[int]] = {}
    for place, item in enumerate(items):
        by_campaign.setdefault(campaign_of(item), []).append(place)
    for campaign, places in by_campaign.items():
        own = [items[place] for place in places]
        keys = [key(item) for item in own]
        found = remembered_together(what, campaign, keys, partial(_of_some, work_out, own))
        for place, value in zip(places, found, strict=True):
            values[place] = value
    return values


def _of_some(
    work_out: Callable[[Sequence[Any]], Sequence[object]], items: Sequence[Any], places: Sequence[int]
) -> Sequence[object]:
    return work_out([items[place] for place in places])


def _timings(tables: Tables, runs: Sequence[Row]) -> dict[tuple[str, str], Timings]:
    wanted = {(run["campaign"], run["run_id"]) for run in runs}
    return timings_by_run(tables.requests_of(_rows_of(tables, wanted), USED)) if wanted else {}


def _rows_of(tables: Tables, wanted: Collection[tuple[str, str]]) -> pd.DataFrame:
    """The runs of these names, as (campaign, run_id)."""
    names = zip(tables.runs["campaign"], tables.runs["run_id"], strict=True)
    return tables.runs.loc[[name in wanted for name in names], ["campaign", "run_id"]]


def _made_from(tables: Tables, runs: Sequence[Row]) -> str | None:
    """What the requests of these runs were read from, where that is known of all."""
    found = [tables.requests_made_from(run["campaign"], run["run_id"]) for run in runs]
    return None if None in found else "|".join(map(str, found))


def _hashed(parts: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "backslashreplace")).hexdigest()[:24]
