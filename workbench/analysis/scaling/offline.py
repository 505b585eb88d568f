"""Points of the curve from walks without a server: every drafter that was evaluated, also those that none served."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pandas as pd

from workbench.analysis.frames import Row, known, records, typed
from workbench.analysis.scaling.points import fit_note

USUAL_STEPS = 3


def offline_points_df(
    drafters: pd.DataFrame, offline: pd.DataFrame, targets: Mapping[str, str], columns: Mapping[str, str]
) -> pd.DataFrame:
    """Accept length of every drafter and walked prompt set at 3 steps, or at the most below it that was walked.

    Parameters
    ----------
    targets
        The target of each campaign.
    columns
        Names and types of the points' columns, those of `scaling_points_df`.
    """
    walked = offline[(offline["num_steps"] <= USUAL_STEPS).fillna(False).astype(bool)]
    walked = walked.sort_values("num_steps", kind="stable").drop_duplicates(
        ["campaign", "drafter", "prompt_set"], keep="last"
    )
    facts = {(row["campaign"], row["drafter"]): row for row in records(drafters)}
    rows = [
        _point(walk, facts[key], targets.get(str(walk["campaign"])))
        for walk in records(walked)
        if (key := (walk["campaign"], walk["drafter"])) in facts
    ]
    points = typed(rows, columns)
    return points.sort_values(["training_samples", "response_tokens", "drafter"], kind="stable", ignore_index=True)


def _point(walk: Row, drafter: Row, target: str | None) -> Row:
    steps, length = int(walk["num_steps"]), walk["accept_length"]
    possible = known(length) and math.isfinite(length) and 1 <= length <= steps + 1
    point = drafter | {
        "target": target,
        "prompt_set": walk["prompt_set"],
        "num_steps": steps,
        "eagle_topk": 1,
        "num_draft_tokens": steps + 1,
        "origin": "measured",
        "label": drafter["drafter"],
        "run_ids": (f"{drafter['drafter']} offline {walk['prompt_set']}",),
        "accept_length": length if possible else None,
        "low": walk["low"] if possible else None,
        "high": walk["high"] if possible else None,
        "interval": "95 % over prompts" if known(walk["low"]) else "",
        "n": walk["num_prompts"],
    }
    return point | {"fit_note": fit_note(point) if possible else "accept length not measured"}
