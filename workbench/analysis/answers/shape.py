"""Which number of draft tokens is best, and what the points cannot tell about it."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from workbench.analysis.answers.common import at_lowest, draft_tokens, not_told_apart, real_runs, run_name
from workbench.analysis.frames import Row, grouped, known, least, most, records
from workbench.analysis.wording import count, one_of, span, times

_SETTINGS = ["campaign", "drafter", "cuda_graph", "prompt_set", "baseline_group", "ignore_eos"]


def best_shape(costs: pd.DataFrame, speedups: pd.DataFrame) -> str:
    """The number of draft tokens with the highest speedup, among runs that differ in nothing else.

    Where there are no such runs it says so, and names the run nearest to its baseline.
    """
    real = at_lowest(real_runs(costs)).dropna(subset=["speedup", "num_draft_tokens"])
    if real.empty:
        return f"Which number of draft tokens is best was not measured: {_missing(costs)}."
    sweep = _widest_sweep(real)
    if sweep is None:
        best = most(real, "speedup")
        return (
            "Which number of draft tokens is best is not known: no two runs differ in draft tokens alone. Nearest to "
            f"its baseline came {run_name(best, real)}, {times(best['speedup'])}."
        )
    best = most(sweep, "speedup")
    where = "" if best["prompt_set"] is None else f" on {best['prompt_set']}"
    sweep_words = f"{best['drafter']}{where} reaches {_ranking(sweep)} draft tokens{_overlaps(sweep, best, speedups)}."
    alike = grouped(records(real), _SETTINGS)[tuple(best[name] for name in _SETTINGS)]
    fastest = max(alike, key=lambda run: float(run["speedup"]))
    if fastest["speedup"] > best["speedup"]:
        shape = f"{_shape(fastest)}, {times(fastest['speedup'])} ({run_name(fastest, real)})"
        chains = (sweep["num_draft_tokens"] == sweep["num_steps"] + 1).all()
        among = "Among chains" if chains else "Among runs that differ in draft tokens alone"
        return f"{_head(fastest)}: {shape}{_rivals(alike, fastest, speedups)}. {among} {sweep_words}"
    return f"{_head(best)}: {_shape(best)}. {sweep_words}"


def _missing(costs: pd.DataFrame) -> str:
    """Why no run has both its shape and a speed to set against a baseline's."""
    if costs["simulated_accept_length"].notna().any():
        return (
            "acceptance is simulated in every speculative run. What each shape costs, and so the accept length that it "
            "needs, is below"
        )
    shaped = real_runs(costs).dropna(subset=["num_draft_tokens"])
    if len(shaped) and shaped["baseline_run_id"].isna().all():
        return f"there is no baseline beside the {count(len(shaped), 'run')} of known shape"
    return "no run has both its shape and a speed"


def _head(best: Row) -> str:
    return "Best measured" if best["speedup"] >= 1 else "Nearest to the baseline, and still below it"


def _widest_sweep(real: pd.DataFrame) -> pd.DataFrame | None:
    """The runs that differ in draft tokens alone (steps follow from them), of the widest such group."""
    chain = (real["num_draft_tokens"] == real["num_steps"] + 1).fillna(False).astype(bool)
    stated = real[chain | real["num_steps"].notna()]
    found: list[tuple[int, float, pd.DataFrame]] = []
    for _, group in stated.groupby([*_SETTINGS, "eagle_topk"], dropna=False):
        is_chain = (group["num_draft_tokens"] == group["num_steps"] + 1).all()
        one_length = len(group["num_steps"].unique()) == 1
        shapes = len(group["num_draft_tokens"].unique())
        if shapes > 1 and (is_chain or one_length):
            found.append((shapes, float(group["speedup"].max()), group))
    return max(found, key=lambda item: item[:2])[2] if found else None


def _shape(run: Row) -> str:
    steps = "" if run["num_steps"] is None else f" ({count(int(run['num_steps']), 'step')})"
    return f"{draft_tokens(run['num_draft_tokens'])}{steps}"


def _ranking(sweep: pd.DataFrame) -> str:
    best = sweep.groupby("num_draft_tokens")["speedup"].max()
    return one_of(f"{times(value)} at {tokens}" for tokens, value in best.items())


