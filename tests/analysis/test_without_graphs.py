from __future__ import annotations

from workbench.analysis.answers import control_servers, graphs_control
from workbench.analysis.campaign import campaign_answer, diagnose_logs, draft_tokens_answer
from workbench.analysis.cost import cost_df
from workbench.analysis.sound import without_servers
from workbench.analysis.speedup import speedup_df
from workbench.paths import recorded_dir
from workbench.table import load_tables

COST = load_tables(recorded_dir() / "h200_step_cost")
OFF = {
    ("h200_step_cost", "baseline-nograph"),
    ("h200_step_cost", "eagle3-smollm2-135m-eagle3-s3-k1-n4-sim2.5-nograph"),
}


def test_servers_whose_baseline_has_no_graphs_either_are_controls() -> None:
    assert control_servers(COST.runs) == OFF
    # Here graphs were off by mistake: their baseline is not known to have them off.
    kimi = load_tables(recorded_dir() / "kimi_k25")
    assert control_servers(kimi.runs) == set()
    # Without a baseline with graphs, off is how the campaign runs.
    alone = COST.runs[COST.runs["baseline_group"] == "nograph"]
    assert control_servers(alone) == set()


def test_a_control_says_what_graphs_are_worth() -> None:
    # decode tok/s of the clients: 66.2 and 122 without, 787 and 796 (baseline, twice) and 686 with graphs
    assert graphs_control(COST.runs, OFF) == (
        "CUDA graphs off, as a control: baseline-nograph, 1 at once 66.2 decode tok/s instead of 792 (11.9x); "
        "eagle3-smollm2-135m-eagle3-s3-k1-n4-sim2.5-nograph, 1 at once (simulated) 122 decode tok/s instead of 686 "
        "(5.6x)."
    )
    assert graphs_control(COST.runs, set()) is None


def test_a_control_is_no_fault_to_mend_and_no_break_even_of_the_campaign() -> None:
    costs, speedups = cost_df(COST.runs), speedup_df(COST.runs, COST.requests, n_boot=20)
    assert len(without_servers(costs, COST.runs, OFF)) == len(costs) - 1
    answer = campaign_answer(COST, costs, speedups, diagnose_logs(COST))
    assert not any("disable-cuda-graph" in action for action in answer.actions)
    assert any(point.startswith("CUDA graphs off, as a control") for point in answer.points)
    for said in (answer, draft_tokens_answer(COST, costs, speedups)):
        assert "1.35" not in said.headline["break-even"]
