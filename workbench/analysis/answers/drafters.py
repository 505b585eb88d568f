"""Is the deployment right, is the drafter right, and does an offline walk tell the same as serving."""

from __future__ import annotations

import pandas as pd

from workbench.analysis.answers.common import real_runs, run_name
from workbench.analysis.frames import most
from workbench.analysis.wording import count, few, span

NOTHING = 1.05  # an accept length below this means that no draft is accepted
AGREE = 0.1  # accept lengths are read to about one tenth
GAP = 0.05  # served accept length that is further off the offline one is a finding
_SPEC_CAP = 48


def wrong_flag(runs: pd.DataFrame) -> str | None:
    """A drafter that accepts nothing under EAGLE and something under EAGLE3: the flag, not the drafter."""
    known = real_runs(runs).dropna(subset=["drafter", "accept_length", "speculative_algorithm"])
    for (_, drafter), group in known.groupby(["campaign", "drafter"]):
        old = group[group["speculative_algorithm"].isin(["EAGLE", "NEXTN"]) & (group["accept_length"] < NOTHING)]
        new = group[(group["speculative_algorithm"] == "EAGLE3") & (group["accept_length"] >= NOTHING)]
        if len(old) and len(new):
            reached = span(new["accept_length_low"].min(), new["accept_length_high"].max())
            return (
                f"{drafter} accepted nothing when served with {old['speculative_algorithm'].iloc[0]} and {reached} "
                "tokens a step with EAGLE3: the flag was wrong, not the drafter."
            )
    return None


def accepts_nothing(runs: pd.DataFrame) -> str | None:
    """A drafter that never accepts anything where another one, served in the same group, does."""
    known = real_runs(runs).dropna(subset=["drafter", "accept_length"])
    reached = known.groupby(["campaign", "drafter"])["accept_length"].max().to_dict()
    for (campaign, group), members in known.groupby(["campaign", "baseline_group"]):
        best = members.groupby("drafter")["accept_length"].max()
        dead = [name for name in best.index if reached[campaign, name] < NOTHING]
        alive = best[best >= NOTHING]
        if dead and len(alive):
            return (
                f"{few(map(str, dead))} accepted nothing although {alive.idxmax()} reached {alive.max():.2f} in "
                f"group {group}: suspect a mismatch between training and serving (capture layers, precision, engine) "
                "before its data."
            )
    return None


def queued(runs: pd.DataFrame) -> str | None:
    """Speculative runs that queued requests: the server ran fewer at once than were sent."""
    held = runs[(runs["role"] == "speculative") & (runs["peak_queue_req"] > 0)].dropna(subset=["peak_running_req"])
    if held.empty:
        return None
    worst = most(held, "peak_queue_req")
    running, waiting = int(worst["peak_running_req"]), int(worst["peak_queue_req"])
    default = f"; {_SPEC_CAP} is what SGLang sets under speculation by default" if running == _SPEC_CAP else ""
    return (
        f"{count(waiting, 'request')} waited while {running:,} ran ({run_name(worst, runs)}{default}): state "
        "--max-running-requests on both sides, or the comparison is unfair."
    )


def offline_agrees(runs: pd.DataFrame, offline: pd.DataFrame) -> str | None:
    """How far the served accept length lies from the offline walk over the same prompts."""
    pairs = offline_against_served(runs, offline)
    if pairs.empty:
        return None
    gap = pairs["difference"].abs()
    worst = most(pairs.assign(gap=gap), "gap")
    head = f"agree within {gap.max():.2f}" if round(gap.max(), 2) <= AGREE else f"differ by up to {gap.max():.2f}"
    middle = f", {gap.median():.2f} in the median" if len(pairs) > 1 else ""
    return (
        f"Offline and served accept length {head} over {count(len(pairs), 'pair')}{middle} (largest: "
        f"{worst['drafter']}, {count(int(worst['num_steps']), 'step')}, {worst['prompt_set']})."
    )


def offline_gap(runs: pd.DataFrame, offline: pd.DataFrame) -> str | None:
    """Drafters whose served accept length lies off the offline walk by more than prompts explain, and what to suspect.

    The walk shares weights and prompts with the server, and neither its capture layers nor its arithmetic.
    """
    pairs = offline_gaps(offline_against_served(runs, offline))
    if pairs.empty:
        return None
    worst = most(pairs.assign(size=pairs["gap"].abs()), "size")
    names = few(dict.fromkeys(map(str, pairs["drafter"])))
    return (
        f"Served accept length lies more than {GAP:.0%} off the offline walk for {names} (largest: {worst['drafter']}, "
        f"{count(int(worst['num_steps']), 'step')}, {worst['prompt_set']}: {worst['served']:.2f} served, "
        f"{worst['offline']:.2f} offline, {worst['gap']:+.0%}): before the data suspect the capture layers, "
        "max_position_embeddings, the chat template and the precision."
    )


def offline_gaps(pairs: pd.DataFrame) -> pd.DataFrame:
    """The rows of `offline_against_served` that lie apart by more than `GAP`, with the ``gap`` as a share."""
    gap = pairs["served"] / pairs["offline"] - 1
    return pairs.assign(gap=gap)[gap.abs() > GAP].reset_index(drop=True)


def offline_against_served(runs: pd.DataFrame, offline: pd.DataFrame) -> pd.DataFrame:
    """campaign, drafter, prompt_set, num_steps, run_id, served, offline, difference (served - offline)."""
    served = real_runs(runs)
    served = served[
        (served["eagle_topk"] == 1).fillna(False).astype(bool)
        & (served["ignore_eos"] == False).fillna(False).astype(bool)  # noqa: E712 (pandas, three-valued)
        & served["accept_length"].notna()
    ]
    walked = offline.dropna(subset=["served_as"]).drop(columns="prompt_set").rename(columns={"served_as": "prompt_set"})
    walked = walked.rename(columns={"accept_length": "offline"}).dropna(subset=["offline"])
    keys = ["campaign", "drafter", "prompt_set", "num_steps"]
    pairs = served.dropna(subset=keys).drop_duplicates([*keys, "servers_alive"]).merge(walked, on=keys)
    pairs = pairs.rename(columns={"accept_length": "served"})
    pairs["difference"] = pairs["served"] - pairs["offline"]
    return pairs[[*keys, "run_id", "served", "offline", "difference"]].reset_index(drop=True)
