"""Drafters over training size with requests whose accept lengths are exact by construction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
from analysis.analysis_tables import requests, runs, speculative

DRAFTER = {
    "target": "T",
    "drafter_target": "T",
    "recipe": "r",
    "data_mix": "m",
    "num_steps": 3,
    "eagle_topk": 1,
    "num_draft_tokens": 4,
    "seed": 0,
    "optimizer_steps": 100,
    "epochs": 1.0,
}
PROMPTS = 10


def curve(lengths: Mapping[int, float], *, spread: int = 5, **values: object) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Runs and requests of one drafter a size, with these accept lengths (two decimals, steps 3)."""
    rows = [{"name": f"n{size}", "size": size, "length": length, **values} for size, length in lengths.items()]
    return drafters(rows, spread=spread)


def drafters(rows: Sequence[Mapping[str, object]], *, spread: int = 5) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Runs and requests of drafters given by name, size, length, and whatever else differs from `DRAFTER`."""
    run_rows, request_rows = [], []
    for row in rows:
        name, size, length = row["name"], int(row["size"]), float(row["length"])
        extra = {key: value for key, value in row.items() if key not in ("name", "size", "length")}
        own = {"drafter": name, "training_samples": size, "response_tokens": 100 * size, "accept_length": length}
        run_rows.append(speculative(name, **DRAFTER | own | extra))
        request_rows += [
            {"run_id": name, "prompt_index": prompt, "steps_histogram": histogram(length, spread, prompt)}
            for prompt in range(PROMPTS)
        ]
    return runs(*run_rows), requests(*request_rows)


def histogram(length: float, spread: int, prompt: int) -> list[int]:
    """100 verify steps that accept ``length - 1`` drafts in the mean, more for even prompts, fewer for odd ones."""
    correct = round(100 * (length - 1)) + (spread if prompt % 2 == 0 else -spread)
    whole, more = divmod(correct, 100)
    steps = [0] * 4
    steps[whole] = 100 - more
    if more:
        steps[whole + 1] = more
    return steps
