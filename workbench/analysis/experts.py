"""A draft token on a mixture of experts: the weights that n tokens reach, and whether a router spread them.

Tokens that choose k of E experts independently and evenly reach E (1 - (1 - k/E)^n) distinct ones in the mean. Every
expert that is reached is read from memory once, so a verify pass over more tokens costs more even at concurrency 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from workbench.analysis.frames import number, records
from workbench.table import Tables

NOT_COUNTED, SPREAD, COLLAPSED = "not counted", "spread", "collapsed"
_SHAPE = ("campaign", "label", "max_concurrency", "num_steps", "eagle_topk", "num_draft_tokens")
SPREAD_WITHIN = 0.10
"""Measured over expected distinct experts may differ by so much before routing counts as collapsed."""


@dataclass(frozen=True, slots=True)
class Routing:
    """``worst`` is measured over expected distinct experts where that is farthest from 1; nan where not counted."""

    state: str
    worst: float = float("nan")
    passes: int = 0


def expected_experts(tokens: float, experts: int, per_token: int) -> float:
    """Distinct experts reached by independent, even choices."""
    missed: float = (1 - per_token / experts) ** tokens
    return experts * (1 - missed)


def routing(tables: Tables, campaign: str) -> Routing | None:
    """Whether the router of a campaign's runs spread tokens; ``None`` for a target that states no experts."""
    target = tables.campaigns[campaign]
    if target.num_experts is None or target.num_experts_per_tok is None:
        return None
    checks = tables.checks.get(campaign)
    counted = {} if checks is None or checks.router is None else checks.router.noise or checks.router.plain
    ratios = {
        tokens: found.experts / expected_experts(tokens, target.num_experts, target.num_experts_per_tok)
        for tokens, found in counted.items()
        if tokens > 1
    }
    if not ratios:
        return Routing(NOT_COUNTED)
    worst = max(ratios.values(), key=lambda ratio: abs(ratio - 1))
    state = SPREAD if abs(worst - 1) <= SPREAD_WITHIN else COLLAPSED
    return Routing(state, worst, sum(counted[tokens].passes for tokens in ratios))


def experts_df(tables: Tables, costs: pd.DataFrame) -> pd.DataFrame:
    """Runs of targets with experts: tokens of a verify pass, experts that they reach in the mean, cycle time.

    Parameters
    ----------
    costs
        As `workbench.analysis.cost.cost_df` gives it.

    Returns
    -------
    DataFrame
        ``campaign, label, max_concurrency, num_steps, eagle_topk, num_draft_tokens, tokens, experts, experts_share,
        t_cycle_ms``; empty when no target states its experts. ``tokens`` is concurrency x draft tokens.
    """
    rows = []
    for row in records(costs):
        target = tables.campaigns[str(row["campaign"])]
        drafts, load = number(row["num_draft_tokens"]), number(row["max_concurrency"])
        if target.num_experts is None or target.num_experts_per_tok is None or drafts is None or load is None:
            continue
        tokens = drafts * load
        reached = expected_experts(tokens, target.num_experts, target.num_experts_per_tok)
        rows.append(
            {
                **{name: row[name] for name in _SHAPE},
                "tokens": tokens,
                "experts": reached,
                "experts_share": reached / target.num_experts,
                "t_cycle_ms": row["t_cycle_ms"],
            }
        )
    return pd.DataFrame(rows)
