"""The diagnoses of all logs of campaigns; those of logs that were judged before are remembered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from itertools import accumulate, pairwise
from typing import Any, cast

import pandas as pd
from pydantic import TypeAdapter

from workbench.analysis.diagnosis import Diagnosis, Finding, diagnose_case
from workbench.analysis.diagnosis.reading import Case, Reading
from workbench.analysis.frames import records
from workbench.analysis.remembered import Part, remembered
from workbench.table import Tables
from workbench.table.lazy import ServerKey, made_from

_FINDINGS = TypeAdapter(tuple[Finding, ...])


def judged_logs(
    tables: Tables, baselines: Mapping[ServerKey, ServerKey], simulated: Mapping[ServerKey, float]
) -> dict[ServerKey, Diagnosis]:
    """A diagnosis for every log, beside the log of its baseline where ``baselines`` names one."""
    # Logs beside one baseline are judged one after another, so that its figures are worked out once.
    read = lru_cache(maxsize=2)(lambda key: Reading(tables.logs[key]))

    def judge(key: ServerKey) -> object:
        base = baselines.get(key)
        baseline = None if base is None else read(base)
        return as_json(diagnose_case(Case(read(key), baseline, simulated_length=simulated.get(key))))

    def part(key: ServerKey) -> Part:
        own, base = made_from(tables.logs, key), baselines.get(key)
        beside = "" if base is None else made_from(tables.logs, base)
        known = own is not None and beside is not None
        return f"{own}|{beside}|{simulated.get(key)}" if known else None, partial(judge, key)

    judged = by_campaign("diagnoses", tables, part, order=lambda key: baselines.get(key, key))
    return dict(zip(judged, from_json(judged.values()), strict=True))


def by_campaign(
    what: str,
    tables: Tables,
    part: Callable[[ServerKey], Part],
    *,
    order: Callable[[ServerKey], ServerKey] = lambda key: key,
) -> dict[ServerKey, object]:
    """A value for every log, remembered campaign by campaign; ``order`` says in which order they are worked out."""
    found: dict[ServerKey, object] = {}
    for campaign in dict.fromkeys(name for name, _ in tables.logs):
        keys = sorted((key for key in tables.logs if key[0] == campaign), key=order)
        found |= dict(zip(keys, remembered(what, campaign, map(part, keys)), strict=True))
    return {key: found[key] for key in tables.logs}


def as_json(diagnosis: Diagnosis) -> object:
    return {
        "verdict": diagnosis.verdict,
        "findings": _FINDINGS.dump_python(diagnosis.findings, mode="json"),
        "figures": records(diagnosis.figures),
        "not_known": list(diagnosis.not_known),
    }


def from_json(values: Iterable[object]) -> list[Diagnosis]:
    """The diagnoses that these are of; the figures of all are made at once, because a table each would take long."""
    held = [cast(dict[str, Any], value) for value in values]
    columns = ["name", "value", "text", "unit", "source"]
    rows = [[row[name] for name in columns] for each in held for row in each["figures"]]
    figures = pd.DataFrame(rows, columns=columns).astype({"value": "float64"})
    ends = list(accumulate((len(each["figures"]) for each in held), initial=0))
    return [
        Diagnosis(
            each["verdict"],
            _FINDINGS.validate_python(each["findings"]),
            figures.iloc[begin:end].reset_index(drop=True),
            tuple(each["not_known"]),
        )
        for each, (begin, end) in zip(held, pairwise(ends), strict=True)
    ]
