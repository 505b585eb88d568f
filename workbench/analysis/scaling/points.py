"""One point of the curve per drafter and setting: how much it was trained on, and what it reaches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench.analysis.frames import (
    Floats,
    Row,
    group_ids,
    interval,
    known,
    records,
    resample_weights,
    same_where_known,
    typed,
)

GROUP = (
    "target",
    "recipe",
    "design",
    "data_mix",
    "prompt_set",
    "num_steps",
    "eagle_topk",
    "num_draft_tokens",
    "temperature",
    "ignore_eos",
    "max_new_tokens",
)
USED = ("campaign", "run_id", "ok", "prompt_index", "completion_tokens", "spec_verify_ct", "steps_histogram")
"""The columns of the requests that points are made of."""
_TRAINING = ("training_samples", "response_tokens", "optimizer_steps", "epochs", "seed")
_KEYS = ("campaign", "origin", "drafter", "drafter_target", *GROUP)
_OWN = {
    "run_ids": "object",
    "accept_length": "float64",
    "low": "float64",
    "high": "float64",
    "interval": "str",
    "n": "Int64",
    "num_verify_steps": "Int64",
    "fit_note": "str",
}

_SHARED = (*_KEYS, *_TRAINING, "draft_vocab_size", "label", "machine", "max_concurrency")

RunKey = tuple[str, str]  # campaign, run_id
PromptSums = Mapping[RunKey, pd.DataFrame]  # tokens and steps by prompt


def scaling_points_df(runs: pd.DataFrame, requests: pd.DataFrame, *, n_boot: int = 2000, seed: int = 0) -> pd.DataFrame:
    """Accept length of every drafter, beside what it was trained on.

    Runs of one drafter and setting whose requests were recorded are pooled (those at the lowest concurrency); a run
    known only from notes stays a point of its own, since figures without counts cannot be pooled. Forced acceptance is
    left out.

    Returns
    -------
    DataFrame
        The columns of `GROUP`, what is known of the training, campaign, origin, drafter, drafter_target, label,
        machine and max_concurrency as in the runs, and: ``run_ids`` (tuple), ``accept_length``, ``low`` and ``high``,
        ``interval`` (what those two mean), ``n`` (prompts), ``num_verify_steps``, and ``fit_note`` (why the point
        belongs to no fit; empty if it may).
    """
    chosen = drafted_runs(runs)
    sums = prompt_sums(requests)
    settings: dict[tuple[object, ...], list[Row]] = {}
    for run in records(chosen[[*_SHARED, "run_id", "accept_length", "accept_length_low", "accept_length_high"]]):
        settings.setdefault(tuple(run[name] for name in _KEYS), []).append(run)
    rows: list[Row] = []
    for same in settings.values():
        counted = [run for run in same if _key(run) in sums]
        if counted:
            lowest = min(_concurrency(run) for run in counted)
            rows.append(_pooled_row([run for run in counted if _concurrency(run) == lowest], sums, n_boot, seed))
        rows.extend(_noted_row(run) for run in same if _key(run) not in sums)
    points = typed(rows, point_columns(runs))
    return points.sort_values(["training_samples", "response_tokens", "drafter"], kind="stable", ignore_index=True)


def drafted_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs that points are made of: those with a drafter whose acceptance is not forced."""
    return runs[(runs["role"] == "speculative") & runs["drafter"].notna() & runs["simulated_accept_length"].isna()]


def point_columns(runs: pd.DataFrame) -> dict[str, str]:
    """Names and types of the points' columns."""
    return {name: str(runs[name].dtype) for name in _SHARED} | _OWN


def prompt_sums(requests: pd.DataFrame) -> PromptSums:
    """Tokens made by verify steps, and the steps, by run and prompt, of the requests that finished.

    From the histograms where every request of the run has one, else completion tokens - 1 (the prefill makes one) and
    the counted steps. Requests without a prompt index count as prompts of their own, numbered below zero.
    """
    rows = requests[requests["ok"].fillna(False).astype(bool)].reset_index(drop=True)
    ids, runs = group_ids(rows, ["campaign", "run_id"])
    own = pd.Series(-1.0 - np.arange(len(rows)))
    prompts = rows["prompt_index"].astype("Float64").fillna(own).astype("int64").to_numpy()
    tokens, steps = _histogram_sums(list(rows["steps_histogram"]))
    whole = ~(np.bincount(ids, weights=~(steps > 0), minlength=len(runs)) > 0)[ids]
    counts = {
        name: rows[name].to_numpy(dtype=np.float64, na_value=np.nan) for name in ("completion_tokens", "spec_verify_ct")
    }
    tokens = np.where(whole, tokens, counts["completion_tokens"] - 1)
    steps = np.where(whole, steps, counts["spec_verify_ct"])
    usable = np.flatnonzero((steps > 0) & ~np.isnan(tokens))
    usable = usable[np.lexsort((prompts[usable], ids[usable]))]
    run, prompt = ids[usable], prompts[usable]
    begins = np.flatnonzero(np.diff(run, prepend=-1) | (np.diff(prompt, prepend=0) != 0) | (np.arange(len(run)) == 0))
    sums = [np.add.reduceat(values[usable], begins) if len(begins) else values[:0] for values in (tokens, steps)]
    return _by_run(runs, run[begins], pd.DataFrame({"tokens": sums[0], "steps": sums[1]}, index=prompt[begins]))


