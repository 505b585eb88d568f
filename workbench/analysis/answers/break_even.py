"""The accept length that pays, and what keeps it high."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from workbench.analysis.answers.common import (
    all_on_cpu,
    as_served,
    at_lowest,
    break_even_span,
    draft_tokens,
    near,
    real_runs,
    run_name,
)
from workbench.analysis.frames import most
from workbench.analysis.wording import count, number, one_of, span, speed_span

MIN_STEP_COUNTS = 3


@dataclass(frozen=True, slots=True)
class Level:
    """One break-even for every number of steps that was measured.

    ``value`` is the middle of the best runs of each number of steps, ``low`` and ``high`` are their ends, ``runs`` are
    those best runs. Other work on the machine only ever slows a run, so the best one is the nearest to its own cost.
    """

    value: float
    low: float
    high: float
    steps: tuple[int, int]
    runs: pd.DataFrame


def shared_level(costs: pd.DataFrame) -> Level | None:
    """The break-even of all numbers of steps, where at least `MIN_STEP_COUNTS` were measured and lie near each other.

    At the lowest concurrency, and only where the runs do not differ in CUDA graphs. Runs with simulated acceptance
    count: what a step costs does not depend on what it accepts.
    """
    known = at_lowest(as_served(costs.dropna(subset=["break_even"]))).dropna(subset=["num_steps"])
    best = known.sort_values("break_even_low", kind="stable").drop_duplicates("num_steps")
    values = best["break_even_low"]
    if len(best) < MIN_STEP_COUNTS or len(known["cuda_graph"].dropna().unique()) > 1 or not near(values):
        return None
    steps = int(best["num_steps"].min()), int(best["num_steps"].max())
    return Level(float(values.median()), float(values.min()), float(values.max()), steps, best)


def break_even(costs: pd.DataFrame) -> str | None:
    """Break-even accept length by steps, or by draft tokens and CUDA graphs, beside the best accept length measured.

    At the lowest concurrency measured; the others follow as ranges. What a step costs is also told by runs with
    simulated acceptance, which are counted; the accept length is never theirs.
    """
    real = real_runs(costs).dropna(subset=["break_even"])
    if real.empty:
        return None
    known = as_served(costs.dropna(subset=["break_even"]))
    single = at_lowest(known)
    others = [
        f"{break_even_span(group)} at {concurrency}"
        for concurrency, group in known[~known.index.isin(single.index)].groupby("max_concurrency")
    ]
    more = f"; at higher concurrency {', '.join(others)}" if others else ""
    forced = len(known) - len(real)
    among = f" ({forced} of {count(len(known), 'run')} with simulated acceptance)" if forced else ""
    best = _reached(at_lowest(real))
    return f"Break-even accept length is {_where(single)}{more}{among}. The best accept length measured is {best}."


def _where(single: pd.DataFrame) -> str:
    level = shared_level(single)
    if level is not None:
        first, last = level.steps
        return (
            f"near {level.value:.2f} at every number of steps from {first} to {last} (best run of each "
            f"{span(level.low, level.high)}, all runs up to {single['break_even_high'].max():.2f})"
        )
    steps = sorted(int(steps) for steps in single["num_steps"].dropna().unique())
    if len(steps) >= MIN_STEP_COUNTS and len(single["cuda_graph"].dropna().unique()) <= 1:
        said = [f"{break_even_span(single[single['num_steps'] == each])} at {count(each, 'step')}" for each in steps]
        unknown = single[single["num_steps"].isna()]
        return ", ".join([*said, f"{break_even_span(unknown)} where steps are not stated"] if len(unknown) else said)
    return "; ".join(_by_graphs(single))


def _by_graphs(known: pd.DataFrame) -> list[str]:
    off = (known["cuda_graph"] == False).fillna(False).astype(bool)  # noqa: E712 (pandas, three-valued)
    said = [
        f"{break_even_span(group)} at {draft_tokens(tokens)}{_graphs(group)}"
        for tokens, group in known[~off].groupby("num_draft_tokens", dropna=False)
    ]
    # Without graphs a step is bound by launching, whatever the number of draft tokens: one group.
    return [*said, f"{break_even_span(known[off])} with CUDA graphs off"] if off.any() else said


def _graphs(group: pd.DataFrame) -> str:
    unknown = int(group["cuda_graph"].isna().sum())
    if all_on_cpu(group):
        return ""
    if unknown == len(group):
        return " (CUDA graphs not stated)"
    if not unknown:
        return " with CUDA graphs"
    return (
        f" with CUDA graphs ({count(unknown, 'run')} of {len(group)} {'does' if unknown == 1 else 'do'} not state them)"
    )


def _reached(costs: pd.DataFrame) -> str:
    best = most(costs, "accept_length_high")
    return f"{span(best['accept_length_low'], best['accept_length_high'])} ({run_name(best, costs)})"


def forced_break_even(costs: pd.DataFrame) -> str | None:
    """What a cycle costs by the runs with forced acceptance, where no other run tells."""
    if real_runs(costs)["break_even"].notna().any():
        return None
    forced = costs[costs["origin"] == "simulated"].dropna(subset=["break_even", "max_concurrency"])
    if forced.empty:
        return None
    levels = [f"{break_even_span(group)} at {level}" for level, group in forced.groupby("max_concurrency")]
    levels[0] = levels[0].replace(" at ", " at concurrency ")
    return (
        "Runs with simulated acceptance tell what a cycle costs: by the clients' speeds a drafter would break even "
        f"at an accept length of {one_of(levels)}."
    )


def fixed_cost(costs: pd.DataFrame) -> str | None:
    """What to do where a verify cycle costs the same whatever the number of steps, and nothing wins."""
    level = shared_level(costs)
    single = at_lowest(real_runs(costs))
    if level is None or (single["speedup"] >= 1).any() or single["accept_length_high"].isna().all():
        return None
    cycles, plain = level.runs["t_cycle_ms_low"], level.runs["t_base_ms"]
    slowest = at_lowest(costs).dropna(subset=["num_steps"])["t_cycle_ms_high"].max()
    first, last = level.steps
    return (
        f"Profile one verify cycle (host time, kernel launches, synchronisation, attention backend) before training "
        f"more: in the best run of each number of steps from {first} to {last} it takes {_ms(cycles)} "
        f"(in all runs up to {slowest:.1f} ms) against {_ms(plain)} for a plain step, so most of its cost does not "
        f"depend on the steps. {_to_grow(single, level)}"
    )


def _to_grow(single: pd.DataFrame, level: Level) -> str:
    best = most(single, "accept_length_high")
    if best["break_even"] is None:
        needed = f"near {level.value:.2f}, the break-even of the other runs"
    else:
        needed = f"{span(best['break_even_low'], best['break_even_high'])}, that run's own break-even"
    return (
        f"As it is, the best accept length, {best['accept_length_high']:.2f} ({run_name(best, single)}), would have to "
        f"grow to {needed}."
    )


def _ms(values: pd.Series) -> str:
    first, last = f"{values.min():.1f}", f"{values.max():.1f}"
    return f"{first} ms" if first == last else f"{first}-{last} ms"


def graphs_off(costs: pd.DataFrame, runs: pd.DataFrame) -> str | None:
    """Runs with CUDA graphs off whose break-even lies above every accept length measured in the campaign.

    Runs whose baseline is known to have them off too are left out: there graphs are not what makes the difference.
    """
    real = at_lowest(real_runs(costs))
    plain = runs[(runs["cuda_graph"] == False).fillna(False).astype(bool)]  # noqa: E712 (pandas, three-valued)
    also_off = set(zip(plain["campaign"], plain["run_id"], strict=True))
    beside = zip(real["campaign"], real["baseline_run_id"], strict=True)
    real = real[pd.Series([key not in also_off for key in beside], index=real.index, dtype=bool)]
    off = real[(real["cuda_graph"] == False).fillna(False).astype(bool) & real["break_even_low"].notna()]  # noqa: E712
    reached = real["accept_length_high"].max()
    if off.empty or not off["break_even_low"].min() > reached:
        return None
    speeds = speed_span(off["base_tok_per_s"])
    return (
        f"With CUDA graphs off break-even is {break_even_span(off)}, above every accept length measured (at most "
        f"{reached:.2f}): that alone kept {count(len(off), 'run')} under {speeds} tok/s.{_switched_on(real)}"
    )


def _switched_on(real: pd.DataFrame) -> str:
    pairs = real.dropna(subset=["num_draft_tokens", "tok_per_s"])
    for (drafter, tokens), group in pairs.groupby(["drafter", "num_draft_tokens"]):
        off, on = (group[group["cuda_graph"] == state]["tok_per_s"] for state in (False, True))
        if len(off) and len(on) and on.max() > off.max():
            return (
                f" Switching them on took {drafter} at {draft_tokens(tokens)} from {number(off.max())} to "
                f"{number(on.max())} tok/s."
            )
    return ""
