"""Result files as other benchmark tools write them, key by key from the sources named in workbench/parse/bench.py."""

from __future__ import annotations

import copy
from typing import Any

BASE_SERVER = {
    "model_path": "meta-llama/Llama-3.1-8B-Instruct",
    "speculative_algorithm": None,
    "tp_size": 2,
    "version": "0.5.14",
    "api_key": "a-secret-of-the-server",
}
SPEC_SERVER = {
    **BASE_SERVER,
    "speculative_algorithm": "EAGLE3",
    "speculative_draft_model_path": "lmsys/EAGLE3-LLaMA3.1-8B",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
}
SERVING: dict[str, Any] = {
    "tag": None,
    "backend": "sglang",
    "dataset_name": "random",
    "request_rate": "inf",
    "max_concurrency": 8,
    "sharegpt_output_len": None,
    "random_input_len": 1024,
    "random_output_len": 256,
    "random_range_ratio": 0.5,
    "server_info": SPEC_SERVER,
    "duration": 12.5,
    "completed": 64,
    "total_input_tokens": 6400,
    "total_output_tokens": 16384,
    "output_throughput": 1310.72,
    "mean_ttft_ms": 30.5,
    "accept_length": 2.25,
    "errors": ["", ""],
}
GRID: dict[str, Any] = {
    "batch_size": 8,
    "steps": 3,
    "topk": 1,
    "num_draft_tokens": 4,
    "acc_length": 2.1,
    "step_time": 0.028,
    "speed": 75.0,
    "completion_tokens": 500.0,
}
EAGLE3: dict[str, Any] = {
    "model": "lmsys/EAGLE3-LLaMA3.1-8B",
    "mtbench": [
        {
            "batch_size": 1,
            "steps": 5,
            "topk": 8,
            "num_draft_tokens": 32,
            "metrics": [
                {"latency": 9.0, "output_throughput": 120.0, "accept_length": 2.9, "accuracy": None},
                {"latency": 9.5, "output_throughput": 118.0, "accept_length": 3.0, "accuracy": 0.5},
            ],
            "num_samples": 80,
        },
        {
            "batch_size": 1,
            "steps": 0,
            "topk": 0,
            "num_draft_tokens": 0,
            "metrics": [{"latency": 20.0, "output_throughput": 60.0, "accept_length": 1.0}],
            "num_samples": 80,
        },
    ],
}
REPORT: dict[str, Any] = {
    "model": "Qwen/Qwen3-8B",
    "draft_model": "me/qwen3-eagle3",
    "sampling": {"temperature": 0.0, "top_p": 1.0, "top_k": 1, "max_new_tokens": 512},
    "concurrency": 4,
    "created_at": "2026-10-01T10:00:00+0000",
    "runs": [
        {
            "config": {"label": "baseline", "algorithm": "EAGLE3", "steps": 0, "topk": 0, "draft_tokens": 0},
            "task": {"name": "gsm8k", "num_samples": 100, "subset": None, "max_new_tokens": None},
            "metrics": {
                "num_samples": 100,
                "num_requests": 100,
                "output_tokens": 20_000,
                "latency_seconds": 50.0,
                "throughput_tokens_per_second": 400.0,
                "accept_length": None,
                "spec_verify_count": None,
            },
        },
        {
            "config": {"label": "e", "batch_size": 8, "algorithm": "EAGLE3", "steps": 3, "topk": 1, "draft_tokens": 4},
            "task": {"name": "mmlu", "num_samples": 50, "subset": ["law", "art"], "max_new_tokens": 64},
            "metrics": {
                "num_samples": 50,
                "num_requests": 100,
                "output_tokens": 20_100,
                "latency_seconds": 30.0,
                "throughput_tokens_per_second": 670.0,
                "accept_length": 2.5125,
                "spec_verify_count": 8_000,
            },
        },
    ],
}
SPECFORGE_RUN: dict[str, Any] = {
    "backend": "sglang",
    "dataset": "gsm8k",
    "samples": 64,
    "output_tokens": 12_864,
    "latency_seconds": 40.0,
    "throughput_tokens_per_second": 321.6,
    "average_acceptance_length": 2.6,
    "spec_verify_count": 5_120,
}


