from __future__ import annotations

import json
from typing import Any

import pytest
from bench_files import AIPERF, EAGLE3, GRID, REPORT, SERVING, SPEC_SERVER, SPECFORGE_RUN, guidellm

from workbench.parse.bench import BenchResult, parse_bench


def one(entry: dict[str, Any]) -> BenchResult:
    (found,) = parse_bench(json.dumps(entry)).results
    return found


def test_serving_lines() -> None:
    text = json.dumps(SERVING) + "\n\n" + json.dumps({**SERVING, "accept_length": None, "completed": 1.5}) + "\n"
    found = parse_bench(text)
    first, second = found.results
    assert (first.tool, first.where, first.engine, first.max_concurrency) == (
        *("sglang.bench_serving", "line 1", "sglang"),
        8,
    )
    assert (first.output_tok_per_s, first.accept_length, first.completion_tokens) == ((1310.72,), (2.25,), 16384)
    assert first.prompt_set == "random, 1024 in, 256 out, ratio 0.5"
    assert first.speculative is True and first.server_info == SPEC_SERVER
    assert "own average" in first.notes[0]
    # Without an accept length it may be a plain server, or one that does not tell: the server's account decides.
    assert (second.speculative, second.accept_length, second.num_requests) == (None, (), None)
    assert found.unread == ()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"backend": "vllm-chat"}, {"engine": "vllm"}),
        ({"backend": "trt"}, {"engine": None}),
        ({"dataset_name": "sharegpt"}, {"prompt_set": "sharegpt"}),
        ({"max_concurrency": None}, {"max_concurrency": None}),
        ({"completed": 0}, {"unfinished": "no request was completed"}),
        ({"server_info": {"decode": [SPEC_SERVER], "prefill": [{}]}}, {"server_info": SPEC_SERVER}),
        ({"server_info": {"other": 1}}, {"server_info": None}),
        ({"output_throughput": "fast"}, {"output_tok_per_s": ()}),
    ],
)
def test_what_a_serving_line_tells(changes: dict[str, Any], expected: dict[str, Any]) -> None:
    found = one({**SERVING, **changes})
    assert {name: getattr(found, name) for name in expected} == expected


def test_speculation_grid() -> None:
    base = {**GRID, "steps": 0, "topk": 0, "num_draft_tokens": 0, "acc_length": 1.0, "speed": 90.0}
    plain, point = parse_bench("\n".join(map(json.dumps, [base, GRID]))).results
    assert (plain.speculative, plain.num_steps, plain.accept_length) == (False, None, ())
    assert (point.num_steps, point.eagle_topk, point.num_draft_tokens, point.accept_length) == (3, 1, 4, (2.1,))
    # 75 tok/s is one request's share of a batch of 8.
    assert (point.decode_tok_per_s, point.output_tok_per_s, point.max_concurrency) == ((600.0,), (), 8)


def test_specforge_grid_keeps_repetitions_apart() -> None:
    spec, plain = parse_bench(json.dumps(EAGLE3, indent=2)).results
    assert (spec.where, spec.prompt_set, spec.num_prompts) == ("mtbench 1", "mtbench", 80)
    assert (spec.output_tok_per_s, spec.accept_length) == ((120.0, 118.0), (2.9, 3.0))
    # "model" of these files is the draft; which target was served they do not tell.
    assert (spec.draft, spec.model) == ("lmsys/EAGLE3-LLaMA3.1-8B", None)
    assert (plain.speculative, plain.accept_length, plain.draft) == (False, (), None)


def test_specforge_server_of_unknown_settings() -> None:
    result = {**EAGLE3["mtbench"][0], "steps": None, "topk": None, "num_draft_tokens": None}
    told = one({"model": None, "mtbench": [result]})
    assert (told.speculative, told.num_steps, told.accept_length) == (True, None, (2.9, 3.0))
    result = {**result, "metrics": [{"output_throughput": 60.0, "accept_length": 1.0}]}
    untold = one({"model": None, "mtbench": [result]})
    assert (untold.speculative, untold.accept_length) == (None, ())


def test_specforge_report() -> None:
    plain, spec = parse_bench(json.dumps(REPORT)).results
    assert (plain.where, plain.speculative, plain.max_concurrency, plain.max_new_tokens) == ("run 1", False, 4, 512)
    assert (spec.model, spec.draft, spec.algorithm) == ("Qwen/Qwen3-8B", "me/qwen3-eagle3", "EAGLE3")
    assert (spec.max_concurrency, spec.max_new_tokens, spec.temperature) == (8, 64, 0.0)
    assert spec.prompt_set == "mmlu (law, art)"
    # (20,100 tokens - 100 of prefills) / 8,000 verify steps; the file's own 2.5125 counts the prefills' too.
    assert (spec.accept_length, spec.notes) == ((2.5,), ())
    assert plain.recorded_at == "2026-10-01T10:00:00+0000"


