"""Answers that go round in circles, which drafts foresee too well: accept length with and without them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench.analysis.scaling.points import USED as _USED
from workbench.table import Tables

REPETITIVE = 0.5
"""An answer with a smaller share of different runs of four tokens is called repetitive."""
# What decides about an answer besides its prompt.
_SENT = ["campaign", "prompt_set", "temperature", "ignore_eos", "max_new_tokens"]


@dataclass(frozen=True, slots=True)
class Varied:
    """Tables without the prompts whose answers repeat themselves: ``dropped`` of the ``known`` ones.

    ``tables`` holds only runs whose answers are known token by token.
    """

    tables: Tables
    dropped: int
    known: int


def without_repetitive(tables: Tables) -> Varied | None:
    """The tables without prompts that any of their runs answered repetitively; ``None`` where no answer is known.

    Whole prompts go, not single answers, so that all drafters are still compared on the same ones.
    """
    requests = tables.requests_of(tables.runs, [*_USED, "distinct_4"], having="distinct_4")
    distinct = requests["distinct_4"]
    told = distinct.notna() & requests["prompt_index"].notna() & requests["ok"].fillna(False).astype(bool)
    if not told.any():
        return None
    keys = requests[told][["campaign", "run_id", "prompt_index"]].merge(
        tables.runs[["run_id", *_SENT]], on=["campaign", "run_id"], how="left"
    )
    asked = [*_SENT, "prompt_index"]
    keys["repeats"] = (distinct[told] < REPETITIVE).to_numpy()
    keys["index"] = requests.index[told]
    keys["dropped"] = keys.groupby(asked, dropna=False)["repeats"].transform("any")
    prompts = keys.drop_duplicates(asked)
    kept = requests.loc[keys.loc[~keys["dropped"], "index"].sort_values()]
    left = set(zip(kept["campaign"], kept["run_id"], strict=True))
    stays = np.array([key in left for key in zip(tables.runs["campaign"], tables.runs["run_id"], strict=True)], bool)
    return Varied(
        tables.but(runs=tables.runs[stays], requests=kept),
        dropped=int(prompts["dropped"].sum()),
        known=len(prompts),
    )
