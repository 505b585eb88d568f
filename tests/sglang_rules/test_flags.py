"""Expected spellings are those of the server_args.py of the released wheels."""

from __future__ import annotations

import pytest

from workbench.sglang_rules.flags import (
    FLAG_SINCE,
    RENAMED,
    flag_key,
    flag_name,
    flag_problem,
    simulated_accept_variable,
)
from workbench.sglang_rules.versions import FIRST_VERSION, LATEST_VERSION, version_key


@pytest.mark.parametrize(
    ("name", "version", "spelled"),
    [
        ("cuda_graph_max_bs_decode", "0.5.13", "--cuda-graph-max-bs"),
        ("cuda_graph_max_bs_decode", "0.5.14", "--cuda-graph-max-bs-decode"),
        ("--cuda-graph-max-bs", "0.5.20", "--cuda-graph-max-bs-decode"),
        ("cuda-graph-max-bs", "0.4.9", "--cuda-graph-max-bs"),
        ("cuda_graph_max_bs", None, "--cuda-graph-max-bs-decode"),
        ("cuda_graph_bs", "0.5.23", "--cuda-graph-bs-decode"),
        ("disable_prefill_cuda_graph", "0.5.13", "--disable-piecewise-cuda-graph"),
        ("stream_output", "0.5.10", "--incremental-streaming-output"),
        ("incremental_streaming_output", "0.5.9", "--stream-output"),
        ("tp_size", "0.3.6", "--tp-size"),
        ("some-flag_of-theirs", "0.5.14", "--some-flag-of-theirs"),
    ],
)
def test_a_flag_is_spelled_as_the_version_wants_it(name: str, version: str | None, spelled: str) -> None:
    assert flag_name(name, version) == spelled


@pytest.mark.parametrize(
    ("name", "version", "problem"),
    [
        ("--cuda-graph-max-bs", "0.5.19", None),
        (
            "--cuda-graph-max-bs",
            "0.5.20",
            "--cuda-graph-max-bs ends the server with exit code 2 since 0.5.20: use --cuda-graph-max-bs-decode",
        ),
        (
            "--cuda-graph-max-bs-decode",
            "0.5.13",
            "--cuda-graph-max-bs-decode came with 0.5.14: before that it is --cuda-graph-max-bs",
        ),
        ("speculative_draft_model_quantization", "0.5.6", "--speculative-draft-model-quantization came with 0.5.7"),
        ("speculative_draft_model_quantization", "0.5.7", None),
        ("speculative_algorithm", "0.3.6", "--speculative-algorithm came with 0.4.1"),
        ("tp_size", "0.3.6", None),
        ("no_such_flag", "0.5.14", None),
        ("speculative_adaptive", None, None),
    ],
)
def test_what_a_version_refuses_is_named(name: str, version: str | None, problem: str | None) -> None:
    assert flag_problem(name, version) == problem


def test_what_flag_name_spells_is_never_refused_for_its_spelling() -> None:
    versions = ("0.4.9", "0.5.9", "0.5.10", "0.5.13", "0.5.14", "0.5.19", "0.5.20", LATEST_VERSION)
    for rename in RENAMED:
        for version in versions:
            problem = flag_problem(flag_name(rename.new, version), version) or ""
            assert "use --" not in problem and "before that" not in problem


def test_versions_of_the_tables_are_versions_in_range() -> None:
    stated = [*FLAG_SINCE.values(), *(version for rename in RENAMED for version in (rename.since, rename.gone))]
    first, last = version_key(FIRST_VERSION), version_key(LATEST_VERSION)
    assert all(first < version_key(version) <= last for version in stated)
    assert all(version_key(rename.since) < version_key(rename.gone) for rename in RENAMED)
    assert all(flag_key(name) == name for name in FLAG_SINCE)


def test_the_variable_for_a_forced_accept_length_was_renamed() -> None:
    assert simulated_accept_variable("0.5.2") == "SIMULATE_ACC_LEN"
    assert simulated_accept_variable("0.5.3") == "SGLANG_SIMULATE_ACC_LEN"
    assert simulated_accept_variable() == "SGLANG_SIMULATE_ACC_LEN"