def _overlaps(sweep: pd.DataFrame, best: Row, speedups: pd.DataFrame) -> str:
    """Which other numbers of draft tokens the intervals do not tell apart from the best."""
    alike = not_told_apart(best, speedups)
    near = {int(row["num_draft_tokens"]) for row in records(sweep) if (row["campaign"], row["run_id"]) in alike}
    near -= {int(best["num_draft_tokens"])}
    if not near:
        return ""
    which, itself = one_of(map(str, sorted(near))), int(best["num_draft_tokens"])
    if near == {1}:
        return f"; the interval of the speedup at 1 draft token overlaps that at {itself}"
    if len(near) == 1:
        return f"; the interval of the speedup at {which} draft tokens overlaps that at {itself}"
    return f"; the intervals of the speedups at {which} draft tokens overlap that at {itself}"


def _rivals(alike: Sequence[Row], best: Row, speedups: pd.DataFrame) -> str:
    """How many other runs the intervals do not tell apart from the fastest."""
    near = not_told_apart(best, speedups) & {(run["campaign"], run["run_id"]) for run in alike}
    if not near:
        return ""
    return f"; {len(near)} of {count(len(alike) - 1, 'other run')} may be as fast, by the intervals of the speedups"


def confounded(costs: pd.DataFrame) -> str | None:
    """Runs of one drafter that differ in draft tokens while their steps are unknown or differ too.

    Where some differ in draft tokens alone, the others' steps are no obstacle.
    """
    real = real_runs(costs).dropna(subset=["num_draft_tokens", "drafter"])
    chain = real["num_draft_tokens"] == real["num_steps"] + 1
    open_shape = real[~chain.fillna(False).astype(bool)]
    for (drafter, graphs), group in open_shape.groupby(["drafter", "cuda_graph"], dropna=False):
        tokens = sorted(group["num_draft_tokens"].unique(), reverse=True)
        steps = group["num_steps"]
        apart = group.groupby(["num_steps", "eagle_topk"], dropna=False)["num_draft_tokens"].nunique()
        told = steps.notna().all() and (apart > 1).any()
        if len(tokens) > 1 and not told and (steps.isna().any() or len(steps.unique()) > 1):
            state = "not stated" if not known(graphs) else "on" if graphs else "off"
            how = "changed too or is not stated" if steps.isna().any() else "changed too"
            return (
                f"From {int(tokens[0])} to {draft_tokens(tokens[-1])} ({drafter}, CUDA graphs {state}) the number of "
                f"steps {how}, so the two causes cannot be separated."
            )
    return None


def rate_misleads(costs: pd.DataFrame, runs: pd.DataFrame) -> str | None:
    """Two runs of one drafter whose printed accept rate rises with fewer draft tokens while the length does not."""
    rates = runs[["campaign", "run_id", "accept_rate_printed"]]
    rated = real_runs(costs).merge(rates, on=["campaign", "run_id"])
    rated = rated.dropna(subset=["num_draft_tokens", "accept_rate_printed", "accept_length", "drafter"])
    for (_, drafter, _), group in rated.groupby(["campaign", "drafter", "prompt_set"], dropna=False):
        few, many = least(group, "num_draft_tokens"), most(group, "num_draft_tokens")
        rate_up = few["accept_rate_printed"] > 1.2 * many["accept_rate_printed"]
        if rate_up and few["accept_length_low"] <= many["accept_length_high"]:
            length = span(few["accept_length_low"], few["accept_length_high"])
            before = span(many["accept_length_low"], many["accept_length_high"])
            return (
                f"A higher printed accept rate is no longer accept length: from {int(many['num_draft_tokens'])} to "
                f"{draft_tokens(few['num_draft_tokens'])} the rate of {drafter} rises from "
                f"{many['accept_rate_printed']:.2f} to {few['accept_rate_printed']:.2f}, because it is divided by "
                f"fewer drafts, while accept length goes from {before} to {length}."
            )
    return None


def same_points(merged: pd.DataFrame) -> str | None:
    """Runs that asked for different shapes and got the same one, from `same_points_df`."""
    if merged.empty:
        return None
    first = records(merged)[0]
    used = f"{first['num_steps']} steps, topk {first['eagle_topk']}, {draft_tokens(first['num_draft_tokens'])}"
    more = f" ({count(len(merged) - 1, 'more such group')})" if len(merged) > 1 else ""
    return (
        f"Different shapes were asked for and the server made them one, {used}: "
        f"{'; '.join(map(str, first['labels']))} are one point{more}."
    )
