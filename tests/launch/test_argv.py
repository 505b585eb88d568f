"""Command lines: written out by hand from SGLang's flags, and read back by an argparse of the same flags."""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.errors import SpecError
from workbench.launch.argv import running_limit, server_argv, server_env
from workbench.reference.arguments import parse_arguments
from workbench.spec import Drafter, ServerConfig, SpecDecodeConfig
from workbench.sweep import CampaignSpec, Start, expand


def campaign(**changes: Any) -> CampaignSpec:
    content: dict[str, Any] = {
        "name": "c",
        "title": "C",
        "engine": "sglang",
        "sglang_version": "0.5.14",
        "target": {"name": "T", "model_path": "/models/t"},
        "drafters": [{"name": "d", "model_path": "/models/d"}],
        "workload": {"prompt_set": "p", "num_prompts": 8, "max_new_tokens": 64},
        "max_concurrency": [1, 8],
        "server": {"tp_size": 4, "mem_fraction_static": 0.8, "attention_backend": "triton", "context_length": 4096},
        "sweep": [{"speculative_num_steps": 3}],
    }
    return CampaignSpec.model_validate({**content, **changes})


def starts(spec: CampaignSpec) -> tuple[Start, Start]:
    """The baseline and the first candidate."""
    plan = expand(spec)
    return plan.starts[0], plan.starts[1]