def test_specforge_single_run() -> None:
    found = one(SPECFORGE_RUN)
    # (12,864 - 64) / 5,120; neither settings nor load are told.
    assert (found.accept_length, found.speculative, found.max_concurrency) == ((2.5,), True, None)
    assert one({**SPECFORGE_RUN, "spec_verify_count": None}).speculative is None


def test_guidellm_report() -> None:
    text = json.dumps(guidellm({"type_": "synchronous"}, {"type_": "concurrent", "streams": 8}, {"type_": "poisson"}))
    alone, eight, rate = parse_bench(text).results
    assert [each.max_concurrency for each in (alone, eight, rate)] == [1, 8, None]
    assert (eight.where, eight.output_tok_per_s, eight.completion_tokens) == ("benchmark 2", (480.5,), 3200)
    assert (eight.num_requests, eight.num_failed, eight.model) == (50, 1, "Qwen/Qwen3-8B")
    assert (eight.tool_version, eight.prompt_set) == ("0.8.1", "synthetic_text, prompt_tokens 128, output_tokens 64")
    assert (eight.speculative, eight.accept_length) == (None, ())
    assert eight.recorded_at == "2026-09-21T14:13:20+00:00"
    assert eight.notes == ("2 requests were cut off at the end of the measurement",)


def test_guidellm_before_0_8_names_its_data_elsewhere() -> None:
    report = guidellm({"type_": "synchronous"})
    del report["config"]
    assert one({**report, "args": {"data": ["prompt_tokens=100,output_tokens=10"]}}).prompt_set == (
        "prompt_tokens=100,output_tokens=10"
    )


def test_aiperf_export() -> None:
    found = one(AIPERF)
    assert (found.output_tok_per_s, found.completion_tokens, found.max_concurrency) == ((819.2,), 81_920, 16)
    # Weighted by steps, not the mean of requests (3.3).
    assert (found.accept_length, found.speculative) == ((3.18,), True)
    assert (found.num_requests, found.num_failed, found.model) == (80, 3, "Qwen/Qwen3-8B")
    assert (found.prompt_set, found.tool_version) == ("synthetic, 550 in, 150 out", "0.13.0")
    assert found.unfinished is None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"was_cancelled": True}, {"unfinished": "it was cancelled"}),
        ({"is_complete": False, "incomplete_reason": "stalled"}, {"unfinished": "stalled"}),
        ({"input_config": {"loadgen": {"concurrency": 64, "request_rate": None}}}, {"max_concurrency": 64}),
        ({"input_config": {"loadgen": {"concurrency": 64, "request_rate": 5}}}, {"max_concurrency": None}),
        ({"input_config": {"phases": [{"name": "profiling", "type": "poisson", "concurrency": 9}]}},
         {"max_concurrency": None}),
        ({"input_config": {"datasets": [{"type": "public", "dataset": "speed_bench"}]}},
         {"prompt_set": "speed_bench"}),
        ({"spec_decode_token_weighted_acceptance_length": None}, {"speculative": None, "accept_length": ()}),
    ],
)  # fmt: skip
def test_what_an_aiperf_export_tells(changes: dict[str, Any], expected: dict[str, Any]) -> None:
    found = one({**AIPERF, **changes})
    assert {name: getattr(found, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("text", "unread"),
    [
        ("", 0),
        ("hello\n", 1),
        ('{"a": 1}\n{"b": 2}\n', 2),
        ("[1, 2]", 2),
        (json.dumps(SERVING) + "\n" + json.dumps(SERVING)[:50], 1),
        ("[" * 100_000, 1),
        ('{"benchmarks": [{"metrics": 5}]}', 1),
        ('{"sampling": {}, "runs": [5, {"metrics": 1}]}', 1),
    ],
)
def test_what_is_not_understood_is_named(text: str, unread: int) -> None:
    assert len(parse_bench(text).unread) == unread


def test_a_list_of_results_is_read_item_by_item() -> None:
    found = parse_bench(json.dumps([SERVING, 5, GRID]))
    assert [each.where for each in found.results] == ["item 1", "item 3"]
    assert found.unread == ("item 2: no JSON object",)
