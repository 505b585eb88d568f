"""What a start asks of a node, by hand."""

from __future__ import annotations

import pytest

from workbench.cluster.sizes import Ask, Node, ask_for, left_out
from workbench.spec import ServerConfig
from workbench.sweep import Start


def node(number: int, cpus: int, gpus: int = 0) -> Node:
    return Node(f"id{number}", number, f"host{number}", cpus, gpus)


def start(*, tp: int = 1, dp: int = 1, alone: bool = False) -> Start:
    return Start("s", ServerConfig(tp_size=tp, dp_size=dp), None, None, (), alone)


def test_one_place_a_node_takes_the_whole_of_it() -> None:
    assert ask_for(start(), [node(1, 8), node(2, 8)], 1, "reference") == Ask(cpus=8, gpus=0, room=2)


@pytest.mark.parametrize(
    ("cpus", "places", "each", "fit"),
    [(64, 8, 8, 8), (8, 2, 3, 2), (7, 2, 3, 2), (5, 3, 2, 2), (4, 4, 1, 4), (2, 4, 1, 2), (9, 2, 4, 2)],
)
def test_no_more_places_than_asked_for_fit_on_a_node(cpus: int, places: int, each: int, fit: int) -> None:
    assert ask_for(start(), [node(1, cpus)], places, "reference") == Ask(each, 0, fit)
    assert cpus // each == fit <= places


def test_a_baseline_shares_its_node_with_nobody() -> None:
    assert ask_for(start(alone=True), [node(1, 8), node(2, 8)], 4, "reference") == Ask(8, 0, 2)


def test_gpus_are_those_of_the_whole_server_and_limit_the_room() -> None:
    nodes = [node(1, 64, 0), node(2, 32, 8), node(3, 32, 8)]
    # The node without GPUs does not count, so neither do its CPUs.
    assert ask_for(start(tp=2, dp=2), nodes, 1, "sglang") == Ask(32, 4, 2)
    # Eight places of 3 CPUs, of which two GPUs each leave room for four.
    assert ask_for(start(tp=2), nodes, 8, "sglang") == Ask(4, 2, 8)
    assert ask_for(start(tp=16), nodes, 1, "sglang") is None
    # The embedded engine asks for none, whatever it is told of tensor parallelism.
    assert ask_for(start(tp=16), nodes, 1, "reference") == Ask(64, 0, 1)


def test_nodes_of_another_size_are_not_comparable_and_that_is_said() -> None:
    nodes = [node(1, 2), node(2, 64), node(3, 64), node(4, 0)]
    assert ask_for(start(), nodes, 1, "reference") == Ask(64, 0, 2)
    assert left_out(nodes).startswith("nodes with fewer than 64 CPUs") and left_out(nodes).endswith(": 1")
    assert left_out(nodes[1:]) == ""
    assert ask_for(start(), [], 1, "reference") is None
    assert ask_for(start(), [node(1, 0)], 1, "reference") is None


def test_in_words() -> None:
    assert str(node(3, 1, 8)) == "node 3: host3, 1 CPU, 8 GPUs"
    assert str(Ask(8, 1, 2)) == "8 free CPUs and 1 free GPU"
    assert str(Ask(1, 0, 2)) == "1 free CPU"
