import math

import pytest
from analysis_tables import baseline, runs, speculative

from workbench.analysis.cost import cost_df, cost_fit_df, required_acceptance_df

# The runs of the Kimi-K2.5 search: tok/s, accept length (low, high), base tok/s, and the T_cycle (ms), break-even and
# gain that were worked out for them by hand.
OBSERVED = {
    "AQ-MedAI, 4 draft": (62.9, 1.65, 1.65, 63.6, (26.2, 26.2), (1.67, 1.67), 1.01),
    "custom-v1, 4 draft": (40.8, 1.00, 1.00, 63.6, (24.5, 24.5), (1.56, 1.56), 1.56),
    "16 draft, no graph": (56.7, 2.0, 2.5, 90.0, (35.3, 44.1), (3.17, 3.97), 1.59),
    "5 draft, no graph": (53.2, 2.0, 2.2, 90.0, (37.6, 41.4), (3.38, 3.72), 1.69),
    "AQ-MedAI, no graph": (50.5, 1.8, 2.1, 90.0, (35.6, 41.6), (3.21, 3.74), 1.78),
    "16 draft, graph": (74.9, 2.1, 2.1, 90.0, (28.0, 28.0), (2.52, 2.52), 1.20),
}


@pytest.mark.parametrize("name", OBSERVED)
def test_costs_of_the_observed_runs(name: str) -> None:
    speed, low, high, base, cycle, break_even, gain = OBSERVED[name]
    lengths = {"accept_length": (low + high) / 2, "accept_length_low": low, "accept_length_high": high}
    row = cost_df(runs(baseline(output_tok_per_s=base), speculative(output_tok_per_s=speed, **lengths))).iloc[0]
    assert (row["t_cycle_ms_low"], row["t_cycle_ms_high"]) == pytest.approx(cycle, abs=0.06)
    assert (row["break_even_low"], row["break_even_high"]) == pytest.approx(break_even, abs=0.006)
    assert row["gain_needed"] == pytest.approx(gain, abs=0.006)
    assert row["speedup"] == pytest.approx(speed / base)
    assert row["t_base_ms"] == pytest.approx(1000 / base)
    assert row["basis"] == "output"


def test_without_an_accept_length_the_cost_is_a_multiple_of_it() -> None:
    row = cost_df(runs(baseline(output_tok_per_s=90.0), speculative(output_tok_per_s=82.3))).iloc[0]
    assert row["gain_needed"] == pytest.approx(1.094, abs=5e-4)
    assert math.isnan(row["t_cycle_ms"])
    assert math.isnan(row["break_even"])
    assert "12.15 ms x accept length" in row["reason"]
    assert "1.094 x it" in row["reason"]


def test_times_are_of_one_step_when_speeds_are_totals() -> None:
    # 8 in flight: 4000 tok/s are 500 each; 2 tokens a step make 4 ms. Plain: 8000 / 8 = 1000 tok/s, 1 ms.
    row = cost_df(
        runs(
            baseline(output_tok_per_s=8000.0, max_concurrency=8),
            speculative(output_tok_per_s=4000.0, max_concurrency=8, accept_length=2.0),
        )
    ).iloc[0]
    assert (row["t_base_ms"], row["t_cycle_ms"], row["break_even"]) == pytest.approx((1.0, 4.0, 4.0))


def test_requests_that_wait_are_not_in_flight() -> None:
    # 80 asked, 48 run at once: 48 x 1 token / 600 tok/s = 80 ms
    row = cost_df(
        runs(
            baseline(output_tok_per_s=1600.0, max_concurrency=80),
            speculative(output_tok_per_s=600.0, max_concurrency=80, max_running_requests=48, accept_length=1.0),
        )
    ).iloc[0]
    assert row["t_cycle_ms"] == pytest.approx(80.0)
    assert row["t_base_ms"] == pytest.approx(50.0)
    assert row["break_even"] == pytest.approx(1600 / 600)


def test_decode_speed_is_preferred_where_both_arms_have_it() -> None:
    both = {"output_tok_per_s": 50.0, "decode_tok_per_s": 60.0}
    row = cost_df(runs(baseline(**both), speculative(**both | {"decode_tok_per_s": 120.0}))).iloc[0]
    assert (row["basis"], row["speedup"]) == ("decode", 2.0)
    one = cost_df(runs(baseline(output_tok_per_s=50.0), speculative(**both))).iloc[0]
    assert (one["basis"], one["speedup"]) == ("output", 1.0)


def test_a_range_of_speeds_gives_a_range_of_costs() -> None:
    row = cost_df(
        runs(
            baseline(output_tok_per_s=100.0),
            speculative(
                output_tok_per_s=50.0, output_tok_per_s_low=40.0, output_tok_per_s_high=60.0, accept_length=1.2
            ),
        )
    ).iloc[0]
    assert (row["break_even_low"], row["break_even"], row["break_even_high"]) == pytest.approx((2.0, 2.4, 3.0))


