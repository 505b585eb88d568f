from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from workbench.analysis.cost import cost_df
from workbench.analysis.experts import COLLAPSED, NOT_COUNTED, SPREAD, expected_experts, experts_df, routing
from workbench.analysis.views import (
    cross_check_view,
    cross_check_words,
    experts_view,
    experts_words,
    routing_words,
    step_profile_words,
)
from workbench.paths import recorded_dir
from workbench.table import Tables, load_tables
from workbench.table.side_checks import ExpertCount, Router, SideChecks

KIMI = "h200_kimi_shape"


@pytest.fixture(scope="module")
def kimi() -> Tables:
    return load_tables(recorded_dir() / KIMI)


@pytest.fixture(scope="module")
def cost_tables() -> Tables:
    return load_tables(recorded_dir() / "h200_step_cost")


@pytest.mark.parametrize(
    ("tokens", "experts"),
    [
        (1, 8.0),
        (2, 15.833),  # 8 + 8 (1 - 8/384)
        (4, 31.0),
        (5, 38.4),
        (16, 109.8),  # these three: facts on the cost of draft tokens on Kimi-K2.5, 31, 38 and 110
        (10_000, 384.0),
    ],
)
def test_experts_that_tokens_reach(tokens: int, experts: float) -> None:
    assert expected_experts(tokens, 384, 8) == pytest.approx(experts, rel=2e-3)


def counted(tables: Tables, experts: dict[int, float]) -> Tables:
    counts = {tokens: ExpertCount(passes=10, experts=value) for tokens, value in experts.items()}
    router = Router(noise=counts) if counts else None
    return replace(tables, checks={KIMI: SideChecks(router=router)})


def test_routing_is_judged_by_the_pass_farthest_from_independent_choices(kimi: Tables) -> None:
    found = routing(counted(kimi, {1: 8, 4: 31, 16: 105}), KIMI)
    assert found is not None and (found.state, found.passes) == (SPREAD, 20)
    assert found.worst == pytest.approx(105 / 109.8, rel=1e-3)
    found = routing(counted(kimi, {4: 31, 16: 24}), KIMI)
    assert found is not None and found.state == COLLAPSED
    found = routing(counted(kimi, {}), KIMI)
    assert found is not None and found.state == NOT_COUNTED


def test_a_target_without_experts_says_nothing(cost_tables: Tables) -> None:
    assert routing(cost_tables, "h200_step_cost") is None
    assert routing_words(cost_tables) == ""
    found = experts_df(cost_tables, cost_df(cost_tables.runs))
    assert found.empty and experts_view(found).empty and experts_words(found) == ""


def test_collapsed_routing_forbids_a_conclusion(kimi: Tables) -> None:
    assert "cannot be concluded" in routing_words(counted(kimi, {16: 24}))
    assert "within 4.4%" in routing_words(counted(kimi, {16: 105}))
    assert routing_words(replace(kimi, checks={})) == "How many experts a pass reached was not counted."


def test_what_a_draft_token_costs_between_shapes_that_differ_in_nothing_else() -> None:
    found = pd.DataFrame(
        {
            "campaign": "c",
            "label": ["a", "b", "chain"],
            "max_concurrency": 1,
            "num_steps": [3, 3, 7],
            "eagle_topk": [4, 4, 1],
            "num_draft_tokens": [5, 16, 8],
            "tokens": [5, 16, 8],
            "experts": [38.4, 109.8, 59.0],
            "experts_share": [0.1, 0.29, 0.15],
            "t_cycle_ms": [6.0, 11.5, 9.0],
        }
    )
    assert experts_words(found) == (
        "At concurrency 1, 3 steps and topk 4, 16 draft tokens instead of 5 make the cycle 11.5 ms instead of 6.0, "
        "0.50 ms a token, where 110 experts are reached instead of 38."
    )
    assert list(experts_view(found)["run"]) == ["a", "chain", "b"]


def test_the_recorded_trees_tell_what_a_draft_token_costs(kimi: Tables) -> None:
    found = experts_df(kimi, cost_df(kimi.runs))
    trees = found[found["eagle_topk"].eq(4) & found["max_concurrency"].eq(1)].set_index("num_draft_tokens")
    # 2.00 tokens a cycle at 320 and 190 decode tok/s of the clients
    assert trees["t_cycle_ms"].round(1).to_dict() == {5: 6.2, 16: 10.5}


def test_both_clients_stand_side_by_side(cost_tables: Tables) -> None:
    view = cross_check_view(cost_tables).set_index("concurrency")
    # medians of 508.4, 536.5, 518.0, 379.0 and of 522.4, 510.1, 487.6, 510.0
    assert view.loc[1, "our output tok/s"] == pytest.approx((508.400 + 517.979) / 2, abs=0.01)
    assert view.loc[1, "bench_serving output tok/s"] == pytest.approx((510.006 + 510.064) / 2, abs=0.01)
    # 2811 tokens of 24 requests at (2811 - 24) / 1.62697 = 1713 verify steps
    assert view.loc[1, "accept length by requests"] == pytest.approx(2811 / 1713, rel=1e-6)
    assert view.loc[1, "by /server_info"] == pytest.approx(2811 / 1713, rel=1e-3)
    said = cross_check_words(cost_tables)
    assert "At 1 at once the two agree within 3%" in said and "At 8 at once the two do not agree" in said
    assert step_profile_words(cost_tables).startswith(
        "In 40 profiled steps the GPU worked 2.23 ms a step, in 518 kernels"
    )


def test_what_was_not_checked_is_said(kimi: Tables) -> None:
    assert cross_check_view(kimi).empty
    assert cross_check_words(kimi) == "sglang.bench_serving was not run against these servers."
    assert step_profile_words(kimi) == "No step was profiled."
