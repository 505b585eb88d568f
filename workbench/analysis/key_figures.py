"""The numbers of a page for a machine: each with its interval, unit and run; and what of them nobody could check."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import pandas as pd

from workbench.analysis.acceptance import USED, accept_length_df
from workbench.analysis.frames import Row, number, records
from workbench.analysis.pairing import NOT_DECIDABLE
from workbench.analysis.remembered import remembered_together
from workbench.analysis.scaling import ScalingFit
from workbench.analysis.wording import count, few
from workbench.table import Tables

MOST_FIGURES = 2_000
_BOOTSTRAP = "95 % bootstrap over prompts"
_REASONS = 3


@dataclass(frozen=True, slots=True)
class KeyFigures:
    """``figures`` are dicts with the keys of `workbench.summary.Figure`; missing values are left out."""

    figures: tuple[Row, ...]
    not_verified: tuple[str, ...] = ()
    left_out: int = 0


Ends = Mapping[tuple[object, object], Row]
"""Interval of the accept length by campaign and run_id: ``low`` and ``high``."""


def of_runs(runs: pd.DataFrame, requests: pd.DataFrame, costs: pd.DataFrame, speedups: pd.DataFrame) -> KeyFigures:
    """Speed and accept length of each run, speedup and break-even of those with a drafter."""
    return _of_runs(runs, costs, speedups, lambda wanted: _intervals(requests))


def of_tables(tables: Tables, costs: pd.DataFrame, speedups: pd.DataFrame) -> KeyFigures:
    """The same; the intervals of runs whose requests are as they were are remembered."""
    return _of_runs(tables.runs, costs, speedups, lambda wanted: _known_intervals(tables, wanted))


def _of_runs(
    runs: pd.DataFrame, costs: pd.DataFrame, speedups: pd.DataFrame, intervals: Callable[[pd.DataFrame], Ends]
) -> KeyFigures:
    held = [
        *_plain(runs, "accept_length", "tokens/step"),
        *_plain(runs, "decode_tok_per_s", "tok/s"),
        *_plain(runs, "output_tok_per_s", "tok/s"),
        *_gains(speedups),
        *_break_evens(costs),
    ]
    figures = held[:MOST_FIGURES]
    counted = {(figure.get("campaign"), figure.get("run")) for figure in figures if _is_counted(figure)}
    wanted = [key in counted for key in zip(runs["campaign"], runs["run_id"], strict=True)]
    ends = intervals(runs.loc[wanted, ["campaign", "run_id"]])
    return KeyFigures(
        tuple(figure | _ends_of(figure, ends) for figure in figures),
        tuple(_doubts(runs, speedups)),
        max(len(held) - MOST_FIGURES, 0),
    )


def of_curves(fits: Mapping[str, tuple[pd.DataFrame, ScalingFit]]) -> KeyFigures:
    """What a doubling of the training data brings, and the size that would break even, of each curve."""
    figures: list[Row] = []
    doubts: list[str] = []
    single = sum(fit.num_sizes < 2 for _, fit in fits.values())
    if single:
        doubts.append(f"{count(single, 'group')} of runs with one training size each: no curve")
    for name, (_, fit) in fits.items():
        if fit.num_sizes < 2:
            continue
        gain = {"value": fit.per_doubling, "low": fit.per_doubling_low, "high": fit.per_doubling_high}
        figures.append(_figure("gain_per_doubling", "tokens/step", gain, label=name, interval=fit.interval_means))
        if fit.data_needed is not None:
            needed = {"value": fit.data_needed, "low": fit.data_needed_low, "high": fit.data_needed_high}
            figures.append(_figure("data_needed", fit.x, needed, label=name, interval=fit.interval_means))
        doubts += [f"{name}: {note}" for note in fit.notes]
    return KeyFigures(tuple(figures), tuple(doubts))


def _figure(name: str, unit: str, values: Row, **described: object) -> Row:
    """Without what is missing or not finite, which JSON has no word for."""
    numbers = {key: found for key, value in values.items() if (found := number(value)) is not None}
    kept = {key: value for key, value in numbers.items() if math.isfinite(value)}
    said = {key: value for key, value in described.items() if value is not None}
    return {"name": name, "unit": unit, **kept, **said}


def _described(row: Row) -> Row:
    return {"run": row["run_id"]} | {
        name: row[name] for name in ("campaign", "label", "prompt_set", "max_concurrency", "origin")
    }


def _plain(runs: pd.DataFrame, name: str, unit: str) -> Iterator[Row]:
    """A column of the runs; where a source gives a range, that range."""
    for row in records(runs[runs[name].notna()]):
        low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
        ranged = low is not None and high is not None and low < high
        ends = {"low": low, "high": high} if ranged else {}
        interval = "range in the source" if ranged else None
        source = row["accept_length_source"] if name == "accept_length" else None
        yield _figure(name, unit, {"value": row[name], **ends}, interval=interval, source=source, **_described(row))


def _gains(speedups: pd.DataFrame) -> Iterator[Row]:
    for row in records(speedups):
        values = {"value": row["speedup"], "low": row["low"], "high": row["high"]}
        if row["speedup"] is None and row["reason"] is None:
            continue
        said = {"verdict": row["verdict"], "reason": row["reason"], "interval": row["method"]}
        yield _figure("speedup", "ratio", values, **said, **_described(row))


def _break_evens(costs: pd.DataFrame) -> Iterator[Row]:
    for row in records(costs[costs["break_even"].notna()]):
        low, high = row["break_even_low"], row["break_even_high"]
        ends = {"low": low, "high": high} if low is not None and high is not None and low < high else {}
        interval = "range in the source" if ends else None
        yield _figure(
            "break_even", "tokens/step", {"value": row["break_even"], **ends}, interval=interval, **_described(row)
        )


def _is_counted(figure: Row) -> bool:
    """Accept lengths that come from requests get the interval over prompts."""
    return bool(figure["name"] == "accept_length" and figure.get("source") == "requests")


def _intervals(requests: pd.DataFrame) -> Ends:
    lengths = accept_length_df(requests) if len(requests) else pd.DataFrame()
    return {(row["campaign"], row["run_id"]): {"low": row["low"], "high": row["high"]} for row in records(lengths)}


def _known_intervals(tables: Tables, wanted: pd.DataFrame) -> Ends:
    ends: dict[tuple[object, object], Row] = {}
    for campaign, own in wanted.groupby("campaign", sort=False):
        names = own["run_id"].tolist()

        def work_out(places: Sequence[int], own: pd.DataFrame = own, names: Sequence[str] = names) -> list[object]:
            found = _intervals(tables.requests_of(own.iloc[list(places)], USED))
            return [found.get((own["campaign"].iloc[0], names[place])) for place in places]

        keys = [tables.requests_made_from(str(campaign), name) for name in names]
        values = remembered_together("accept-lengths", str(campaign), keys, work_out)
        ends |= {(campaign, name): cast(Row, value) for name, value in zip(names, values, strict=True) if value}
    return ends


def _ends_of(figure: Row, ends: Ends) -> Row:
    found = ends.get((figure.get("campaign"), figure.get("run")))
    if not _is_counted(figure) or not found or found["low"] is None:
        return {}
    return {"low": found["low"], "high": found["high"], "interval": _BOOTSTRAP}


def _doubts(runs: pd.DataFrame, speedups: pd.DataFrame) -> Iterator[str]:
    unfinished = runs[runs["status"] != "ok"]
    if len(unfinished):
        yield f"{count(len(unfinished), 'run')} did not finish: {few(sorted(unfinished['run_id']))}"
    failed = runs[(runs["num_failed"] > 0).fillna(False).astype(bool)]
    if len(failed):
        yield f"{count(int(failed['num_failed'].sum()), 'request')} failed in {count(len(failed), 'run')}"
    undecided = [row for row in records(speedups) if row["verdict"] == NOT_DECIDABLE]
    if undecided:
        reasons = Counter(str(row["reason"] or "no reason is known") for row in undecided)
        most = "; ".join(f"{reason} ({number_of})" for reason, number_of in reasons.most_common(_REASONS))
        more = f"; {len(reasons) - _REASONS} other reasons" if len(reasons) > _REASONS else ""
        yield f"{len(undecided)} of {count(len(speedups), 'speedup')} not decidable: {most}{more}"
    imported = runs[runs["origin"] == "imported"]
    if len(imported):
        yield f"{count(len(imported), 'run')} imported: nothing beyond what their files tell is known"
