"""Is the deployment right, is the drafter right, what does its training data say."""

from __future__ import annotations

import pandas as pd

from workbench.analysis.answers.common import real_runs
from workbench.analysis.frames import least, most
from workbench.analysis.wording import one_of, span

NOTHING = 1.05  # an accept length below this means that no draft is accepted


def wrong_flag(runs: pd.DataFrame) -> str | None:
    """A drafter that accepts nothing under EAGLE and something under EAGLE3: the flag, not the drafter."""
    known = runs.dropna(subset=["drafter", "accept_length", "speculative_algorithm"])
    for drafter, group in known.groupby("drafter"):
        old = group[group["speculative_algorithm"].isin(["EAGLE", "NEXTN"]) & (group["accept_length"] < NOTHING)]
        new = group[(group["speculative_algorithm"] == "EAGLE3") & (group["accept_length"] >= NOTHING)]
        if len(old) and len(new):
            reached = span(new["accept_length_low"].min(), new["accept_length_high"].max())
            return (
                f"{drafter} accepted nothing when served with {old['speculative_algorithm'].iloc[0]} and {reached} "
                "with EAGLE3: the flag was wrong, not the drafter."
            )
    return None


def accepts_nothing(runs: pd.DataFrame) -> str | None:
    """A drafter that never accepts anything where another one, served in the same group, does."""
    known = runs.dropna(subset=["drafter", "accept_length"])
    for group, members in known.groupby("baseline_group"):
        best = members.groupby("drafter")["accept_length"].max()
        dead, alive = best[best < NOTHING], best[best >= NOTHING]
        dead = dead[[known.loc[known["drafter"] == name, "accept_length"].max() < NOTHING for name in dead.index]]
        if len(dead) and len(alive):
            return (
                f"{one_of(dead.index)} accepted nothing although {alive.idxmax()} reached {alive.max():.2f} in group "
                f"{group}: suspect a mismatch between its training and serving (capture layers, precision, engine) "
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
    default = " (48 is what SGLang sets under speculation when --max-running-requests is not given)" * (running == 48)
    return (
        f"{worst['label']} ran {running} requests while {waiting} waited{default}: state --max-running-requests on "
        "both sides, or the comparison is unfair."
    )


def rate_misleads(costs: pd.DataFrame, runs: pd.DataFrame) -> str | None:
    """Two runs of one drafter whose printed accept rate rises with fewer draft tokens while the length does not."""
    rates = runs[["campaign", "run_id", "accept_rate_printed", "accept_rate_definition"]]
    known = real_runs(costs).merge(rates, on=["campaign", "run_id"])
    known = known.dropna(subset=["num_draft_tokens", "accept_rate_printed", "accept_length", "drafter"])
    for drafter, group in known.groupby("drafter"):
        few, many = least(group, "num_draft_tokens"), most(group, "num_draft_tokens")
        rate_up = few["accept_rate_printed"] > 1.2 * many["accept_rate_printed"]
        if rate_up and few["accept_length_low"] <= many["accept_length_high"]:
            length = span(few["accept_length_low"], few["accept_length_high"])
            before = span(many["accept_length_low"], many["accept_length_high"])
            return (
                f"The printed accept rate misleads: from {int(many['num_draft_tokens'])} to "
                f"{int(few['num_draft_tokens'])} draft tokens it rises from {many['accept_rate_printed']:.2f} to "
                f"{few['accept_rate_printed']:.2f} for {drafter} because its denominator shrinks, while accept length "
                f"goes from {before} to {length}."
            )
    return None


def training_sizes(drafters: pd.DataFrame, target: str) -> str | None:
    """Says so where there is no curve: fewer than two training sizes among the drafters made for this target."""
    own = drafters[(drafters["drafter_target"].fillna(target) == target) & (drafters["training_samples"] > 0)]
    sizes = sorted(own["training_samples"].unique())
    if len(sizes) != 1:
        return None
    return f"One training size ({int(sizes[0]):,} samples) is no curve: nothing here says what more data would bring."


def offline_agrees(runs: pd.DataFrame, offline: pd.DataFrame) -> str | None:
    """How far the served accept length lies from the offline walk over the same prompts."""
    pairs = offline_against_served(runs, offline)
    if pairs.empty:
        return None
    gap = pairs["difference"].abs()
    worst = most(pairs.assign(gap=gap), "gap")
    verb = "agree" if gap.max() <= 0.1 else "do not agree"
    return (
        f"Offline and served accept length {verb}: {len(pairs)} pairs differ by {gap.median():.3f} in the middle and "
        f"{gap.max():.3f} at most ({worst['drafter']}, {int(worst['num_steps'])} steps, {worst['prompt_set']})."
    )


def offline_against_served(runs: pd.DataFrame, offline: pd.DataFrame) -> pd.DataFrame:
    """campaign, drafter, prompt_set, num_steps, served, offline, difference (served - offline)."""
    served = runs[(runs["eagle_topk"] == 1) & (runs["ignore_eos"] == False) & runs["accept_length"].notna()]  # noqa: E712
    walked = offline.dropna(subset=["served_as"]).drop(columns="prompt_set").rename(columns={"served_as": "prompt_set"})
    walked = walked.rename(columns={"accept_length": "offline"})
    keys = ["campaign", "drafter", "prompt_set", "num_steps"]
    pairs = served.drop_duplicates([*keys, "servers_alive"]).merge(walked, on=keys)
    pairs = pairs.rename(columns={"accept_length": "served"})
    pairs["difference"] = pairs["served"] - pairs["offline"]
    return pairs[[*keys, "run_id", "served", "offline", "difference"]].reset_index(drop=True)
