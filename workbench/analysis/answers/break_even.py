"""The accept length that pays, and what keeps it high."""

from __future__ import annotations

import pandas as pd

from workbench.analysis.answers.common import break_even_span, count, draft_tokens, near, real_runs
from workbench.analysis.frames import most
from workbench.analysis.wording import number, span


def break_even(costs: pd.DataFrame) -> str | None:
    """Break-even accept length by draft tokens and CUDA graphs, beside the best accept length measured.

    At the lowest concurrency measured; the others follow as ranges.
    """
    known = real_runs(costs).dropna(subset=["break_even"])
    if known.empty:
        return None
    lowest = known["max_concurrency"].min()
    single = known[(known["max_concurrency"] == lowest).fillna(True)]
    steps = sorted(single["num_steps"].dropna().unique())
    if len(steps) >= 3 and len(single["cuda_graph"].dropna().unique()) <= 1:
        where = _break_even_by_steps(single, steps)
    else:
        where = "; ".join(_break_even_groups(single))
    others = [
        f"{break_even_span(group)} at {concurrency}"
        for concurrency, group in known[~known.index.isin(single.index)].groupby("max_concurrency")
    ]
    more = f"; at higher concurrency {', '.join(others)}" if others else ""
    return f"Break-even accept length is {where}{more}; {_best_length(single)}"


def _break_even_by_steps(known: pd.DataFrame, steps: list[int]) -> str:
    """One value where the best passes of all step counts lie near each other, else one a step count.

    Other work on the machine only ever slows a pass, so the best pass of a step count is the nearest to its own cost.
    """
    best = known.groupby("num_steps")["break_even_low"].min()
    if near(best):
        return (
            f"near {best.median():.2f} at every number of steps from {steps[0]} to {steps[-1]} (best passes "
            f"{span(best.min(), best.max())}, all passes up to {known['break_even_high'].max():.2f})"
        )
    return ", ".join(
        f"{break_even_span(known[known['num_steps'] == number_of])} at {count(int(number_of), 'step')}"
        for number_of in steps
    )


def fixed_cost(costs: pd.DataFrame) -> str | None:
    """What to do where a verify cycle costs the same whatever the number of steps, and nothing wins."""
    known = real_runs(costs).dropna(subset=["break_even", "num_steps", "t_cycle_ms"])
    known = known[known["max_concurrency"] == known["max_concurrency"].min()]
    best = known.groupby("num_steps")["break_even_low"].min()
    if len(best) < 3 or not near(best) or (known["speedup"] >= 1).any():
        return None
    cycles = known.groupby("num_steps")["t_cycle_ms_low"].min()
    reached = known["accept_length_high"].max()
    return (
        f"A verify cycle takes {cycles.min():.1f}-{cycles.max():.1f} ms at any number of steps against "
        f"{known['t_base_ms'].median():.1f} ms for a plain step: a fixed cost dominates. Profile the cycle (host time, "
        f"overlap, attention backend) first; with it as it is the best accept length, {reached:.2f}, would have to "
        f"grow to {best.median():.2f}."
    )


def _break_even_groups(known: pd.DataFrame) -> list[str]:
    groups = known.assign(graphs=known["cuda_graph"].map({True: "on", False: "off"}).fillna("not stated").astype(str))
    # Without graphs a step is bound by launching, whatever the number of draft tokens: one group.
    off = groups[groups["graphs"] == "off"]
    said = [
        f"{break_even_span(group)} at {draft_tokens(tokens)}{_graphs(group)}"
        for tokens, group in groups[groups["graphs"] != "off"].groupby("num_draft_tokens", dropna=False)
    ]
    if len(off):
        said.append(f"{break_even_span(off)} with CUDA graphs off")
    return said


def _best_length(costs: pd.DataFrame) -> str:
    known = real_runs(costs).dropna(subset=["accept_length"])
    best = most(known, "accept_length_high")
    reached = span(best["accept_length_low"], best["accept_length_high"])
    return f"the best accept length measured is {reached} ({best['label']})."


def _graphs(group: pd.DataFrame) -> str:
    kinds = set(group["graphs"])
    return {frozenset({"on"}): " with CUDA graphs", frozenset({"not stated"}): " (graphs not stated)"}.get(
        frozenset(kinds), " with CUDA graphs (one run does not state them)"
    )


def graphs_off(costs: pd.DataFrame) -> str | None:
    """Runs with CUDA graphs off whose break-even lies above every accept length measured in the campaign."""
    real = real_runs(costs)
    off = real[(real["cuda_graph"] == False) & real["break_even_low"].notna()]  # noqa: E712 (pandas, three-valued)
    if off.empty or real["accept_length_high"].isna().all():
        return None
    reached = real["accept_length_high"].max()
    if off["break_even_low"].min() <= reached:
        return None
    base = number(off["base_tok_per_s"].max())
    return (
        f"With CUDA graphs off break-even is {break_even_span(off)}, above every accept length measured (at most "
        f"{reached:.2f}): that alone kept {count(len(off), 'run')} under {base} tok/s.{_switched_on(real)}"
    )


def _switched_on(real: pd.DataFrame) -> str:
    pairs = real.dropna(subset=["num_draft_tokens", "tok_per_s"])
    for (drafter, tokens), group in pairs.groupby(["drafter", "num_draft_tokens"]):
        off, on = (group[group["cuda_graph"] == state]["tok_per_s"] for state in (False, True))
        if len(off) and len(on):
            return (
                f" Switching them on took {drafter} at {tokens} draft tokens from {number(off.max())} to "
                f"{number(on.max())} tok/s."
            )
    return ""
