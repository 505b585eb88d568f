"""How many drafted tokens the target accepts: pooled accept length, its survival by position and its spread.

Everything is pooled over verify steps, never a mean of means. Steps of one prompt depend on each other, so intervals
come from a bootstrap over prompts (95 %, percentile) of the ratio of sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench.analysis.frames import (
    Floats,
    Row,
    group_ids,
    interval,
    number,
    positions,
    records,
    resample_weights,
    typed,
)

BY = ("campaign", "run_id")
USED = (*BY, "prompt_set", "prompt_index", "ok", "completion_tokens", "spec_verify_ct", "steps_histogram")
"""The columns of the requests that are used here."""
FLAG_ABOVE = 0.03  # sources of one run's accept length that differ by more are flagged
_SOURCES = ("accept_length_requests", "accept_length_log", "accept_length_counters")

_ACCEPT_LENGTH = {
    "accept_length": "float64",
    "low": "float64",
    "high": "float64",
    "num_requests": "Int64",
    "num_prompts": "Int64",
    "num_verify_steps": "Int64",
}
_SURVIVAL = {
    "position": "Int64",
    "survival": "float64",
    "conditional": "float64",
    "low": "float64",
    "high": "float64",
    "num_verify_steps": "Int64",
}
_SPREAD = {"correct_drafts": "Int64", "share": "float64", "num_verify_steps": "Int64"}
_SHORTER = {"num_steps": "Int64", "accept_length": "float64"}
_SOURCE_TABLE = {
    "campaign": "str",
    "run_id": "str",
    "label": "str",
    **dict.fromkeys(_SOURCES, "float64"),
    "max_difference": "float64",
    "flagged": "boolean",
    "reason": "str",
}


def pooled_accept_length(histogram: Sequence[float]) -> float:
    """Tokens a verify step, bonus token included: ``sum((i + 1) h_i) / sum(h_i)``; NaN without steps.

    ``histogram[i]`` is the number of verify steps that accepted exactly i drafts.
    """
    steps = np.asarray(histogram, dtype=np.float64)
    if steps.sum() <= 0:
        return float("nan")
    return float(steps @ np.arange(1, len(steps) + 1) / steps.sum())


def accept_length_df(requests: pd.DataFrame, by: Sequence[str] = BY, n_boot: int = 2000, seed: int = 0) -> pd.DataFrame:
    """Pooled accept length of each group with its interval; groups without a verify step are left out.

    A group whose requests all have histograms uses them; otherwise ``sum(tokens - 1) / sum(spec_verify_ct)``, which
    leaves out the token of the prefill. The interval is missing for a single prompt.
    """
    usable, ids, keys = _usable(requests, by)
    rows: list[Row] = []
    for places in positions(ids, len(keys)):
        part = usable.of(places)
        tokens, steps = part.tokens_and_steps()
        low, high = _ratio_interval(part.clusters, tokens, steps, n_boot, seed)
        rows.append(
            {
                "accept_length": tokens.sum() / steps.sum(),
                "low": low,
                "high": high,
                "num_requests": len(tokens),
                "num_prompts": len(np.unique(part.clusters)),
                "num_verify_steps": round(steps.sum()),
            }
        )
    return _with_keys(keys, range(len(keys)), rows, _ACCEPT_LENGTH)


def survival_df(requests: pd.DataFrame, by: Sequence[str] = BY, n_boot: int = 2000, seed: int = 0) -> pd.DataFrame:
    """Share of verify steps that accept at least ``position`` drafts, and that share among those that got there.

    Needs histograms; the last position is the longest that was ever accepted in the group, or the histograms' length.
    """
    groups: list[int] = []
    rows: list[Row] = []
    usable, ids, keys = _usable(requests, by)
    for group, places in enumerate(positions(ids, len(keys))):
        part = usable.of(places[usable.has_histogram[places]])
        if len(part.clusters) == 0:
            continue
        survival, low, high = _survival(part, n_boot, seed)
        steps = round(part.histograms.sum())
        for position in range(1, len(survival)):
            before = survival[position - 1]
            groups.append(group)
            rows.append(
                {
                    "position": position,
                    "survival": survival[position],
                    "conditional": survival[position] / before if before > 0 else None,
                    "low": low[position],
                    "high": high[position],
                    "num_verify_steps": steps,
                }
            )
    return _with_keys(keys, groups, rows, _SURVIVAL)


def spread_df(requests: pd.DataFrame, by: Sequence[str] = BY) -> pd.DataFrame:
    """Share of verify steps that accept exactly 0, 1, 2 ... drafts: what the mean hides."""
    groups: list[int] = []
    rows: list[Row] = []
    usable, ids, keys = _usable(requests, by)
    for group, places in enumerate(positions(ids, len(keys))):
        total = _trimmed(usable.histograms[places[usable.has_histogram[places]]].sum(axis=0))
        for drafts, steps in enumerate(total):
            groups.append(group)
            rows.append(
                {"correct_drafts": drafts, "share": steps / total.sum(), "num_verify_steps": round(total.sum())}
            )
    return _with_keys(keys, groups, rows, _SPREAD)


def shorter_chains_df(requests: pd.DataFrame, by: Sequence[str] = BY) -> pd.DataFrame:
    """Accept length to expect from every shorter chain: one plus the sum of the survival up to its length.

    Holds for chains (topk 1): a chain cut at n accepts the same first n drafts. It does not hold for trees.
    """
    survival = survival_df(requests, by, n_boot=0)
    length = 1 + survival.groupby(list(by), sort=False, dropna=False)["survival"].cumsum()
    shorter = survival.rename(columns={"position": "num_steps"}).assign(accept_length=length)
    return shorter[[*by, *_SHORTER]]


def sources_df(runs: pd.DataFrame) -> pd.DataFrame:
    """Accept length of each speculative run from its sources side by side; over 3 % apart is flagged.

    ``max_difference`` is the largest over the smallest, minus one; missing where there is only one source. ``reason``
    says what explains a flagged difference, where something does.
    """
    rows: list[Row] = []
    for run in records(runs[runs["role"] == "speculative"]):
        values = [value for name in _SOURCES if (value := number(run[name])) is not None]
        apart = max(values) / min(values) - 1 if len(values) > 1 and min(values) > 0 else None
        flagged = None if apart is None else apart > FLAG_ABOVE
        reason = _cut_tokens(run, values) if flagged else None
        rows.append({**run, "max_difference": apart, "flagged": flagged, "reason": reason})
    return typed(rows, _SOURCE_TABLE)


def _cut_tokens(run: Row, values: Sequence[float]) -> str | None:
    """The tokens that were accepted beyond the ends of answers, where they explain the whole difference.

    Histograms and logs count what a step accepts, counters what is handed out: the last step of an answer often accepts
    more than its limit or its end lets through, which shows where answers are short.
    """
    histogram, steps = run["steps_histogram"], number(run["spec_verify_ct"])
    tokens, answers = number(run["completion_tokens"]), number(run["num_requests"])
    if not histogram or not steps or tokens is None or answers is None:
        return None
    accepted = sum((drafts + 1) * count for drafts, count in enumerate(histogram))
    cut = accepted - (tokens - answers)
    handed_out = (tokens - answers) / steps
    explained = cut > 0 and all(
        min(abs(value - accepted / steps), abs(value - handed_out)) <= FLAG_ABOVE * value for value in values
    )
    return f"{cut:.0f} of {accepted:.0f} accepted tokens lie beyond the ends of answers" if explained else None


@dataclass(frozen=True)
class _Usable:
    """Finished requests with verify steps; one row each, ``histograms`` padded with zeros to one width."""

    clusters: npt.NDArray[np.intp]
    histograms: Floats
    has_histogram: npt.NDArray[np.bool_]
    tokens: Floats
    verify_ct: Floats

    def of(self, places: npt.NDArray[np.intp]) -> _Usable:
        return _Usable(
            self.clusters[places],
            self.histograms[places],
            self.has_histogram[places],
            self.tokens[places],
            self.verify_ct[places],
        )

    def tokens_and_steps(self) -> tuple[Floats, Floats]:
        """Tokens made by verify steps, and the steps, of each request, all from the same source."""
        if self.has_histogram.all():
            return self.histograms @ np.arange(1, self.histograms.shape[1] + 1), self.histograms.sum(axis=1)
        counted = np.where(np.isfinite(self.tokens) & (self.verify_ct > 0), self.verify_ct, 0.0)
        return np.where(counted > 0, self.tokens - 1, 0.0), counted


def _usable(requests: pd.DataFrame, by: Sequence[str]) -> tuple[_Usable, npt.NDArray[np.intp], pd.DataFrame]:
    """Usable requests, the group number of each, and the keys of the groups."""
    ok = requests["ok"].fillna(False).astype(bool).to_numpy()
    histograms, has_histogram = _padded(list(requests["steps_histogram"]))
    tokens = requests["completion_tokens"].to_numpy(dtype=np.float64, na_value=np.nan)
    verify_ct = requests["spec_verify_ct"].to_numpy(dtype=np.float64, na_value=np.nan)
    mask = ok & (has_histogram | (np.isfinite(tokens) & (verify_ct > 0)))
    kept = requests[mask]
    ids, keys = group_ids(kept, by)
    return _Usable(_prompts(kept), histograms[mask], has_histogram[mask], tokens[mask], verify_ct[mask]), ids, keys


def _padded(histograms: Sequence[object]) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Histograms as one matrix, and which rows have one with any step in it."""
    held = [h if isinstance(h, list | tuple | np.ndarray) else () for h in histograms]
    lengths = np.array([len(h) for h in held], dtype=np.intp)
    matrix = np.zeros((len(held), int(lengths.max(initial=1))))
    matrix[np.arange(matrix.shape[1]) < lengths[:, None]] = [count for h in held for count in h]
    return matrix, matrix.sum(axis=1) > 0


