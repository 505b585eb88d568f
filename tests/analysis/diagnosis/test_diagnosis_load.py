from __future__ import annotations

import pytest
from diagnosis_logs import decode, diagnosed, only, plain, rules, said, server_args, speculative_args, started

from workbench.analysis.diagnosis import Certainty

OFF = decode(accept=2.08, rate=0.41, graph=False)


def test_graphs_off_in_every_line_is_certain_and_leads() -> None:
    diagnosis = diagnosed(*started(speculative_args(disable_cuda_graph=True)), OFF, OFF)

    finding = only(diagnosis, "graph_off")
    assert finding.certainty is Certainty.CERTAIN
    assert finding.evidence == (
        "cuda graph: False in 2 of 2 decode lines (first: line 6)",
        "line 1: server_args: disable_cuda_graph=True",
    )
    assert finding.next_action.startswith("remove --disable-cuda-graph")
    assert diagnosis.verdict == (
        "CUDA graphs are off in every decode line (2): remove --disable-cuda-graph before judging the drafter (accept "
        "length 2.08)."
    )


def test_batches_above_the_captured_sizes_name_the_size() -> None:
    lines = [decode(16, accept=2.4, rate=0.47)] * 3 + [decode(40, accept=2.4, rate=0.47, graph=False)] * 3
    finding = only(diagnosed(*started(speculative_args(cuda_graph_max_bs=16)), *lines), "graph_off")

    assert finding.title == "Batches above 16 run without CUDA graphs"
    assert finding.certainty is Certainty.CERTAIN
    assert finding.next_action.startswith("restart with --cuda-graph-max-bs 40")


def test_a_limit_that_is_not_stated_is_likely_where_small_batches_have_graphs() -> None:
    lines = [decode(8, accept=2.4, rate=0.47)] * 3 + [decode(24, accept=2.4, rate=0.47, graph=False)] * 3

    assert only(diagnosed(*lines), "graph_off").certainty is Certainty.LIKELY


def test_a_passing_line_without_a_graph_is_no_finding() -> None:
    lines = [decode(accept=2.4, rate=0.47)] * 30 + [OFF]

    assert "graph_off" not in rules(diagnosed(*started(), *lines))


def test_a_cpu_server_has_no_graphs_to_miss() -> None:
    assert "graph_off" not in rules(diagnosed(*plain(server_args(device="cpu")), decode(graph=False)))


RESET = said("Max running requests is reset to 48 for speculative decoding. You can override this by setting it.")
QUEUED = [decode(48, accept=2.4, rate=0.47, queue=32)] * 3


def test_the_cap_of_speculation_is_certain_from_its_line() -> None:
    diagnosis = diagnosed(RESET, *started(limit=48), *QUEUED, baseline=(*plain(limit=2048), decode(80, speed=2000)))

    finding = only(diagnosis, "capped_by_speculation")
    assert finding.certainty is Certainty.CERTAIN
    assert finding.evidence[0] == "line 7: 48 running, 32 queued"
    assert "baseline: max_running_requests 2048" in finding.evidence
    assert "--max-running-requests 80" in finding.next_action


def test_the_cap_is_likely_where_only_the_number_shows() -> None:
    assert only(diagnosed(*QUEUED), "capped_by_speculation").certainty is Certainty.LIKELY


def test_a_limit_that_was_asked_for_is_only_a_note() -> None:
    lines = [decode(32, accept=2.4, rate=0.47, queue=5)] * 3
    finding = only(diagnosed(*started(limit=32), *lines), "limit_reached")

    assert not finding.is_fault


def test_a_plain_server_with_48_running_is_not_capped_by_speculation() -> None:
    assert "capped_by_speculation" not in rules(diagnosed(*plain(limit=48), *[decode(48, queue=3)] * 3))


def test_waiting_for_the_cache_is_told_from_waiting_at_a_limit() -> None:
    lines = [decode(20, accept=2.4, rate=0.47, queue=5, usage=0.97)] * 3

    assert "cache_full" in rules(diagnosed(*started(), *lines))


def test_a_passing_queue_is_no_finding() -> None:
    lines = [decode(32, accept=2.4, rate=0.47, queue=9)] + [decode(32, accept=2.4, rate=0.47)] * 20

    assert not {"capped_by_speculation", "limit_reached", "cache_full"} & set(
        rules(diagnosed(*started(limit=32), *lines))
    )


def test_a_cap_nobody_met_is_a_note() -> None:
    found = rules(diagnosed(RESET, *started(limit=48), decode(accept=2.4, rate=0.47)))

    assert "speculative_cap_unused" in found
    assert "capped_by_speculation" not in found


def test_retractions_are_counted() -> None:
    line = said("KV cache pool is full. Retract requests. #retracted_reqs: 2, #new_token_ratio: 0.60 -> 0.75")
    diagnosis = diagnosed(*started(), line, decode(accept=2.4, rate=0.47), line)

    assert "2 times" in only(diagnosis, "retractions").title
    assert diagnosis.certain_fault


@pytest.mark.parametrize(("second", "found"), [(1.5, True), (2.3, False)])
def test_ranks_that_accept_differently_are_suspected(second: float, found: bool) -> None:
    lines = [decode(accept=2.4, rate=0.47, tag=" DP0 TP0"), decode(accept=second, rate=0.2, tag=" DP1 TP1")] * 5
    diagnosis = diagnosed(*started(), *lines)

    assert ("unequal_ranks" in rules(diagnosis)) is found
    if found:
        assert only(diagnosis, "unequal_ranks").evidence == ("DP0: 2.40 in 5 lines and DP1: 1.50 in 5 lines",)
