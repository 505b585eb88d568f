"""Whatever a campaign asks for, its checks answer in findings and never in exceptions."""

from __future__ import annotations

import string

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workbench.preflight import Machine, check_start
from workbench.spec import RunSpec, ServerConfig, SpecDecodeConfig, Target, Workload
from workbench.sweep import Start

ODD_TEXT = st.text(string.printable, max_size=12)
NUMBERS = st.integers(1, 200) | st.none()
SCALARS = st.none() | st.booleans() | st.integers(-5, 10**9) | st.floats(0, 2) | ODD_TEXT
FLAGS = st.sampled_from(
    ["page-size", "tp-size", "cuda-graph-bs", "cuda_graph_max_bs", "max-running-requests", "mem-fraction-static"]
)
VARIABLES = st.sampled_from(["NCCL_ALGO", "SIMULATE_ACC_LEN", "SGLANG_ENABLE_SPEC_V2", "SGL_X"])
SERVERS = st.builds(
    ServerConfig,
    tp_size=st.integers(1, 16),
    dp_size=st.integers(1, 4),
    cuda_graph=st.none() | st.booleans(),
    cuda_graph_max_bs_decode=NUMBERS,
    max_running_requests=NUMBERS,
    mem_fraction_static=st.none() | st.floats(0, 1, exclude_min=True),
    attention_backend=st.none() | ODD_TEXT | st.just("triton"),
    context_length=NUMBERS,
    flags=st.dictionaries(FLAGS | ODD_TEXT, SCALARS, max_size=4),
    env=st.dictionaries(VARIABLES | ODD_TEXT, ODD_TEXT, max_size=3),
)
DECODES = st.none() | st.builds(
    SpecDecodeConfig,
    speculative_algorithm=st.none() | ODD_TEXT | st.sampled_from(["EAGLE3", "EAGLE", "NGRAM"]),
    speculative_num_steps=NUMBERS,
    speculative_eagle_topk=NUMBERS,
    speculative_num_draft_tokens=NUMBERS,
    simulated_accept_length=st.none() | st.floats(1, 9),
)
VERSIONS = st.none() | ODD_TEXT | st.sampled_from(["0.3.6", "0.4.4", "0.4.9", "0.5.9", "0.5.14", "0.5.23", "0.9"])
MACHINES = st.builds(
    Machine, st.none() | st.lists(st.integers(0, 1 << 40), max_size=9).map(tuple), st.none() | st.just("0.5.14")
)


@pytest.mark.parametrize("engine", ["sglang", "reference"])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(server=SERVERS, decode=DECODES, version=VERSIONS, machine=MACHINES, concurrency=st.integers(1, 300))
def test_no_settings_make_a_check_raise(
    campaigns, engine: str, server: ServerConfig, decode: SpecDecodeConfig | None, version, machine, concurrency: int
) -> None:
    spec = campaigns.spec(engine=engine).model_copy(update={"sglang_version": version})
    run = RunSpec(
        campaign="c",
        run_id="r",
        server_id="s",
        target=Target(name="T"),
        workload=Workload(prompt_set="mt_bench", max_concurrency=concurrency),
    )
    start = Start("s", server, decode, spec.drafters[0] if decode else None, (run,))
    results = check_start(start, spec, machine=machine)
    assert all(result.what and result.where and result.next_step for result in results)
    assert len(set(results)) == len(results)