COMMON = [
    *["--model-path", "/models/t", "--host", "127.0.0.1", "--port", "21000", "--tp-size", "4"],
    *["--context-length", "4096", "--mem-fraction-static", "0.8", "--max-running-requests", "8"],
    *["--attention-backend", "triton", "--cuda-graph-max-bs-decode", "8", "--decode-log-interval", "10"],
    "--enable-metrics",
]
SPECULATIVE = [
    *["--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "/models/d"],
    *["--speculative-num-steps", "3", "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "4"],
]


def test_baseline_and_candidate_differ_in_speculation_alone() -> None:
    spec = campaign()
    baseline, candidate = starts(spec)
    head = [sys.executable, "-m", "sglang.launch_server"]
    assert server_argv(baseline, spec, port=21000) == [*head, *COMMON]
    assert server_argv(candidate, spec, port=21000) == [*head, *COMMON, *SPECULATIVE]


def test_flags_are_spelled_by_version() -> None:
    spec = campaign(server={"cuda_graph_max_bs_decode": 32, "flags": {"disable_prefill_cuda_graph": True}})
    baseline = starts(spec)[0]
    old = server_argv(baseline, spec, port=1, version="0.5.12")
    new = server_argv(baseline, spec, port=1, version="0.5.20")
    assert old[old.index("--cuda-graph-max-bs") + 1] == "32"
    assert new[new.index("--cuda-graph-max-bs-decode") + 1] == "32"
    assert "--disable-piecewise-cuda-graph" in old and "--disable-prefill-cuda-graph" in new
    assert "--cuda-graph-max-bs" not in new


def test_no_graphs_and_several_replicas() -> None:
    spec = campaign(server={"cuda_graph": False, "dp_size": 2})
    argv = server_argv(starts(spec)[0], spec, port=1)
    assert "--disable-cuda-graph" in argv and "--cuda-graph-max-bs-decode" not in argv
    assert argv[argv.index("--dp-size") + 1] == "2"


def test_an_algorithm_is_always_in_upper_case() -> None:
    spec = campaign(sweep=[{"speculative_algorithm": "eagle3", "speculative_num_steps": 3}])
    argv = server_argv(starts(spec)[1], spec, port=1)
    assert argv[argv.index("--speculative-algorithm") + 1] == "EAGLE3"


def test_the_limit_of_running_requests_covers_the_whole_campaign() -> None:
    spec = campaign(sweep=[{"speculative_num_steps": 3}, {"speculative_num_steps": 5, "max_concurrency": 128}])
    assert {running_limit(start, spec) for start in expand(spec).starts} == {128}
    stated = campaign(server={"max_running_requests": 64})
    assert running_limit(starts(stated)[0], stated) == 64


def test_flags_of_the_campaign_replace_what_is_made_here_and_lists_are_spread() -> None:
    flags = {
        "cuda-graph-max-bs": 16,
        "cuda_graph_bs": "1, 2 4",
        "json-model-override-args": '{"a": 1}',
        "enable_metrics": False,
        "disable_overlap_schedule": True,
        "dist_timeout": None,
    }
    spec = campaign(server={"flags": flags})
    argv = server_argv(starts(spec)[0], spec, port=1)
    assert argv.count("--cuda-graph-max-bs-decode") == 1
    assert argv[argv.index("--cuda-graph-max-bs-decode") + 1] == "16"
    at = argv.index("--cuda-graph-bs-decode")
    assert argv[at : at + 4] == ["--cuda-graph-bs-decode", "1", "2", "4"]
    assert argv[argv.index("--json-model-override-args") + 1] == '{"a": 1}'
    assert "--disable-overlap-schedule" in argv
    assert not {"--enable-metrics", "--dist-timeout"} & set(argv)


@pytest.mark.parametrize("name", ["port", "--host"])
def test_a_port_cannot_be_chosen_by_a_campaign(name: str) -> None:
    spec = campaign(server={"flags": {name: 30000}})
    with pytest.raises(SpecError, match="chosen at the start"):
        server_argv(starts(spec)[0], spec, port=1)


def test_what_has_no_path_cannot_be_served() -> None:
    spec = campaign(target={"name": "T"})
    with pytest.raises(SpecError, match="target T: has no model_path"):
        server_argv(starts(spec)[0], spec, port=1)
    spec = campaign(drafters=[{"name": "d"}])
    with pytest.raises(SpecError, match="drafter d: has no model_path"):
        server_argv(starts(spec)[1], spec, port=1)
    spec = campaign(drafters=[])
    with pytest.raises(SpecError, match="EAGLE3 without a drafter"):
        server_argv(starts(spec)[1], spec, port=1)


def test_an_algorithm_without_a_draft_model_needs_none() -> None:
    spec = campaign(drafters=[], sweep=[{"speculative_algorithm": "NGRAM", "speculative_num_steps": 3}])
    argv = server_argv(starts(spec)[1], spec, port=1)
    assert "--speculative-draft-model-path" not in argv


def test_the_embedded_engine_takes_the_same_flags() -> None:
    server = {"mem_fraction_static": 0.8, "attention_backend": "triton", "context_length": 4096, "cuda_graph": False}
    spec = campaign(engine="reference", sglang_version="0.5.12", server=server)
    argv = server_argv(starts(spec)[1], spec, port=21000, python="python")
    assert argv[:3] == ["python", "-m", "workbench.reference"]
    assert argv[-len(SPECULATIVE) :] == SPECULATIVE
    taken, _ = parse_arguments(argv[3:])
    assert (taken.port, taken.speculative_num_steps, taken.decode_log_interval) == (21000, 3, 10)
    # Modules in the project's folder are not run in the place of installed ones.
    assert server_argv(starts(spec)[1], spec, port=1)[:4] == [sys.executable, "-P", "-m", "workbench.reference"]
    with_graphs = campaign(engine="reference", sglang_version="0.5.12")
    assert "--cuda-graph-max-bs-decode" in server_argv(starts(with_graphs)[0], with_graphs, port=1)


# ---- launch prefixes ---------------------------------------------------------------------------------------------


def test_behind_docker_variables_stand_in_the_command_line() -> None:
    prefix = ("docker", "run", "--rm", "--init", "--network", "host", "--gpus", "all", "lmsysorg/sglang:v0.5.14")
    spec = campaign(launch_prefix=prefix, server={"env": {"NCCL_P2P_DISABLE": "1"}})
    argv = server_argv(starts(spec)[0], spec, port=1, gpus=(4, 5))
    assert tuple(argv[: len(prefix)]) == prefix
    assert argv[len(prefix) : len(prefix) + 6] == [
        *["env", "NCCL_P2P_DISABLE=1", "CUDA_VISIBLE_DEVICES=4,5", "python3", "-m", "sglang.launch_server"]
    ]


def test_behind_srun_this_python_is_used() -> None:
    spec = campaign(launch_prefix=("/usr/bin/srun", "-N1"))
    assert server_argv(starts(spec)[0], spec, port=1)[:4] == ["/usr/bin/srun", "-N1", sys.executable, "-m"]


def test_what_goes_through_ssh_survives_the_remote_shell() -> None:
    flags = {"json-model-override-args": '{"a": "$HOME; rm"}'}
    spec = campaign(launch_prefix=("ssh", "-tt", "node7"), server={"flags": flags, "env": {"X": "a b"}})
    argv = server_argv(starts(spec)[0], spec, port=1)
    assert argv[:3] == ["ssh", "-tt", "node7"]
    # ssh joins its arguments with blanks and a shell splits them again.
    remote = shlex.split(" ".join(argv[3:]))
    assert remote[:3] == ["env", "X=a b", "python3"]
    assert '{"a": "$HOME; rm"}' in remote


# ---- variables ---------------------------------------------------------------------------------------------------


def test_a_forced_accept_length_has_the_name_of_its_version() -> None:
    spec = campaign(
        sweep=[{"speculative_num_steps": 3, "simulated_accept_length": 2.5}], server={"env": {"NCCL_DEBUG": "INFO"}}
    )
    baseline, candidate = starts(spec)
    assert server_env(baseline) == {"NCCL_DEBUG": "INFO"}
    assert server_env(candidate) == {"NCCL_DEBUG": "INFO", "SGLANG_SIMULATE_ACC_LEN": "2.5"}
    assert server_env(candidate, version="0.5.2") == {"NCCL_DEBUG": "INFO", "SIMULATE_ACC_LEN": "2.5"}


# ---- there and back ----------------------------------------------------------------------------------------------

NUMBERS = st.integers(1, 64)
SERVERS = st.builds(
    ServerConfig,
    tp_size=st.sampled_from([1, 2, 4, 8]),
    dp_size=st.sampled_from([1, 2]),
    cuda_graph=st.sampled_from([True, False]),
    cuda_graph_max_bs_decode=NUMBERS,
    max_running_requests=NUMBERS,
    mem_fraction_static=st.floats(0.1, 0.95) | st.none(),
    attention_backend=st.sampled_from(["triton", "fa3", None]),
    context_length=NUMBERS | st.none(),
    decode_log_interval=NUMBERS,
    flags=st.dictionaries(
        st.sampled_from(["page_size", "random_seed", "sampling_backend"]),
        st.integers(0, 9) | st.text("ab {}\"'$", min_size=1),
    ),
)
DECODES = st.none() | st.builds(
    SpecDecodeConfig,
    speculative_algorithm=st.sampled_from(["EAGLE3", "EAGLE"]),
    speculative_num_steps=NUMBERS,
    speculative_eagle_topk=NUMBERS,
    speculative_num_draft_tokens=NUMBERS,
)


def read_back(argv: list[str]) -> tuple[ServerConfig, SpecDecodeConfig | None]:
    """A server's settings from its command line, as SGLang's argparse reads it."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("model-path", "host", "attention-backend", "speculative-algorithm", "speculative-draft-model-path"):
        parser.add_argument(f"--{name}")
    for name in ("port", "tp-size", "context-length", "max-running-requests", "decode-log-interval"):
        parser.add_argument(f"--{name}", type=int)
    for name in ("cuda-graph-max-bs", "cuda-graph-max-bs-decode", "dp-size"):
        parser.add_argument(f"--{name}", type=int)
    for name in ("num-steps", "eagle-topk", "num-draft-tokens"):
        parser.add_argument(f"--speculative-{name}", type=int)
    parser.add_argument("--mem-fraction-static", type=float)
    for name in ("disable-cuda-graph", "enable-metrics"):
        parser.add_argument(f"--{name}", action="store_true")
    for name in ("page-size", "random-seed", "sampling-backend"):
        parser.add_argument(f"--{name}")
    read = vars(parser.parse_args(argv))
    server = ServerConfig(
        tp_size=read["tp_size"],
        dp_size=read["dp_size"] or 1,
        cuda_graph=not read["disable_cuda_graph"],
        cuda_graph_max_bs_decode=read["cuda_graph_max_bs"] or read["cuda_graph_max_bs_decode"],
        flags={n: read[n] for n in ("page_size", "random_seed", "sampling_backend") if read[n] is not None},
        **{n: read[n] for n in ("max_running_requests", "mem_fraction_static", "attention_backend")},
        **{n: read[n] for n in ("context_length", "decode_log_interval")},
    )
    names = [name for name in SpecDecodeConfig.model_fields if name.startswith("speculative_")]
    decode = SpecDecodeConfig(**{n: read[n] for n in names}) if read["speculative_algorithm"] else None
    return server, decode


@settings(max_examples=50, deadline=None)
@given(server=SERVERS, decode=DECODES, version=st.sampled_from(["0.4.9", "0.5.13", "0.5.14", "0.5.23"]))
def test_settings_come_back_from_the_command_line(
    server: ServerConfig, decode: SpecDecodeConfig | None, version: str
) -> None:
    spec = campaign()
    start = Start("s", server, decode, Drafter(name="d", model_path="/d") if decode else None, ())
    argv = server_argv(start, spec, port=1, version=version)
    read, read_decode = read_back(argv[3:])
    expected = server.model_copy(
        update={
            "flags": {name: str(value) for name, value in server.flags.items()},
            "cuda_graph_max_bs_decode": server.cuda_graph_max_bs_decode if server.cuda_graph else None,
        }
    )
    assert read == expected
    assert read_decode == decode


def test_a_target_s_type_is_stated_and_its_quantisation_is_not() -> None:
    """``INT4`` describes a checkpoint; SGLang has no such method and reads its own name for it from config.json."""
    spec = campaign(target={"name": "T", "model_path": "/t", "dtype": "bfloat16", "quantization": "INT4"})
    argv = server_argv(starts(spec)[0], spec, port=1)
    assert argv[argv.index("--dtype") + 1] == "bfloat16"
    assert "--quantization" not in argv
