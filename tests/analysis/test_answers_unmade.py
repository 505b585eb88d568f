from __future__ import annotations

from dataclasses import replace

import pytest
from analysis_tables import recorded
from answer_tables import cost_rows, costs_of, exactly, with_runs

from workbench.analysis.answers import Missing, missing_sentence, never_measured, next_run
from workbench.table import Tables

KIMI = "kimi_k25"


def missing_of(tables: Tables) -> Missing:
    missing = never_measured(costs_of(tables))
    assert missing is not None
    return missing


def test_kimi_the_run_that_was_never_made() -> None:
    # 2.1 over the middle of 63.6 / 40.8 = 1.559 and 1.65 x 63.6 / 62.9 = 1.668 is 1.30. By time: 1000 / 40.8 = 24.5 ms
    # and 1.65 x 1000 / 62.9 = 26.2 ms, middle 25.37, against 1000 / 90 = 11.11 ms: 2.1 x 11.11 / 25.37 = 0.92
    missing = missing_of(recorded(KIMI))
    assert next_run(missing) == (
        "The run to make next: custom-v3 at 4-5 draft tokens with CUDA graphs on, 0.9x to 1.3x expected, depending on "
        "whether the time of a cycle (0.9x) or its ratio to a plain step (1.3x) carries over from baseline A to B."
    )
    assert missing_sentence(missing) == (
        "Measure custom-v3 at 4-5 draft tokens with CUDA graphs on before collecting more training data: it was never "
        "measured (1 run at 82.3 tok/s does not state the draft tokens). It reached 2.1 at 5 draft tokens with graphs "
        "off, and break-even at 4 was 1.56-1.67, so about 1.3x is expected if that ratio carries over from baseline "
        "A to baseline B, and 0.9x if a cycle still takes 24.5-26.2 ms where a plain step takes 11.1 ms."
    )


def test_a_slower_baseline_promises_more_and_a_faster_one_less() -> None:
    # 1.0 x 75 / 40.8 = 1.838 and 1.65 x 75 / 62.9 = 1.967: 2.1 / 1.903 = 1.10
    faster = missing_of(with_runs(recorded(KIMI), {"base-a-c1": exactly("output_tok_per_s", 75.0)}))
    assert "break-even at 4 was 1.84-1.97, so about 1.1x is expected" in missing_sentence(faster)


def test_another_accept_length_changes_the_promise() -> None:
    longer = missing_of(with_runs(recorded(KIMI), {"custom-v3-n5-nograph": exactly("accept_length", 2.6)}))
    assert "It reached 2.6 at 5 draft tokens" in missing_sentence(longer)
    # 2.6 x 11.11 / 25.37 = 1.14 and 2.6 / 1.614 = 1.61
    assert ", 1.1x to 1.6x expected, depending on " in next_run(longer)


def test_without_the_time_of_a_plain_step_the_condition_stays() -> None:
    missing = replace(missing_of(recorded(KIMI)), plain_ms=None)
    assert next_run(missing).endswith("about 1.3x expected if break-even carries over from baseline A to B.")
    assert missing_sentence(missing).endswith("expected if that ratio carries over from baseline A to baseline B.")


def test_baselines_of_one_speed_promise_one_figure() -> None:
    # 63.6 tok/s is 15.72 ms: 2.1 x 15.72 / 25.37 = 1.30, as by the ratio.
    alike = missing_of(with_runs(recorded(KIMI), {"base-b-c1": exactly("output_tok_per_s", 63.6)}))
    assert next_run(alike).endswith("with CUDA graphs on, about 1.3x expected.")


@pytest.mark.parametrize(
    "changes",
    [
        # Below the break-even of 1.67 nothing is promised.
        {"custom-v3-n5-nograph": exactly("accept_length", 1.6)},
        # With graphs on it is that run.
        {"custom-v3-n5-nograph": {"cuda_graph": True}},
        # The run that does not state its draft tokens is that run.
        {"custom-v3-graph-later": {"num_draft_tokens": 4}},
        # Without the two runs at 4 draft tokens nobody knows what breaks even there.
        {
            "custom-v1-n4-c1": exactly("output_tok_per_s", None),
            "aq-medai-k2-n4-against-a": exactly("output_tok_per_s", None),
        },
    ],
)
def test_it_vanishes_where_the_data_do_not_support_it(changes: dict[str, dict[str, object]]) -> None:
    assert never_measured(costs_of(with_runs(recorded(KIMI), changes))) is None


