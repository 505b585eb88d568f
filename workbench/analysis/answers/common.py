"""Helpers of the answers: which rows count, and how ranges of them are said."""

from __future__ import annotations

import pandas as pd

from workbench.analysis.wording import span

NEAR = 0.2  # break-evens within this share of their middle are called one value


def real_runs(costs: pd.DataFrame) -> pd.DataFrame:
    return costs[costs["origin"] != "simulated"]


def near(values: pd.Series) -> bool:
    middle = values.median()
    return bool((values - middle).abs().quantile(0.9) <= NEAR * middle)


def break_even_span(group: pd.DataFrame) -> str:
    return span(group["break_even_low"].min(), group["break_even_high"].max())


def draft_tokens(tokens: object) -> str:
    return "an unknown number of draft tokens" if pd.isna(tokens) else f"{int(tokens)} draft tokens"  # type: ignore[call-overload]


def count(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count != 1 else ''}"
