"""Names for the lines, points and rows of a figure: what the table calls them, and what sets them apart in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from workbench.theme.style import LINES, safe_label, series_styles

SETTINGS = (
    "campaign",
    "origin",
    "speculative_algorithm",
    "prompt_set",
    "max_concurrency",
    "ignore_eos",
    "cuda_graph",
    "eagle_topk",
    "baseline_group",
)
_SWITCHES = {"cuda_graph": "graphs", "ignore_eos": "ignore_eos"}
_LONG, _LEAST_SHARED = 30, 8  # labels up to the one stand as they are; less than the other is not worth leaving out
_WIDTH = 44  # as `safe_label` cuts
_WORDS = {
    "num_steps": "steps",
    "num_draft_tokens": "tokens",
    "eagle_topk": "topk",
    "max_concurrency": "concurrency",
    "baseline_group": "group",
}


def with_series(df: pd.DataFrame, settings: Sequence[str]) -> pd.DataFrame:
    """The rows with ``series``, ``colour`` and ``linestyle``, sorted by series.

    A series is a drafter, and those of the settings in which that drafter's rows differ. The colour belongs to the
    drafter, whatever else is in the table; its series differ in the line.
    """
    drafters = df["drafter"].map(lambda name: safe_label(name, 28))
    styles = series_styles(drafters)
    named = df.assign(series=_names(df, drafters, settings), colour=[styles[name].colour for name in drafters])
    lines: dict[str, object] = {}
    for name, own in named.groupby(drafters)["series"]:
        first = LINES.index(styles[str(name)].linestyle)
        lines |= {series: LINES[(first + k) % len(LINES)] for k, series in enumerate(sorted(own.unique()))}
    return named.assign(linestyle=named["series"].map(lines)).sort_values("series", kind="stable")


def without_drafter(named: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """The rows of `with_series` with the drafter left out of their series, and the sentence that says it instead.

    Only where settings tell the series of a single drafter apart; elsewhere the rows as they are, and nothing to say.
    """
    drafters = named["drafter"].unique()
    if len(drafters) != 1 or named["series"].nunique() < 2:
        return named, ""
    short = named["series"].str.removeprefix(f"{safe_label(drafters[0], 28)}, ")
    return named.assign(series=short), f"Drafter: {safe_label(drafters[0])}."


def row_names(df: pd.DataFrame) -> list[str]:
    """For each row its label, or run id; rows of one label also name the settings in which they differ.

    What all long labels begin with is left out, and they are cut so that those which differ still do.
    """
    labels = df["label"].fillna(df["run_id"]) if "label" in df else df["run_id"]
    return _names(df, _short(labels.astype("str")), SETTINGS)


def _short(labels: pd.Series) -> pd.Series:
    held = list(labels.unique())
    shared = _shared_start(held) if len(held) > 1 and max(map(len, held)) > _LONG else 0
    kept = {label: f"…{label[shared:]}" if shared else label for label in held}
    cut = {label: safe_label(text) for label, text in kept.items()}
    if len(set(cut.values())) < len(set(kept.values())):
        cut = {
            label: safe_label(f"…{text[1 - _WIDTH :]}" if len(text) > _WIDTH else text) for label, text in kept.items()
        }
    return labels.map(cut)


def _shared_start(labels: Sequence[str]) -> int:
    """Length of what all labels begin with, up to the end of a word of them; 0 where that is short."""
    first, last = min(labels), max(labels)  # whatever these two share, those between them share too
    same = next(
        (place for place, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last))
    )
    end = max(first.rfind(mark, 0, same) for mark in "-_ ,/") + 1
    return end if end >= _LEAST_SHARED else 0


def _names(df: pd.DataFrame, firsts: pd.Series, settings: Sequence[str]) -> list[str]:
    held = {name: df[name].tolist() for name in settings if name in df}
    names = [""] * len(df)
    for first, same in _parted(firsts.tolist(), range(len(df))).items():
        _add_settings(names, str(first), same, held, list(held))
    return names


def _add_settings(
    names: list[str], name: str, same: Sequence[int], held: Mapping[str, Sequence[Any]], settings: Sequence[str]
) -> None:
    """Name the rows ``name``, and after it the first setting in which they differ; then their halves in turn."""
    apart = next((place for place, setting in enumerate(settings) if _differs(held[setting], same)), None)
    if apart is None:
        for place in same:
            names[place] = name
        return
    for word, part in _parted(held[settings[apart]], same, settings[apart]).items():
        _add_settings(names, f"{name}, {word}", part, held, settings[apart + 1 :])


def _parted(values: Sequence[Any], same: Iterable[int], setting: str | None = None) -> dict[object, list[int]]:
    """The rows by their value, or by the words for it."""
    words: dict[object, object] = {}
    parts: dict[object, list[int]] = {}
    for place in same:
        value = "" if pd.isna(values[place]) else values[place]
        if value not in words:
            words[value] = values[place] if setting is None else setting_words(setting, values[place])
        parts.setdefault(words[value], []).append(place)
    return parts


def _differs(values: Sequence[Any], same: Iterable[int]) -> bool:
    return len({"" if pd.isna(values[place]) else values[place] for place in same}) > 1


def setting_words(name: str, value: Any) -> str:
    """A setting for a label: ``graphs off``, ``concurrency 8``; text settings stand for themselves."""
    word = _SWITCHES.get(name) or _WORDS.get(name) or name.replace("_", " ")
    if pd.isna(value):
        return f"{word} not stated"
    if name in _SWITCHES:
        return f"{word} {'on' if value else 'off'}"
    return f"{word} {value}" if name in _WORDS else safe_label(value, 24)