def test_one_group_of_baselines_needs_no_condition() -> None:
    rows = [
        {"drafter": "a", "num_draft_tokens": 4, "break_even": 1.6, "accept_length": 1.2},
        {"drafter": "b", "num_draft_tokens": 16, "break_even": 2.5, "accept_length": 2.0, "cuda_graph": False},
    ]
    missing = never_measured(cost_rows(*rows))
    assert missing is not None
    assert missing_sentence(missing) == (
        "Measure b at 4 draft tokens with CUDA graphs on before collecting more training data: it was never measured. "
        "It reached 2.0 at 16 draft tokens with graphs off, and break-even at 4 was 1.60, so about 1.2x is expected."
    )


def test_other_loads_and_campaigns_promise_nothing() -> None:
    shape = {"drafter": "a", "num_draft_tokens": 4, "break_even": 1.6, "accept_length": 1.2}
    own = {"drafter": "b", "num_draft_tokens": 16, "break_even": 2.5, "accept_length": 2.0}
    assert never_measured(cost_rows(shape, own)) is not None
    for apart in ({"campaign": "other"}, {"max_concurrency": 8}):
        assert never_measured(cost_rows({**shape, **apart}, own)) is None


def test_a_break_even_known_by_simulation_promises_and_says_so() -> None:
    shape = {"drafter": "b", "num_draft_tokens": 4, "break_even": 1.6, "accept_length": 3.0, "origin": "simulated"}
    own = {"drafter": "b", "num_draft_tokens": 16, "break_even": 2.5, "accept_length": 2.0, "speedup": 0.8}
    missing = never_measured(cost_rows(shape, own))
    assert missing is not None
    # The drafter's own 2.0, never the simulated 3.0: 2.0 / 1.6 = 1.25
    assert (missing.accept_length, missing.gain, missing.by_simulation) == (2.0, 1.25, True)
    assert "break-even at 4 was 1.60 by runs with simulated acceptance, so about 1.2x" in missing_sentence(missing)


def test_a_run_that_promises_no_more_than_was_reached_is_not_asked_for() -> None:
    shape = {"drafter": "b", "num_draft_tokens": 4, "break_even": 1.6, "accept_length": 3.0, "origin": "simulated"}
    own = {"drafter": "b", "num_draft_tokens": 16, "break_even": 1.5, "accept_length": 2.0, "speedup": 1.33}
    assert never_measured(cost_rows(shape, own)) is None


def test_first_trial_and_empty_tables_have_no_unmade_run() -> None:
    assert never_measured(costs_of(recorded("h200_first_trial"))) is None
    assert never_measured(cost_rows()) is None


@pytest.mark.parametrize(("shape_steps", "own_steps", "promises"), [(2, 3, False), (3, 3, True), (None, 3, True)])
def test_an_accept_length_is_not_carried_to_fewer_steps(
    shape_steps: int | None, own_steps: int, promises: bool
) -> None:
    shape = {"drafter": "a", "num_draft_tokens": 4, "num_steps": shape_steps, "break_even": 1.6, "accept_length": 1.2}
    own = {"drafter": "b", "num_draft_tokens": 16, "num_steps": own_steps, "break_even": 2.5, "accept_length": 2.0}
    assert (never_measured(cost_rows(shape, own)) is not None) is promises


def test_on_a_cpu_no_graphs_are_spoken_of() -> None:
    shape = {"drafter": "a", "num_draft_tokens": 4, "break_even": 1.6, "accept_length": 1.2, "device": "cpu"}
    own = {"drafter": "b", "num_draft_tokens": 16, "break_even": 2.5, "accept_length": 2.0, "device": "cpu"}
    missing = never_measured(cost_rows({**shape, "cuda_graph": None}, {**own, "cuda_graph": None}))
    assert missing is not None
    assert "graphs" not in next_run(missing) + missing_sentence(missing)
