"""Whether the text under speculation is the baseline's."""

from __future__ import annotations

import pandas as pd

from workbench.analysis.frames import Row, known, number, typed
from workbench.analysis.pairing import Pair, pairs

_LOSSLESS = {
    "campaign": "str",
    "run_id": "str",
    "label": "str",
    "baseline_run_id": "str",
    "prompt_set": "str",
    "num_prompts": "Int64",
    "num_same": "Int64",
    "share": "float64",
    "control_prompts": "Int64",
    "control_same": "Int64",
    "control_share": "float64",
    "reason": "str",
}


def losslessness_df(requests: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Share of prompts whose text equals the baseline's, beside the same share of two plain passes (the control).

    Greedy text should be the same. Where it is not, the control tells how much of that the engine does by itself.
    """
    finished = requests[requests["ok"].fillna(False).astype(bool)].dropna(subset=["text_hash", "prompt_index"])
    ordered = finished.sort_values(["repeat"], kind="stable")
    texts: dict[tuple[str, str], list[pd.Series]] = {}
    for (campaign, run_id), frame in ordered.groupby(["campaign", "run_id"], sort=False):
        passes = [
            part.drop_duplicates("prompt_index").set_index("prompt_index")["text_hash"]
            for _, part in frame.groupby("repeat")
        ]
        texts[str(campaign), str(run_id)] = passes
    return typed((_lossless(pair, texts) for pair in pairs(runs) if pair.baselines), _LOSSLESS)


def _lossless(pair: Pair, texts: dict[tuple[str, str], list[pd.Series]]) -> Row:
    run = pair.run
    speculative = texts.get((run["campaign"], run["run_id"]), [])
    plain = [text for base in pair.baselines for text in texts.get((base["campaign"], base["run_id"]), [])]
    row: Row = {name: run[name] for name in ("campaign", "run_id", "label", "prompt_set")}
    row["baseline_run_id"] = pair.baseline_run_id
    problem = _incomparable(run, bool(speculative), bool(plain))
    if problem:
        return {**row, "reason": problem}
    row["num_prompts"], row["num_same"] = _same(plain[0], speculative[0])
    row["share"] = row["num_same"] / row["num_prompts"] if row["num_prompts"] else None
    if len(plain) < 2:
        return {**row, "reason": "no control: the baseline was measured once"}
    row["control_prompts"], row["control_same"] = _same(plain[0], plain[1])
    row["control_share"] = row["control_same"] / row["control_prompts"] if row["control_prompts"] else None
    return row


def _incomparable(run: Row, speculative: bool, plain: bool) -> str | None:
    if (number(run["temperature"]) or 0) > 0:
        return f"sampled at temperature {run['temperature']:g}: texts need not be equal"
    if known(run["simulated_accept_length"]):
        return "acceptance is simulated: the text means nothing"
    if not speculative:
        return "no texts of the run"
    return None if plain else "no texts of the baseline"


def _same(left: pd.Series, right: pd.Series) -> tuple[int, int]:
    """Prompts in both, and those with the same text."""
    both = left.index.intersection(right.index)
    return len(both), int((left.loc[both].to_numpy() == right.loc[both].to_numpy()).sum())