def guidellm(*strategies: dict[str, Any]) -> dict[str, Any]:
    benchmark = {
        "config": {"backend": {"target": "http://x", "model": "Qwen/Qwen3-8B"}},
        "metrics": {
            "request_totals": {"successful": 50, "errored": 1, "incomplete": 2, "total": 53},
            "output_tokens_per_second": {"successful": {"mean": 480.5}, "total": {"mean": 490.0}},
            "output_token_count": {"successful": {"total_sum": 3200.0}},
        },
        "start_time": 1_790_000_000.5,
    }
    benchmarks = [copy.deepcopy(benchmark) for _ in strategies]
    for each, strategy in zip(benchmarks, strategies, strict=True):
        each["config"] = {**each["config"], "strategy": strategy}  # type: ignore[dict-item]
    data = [{"kind": "synthetic_text", "prompt_tokens": 128, "output_tokens": 64}]
    return {
        "metadata": {"version": 2, "guidellm_version": "0.8.1"},
        "config": {"spec": {"backend": {"kind": "openai_http", "target": "http://x"}, "data": data}},
        "benchmarks": benchmarks,
    }


AIPERF: dict[str, Any] = {
    "schema_version": "1.4",
    "aiperf_version": "0.13.0",
    "request_count": {"unit": "requests", "avg": 80.0},
    "error_request_count": {"unit": "requests", "avg": 3.0},
    "output_token_throughput": {"unit": "tokens/sec", "avg": 819.2},
    "total_osl": {"unit": "tokens", "avg": 81_920.0},
    "spec_decode_acceptance_length": {"unit": "ratio", "avg": 3.3},
    "spec_decode_token_weighted_acceptance_length": {"unit": "ratio", "avg": 3.18},
    "input_config": {
        "models": {"items": [{"name": "Qwen/Qwen3-8B"}]},
        "datasets": [{"name": "default", "type": "synthetic", "prompts": {"isl": {"mean": 550.0}, "osl": 150}}],
        "phases": [
            {"name": "warmup", "type": "concurrency", "concurrency": 2},
            {"name": "profiling", "type": "concurrency", "concurrency": 16},
        ],
    },
    "was_cancelled": False,
    "start_time": "2026-10-01T10:00:00",
}

VLLM_START = (
    "(EngineCore pid=263) INFO 04-19 15:31:23 [core.py:107] Initializing a V1 LLM engine (v0.20.0) with config: "
    "model='Qwen/Qwen3-8B', speculative_config={}, tokenizer='Qwen/Qwen3-8B', tensor_parallel_size=2, "
    "pipeline_parallel_size=1\n"
)
VLLM_SPECULATIVE = "SpeculativeConfig(method='eagle3', model='me/qwen3-eagle3', num_spec_tokens=3)"
VLLM_ENGINE = (
    "(APIServer pid=1) INFO 04-19 15:32:00 [loggers.py:127] Engine 000: Avg prompt throughput: 12.0 tokens/s, "
    "Avg generation throughput: 900.0 tokens/s, Running: 8 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.2%, "
    "Prefix cache hit rate: 0.0%\n"
)
VLLM_SPEC_LINE = (
    "(APIServer pid=1) INFO 04-19 15:32:00 [metrics.py:86] SpecDecoding metrics: Mean acceptance length: 2.41, "
    "Accepted: 141 tokens, Drafted: 300 tokens, Per-position acceptance rate: 0.700, 0.450, 0.260, "
    "Avg Draft acceptance rate: 47.0%\n"
)


def vllm_log(speculative: str = VLLM_SPECULATIVE) -> str:
    line = VLLM_ENGINE + (VLLM_SPEC_LINE if speculative != "None" else "")
    return VLLM_START.format(speculative) + line * 6
