"""Cells of a shown table."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

EN_DASH = "\N{EN DASH}"


def renamed(table: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    """These columns in this order, under the names that the page gives them."""
    return table[list(names)].rename(columns=dict(names)).reset_index(drop=True)


def on_off(values: pd.Series) -> pd.Series:
    return values.map({True: "on", False: "off"}).astype("str")


def spans(table: pd.DataFrame, low: str, high: str, decimals: int = 2) -> pd.Series:
    """One text a row: the range of two columns, one value where both ends read alike."""

    def said(value: float) -> str:
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.{decimals}f}"

    ends = zip(table[low].tolist(), table[high].tolist(), strict=True)
    texts = [
        None
        if pd.isna(first) or pd.isna(last)
        else said(first)
        if said(first) == said(last)
        else f"{said(first)}{EN_DASH}{said(last)}"
        for first, last in ends
    ]
    return pd.Series(texts, index=table.index, dtype="str")


def texts(rows: list[str | None], index: pd.Index) -> pd.Series:
    return pd.Series(rows, index=index, dtype="str")


def share(same: object, of: object) -> str | None:
    """``7 of 20``, ``None`` where a count is missing."""
    return None if same is None or of is None else f"{same} of {of}"
