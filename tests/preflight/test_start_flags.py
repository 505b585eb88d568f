"""Expected flags are those of the server_args.py of the released wheels."""

from __future__ import annotations

from typing import Any

import pytest

from workbench.preflight import Severity


def flags(campaigns, version: str | None = "0.5.14", **given: Any):
    return campaigns(sglang_version=version, server={"flags": {k.replace("_", "-"): v for k, v in given.items()}})


@pytest.mark.parametrize("name", ["trust_remote_code", "sampling_backend", "disable_prefill_cuda_graph", "page_size"])
def test_known_flags_are_silent(campaigns, name: str) -> None:
    assert not [rule for rule in flags(campaigns, **{name: "x"}) if rule.startswith("flag")]


def test_a_misspelt_flag_brings_the_nearest(campaigns) -> None:
    found = flags(campaigns, samplingbackend="pytorch")["flag-unknown"]
    assert found.severity is Severity.ERROR
    assert found.what == "SGLang 0.5.14 has no --samplingbackend"
    assert (found.where, found.next_step) == ("server.flags.samplingbackend", "did you mean sampling-backend?")
    assert "launch_server -h" in flags(campaigns, zzzz=1)["flag-unknown"].next_step


def test_a_flag_that_is_not_sent_is_not_checked(campaigns) -> None:
    assert "flag-unknown" not in flags(campaigns, zzzz=None, yyyy=False)


def test_flags_of_other_versions(campaigns) -> None:
    gone = flags(campaigns, enable_double_sparsity=True)["flag-gone"]
    assert gone.severity is Severity.ERROR and "0.4.6.post5 to 0.5.9" in gone.what
    assert "flag-gone" not in flags(campaigns, "0.5.9", enable_double_sparsity=True)
    # 0.5.7 was not read: the flag is in one of its neighbours and so not refused.
    assert "flag-gone" not in flags(campaigns, "0.5.7", speculative_draft_model_quantization="unquant")
    assert (
        "came with 0.5.7"
        in flags(campaigns, "0.5.6", speculative_draft_model_quantization="unquant")["flag-version"].what
    )


def test_outside_the_releases_that_were_read_nothing_is_certain(campaigns) -> None:
    for version in (None, "0.4.6", "0.6.1", "main"):
        assert flags(campaigns, version, zzzz=1)["flag-unknown"].severity is Severity.WARNING, version


def test_renamed_and_short_names(campaigns) -> None:
    renamed = flags(campaigns, disable_piecewise_cuda_graph=True)["flag-renamed"]
    assert renamed.severity is Severity.NOTE and renamed.next_step == "write disable-prefill-cuda-graph"
    assert "flag-renamed" not in flags(campaigns, "0.5.12", disable_piecewise_cuda_graph=True)
    short = flags(campaigns, trust_remote=True)["flag-short"]
    assert short.severity is Severity.WARNING and short.next_step == "write trust-remote-code"


def test_the_embedded_engine_knows_its_own_flags(campaigns) -> None:
    server = {"flags": {"sampling-backend": "pytorch", "mamba-ssm-dtype": "x", "random-sed": 1}}
    found = campaigns(engine="reference", server=server)["flag-unknown"]
    assert found.severity is Severity.ERROR
    # Of two faults the last one stands under the rule.
    assert found.next_step == "did you mean random-seed?"
    assert "flag-unknown" not in campaigns(engine="reference", server={"flags": {"random-seed": 1}})


@pytest.mark.parametrize(
    ("name", "value", "severity", "place"),
    [
        ("tp-size", 4, Severity.ERROR, "server.tp_size"),
        ("tensor-parallel-size", 4, Severity.ERROR, "server.tp_size"),
        ("speculative-num-steps", 5, Severity.ERROR, "sweep: speculative_num_steps"),
        ("disable-cuda-graph", True, Severity.ERROR, "server.cuda_graph"),
        ("cuda-graph-max-bs", 16, Severity.WARNING, "server.cuda_graph_max_bs_decode"),
        ("attention_backend", "triton", Severity.WARNING, "server.attention_backend"),
        ("context_length", 2048, Severity.ERROR, "server.context_length"),  # and the field says 4096
        ("context_length", 4096, Severity.WARNING, "server.context_length"),
    ],
)
def test_flags_for_what_the_campaign_has_fields_for(
    campaigns, name: str, value: object, severity: Severity, place: str
) -> None:
    found = campaigns(server={"flags": {name: value}})["flag-owned"]
    assert (found.severity, found.next_step) == (severity, f"state it at {place}")


@pytest.mark.parametrize("name", ["host", "--host", "port"])
@pytest.mark.parametrize("engine", ["sglang", "reference"])
def test_where_a_server_listens_is_not_for_the_campaign_to_say(campaigns, name: str, engine: str) -> None:
    found = campaigns(engine=engine, server={"flags": {name: 30000}})["flag-owned"]
    assert found.severity is Severity.ERROR
    assert (found.what, found.next_step) == (f"{name} is chosen at the start of a server", "leave it out")
    assert found.where == f"server.flags.{name}"


def test_two_names_for_one_setting(campaigns) -> None:
    found = campaigns(server={"flags": {"page-size": 1, "page_size": 16}})["flag-twice"]
    assert found.severity is Severity.ERROR
    assert "flag-twice" not in campaigns(server={"flags": {"page-size": 1, "random-seed": 1}})


@pytest.mark.parametrize(("value", "fires"), [(0.5, True), (1.0, False)])
def test_lossy_acceptance(campaigns, value: float, fires: bool) -> None:
    assert ("lossy" in flags(campaigns, speculative_accept_threshold_single=value)) is fires


def test_variables_that_nobody_reads(campaigns) -> None:
    found = campaigns(server={"env": {"NCCL_P2P_DISABEL": "1"}})["variable"]
    assert (found.severity, found.next_step) == (Severity.WARNING, "did you mean NCCL_P2P_DISABLE?")
    assert "variable" not in campaigns(server={"env": {"NCCL_P2P_DISABLE": "1", "MY_OWN": "1"}})


def test_forced_acceptance_is_forced_by_its_own_setting(campaigns) -> None:
    by_hand = campaigns(server={"env": {"SGLANG_SIMULATE_ACC_LEN": "2"}})
    assert by_hand["forced-by-hand"].severity is Severity.ERROR
    forced = campaigns(sweep=[{"speculative_num_steps": 3, "simulated_accept_length": 4.0}])
    assert not {"forced-by-hand", "forced-length"} & set(forced)


@pytest.mark.parametrize(
    ("length", "version", "severity"),
    [(4.5, "0.5.14", Severity.WARNING), (2.0, "0.4.5", Severity.ERROR), (2.0, "0.4.6", None)],
)
def test_accept_lengths_that_cannot_be_forced(
    campaigns, length: float, version: str, severity: Severity | None
) -> None:
    sweep = [{"speculative_num_steps": 3, "speculative_num_draft_tokens": 4, "simulated_accept_length": length}]
    found = campaigns(sglang_version=version, sweep=sweep).get("forced-length")
    assert (found and found.severity) == severity