def test_baseline_passes_are_pooled_as_tokens_over_time() -> None:
    # 100 tokens at 100 tok/s and 300 at 50: 400 tokens in 7 s
    row = cost_df(
        runs(
            baseline("a", output_tok_per_s=100.0, completion_tokens=100),
            baseline("b", output_tok_per_s=50.0, completion_tokens=300),
            speculative(output_tok_per_s=100.0, accept_length=2.0),
        )
    ).iloc[0]
    assert row["base_tok_per_s"] == pytest.approx(400 / 7)
    assert row["baseline_run_id"] == "a"


def test_what_is_missing_is_named() -> None:
    costs = cost_df(
        runs(
            baseline(output_tok_per_s=90.0),
            speculative("no speed", accept_length=1.0, status="failed"),
            speculative("no baseline", output_tok_per_s=50.0, max_concurrency=8),
        )
    ).set_index("run_id")
    assert costs.loc["no speed", "reason"] == "the run is failed: it is not judged"
    assert costs.loc["no baseline", "reason"] == "no baseline in group default with the prompts p at concurrency 8"
    assert costs["break_even"].isna().all()


def test_no_runs_give_an_empty_table_with_its_columns() -> None:
    full = cost_df(runs(baseline(output_tok_per_s=1.0), speculative(output_tok_per_s=1.0)))
    assert list(cost_df(runs()).columns) == list(full.columns)
    assert cost_df(runs(baseline(output_tok_per_s=90.0))).empty
    assert cost_fit_df(cost_df(runs())).empty


def test_required_acceptance_solves_the_geometric_sum() -> None:
    # 1 + 0.576 + 0.576^2 + 0.576^3 = 2.09888
    table = required_acceptance_df(2.09888).set_index("num_steps")
    assert table.loc[3, "acceptance"] == pytest.approx(0.576, abs=1e-4)
    assert not table.loc[1, "reachable"]
    assert math.isnan(table.loc[1, "acceptance"])
    # 1 + a + a^2 = 2.09888
    assert table.loc[2, "acceptance"] == pytest.approx((-1 + math.sqrt(1 + 4 * 1.09888)) / 2)
    assert list(table.index) == [1, 2, 3, 4, 5, 6, 7]


def test_required_acceptance_at_the_bounds() -> None:
    table = required_acceptance_df(4.0, steps=[2, 3]).set_index("num_steps")
    assert table.loc[3, "acceptance"] == pytest.approx(1.0)
    assert not table.loc[2, "reachable"]
    assert required_acceptance_df(1.0, steps=[3])["acceptance"].item() == pytest.approx(0.0)
    assert not required_acceptance_df(0.9, steps=[3])["reachable"].item()
    assert not required_acceptance_df(float("nan"), steps=[3])["reachable"].item()


def _costs_at(break_evens: dict[int, float], **values: object):
    # With accept length 1 and a baseline of 100 tok/s, a speed of 100 / R breaks even at R.
    points = [
        speculative(f"s{steps}", num_steps=steps, accept_length=1.0, output_tok_per_s=100.0 / r, **values)
        for steps, r in break_evens.items()
    ]
    return cost_df(runs(baseline(output_tok_per_s=100.0), *points))


def test_fit_repeats_the_published_line() -> None:
    # Medians of R for Kimi-K2-Instruct on the SpecBundle dashboard; the published fit is 1.47 + 0.16 S.
    fit = cost_fit_df(_costs_at({3: 1.95, 5: 2.28, 7: 2.59}))
    assert fit["c0"].iloc[0] == pytest.approx(1.473, abs=1e-3)
    assert fit["c1"].iloc[0] == pytest.approx(0.16)
    assert list(fit["residual"]) == pytest.approx([-1 / 300, 2 / 300, -1 / 300], abs=1e-6)
    # One residual degree of freedom: standard error sqrt(6e-4 / 9 / 8), times t = 12.7062
    assert fit["c1_high"].iloc[0] - 0.16 == pytest.approx(12.7062 * math.sqrt(6 / 90000 / 8), rel=1e-4)
    assert set(fit["num_points"]) == {3}


def test_two_step_counts_are_no_line() -> None:
    assert cost_fit_df(_costs_at({3: 1.9, 5: 2.2})).empty


def test_points_of_other_graphs_do_not_join_a_line() -> None:
    costs = _costs_at({1: 1.0, 3: 2.0, 5: 3.0})
    costs["cuda_graph"] = [True, True, False]
    assert cost_fit_df(costs).empty
