from __future__ import annotations

import json

import pytest

from workbench.parse.bench import SpeculativePoint, parse_bench

SERVING = {
    "tag": None,
    "backend": "sglang",
    "dataset_name": "random",
    "request_rate": "inf",
    "max_concurrency": 8,
    "duration": 12.5,
    "completed": 64,
    "total_input_tokens": 6400,
    "total_output_tokens": 16384,
    "request_throughput": 5.12,
    "input_throughput": 512.0,
    "output_throughput": 1310.72,
    "mean_ttft_ms": 30.5,
    "median_ttft_ms": 29.0,
    "p99_ttft_ms": 80.0,
    "mean_tpot_ms": 6.1,
    "median_tpot_ms": 6.0,
    "p99_tpot_ms": 9.9,
    "accept_length": 2.25,
    "errors": ["", ""],
}


def test_serving_lines() -> None:
    text = json.dumps(SERVING) + "\n\n" + json.dumps({**SERVING, "accept_length": None, "completed": 1.5}) + "\n"
    found = parse_bench(text)
    first, second = found.serving
    assert (first.duration_s, first.completed, first.output_tok_per_s) == (12.5, 64, 1310.72)
    assert (first.median_tpot_ms, first.accept_length, first.max_concurrency) == (6.0, 2.25, 8)
    assert first.request_rate is None  # "inf" is no rate
    assert first.extra == {"input_throughput": 512.0}
    assert (second.accept_length, second.completed) == (None, None)
    assert found.unread == () and found.speculative == ()


def test_one_line_is_a_file_too() -> None:
    assert len(parse_bench(json.dumps(SERVING).encode()).serving) == 1


def test_speculation_grid() -> None:
    point = {"batch_size": 1, "steps": 3, "topk": 1, "num_draft_tokens": 4, "acc_length": 2.1, "step_time": 0.028,
             "speed": 75.0, "completion_tokens": 500}  # fmt: skip
    base = {**point, "steps": 0, "topk": 0, "num_draft_tokens": 0, "acc_length": 1.0, "speed": 90.0}
    found = parse_bench("\n".join(map(json.dumps, [base, point])))
    assert found.speculative[1] == SpeculativePoint(
        dataset=None,
        batch_size=1,
        num_steps=3,
        eagle_topk=1,
        num_draft_tokens=4,
        accept_length=2.1,
        output_tok_per_s=75.0,
        step_time_s=0.028,
    )
    assert found.speculative[0].num_steps == 0


def test_specforge_file() -> None:
    metrics = [{"latency": 9.0, "output_throughput": 120.0, "accept_length": 2.9, "accuracy": None},
               {"latency": 9.5, "output_throughput": 118.0, "accept_length": 3.0, "accuracy": 0.5}]  # fmt: skip
    result = {"batch_size": 1, "steps": 5, "topk": 8, "num_draft_tokens": 32, "metrics": metrics, "num_samples": 80}
    found = parse_bench(json.dumps({"model": "m", "mtbench": [result], "gsm8k": [result]}, indent=2))
    assert [point.dataset for point in found.speculative] == ["mtbench", "mtbench", "gsm8k", "gsm8k"]
    last = found.speculative[-1]
    assert (last.num_steps, last.eagle_topk, last.num_draft_tokens, last.num_samples) == (5, 8, 32, 80)
    assert (last.accept_length, last.output_tok_per_s, last.accuracy) == (3.0, 118.0, 0.5)


@pytest.mark.parametrize(
    ("text", "unread"),
    [
        ("", 0),
        ("hello\n", 1),
        ('{"a": 1}\n{"b": 2}\n', 2),
        ("[1, 2]", 2),
        (json.dumps(SERVING) + "\n" + json.dumps(SERVING)[:50], 1),
        ("[" * 100_000, 1),
        ('{"mtbench": [{"batch_size": 1, "metrics": 5}]}', 0),
    ],
)
def test_what_is_not_understood_is_named(text: str, unread: int) -> None:
    assert len(parse_bench(text).unread) == unread