def _by_run(runs: pd.DataFrame, ids: npt.NDArray[np.intp], totals: pd.DataFrame) -> dict[RunKey, pd.DataFrame]:
    """The rows of each run, which stand together; runs without any are left out."""
    totals.index.name = "prompt"
    names = list(zip(runs["campaign"].astype("str"), runs["run_id"].astype("str"), strict=True))
    sizes = np.bincount(ids, minlength=len(names))
    ends = np.cumsum(sizes)
    places = zip(names, ends - sizes, ends, strict=True)
    return {name: totals.iloc[begin:end] for name, begin, end in places if end > begin}


def _histogram_sums(histograms: Sequence[object]) -> tuple[Floats, Floats]:
    """Tokens that the verify steps of each histogram made, and those steps; NaN where there is no histogram."""
    known: dict[int, tuple[float, float]] = {}
    sums = np.full((len(histograms), 2), np.nan)
    for place, histogram in enumerate(histograms):
        if isinstance(histogram, list | tuple | np.ndarray):
            # Requests that accepted alike share one list.
            if (found := known.get(id(histogram))) is None:
                steps = float(sum(histogram))
                found = known[id(histogram)] = (float(sum(k * n for k, n in enumerate(histogram, 1))), steps)
            sums[place] = found
    return sums[:, 0], sums[:, 1]


def resample_prompts(sums: PromptSums, runs: Sequence[Sequence[RunKey]], n_boot: int, seed: int) -> Floats:
    """Accept length of each list of runs in each resample of the prompts, shape (n_boot, lists).

    All lists see the same resample: they answered the same prompts, so their errors go together.
    """
    prompts = np.unique(np.concatenate([sums[key].index.to_numpy() for own in runs for key in own]))
    totals = np.zeros((len(runs), len(prompts), 2))
    for place, own in enumerate(runs):
        for key in own:
            totals[place, np.searchsorted(prompts, sums[key].index.to_numpy())] += sums[key].to_numpy()
    drawn = resample_weights(len(prompts), n_boot, seed)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((drawn @ totals[:, :, 0].T) / (drawn @ totals[:, :, 1].T), dtype=np.float64)


def differing(points: pd.DataFrame) -> list[str]:
    """The settings of `GROUP` in which the points differ; unknown equals unknown."""
    return [name for name in GROUP if len(points[name].unique()) > 1]


def scaling_groups(points: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """The points that may share a curve, each with a name made of what sets the groups apart; most sizes first."""
    if points.empty:
        return []
    apart = differing(points) or ["prompt_set", "num_steps"]
    groups = [group for _, group in points.groupby(list(GROUP), dropna=False, sort=False)]
    groups.sort(key=lambda group: -len(group["training_samples"].dropna().unique()))
    return [(", ".join(_said(name, group[name].iloc[0]) for name in apart), group) for group in groups]


def _said(name: str, value: object) -> str:
    word = {"num_steps": "steps", "eagle_topk": "topk", "ignore_eos": "ignore_eos"}.get(name, name.replace("_", " "))
    if not known(value):
        return f"{word} not stated"
    if name in ("target", "recipe", "design", "data_mix", "prompt_set"):
        return str(value)
    return f"{word} {'on' if value else 'off'}" if name == "ignore_eos" else f"{word} {value}"


def _key(run: Row) -> RunKey:
    return run["campaign"], run["run_id"]


def _concurrency(run: Row) -> float:
    return float("inf") if run["max_concurrency"] is None else float(run["max_concurrency"])


def _pooled_row(runs: Sequence[Row], sums: PromptSums, n_boot: int, seed: int) -> Row:
    own = pd.concat([sums[_key(run)] for run in runs])
    prompts = len(own.index.unique())
    resampled = resample_prompts(sums, [[_key(run) for run in runs]], n_boot, seed) if prompts > 1 else None
    low, high = (None, None) if resampled is None else interval(resampled[:, 0])
    return runs[0] | {
        "run_ids": tuple(run["run_id"] for run in runs),
        "accept_length": own["tokens"].sum() / own["steps"].sum(),
        "low": low,
        "high": high,
        "interval": "95 % over prompts" if prompts > 1 else "",
        "n": prompts,
        "num_verify_steps": round(own["steps"].sum()),
        "fit_note": fit_note(runs[0]),
    }


def _noted_row(run: Row) -> Row:
    ranged = bool(known(run["accept_length_low"]) and run["accept_length_low"] < run["accept_length_high"])
    return run | {
        "run_ids": (run["run_id"],),
        "low": run["accept_length_low"] if ranged else None,
        "high": run["accept_length_high"] if ranged else None,
        "interval": "range in the source" if ranged else "",
        "fit_note": fit_note(run) if known(run["accept_length"]) else "accept length not measured",
    }


def fit_note(run: Row) -> str:
    """Why a point belongs to no fit; empty if it may."""
    if not same_where_known(run["drafter_target"], run["target"]):
        return f"made for {run['drafter_target']}, served on {run['target']}"
    if not known(run["training_samples"]) and not known(run["response_tokens"]):
        return "training size not stated"
    if run["training_samples"] == 0 or run["response_tokens"] == 0:
        return "not trained"
    return ""