def _prompts(requests: pd.DataFrame) -> npt.NDArray[np.intp]:
    """Number of each request's prompt; a request whose prompt is not known stands for itself.

    Numbered in the order of set and index, so that the resamples of a run do not depend on the other runs beside it.
    """
    index = requests["prompt_index"].to_numpy(dtype=np.float64, na_value=np.nan)
    index = np.where(np.isnan(index), -1.0 - np.arange(len(index)), index)
    prompts, place = np.unique(index, return_inverse=True)
    sets, _ = pd.factorize(requests["prompt_set"], sort=True)
    return np.asarray(sets * len(prompts) + place, dtype=np.intp)


def _ratio_interval(
    clusters: npt.NDArray[np.intp], above: Floats, below: Floats, n_boot: int, seed: int
) -> tuple[float | None, float | None]:
    sums = _cluster_sums(clusters, np.stack([above, below], axis=1))
    if len(sums) < 2 or n_boot < 1:
        return None, None
    drawn = resample_weights(len(sums), n_boot, seed) @ sums
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = interval(drawn[:, 0] / drawn[:, 1])
    return float(low), float(high)


def _survival(part: _Usable, n_boot: int, seed: int) -> tuple[Floats, Floats, Floats]:
    """Survival at 0, 1, 2 ... drafts, and its interval (NaN for a single prompt)."""
    width = len(_trimmed(part.histograms.sum(axis=0)))
    at_least = np.flip(np.cumsum(np.flip(part.histograms[:, :width], axis=1), axis=1), axis=1)
    sums = _cluster_sums(part.clusters, at_least)
    survival = sums.sum(axis=0) / sums[:, 0].sum()
    if len(sums) < 2 or n_boot < 1:
        return survival, np.full(width, np.nan), np.full(width, np.nan)
    drawn = resample_weights(len(sums), n_boot, seed) @ sums
    return survival, *interval(drawn / drawn[:, :1])


def _trimmed(total: Floats) -> Floats:
    """A histogram without the zeros behind the longest accepted chain."""
    return total[: int(np.max(np.nonzero(total)[0], initial=-1)) + 1]


def _cluster_sums(clusters: npt.NDArray[np.intp], values: Floats) -> Floats:
    """Sums of ``values`` (rows, columns) over the rows of each cluster."""
    unique, inverse = np.unique(clusters, return_inverse=True)
    sums = np.zeros((len(unique), values.shape[1]))
    np.add.at(sums, inverse, values)
    return sums


def _with_keys(keys: pd.DataFrame, groups: Sequence[int], rows: list[Row], columns: dict[str, str]) -> pd.DataFrame:
    left = keys.iloc[list(groups)].reset_index(drop=True)
    return pd.concat([left, typed(rows, columns)], axis=1)
