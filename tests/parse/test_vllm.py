from __future__ import annotations

import pytest

from workbench.parse.records import LogKind
from workbench.parse.server_log import parse_log

PREFIX = "(APIServer pid=1) INFO 05-18 11:19:54 [metrics.py:101] "

# Message as each generation of vLLM prints it, and what it says.
SPEC = {
    "V0": (
        "Speculative metrics: Draft acceptance rate: 0.653, System efficiency: 0.500, Number of speculative tokens: 4, "
        "Number of accepted tokens: 10, Number of draft tokens: 20, Number of emitted tokens: 12.",
        (None, 0.653, 10, 20, ()),
        {"System efficiency": "0.500", "Number of speculative tokens": "4", "Number of emitted tokens": "12"},
    ),
    "V0, older": (
        "Speculative metrics: Draft acceptance rate: 0.653, System efficiency: 0.500, Number of speculative tokens: 4, "
        "Number of accepted tokens: 10, Number of draft tokens tokens: 20, Number of emitted tokens tokens: 12.",
        (None, 0.653, 10, 20, ()),
        {"System efficiency": "0.500", "Number of speculative tokens": "4", "Number of emitted tokens tokens": "12"},
    ),
    "V1, 0.8.2": (
        "Speculative metrics: Draft acceptance rate: 1.000, Number of accepted tokens: 7, Number of draft tokens: 7, ",
        (None, 1.0, 7, 7, ()),
        {},
    ),
    "V1, second": (
        "SpecDecoding metrics: Draft acceptance rate: 43.7%, Accepted: 100 tokens, Drafted: 229 tokens",
        (None, 0.437, 100, 229, ()),
        {},
    ),
    "V1, third": (
        "SpecDecoding metrics: Draft acceptance rate: 43.7%, Mean acceptance length: 2.31, Accepted: 100 tokens, "
        "Drafted: 229 tokens, Per-position acceptance rate: 0.800, 0.500, 0.010",
        (2.31, 0.437, 100, 229, (0.8, 0.5, 0.01)),
        {},
    ),
    "late 2025": (
        "SpecDecoding metrics: Mean acceptance length: 2.31, Accepted throughput: 10.00 tokens/s, "
        "Drafted throughput: 20.00 tokens/s, Accepted: 100 tokens, Drafted: 229 tokens, "
        "Per-position acceptance rate: 0.800, 0.500, 0.010, Avg Draft acceptance rate: 43.7%",
        (2.31, 0.437, 100, 229, (0.8, 0.5, 0.01)),
        {"Accepted throughput": "10.00 tokens/s", "Drafted throughput": "20.00 tokens/s"},
    ),
    "2026-09": (
        "SpecDecoding metrics: Mean acceptance length: 2.31, Current speculative depth: 3, "
        "Accepted throughput: 10.00 tokens/s, Drafted throughput: 20.00 tokens/s, Accepted: 100 tokens, "
        "Drafted: 229 tokens, Per-position acceptance rate: 0.800, Avg Draft acceptance rate: 43.7%",
        (2.31, 0.437, 100, 229, (0.8,)),
        {
            "Current speculative depth": "3",
            "Accepted throughput": "10.00 tokens/s",
            "Drafted throughput": "20.00 tokens/s",
        },
    ),
}


@pytest.mark.parametrize("generation", SPEC)
def test_spec_line(generation: str) -> None:
    message, expected, extra = SPEC[generation]
    log = parse_log(PREFIX + message + "\n")
    [record] = log.vllm_spec
    assert (
        record.mean_acceptance_length,
        record.draft_acceptance_rate,
        record.accepted_tokens,
        record.drafted_tokens,
        record.per_position_rate,
    ) == expected
    assert dict(record.extra) == extra
    assert not record.truncated
    assert record.time is None  # its stamp has no year
    assert log.kind is LogKind.VLLM


def test_engine_line() -> None:
    [record] = parse_log(
        "(EngineCore_DP0 pid=7) INFO 05-18 11:19:54 [loggers.py:1] Engine 000: Avg prompt throughput: 1.5 tokens/s, "
        "Avg generation throughput: 90.2 tokens/s, Running: 3 reqs, Waiting: 1 reqs, GPU KV cache usage: 2.5%, "
        "Prefix cache hit rate: 0.0%\n"
    ).vllm_engine
    assert (record.prompt_tok_per_s, record.gen_tok_per_s) == (1.5, 90.2)
    assert (record.running_req, record.queue_req, record.kv_usage) == (3, 1, 0.025)
    assert not record.truncated


def test_engine_line_of_v0() -> None:
    [record] = parse_log(
        "INFO 10-16 19:05:47 metrics.py:349] Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: "
        "12.3 tokens/s, Running: 1 reqs, Swapped: 0 reqs, Pending: 2 reqs, GPU KV cache usage: 0.1%, "
        "CPU KV cache usage: 0.0%.\n"
    ).vllm_engine
    assert (record.gen_tok_per_s, record.running_req, record.queue_req, record.kv_usage) == (12.3, 1, 2, 0.001)


LATE = SPEC["late 2025"][0]


@pytest.mark.parametrize(
    ("text", "accepted", "drafted", "positions", "truncated"),
    [
        (LATE[: LATE.index("Drafted: 229") + 11], 100, None, (), True),
        (LATE[: LATE.index("0.500") + 3], 100, 229, (), True),  # a list with a hole would shift the positions
        (LATE[: LATE.index(", Avg Draft")], 100, 229, (), True),
        (LATE[: LATE.index(", Avg Draft")] + "\n", 100, 229, (0.8, 0.5, 0.01), False),
        (LATE[: LATE.index("Accepted: 100") + 12] + "...\n", None, None, (), True),
    ],
)
def test_cut_spec_line(
    text: str, accepted: int | None, drafted: int | None, positions: tuple[float, ...], truncated: bool
) -> None:
    [record] = parse_log(PREFIX + text).vllm_spec
    assert record.mean_acceptance_length == 2.31
    assert (record.accepted_tokens, record.drafted_tokens, record.per_position_rate) == (accepted, drafted, positions)
    assert record.truncated is truncated


def test_two_vllm_messages_on_one_line() -> None:
    engine = "INFO 05-18 11:19:54 [loggers.py:1] Engine 000: Avg prompt throughput: 1.5 tokens/s, Running: 3 reqs "
    log = parse_log(engine + PREFIX + LATE + "\n")
    [record], [spec] = log.vllm_engine, log.vllm_spec
    # Nothing says that the engine line had come to its end.
    assert (record.prompt_tok_per_s, record.running_req, record.truncated) == (1.5, None, True)
    assert (spec.accepted_tokens, spec.truncated) == (100, False)


def test_stamp_of_the_container_gives_the_time() -> None:
    [record] = parse_log("2026-05-18T11:19:55Z stderr F " + PREFIX + LATE + "\n").vllm_spec
    assert record.time is not None and record.time.year == 2026
